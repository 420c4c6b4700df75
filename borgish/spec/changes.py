"""What a changed specification means for a task that runs: nothing, another record, a restart, a move.

Section 2.3 of the Borg paper: some changes always restart a task, as a new program does; some do where it no
longer fits, as larger limits do; others never do, as of the priority. The class of each field stands in one
table.
"""

from enum import IntEnum

from borgish.spec.job import JobSpec


class TaskChange(IntEnum):
    """What becomes of a running task; of several the highest."""

    NONE = 0
    IN_PLACE = 1  # it runs on, and is another record
    RESTART = 2  # it is stopped, and starts again on its machine where it fits there
    MOVE = 3  # it is stopped, and goes where the scheduler finds a place


class Fixed(IntEnum):
    """What cannot be changed: it is another job then."""

    FIXED = -1


NONE, IN_PLACE, RESTART, MOVE = TaskChange.NONE, TaskChange.IN_PLACE, TaskChange.RESTART, TaskChange.MOVE

FIELDS: dict[str, TaskChange | Fixed] = {
    "name": Fixed.FIXED,
    "user": Fixed.FIXED,
    "kind": Fixed.FIXED,
    "tasks": NONE,  # of the tasks that stay; the others come and go
    "run": RESTART,
    "image": RESTART,
    "runtime": RESTART,
    "priority": IN_PLACE,
    "appclass": IN_PLACE,
    "resources": RESTART,
    "ports": RESTART,
    "fixed_ports": RESTART,
    "env": RESTART,
    "workdir": RESTART,
    "root": RESTART,
    "network": RESTART,
    "secret_env": RESTART,
    "secret_files": RESTART,
    "restart": IN_PLACE,
    "stop": IN_PLACE,
    # A probe that is wrong has everything restarted that it is asked about, so it comes a few at a time.
    "health": RESTART,
    "labels": IN_PLACE,
    "annotations": IN_PLACE,
    "constraints": IN_PLACE,  # where they still hold; else it has to move
    "overrides": NONE,  # compared task by task
    "max_runtime_seconds": RESTART,
    "inside": Fixed.FIXED,
    "group": RESTART,
    "gang": IN_PLACE,
    # Where tasks would rather be, or might not be placed now, is a matter of their next placement.
    "prefer": IN_PLACE,
    "spread": IN_PLACE,
    "near": IN_PLACE,
    "apart": IN_PLACE,
    "tolerations": IN_PLACE,
    "recheck": IN_PLACE,
    "preempt_within_seconds": IN_PLACE,
    "disruption": IN_PLACE,
    "update": IN_PLACE,
    "on_exit": IN_PLACE,
    "max_failures": IN_PLACE,
    # Whom it waits for is a matter of its next start.
    "after": IN_PLACE,
    "parent": IN_PLACE,
    "container": RESTART,
    "allow_exec": IN_PLACE,  # the master asks it of whoever wants to
    "exclusive": RESTART,  # the lease is its program's from its start on
}
"""By the field of ``JobSpec``."""


def changed_fields(old: JobSpec, new: JobSpec) -> tuple[str, ...]:
    """Return the names of the fields in which two specifications differ."""
    return tuple(name for name in JobSpec.__struct_fields__ if getattr(old, name) != getattr(new, name))


class SpecChange:
    """What is other in one specification than in another, for each of a job's tasks."""

    def __init__(self, old: JobSpec, new: JobSpec) -> None:
        self._old, self._new = old, new
        found = [FIELDS[name] for name in changed_fields(old, new)] if old is not new else []
        self._of_all = TaskChange(max([*found, NONE]))

    def of(self, index: int) -> TaskChange:
        """Return what it means for one task, wherever that runs."""
        if self._old.overrides is not self._new.overrides and self._old.overrides.get(
            index
        ) != self._new.overrides.get(index):
            return max(self._of_all, RESTART)
        return self._of_all


def task_change(old: JobSpec, new: JobSpec, index: int) -> TaskChange:
    """Return the same for a single task."""
    return SpecChange(old, new).of(index)


def same_program(old: JobSpec, new: JobSpec, index: int) -> bool:
    """Return whether a task of one specification runs just what it runs by the other.

    How many tasks there are, their priority, where they may run, and what is noted about the job is no matter
    of the program; what would restart it is.
    """
    return task_change(old, new, index) < RESTART
