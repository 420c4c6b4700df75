"""Cell compaction of a cell as it is: what runs now, from scratch, on as few of its machines as will do."""

from borgish.cell.model import Cell, Job, Machine, Task
from borgish.errors import Conflict
from borgish.sim.pack.compact import TRIALS, Compacted, Work, packed_tightly, with_soft_constraints
from borgish.vocabulary import State


def compact_cell(cell: Cell, policy: str, seed: int = 0, trials: int = TRIALS) -> Compacted:
    """Return how many machines are needed. Raises Conflict where nothing runs, or no machine is up.

    What runs in allocs goes where they go. Machines that take no new tasks are left out.
    """
    machines = [machine for machine in cell.machines.values() if not _why_out(machine)]
    jobs = dict(_running(cell, len(machines)))
    if not jobs or not machines:
        raise Conflict("nothing runs here that could be packed", "Go to a moment when something ran")
    return packed_tightly(Work(machines, jobs), policy, seed, trials)


def left_out(cell: Cell) -> list[str]:
    """Return which machines are left out, and why: ``m6 (cordoned)``."""
    return [f"{name} ({why})" for name, each in sorted(cell.machines.items()) if (why := _why_out(each))]


def _why_out(machine: Machine) -> str:
    if not machine.up:
        return "down"
    if machine.cordoned:
        return "cordoned"
    if machine.is_draining:
        return "drained"
    return "quarantined" if machine.quarantined_until else ""


def _running(cell: Cell, machines: int) -> list[tuple[str, Job]]:
    return [
        (key, _to_pack(job, machines))
        for key, job in sorted(cell.jobs.items())
        if job.running and not job.spec.inside
    ]


def _to_pack(job: Job, machines: int) -> Job:
    """Return a job of which the tasks wait that run, and no others."""
    states = {True: State.PENDING, False: State.DEAD}
    tasks = [Task(task.index, states[task.state is State.RUNNING]) for task in job.tasks]
    spec, dead = with_soft_constraints(job.spec, machines), len(tasks) - job.running
    return Job(job.key, job.uid, spec, job.submitted_at, job.submitted_by, 1, tasks, job.running, 0, dead)
