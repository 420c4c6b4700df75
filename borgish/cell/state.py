"""A cell in memory: the stored records, the indexes that follow from them, and what was touched.

Only ``apply`` writes; everybody else reads. ``Touched`` is how a change travels on: the store
writes those records, the scheduler reads those machines, the link makes those assignments anew.
"""

import msgspec

from borgish.cell.demand import Demand
from borgish.cell.model import Answer, Job, Machine, Quota, Rules, Snapshot, Task
from borgish.vocabulary import State, split_task_name

REQUESTS_KEPT = 10_000
LOSSES_KEPT_SECONDS = 60.0
"""Longer than any time in which the machines given up are counted."""


class Touched(msgspec.Struct):
    """The names of what ``apply`` wrote to since last taken."""

    jobs: set[str] = set()
    tasks: dict[str, set[int]] = {}  # by job
    machines: set[str] = set()  # their own record
    quotas: set[str] = set()
    placements: set[str] = set()  # machines where a task came or went
    machines_gone: set[str] = set()
    jobs_gone: set[str] = set()
    tasks_gone: dict[str, int] = {}  # by job: indexes from this one on are no more

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)


class Cell:
    """All of one cell. The indexes are derived: ``reindex`` makes them from the records."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.name = snapshot.name
        self.position = snapshot.position
        self.timeline = snapshot.timeline
        self.epoch = snapshot.epoch
        self.jobs: dict[str, Job] = snapshot.jobs
        self.machines: dict[str, Machine] = snapshot.machines
        self.quotas: dict[str, Quota] = snapshot.quotas
        self.requests: dict[str, Answer] = snapshot.requests
        self.rules: Rules = snapshot.rules
        self.lost = snapshot.lost
        self.losses = snapshot.losses
        self.placed: dict[str, set[tuple[str, int]]] = {}  # by machine: (job, index) of running tasks
        self.waiting: dict[str, set[int]] = {}  # by job: indexes of pending tasks
        self.promised: dict[str, set[tuple[str, int]]] = {}  # by machine: (job, index) of promised places
        self.lagging: set[str] = set()  # jobs with tasks that a rollback has not reached yet
        self.demand: Demand  # what users ask for
        self.touched = Touched()
        self.reindex()

    def snapshot(self) -> Snapshot:
        """Return the stored records; they are shared, not copied: encode before the next step."""
        return Snapshot(
            self.name,
            self.position,
            self.timeline,
            self.epoch,
            self.jobs,
            self.machines,
            self.quotas,
            self.requests,
            self.rules,
            self.lost,
            self.losses,
        )

    def reindex(self) -> None:
        """Make the indexes from the records."""
        self.placed = {name: set() for name in self.machines}
        self.waiting = {}
        self.promised = {}
        self.demand = Demand(self.jobs, self.rules.bands)
        self.lagging = {key for key, job in self.jobs.items() if job.lagging is not None}
        for job in self.jobs.values():
            for task in job.tasks:
                if task.state is State.RUNNING:
                    self.placed.setdefault(task.machine, set()).add((job.key, task.index))
                elif task.state is State.PENDING:
                    self.waiting.setdefault(job.key, set()).add(task.index)
                    if task.promised:
                        self.promised.setdefault(task.promised, set()).add((job.key, task.index))

    def task(self, name: str) -> Task | None:
        """Return a task by its name, or None."""
        key, index = split_task_name(name)
        job = self.jobs.get(key)
        return job.tasks[index] if job and 0 <= index < len(job.tasks) else None

    def is_current(self, machine: str, task: str, attempt: int) -> bool:
        """Return whether this attempt is the one that should be running, and there."""
        found = self.task(task)
        return (
            found is not None
            and found.state is State.RUNNING
            and found.attempt == attempt
            and found.machine == machine
        )

    def may_end_late(self, machine: str, task: str, attempt: int) -> bool:
        """Return whether an attempt was lost with its machine, and its result counts should it come."""
        found = self.task(task)
        return found is not None and any(
            lost.attempt == attempt and lost.machine == machine for lost in found.lost
        )

    def is_unknown(self, attempt: int) -> bool:
        """Return whether an attempt was placed by a history that this cell has not, or has lost."""
        return attempt > self.position or any(first <= attempt <= last for first, last in self.lost)

    def take_touched(self) -> Touched:
        """Return what was touched since the last call, and start anew."""
        touched, self.touched = self.touched, Touched()
        return touched
