"""How small can a cell be and still hold its work? Cell compaction, the method of the Borg paper (5.1).

Machines are taken away at random, and all tasks are packed from scratch on the rest, until they no
longer fit. They fit when at most 0.2 % are left over, and these only because they are picky: they can
go on a handful of machines. Repeated with other seeds; the result is the 90th percentile.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import msgspec

from borgish.cell.model import Job, Machine, Snapshot
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.scheduler.schedule import Scheduler
from borgish.scheduler.settings import SchedulerSettings
from borgish.sim.packing import DEVICE, START, Arrival, specs_of, waiting_jobs
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec, Preference
from borgish.vocabulary import State

TRIALS = 11
PENDING_SHARE_MAX = 0.002
HANDFUL = 5
CLONES_MAX = 8
PERCENTILE = 0.9


class Compacted(msgspec.Struct, frozen=True):
    """Machines needed, by trial. ``bounds`` are those that total amounts ask for, whatever the packing."""

    machines: int  # in the cell, clones included
    clones: int  # how often the cell was taken, to hold its work
    tasks: int
    needed: tuple[int, ...]
    bounds: tuple[int, ...]

    @property
    def result(self) -> int:
        """The 90th percentile: an operator wants to be reasonably sure that all fits."""
        return percentile(self.needed)


def percentile(values: Sequence[int], part: float = PERCENTILE) -> int:
    """Return the nearest-rank percentile: of 11 values, the 10th smallest."""
    rank = -(-len(values) * int(part * 100) // 100)
    return sorted(values)[rank - 1]


class Work:
    """Tasks to pack, on machines drawn from a cell."""

    def __init__(self, machines: Sequence[Machine], jobs: dict[str, Job]) -> None:
        """Begin with the cell as it is; of the jobs, pending tasks are packed. See ``softened``."""
        self.original = list(machines)
        self._jobs = jobs
        self.tasks = sum(job.pending for job in jobs.values())
        self.total = reduce(Resources.plus, _needs(jobs.values()), Resources())
        self.machines = list(machines)
        self.clones = 1
        self._picky: dict[tuple[str, int], bool] = {}

    @classmethod
    def of(cls, machines: Sequence[Machine], arrivals: Sequence[Arrival]) -> "Work":
        """Return the work of packing all that arrives."""
        specs = specs_of(arrivals).values()
        return cls(machines, waiting_jobs(softened(spec, len(machines)) for spec in specs))

    def clone(self) -> None:
        """Add the original cell once more. Raises Conflict when it is hopeless."""
        if self.clones >= CLONES_MAX:
            message = f"the tasks do not fit on {len(self.machines)} machines, {CLONES_MAX} times the cell"
            raise Conflict(message, "look with --experiment arrive at what stays pending, and why")
        self.clones += 1
        self.machines += [
            msgspec.structs.replace(machine, name=f"{machine.name}~{self.clones}")
            for machine in self.original
        ]

    def order(self, seed: int) -> list[Machine]:
        """Return the machines in the order in which they are the last to be taken away."""
        return random.Random(seed).sample(self.machines, len(self.machines))  # noqa: S311 - not for secrets

    def bound(self, order: Sequence[Machine]) -> int:
        """Return how many of the first machines have as much of everything as the tasks ask for."""
        has = Resources()
        for count, machine in enumerate(order):
            if covers(has, self.total):
                return count
            has = has.plus(machine.capacity)
        return len(order) if covers(has, self.total) else len(order) + 1

    def fits(self, machines: Sequence[Machine], policy: str, seed: int) -> bool:
        """Return whether all but a few picky tasks find a place."""
        # a plan changes nothing in the cell, so that the jobs can be those of the last packing
        cell = Cell(Snapshot("pack", jobs=self._jobs, machines={each.name: each for each in machines}))
        left = self._left(cell, policy, seed)
        return len(left) <= PENDING_SHARE_MAX * self.tasks and all(map(self._is_picky, left))

    def _left(self, cell: Cell, policy: str, seed: int) -> list[tuple[str, int]]:
        scheduler = Scheduler(seed, SchedulerSettings(policy=policy))
        plan = scheduler.schedule(cell, Observed(), START, budget=self.tasks)
        return [
            (key, index)
            for key, refusals in plan.refusals.items()
            for each in refusals
            for index in each.indexes
        ]

    def _is_picky(self, task: tuple[str, int]) -> bool:
        if task not in self._picky:
            spec, index = self._jobs[task[0]].spec, task[1]
            able = sum(may_run(each, spec.needs(index), spec.constraints) for each in self.original)
            self._picky[task] = able <= HANDFUL
        return self._picky[task]


def compact(
    machines: Sequence[Machine], arrivals: Sequence[Arrival], policy: str, seed: int, trials: int = TRIALS
) -> Compacted:
    """Return how many machines are needed, in trials with a seed of its own each. Raises Conflict."""
    return packed_tightly(Work.of(machines, arrivals), policy, seed, trials)


def packed_tightly(work: Work, policy: str, seed: int, trials: int) -> Compacted:
    """Return how many machines some work needs. Raises Conflict."""
    while not work.fits(work.machines, policy, seed):
        work.clone()
    seeds = range(seed, seed + trials)
    return Compacted(
        len(work.machines),
        work.clones,
        work.tasks,
        tuple(needed(work, policy, each) for each in seeds),
        tuple(work.bound(work.order(each)) for each in seeds),
    )


def _needs(jobs: Iterable[Job]) -> Iterator[Resources]:
    for job in jobs:
        for task in job.tasks:
            if task.state is State.PENDING:
                yield job.spec.needs(task.index)


def needed(work: Work, policy: str, seed: int) -> int:
    """Return the fewest machines, of a random order, that hold the work: a binary search."""
    order = work.order(seed)
    low, high = work.bound(order), len(order)
    while low < high:
        middle = (low + high) // 2
        if work.fits(order[:middle], policy, seed):
            high = middle
        else:
            low = middle + 1
    return low


def softened(spec: JobSpec, machines: int) -> JobSpec:
    """Return a job with preferences for constraints, when it is larger than half of the cell."""
    if spec.tasks <= machines / 2 or not spec.constraints:
        return spec
    prefer = tuple(Preference(constraint) for constraint in spec.constraints)
    return msgspec.structs.replace(spec, constraints=(), prefer=prefer)


def may_run(machine: Machine, needs: Resources, constraints: tuple[Constraint, ...]) -> bool:
    """Return whether an empty machine takes such a task."""
    return covers(machine.capacity, needs) and all(matches(each, machine.attributes) for each in constraints)


def covers(has: Resources, needs: Resources) -> bool:
    """Return whether there is as much of everything."""
    return (
        has.cpu_millis >= needs.cpu_millis
        and has.ram_bytes >= needs.ram_bytes
        and has.devices.get(DEVICE, 0) >= needs.devices.get(DEVICE, 0)
    )
