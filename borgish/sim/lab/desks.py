"""A cell that schedulers share: desks at which they sit, the commit of what they decide, and offers.

Where tasks go is decided by borgish's own scheduler, one instance for each desk. What is the lab's, and why,
is in ``schedulers``.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache, partial
from random import Random

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import ForgetJob, KillTasks, PlaceTasks, SubmitJob
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.clock import Now
from borgish.errors import Refused
from borgish.master.core import place_command
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler
from borgish.sim.lab.azure import AZURE, Drawn, arrivals
from borgish.sim.lab.many import IdleCore
from borgish.sim.loop import VirtualLoop
from borgish.sim.pack.packing import machine_of
from borgish.spec.job import JobSpec, Restart
from borgish.store.codec import encode_snapshot
from borgish.vocabulary import RestartPolicy

GIB = 1024**3
MACHINE = Resources(16_000, 64 * GIB)
SHARE = 1 / 4
"""Of what arrives in the trace."""
HOURS_BEFORE = 84.0
"""What still runs of what came in that time is there at the start: the length of the trace."""
USED_AT_START = 0.6  # of the cores
RETRY_SECONDS = 10.0
"""After which a job is tried again for which there was no room, and resources are offered again to who could
not use them."""
KINDS = "batch", "service"
ATTEMPTS_MAX = 1000
"""After which a job is given up, as in Omega."""


class Job:
    """A job on its way to its machines."""

    def __init__(self, key: str, work: Drawn, at: float) -> None:
        self.key, self.work, self.at = key, work, at
        self.first_at: float | None = None  # when somebody began to decide about it
        self.attempts = 0
        self.left = set(range(work.tasks))


class Tally(msgspec.Struct):
    """What came of the jobs of one kind."""

    waits: list[float] = []  # of each job until somebody began to decide about it, or until the end
    attempts: int = 0
    conflicts: int = 0  # attempts of which something could not be committed
    scheduled: int = 0  # jobs, all tasks of which were placed
    left: int = 0  # that were not, at the end
    abandoned: int = 0

    @property
    def conflict_fraction(self) -> float:
        """Conflicts for each job that was scheduled; it may be above 1."""
        return self.conflicts / max(1, self.scheduled)

    @property
    def wait(self) -> float:
        """The mean wait, in seconds."""
        return sum(self.waits) / max(1, len(self.waits))


class QuietCore(IdleCore):
    """A core in a cell in which no machine is ever silent."""

    def _restart_silence_after_stall(self, now: Now) -> None:
        pass


class Shared:
    """The cell, and the time. ``freed`` are called when tasks have ended."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.clock = VirtualLoop()
        self.core = QuietCore(Cell(snapshot), ReconcileSettings(), self.now)
        self.followers: list[set[str]] = []  # of each scheduler: the machines that it has to read again
        self.freed: list[Callable[[], None]] = []
        self.changed_at: dict[str, int] = {}  # by machine: how many changes there were before the last
        self.changes = 0
        self.used = {name: [0, 0] for name in self.cell.machines}  # of each: cores in thousandths, bytes
        self._of_kind = {kind: [0, 0] for kind in KINDS}  # the same, of batch jobs and services
        for job in self.cell.jobs.values():
            for task in job.tasks:
                if task.machine:
                    self._use(task.machine, job.spec, 1)

    @property
    def cell(self) -> Cell:
        return self.core.cell

    @property
    def now(self) -> Now:
        at = self.clock.now().mono
        return Now(at, at)

    def do(self, command: Command) -> None:
        """Have a command decided and carried out. Raises what it is refused with."""
        step = self.core.step([CommandRequest(1, command, "lab")], self.now)
        reply = step.replies[0][1]
        if isinstance(reply, Refused):
            raise reply
        changed = step.touched.machines | step.touched.placements
        self.changes += 1
        for name in changed:
            self.changed_at[name] = self.changes
        for stale in self.followers:
            stale.update(changed)

    def _use(self, machine: str, spec: JobSpec, times: int) -> None:
        for used in (self.used[machine], self._of_kind[KINDS[spec.is_service]]):
            used[0] += times * spec.resources.cpu_millis
            used[1] += times * spec.resources.ram_bytes

    def dominant_share(self, kind: str) -> float:
        """Return how much jobs of a kind have of what they have the most of, in machines."""
        cpu_millis, ram_bytes = self._of_kind[kind]
        return max(cpu_millis / MACHINE.cpu_millis, ram_bytes / MACHINE.ram_bytes)

    def free(self, machine: str) -> tuple[int, int]:
        """Return the cores, in thousandths, and bytes that nobody uses on a machine."""
        cpu_millis, ram_bytes = self.used[machine]
        return MACHINE.cpu_millis - cpu_millis, MACHINE.ram_bytes - ram_bytes

    def place(self, command: PlaceTasks) -> None:
        """Put tasks on machines."""
        self.do(command)
        for name in command.machines:
            self._use(name, self.cell.jobs[command.job].spec, 1)

    def end(self, key: str) -> None:
        """Let all tasks of a job be over."""
        job = self.cell.jobs[key]
        machines = [task.machine for task in job.tasks if task.machine]
        self.do(KillTasks(key, None, max_affected=10**9))
        for name in machines:
            self._use(name, job.spec, -1)
        self.do(ForgetJob(key))
        for call in self.freed:
            call()

    def used_share(self) -> float:
        """Return the share of all cores that is used."""
        return sum(used[0] for used in self.used.values()) / (MACHINE.cpu_millis * len(self.used))


def spec_of(name: str, work: Drawn) -> JobSpec:
    """Return the specification of a job that was drawn."""
    policy = RestartPolicy.ALWAYS if work.is_service else RestartPolicy.ON_FAILURE
    return JobSpec(
        name,
        "ann",
        work.tasks,
        ("run",),
        priority=200 if work.is_service else 100,
        resources=Resources(round(1000 * work.cores), round(work.gigabytes * GIB)),
        restart=Restart(policy),
    )


@cache
def begun(seed: int) -> tuple[bytes, dict[str, float]]:
    """Return a cell as it is after days of work, encoded, and by job when what runs there will be over."""
    chance, before = Random(f"{seed}:before"), HOURS_BEFORE * 3600  # noqa: S311 - chance that can be repeated
    there = [work for work in arrivals(chance, AZURE, SHARE, before) if work.at + work.seconds > before]
    cores = sum(work.cores * work.tasks for work in there)
    count = math.ceil(1000 * cores / USED_AT_START / MACHINE.cpu_millis)
    machines = {name: machine_of(name, MACHINE, {}) for name in (f"m{index:04}" for index in range(count))}
    shared = Shared(Snapshot("lab", machines=machines))
    ends = {}
    scheduler = Scheduler(seed, preempts=False)
    for index, work in enumerate(there):
        spec = spec_of(f"old-{index}", work)
        shared.do(SubmitJob(spec))
        ends[spec.key] = work.at + work.seconds - before
    plan = Plan(more=True)
    while plan.more:
        plan = scheduler.schedule(shared.cell, shared.core.observed, shared.now)
        for placement in plan.placements:
            shared.place(place_command(placement))
        scheduler.carried_out(shared.cell, plan)
    return bytes(encode_snapshot(shared.cell.snapshot())), ends


class Desk:
    """One scheduler with its queue. It thinks about one job at a time."""

    def __init__(
        self, shared: Shared, seed: int, tally: Callable[[Job], Tally], seconds: Callable[[Job], float]
    ) -> None:
        self.busy = 0.0  # seconds
        self.queue: deque[Job] = deque()
        self.coarse = False
        self.may_begin: Callable[[], bool] = lambda: True
        self.done: Callable[[Job], None] = lambda _job: None  # is called after each decision
        self.sight: Callable[[], Mapping[str, Machine]] = lambda: shared.cell.machines
        self.stale: set[str] = set()
        self._shared, self._tally, self._seconds = shared, tally, seconds
        self._scheduler = Scheduler(seed, preempts=False)
        self._is_busy, self._busy_since = False, 0.0
        shared.followers.append(self.stale)

    def add(self, job: Job) -> None:
        """Have a job decided about when it is its turn."""
        self.queue.append(job)
        self.begin()

    def begin(self) -> None:
        """Begin with the next job, if there is nothing else in the way."""
        if self._is_busy or not self.queue or not self.may_begin():
            return
        shared, job = self._shared, self.queue.popleft()
        at = shared.now.mono
        if job.first_at is None:
            job.first_at = at
            self._tally(job).waits.append(at - job.at)
        job.attempts += 1
        self._tally(job).attempts += 1
        plan, seen = self._plan(job), shared.changes
        self._is_busy, self._busy_since = True, at
        shared.clock.after(self._seconds(job), partial(self._end, job, plan, seen))

    def _plan(self, job: Job) -> Plan:
        """Return what borgish's scheduler makes of the cell as it is now, were there only this job."""
        shared, trial = self._shared, copy(self._shared.cell)
        trial.machines = dict(self.sight())
        trial.waiting = {job.key: set(job.left)}
        self._scheduler.refresh(trial, shared.core.observed, self.stale)
        self.stale.clear()
        return self._scheduler.schedule(trial, shared.core.observed, shared.now, len(job.left))

    def _end(self, job: Job, plan: Plan, seen: int) -> None:
        shared, tally = self._shared, self._tally(job)
        self.busy += shared.now.mono - self._busy_since
        self._is_busy = False
        conflicts = sum(self._commit(job, place_command(each), seen) for each in plan.placements)
        tally.conflicts += bool(conflicts)
        if not job.left:
            tally.scheduled += 1
            shared.clock.after(job.work.seconds, partial(shared.end, job.key))
        elif job.attempts >= ATTEMPTS_MAX:
            tally.abandoned += 1
        elif conflicts:
            self.queue.appendleft(job)
        else:
            shared.clock.after(RETRY_SECONDS, partial(self.add, job))
        self.done(job)
        self.begin()

    def _commit(self, job: Job, command: PlaceTasks, seen: int) -> int:
        """Place what still fits, and return how many tasks do not."""
        shared, fits = self._shared, []
        needs = shared.cell.jobs[job.key].spec.resources
        taken: dict[str, int] = {}
        for index, machine in zip(command.indexes, command.machines, strict=True):
            cpu_millis, ram_bytes = shared.free(machine)
            times = taken.get(machine, 0) + 1
            is_late = self.coarse and shared.changed_at.get(machine, 0) > seen
            if (
                times * needs.cpu_millis <= cpu_millis
                and times * needs.ram_bytes <= ram_bytes
                and not is_late
            ):
                taken[machine] = times
                fits.append((index, machine))
        if fits:
            indexes, machines = zip(*fits, strict=True)
            shared.place(PlaceTasks(command.job, indexes, machines))
            job.left.difference_update(indexes)
        return len(command.indexes) - len(fits)

    def busy_share(self) -> float:
        """Return the share of the time until now in which it was busy."""
        now = self._shared.now.mono
        return (self.busy + (now - self._busy_since) * self._is_busy) / now


class Offers:
    """The allocator of two-level scheduling: all that is free goes to one desk at a time."""

    def __init__(self, shared: Shared, desks: Mapping[str, Desk]) -> None:
        self._shared, self._desks = shared, desks
        self._held: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in desks}
        self._limits: dict[str, dict[str, Machine]] = {name: {} for name in desks}
        self._declined: dict[str, tuple[float, int]] = dict.fromkeys(desks, (-math.inf, -1))
        for name, desk in desks.items():
            desk.may_begin = partial(self._offer, name)
            desk.done = partial(self._returned, name)
            desk.sight = partial(self._sight, name)
            shared.freed.append(desk.begin)

    def _offer(self, name: str) -> bool:
        """Offer a desk what is free, where it is its turn; return whether it got something."""
        shared, desk = self._shared, self._desks[name]
        declined_at, changes = self._declined[name]
        if shared.now.mono - declined_at < RETRY_SECONDS and shared.changes == changes:
            return False
        (held,) = (held for each, held in self._held.items() if each != name)
        offer = {}
        for machine in shared.used:
            cpu_millis, ram_bytes = shared.free(machine)
            if (taken := held.get(machine)) is not None:
                cpu_millis, ram_bytes = cpu_millis - taken[0], ram_bytes - taken[1]
            if cpu_millis > 0 and ram_bytes > 0:
                offer[machine] = cpu_millis, ram_bytes
        if not offer:
            return False
        self._held[name] = offer
        self._limit(name, desk, offer, is_all=not held)
        return True

    def _limit(self, name: str, desk: Desk, offer: Mapping[str, tuple[int, int]], *, is_all: bool) -> None:
        """Let a desk see of each machine what is used and what is offered, and no more. ``is_all``: of what
        is free nothing is held by the other."""
        shared, limits, before = self._shared, dict[str, Machine](), self._limits[name]
        for machine, used in shared.used.items() if not is_all else ():
            cpu_millis, ram_bytes = offer.get(machine, (0, 0))
            if (cpu_millis, ram_bytes) == shared.free(machine):
                continue
            capacity = Resources(used[0] + cpu_millis, used[1] + ram_bytes)
            known = before.get(machine)
            if known is not None and known.capacity == capacity:
                limits[machine] = known
            else:
                limits[machine] = msgspec.structs.replace(shared.cell.machines[machine], capacity=capacity)
                desk.stale.add(machine)
        desk.stale |= before.keys() - limits.keys()
        self._limits[name] = limits

    def _sight(self, name: str) -> Mapping[str, Machine]:
        return {**self._shared.cell.machines, **self._limits[name]}

    def _returned(self, name: str, job: Job) -> None:
        """Take back what was not used, and offer it, first to who has the smallest dominant share."""
        shared = self._shared
        self._held[name] = {}
        if job.left:
            self._declined[name] = shared.now.mono, shared.changes
            shared.clock.after(RETRY_SECONDS, self._desks[name].begin)
        for each in sorted(self._desks, key=shared.dominant_share):
            self._desks[each].begin()
