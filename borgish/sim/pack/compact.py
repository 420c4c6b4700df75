"""How small can a cell be and still hold its work? Cell compaction, the method of the Borg paper (5.1).

Machines are taken away at random, and all tasks are packed from scratch on the rest, until they no
longer fit. They fit when at most 0.2 % are left over, and these only because they are picky: they can
go on a handful of machines. Repeated with other seeds; the result is the 90th percentile.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import msgspec

from borgish.cell.model import Cell, Job, Machine, Snapshot
from borgish.cell.observed import Observed
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from borgish.sim.pack.packing import DEVICE, START, Arrival, Note, nothing, specs_of, waiting_jobs
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec, Preference
from borgish.vocabulary import State, task_name

TRIALS = 11
PENDING_SHARE_MAX = 0.002
"""Of all tasks, may be left over where they are picky."""
PICKY_MACHINES_MAX = 5
"""A task that empty machines of the cell take is picky where they are so few: the paper's handful."""
DECIDERS_MAX = 3
CLONES_MAX = 8
PERCENTILE = 0.9


class Decider(msgspec.Struct, frozen=True):
    """Tasks that are alike and found no place on one machine less than were needed."""

    task: str  # the first of them
    tasks: int
    needs: Resources
    constraints: tuple[Constraint, ...]
    machines: int  # of the cell that was given, that take one when empty


class Trial(msgspec.Struct, frozen=True):
    """How many machines one random order needs, and who found no place on one less; nobody: sums decided."""

    needed: int
    left: tuple[tuple[str, int], ...]


class Compacted(msgspec.Struct, frozen=True):
    """Machines needed, by trial. ``bounds`` are those that total amounts ask for, whatever the packing."""

    machines: int  # in the cell, clones included
    clones: int  # how often the cell was taken, to hold its work
    tasks: int
    needed: tuple[int, ...]
    bounds: tuple[int, ...]
    decided_by: tuple[Decider, ...] = ()  # in the trial that gave the result, the pickiest first
    decided_by_more: int = 0  # how many more kinds of task
    trial: int = 0  # the number of the trial that gave the result

    @property
    def result(self) -> int:
        """The 90th percentile: an operator wants to be reasonably sure that all fits."""
        return percentile(self.needed)


def percentile(values: Sequence[int], part: float = PERCENTILE) -> int:
    """Return the nearest-rank percentile: of 11 values, the 10th smallest."""
    rank = -(-len(values) * int(part * 100) // 100)
    return sorted(values)[rank - 1]


Shape = tuple[int, int, tuple[tuple[str, int], ...], tuple[Constraint, ...]]
"""Cpu, ram and devices of a task, and its constraints."""


class Work:
    """Tasks to pack, on machines drawn from a cell."""

    def __init__(
        self,
        machines: Sequence[Machine],
        jobs: dict[str, Job],
        pending_share: float = PENDING_SHARE_MAX,
        picky_machines: int = PICKY_MACHINES_MAX,
    ) -> None:
        """Begin with the cell as it is; of the jobs, pending tasks are packed. See
        ``with_soft_constraints``."""
        self._pending_share, self._picky_machines = pending_share, picky_machines
        self.original = list(machines)
        self._jobs = jobs
        self.tasks = sum(job.pending for job in jobs.values())
        self.total = reduce(Resources.plus, _needs(jobs.values()), Resources())
        self.machines = list(machines)
        self.clones = 1
        self._able: dict[Shape, int] = {}

    @classmethod
    def of(
        cls,
        machines: Sequence[Machine],
        arrivals: Sequence[Arrival],
        pending_share: float = PENDING_SHARE_MAX,
        picky_machines: int = PICKY_MACHINES_MAX,
    ) -> "Work":
        """Return the work of packing all that arrives."""
        jobs = waiting_jobs(
            with_soft_constraints(spec, len(machines)) for spec in specs_of(arrivals).values()
        )
        return cls(machines, jobs, pending_share, picky_machines)

    def clone(self) -> None:
        """Add the original cell once more. Raises Conflict when the tasks would never fit."""
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
        return self.may_wait(self.left(machines, policy, seed))

    def may_wait(self, left: Sequence[tuple[str, int]]) -> bool:
        """Return whether tasks that found no place are few and picky enough."""
        few = len(left) <= self._pending_share * self.tasks
        return few and all(self._able_of(*task) <= self._picky_machines for task in left)

    def left(self, machines: Sequence[Machine], policy: str, seed: int) -> list[tuple[str, int]]:
        """Return the tasks that find no place on these machines."""
        return [
            (key, index)
            for key, refusals in self.plan(machines, policy, seed).refusals.items()
            for each in refusals
            for index in each.indexes
        ]

    def plan(self, machines: Sequence[Machine], policy: str, seed: int) -> Plan:
        """Return where all tasks go on these machines, from scratch."""
        # a plan changes nothing in the cell, so that the jobs can be those of the last packing
        cell = Cell(Snapshot("pack", jobs=self._jobs, machines={each.name: each for each in machines}))
        scheduler = Scheduler(seed, SchedulerSettings(policy=policy))
        return scheduler.schedule(cell, Observed(), START, budget=self.tasks)

    def _shape_of(self, job: str, index: int) -> Shape:
        spec = self._jobs[job].spec
        needs = spec.needs(index)
        return needs.cpu_millis, needs.ram_bytes, tuple(sorted(needs.devices.items())), spec.constraints

    def _able_of(self, job: str, index: int) -> int:
        """Return how many machines of the cell take a task when they are empty."""
        spec, shape = self._jobs[job].spec, self._shape_of(job, index)
        able = self._able.get(shape)
        if able is None:
            takes = (may_run(each, spec.needs(index), spec.constraints) for each in self.original)
            able = self._able[shape] = sum(takes)
        return able

    def deciders(self, left: Sequence[tuple[str, int]]) -> list[Decider]:
        """Return tasks that found no place and may not wait, those alike as one, the pickiest first."""
        alike: dict[Shape, list[tuple[str, int]]] = {}
        for task in left:
            alike.setdefault(self._shape_of(*task), []).append(task)
        few = len(left) <= self._pending_share * self.tasks
        found = []
        for tasks in alike.values():
            (job, index), able = tasks[0], self._able_of(*tasks[0])
            spec = self._jobs[job].spec
            if not few or able > self._picky_machines:
                name = task_name(job, index)
                found.append(Decider(name, len(tasks), spec.needs(index), spec.constraints, able))
        return sorted(found, key=lambda each: (each.machines, -each.tasks, each.task))


def compact(
    machines: Sequence[Machine], arrivals: Sequence[Arrival], policy: str, seed: int, trials: int = TRIALS
) -> Compacted:
    """Return how many machines are needed, in trials with a seed of its own each. Raises Conflict."""
    return packed_tightly(Work.of(machines, arrivals), policy, seed, trials)


def packed_tightly(work: Work, policy: str, seed: int, trials: int, note: Note = nothing) -> Compacted:
    """Return how many machines some work needs. Raises Conflict."""
    note("do all tasks fit?")
    while not work.fits(work.machines, policy, seed):
        work.clone()
    seeds = range(seed, seed + trials)
    done: list[Trial] = []
    for each in seeds:
        done.append(
            trial(work, policy, each, lambda words: note(f"trial {len(done) + 1} of {trials}: {words}"))
        )
    needs = tuple(each.needed for each in done)
    deciding_trial = needs.index(percentile(needs))
    deciding = work.deciders(done[deciding_trial].left)
    return Compacted(
        len(work.machines),
        work.clones,
        work.tasks,
        needs,
        tuple(work.bound(work.order(each)) for each in seeds),
        tuple(deciding[:DECIDERS_MAX]),
        len(deciding[DECIDERS_MAX:]),
        deciding_trial,
    )


def result_plan(work: Work, compacted: Compacted, policy: str, seed: int) -> Plan:
    """Return where all tasks go on the machines of the trial that gave the result."""
    of_trial = seed + compacted.trial
    return work.plan(work.order(of_trial)[: compacted.result], policy, of_trial)


def _needs(jobs: Iterable[Job]) -> Iterator[Resources]:
    for job in jobs:
        for task in job.tasks:
            if task.state is State.PENDING:
                yield job.spec.needs(task.index)


def needed(work: Work, policy: str, seed: int) -> int:
    """Return the fewest machines, of a random order, that hold the work."""
    return trial(work, policy, seed).needed


def trial(work: Work, policy: str, seed: int, note: Note = nothing) -> Trial:
    """Return how many machines of a random order hold the work, by a binary search, and what decides it."""
    order = work.order(seed)
    low, high = work.bound(order), len(order)
    decided: list[tuple[str, int]] = []
    while low < high:
        note(f"{low:,} to {high:,} machines")
        middle = (low + high) // 2
        left = work.left(order[:middle], policy, seed)
        if work.may_wait(left):
            high = middle
        else:
            low, decided = middle + 1, left
    return Trial(low, tuple(decided))


def with_soft_constraints(spec: JobSpec, machines: int) -> JobSpec:
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
