"""The work of one pass of the scheduler (Nomad's evaluation): windows of the queue, placed class by class.

First come those whose place was kept while others left. A class that found no room may preempt; what
is then left of it is refused, and in this pass nothing of its class is tried again; nor in the next ones
while nothing can help it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np

from borgish.cell.model import Cell, Job
from borgish.clock import Now
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.explain import Explainer, Members
from borgish.scheduler.failing import avoid, with_held
from borgish.scheduler.failure_domains import EvenPlacement, Replicas, domains_of
from borgish.scheduler.feasibility import feasible, suitable
from borgish.scheduler.fleet import CPU, RAM, Fleet
from borgish.scheduler.pending import PendingQueue, QueueRefusals, refusals
from borgish.scheduler.placing import Taken, place, place_by_rules
from borgish.scheduler.plan import Placement, Plan, Promise, Refusal, RefusalsByJob
from borgish.scheduler.policies import Demand, Policy
from borgish.scheduler.preemption import Preemptions
from borgish.scheduler.queue import Classes, Level, Waiting, levels, turns
from borgish.scheduler.scoring import ScoreCache, Scored
from borgish.scheduler.task_class import NOT_FAILED, RETRY, TaskClass

NO_LIMIT = 1 << 62
EXPLAINED_NEW = 100  # how many new refusals a pass puts into words, some tenths of a millisecond each
EXPLAINED_AGAIN = 10  # and how many known ones into new words; the rest has its turn later


class Placed:
    """What was placed of one job."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.machines: list[str] = []
        self.ports: list[tuple[int, ...]] = []
        self.devices: list[tuple[str, ...]] = []

    def placement(self, job: str) -> Placement:
        """Return it as the plan has it."""
        devices = tuple(self.devices) if any(self.devices) else ()
        return Placement(job, tuple(self.indexes), tuple(self.machines), tuple(self.ports), devices)


class Window:
    """Tasks whose order hardly matters, by class and job. ``cpu``, in thousandths of a core, and ``ram``, in
    bytes, are what all of them together may need."""

    def __init__(self, cpu: float, ram: float) -> None:
        self.cpu_left = cpu  # of what the window may need
        self.ram_left = ram
        self.tasks = 0
        self.runs: dict[TaskClass, dict[str, tuple[Job, list[int]]]] = {}

    def takes(self, kind: TaskClass, job: Job) -> bool:
        """Return whether a task still belongs in it: there is room, or nobody else's task is in it."""
        if kind.cpu <= self.cpu_left and kind.ram <= self.ram_left:
            return True
        return not self.runs or (len(self.runs) == 1 and self.runs.get(kind, {}).keys() == {job.key})

    def add(self, kind: TaskClass, job: Job, indexes: list[int]) -> None:
        """Add tasks of one class and job."""
        self.tasks += len(indexes)
        self.cpu_left -= kind.cpu * len(indexes)
        self.ram_left -= kind.ram * len(indexes)
        self.runs.setdefault(kind, {}).setdefault(job.key, (job, []))[1].extend(indexes)

    @property
    def holds(self) -> bool:
        """Whether what was added is no more than it may need."""
        return self.cpu_left >= 0 and self.ram_left >= 0


class Memory(NamedTuple):
    """What is kept from pass to pass for some rows: those of all machines, or of the allocs of one set."""

    fleet: Fleet
    classes: Classes
    policy: Policy
    scores: ScoreCache


class Pass:
    """One pass. ``budget_left`` is how many more tasks may be tried."""

    def __init__(
        self,
        cell: Cell,
        memory: Memory,
        preemptions: Preemptions,
        budget: int,
        queue: PendingQueue,
        now: Now,
    ) -> None:
        """Place what waits in a queue; ``budget`` is how many tasks are tried."""
        self._cell, self._queue, self._preemptions = cell, queue, preemptions
        fleet, classes, policy, scores = memory
        self._now = now
        self._fleet, self._classes, self._policy, self._scores = fleet, classes, policy, scores
        self._budget = budget
        self._more = False
        self._placed: dict[str, Placed] = {}
        self._replicas: dict[str, Replicas] = {}  # by job: where it is, for those spread over failure domains
        self._taken_back: list[Promise] = []
        self._full: set[TaskClass] = set()  # these have to preempt: room only becomes less within a pass
        self._refusals = Refusals(cell, fleet)
        queue.read(cell, classes, fleet, now.wall)
        self._special = [waiting for waiting in queue.special.values() if waiting is not None]
        avoid(cell, classes, fleet, self._special, now.wall)
        policy.learn(fleet, Demand(cell, fleet, classes, list(self._counts())))
        usable = fleet.usable()
        self._totals: list[float] = fleet.capacity.sum(axis=1, where=usable).tolist()  # by resource
        self._cpu_free = float(fleet.free[CPU].sum(where=usable))
        self._ram_free = float(fleet.free[RAM].sum(where=usable))

    @property
    def budget_left(self) -> int:
        return max(0, self._budget)

    def plan(self, leaving: frozenset[str]) -> Plan:
        """Go through the queue once. ``leaving``: machines with attempts that have yet to end."""
        queue, position = self._queue, self._cell.position
        # First: what is kept for somebody is let go and kept again, and is no news for anybody.
        kinds = self._refusals.recall(dict.fromkeys(kind for kind, _ in self._counts()))
        self._place_promised(leaving)
        taken, above = queue.take(kinds, self._refusals.room, self._budget, position)
        special = [each for each in self._special if above is None or each.spec.priority >= above]
        for level in levels([*special, *taken], position):
            self._place_level(level)
        failed = self._refusals.failed
        self._more |= len(special) < len(self._special)
        self._more |= any(kind in queue.classes and kind not in failed for kind in kinds)
        if self._placed:  # after what waits to be near of it, perhaps
            self._more |= any(kind.counts_version != kind.failed_counts for kind in failed)
        preemptions, promises = self._preemptions.preemptions(), self._preemptions.promises()
        moved = self._placed.keys() | {promise.job for promise in promises}
        for waiting in taken:
            if waiting.job.key in moved:
                queue.drop(waiting.job.key)  # ``others`` says why the rest of it waits
                queue.note((waiting.job.key,))
            else:
                queue.give_back(waiting)
        is_explained = self._refusals.explain(self._preemptions.held_back, queue)
        others = sorted(moved | queue.special.keys())
        refusals = with_held(self._cell, queue.special, self._refusals.of(others), self._now.wall)
        self._classes.forget_unused((kind for kind, _ in self._counts()), self._cell.jobs)
        return Plan(
            tuple(placed.placement(job) for job, placed in self._placed.items()),
            RefusalsByJob(refusals, QueueRefusals(queue)),
            preemptions,
            (*self._taken_back, *promises),
            # Another pass at once: victims wait now, and often find room elsewhere.
            more=self._more or bool(preemptions) or bool(self._taken_back) or not is_explained,
        )

    def _counts(self) -> Iterator[tuple[TaskClass, int]]:
        """Yield how many tasks of each class wait."""
        for kind, each in self._queue.classes.items():
            yield kind, each.tasks
        for waiting in self._special:
            yield from waiting.counts().items()

    # Kept places

    def _place_promised(self, leaving: frozenset[str]) -> None:
        """Place those whose kept place is free now; take back promises that will not come true."""
        promised: dict[str, list[tuple[int, str]]] = {}  # index and machine, by job
        wanted = self._queue.special
        for machine, tasks in self._cell.promised.items():
            for key, index in tasks:
                if key in wanted:
                    promised.setdefault(key, []).append((index, machine))
        for key in sorted(promised):
            job, pairs = self._cell.jobs[key], sorted(promised[key])
            for together in [pairs] if job.spec.gang else [[pair] for pair in pairs]:
                self._redeem(job, together, leaving)

    def _redeem(self, job: Job, pairs: list[tuple[int, str]], leaving: frozenset[str]) -> None:
        """Place tasks of a job where their places were kept, all of them or none."""
        fleet, scores = self._fleet, self._scores
        places = [
            (self._classes.of(self._cell, job, index, fleet), fleet.row.get(machine, -1))
            for index, machine in pairs
        ]
        for kind, row in places:
            fleet.release(row, kind)
        done: list[tuple[TaskClass, Taken]] = []
        lacking: list[tuple[TaskClass, int]] = []
        for kind, row in places:
            if row >= 0 and scores.takes(fleet, kind, row):
                done.append((kind, Taken()))
                done[-1][1].take(fleet, self._policy, kind, job, [row])
            else:
                lacking.append((kind, row))
        if not lacking:
            for (index, _), (kind, taken) in zip(pairs, done, strict=True):
                self._note(kind, job, [index], taken)
            return
        for kind, taken in done:
            taken.undo(fleet, kind, job)
        for kind, row in places:
            fleet.keep(row, kind)
        # A place that is taken stays so where its machine will not do, or nobody is leaving it.
        if any(
            row < 0 or not scores.is_suitable(fleet, kind, row) or fleet.names[row] not in leaving
            for kind, row in lacking
        ):
            indexes = tuple(index for index, _ in pairs)
            self._taken_back.append(Promise(job.key, indexes, ("",) * len(indexes)))

    # The queue

    def _place_level(self, level: Level) -> None:
        """Place all of one priority: in one window where it fits in one, else turn by turn."""
        if self._fits_budget(level) and not any(waiting.job.spec.gang for user in level for waiting in user):
            window, failed = self._window(), []
            # Each job once, in the order in which ``turns`` first comes to them.
            for waiting in filter(None, chain.from_iterable(zip_longest(*level))):
                for kind, indexes in waiting.by_class().items():
                    if kind in self._refusals.failed:
                        failed.append((waiting.job.key, kind, indexes))
                    else:
                        window.add(kind, waiting.job, indexes)
            if window.holds:
                self._budget -= window.tasks
                for each in failed:
                    self._refusals.add(*each)
                self._place_window(window)
                return
        self._place_by_turns(level)

    def _fits_budget(self, level: Level) -> bool:
        """Return whether all that is to be tried may be; what is known to fail is not tried."""
        failed, left = self._refusals.failed, self._budget
        for waiting in chain.from_iterable(level):
            if waiting.unusual or waiting.usual not in failed:
                left -= len(waiting.indexes) - waiting.done
        return left >= 0

    def _place_by_turns(self, level: Level) -> None:
        window, failed = self._window(), self._refusals.failed
        for waiting in turns(level):
            job = waiting.job
            if not waiting.unusual and waiting.usual in failed:
                self._refusals.add(job.key, waiting.usual, waiting.take_rest())
            elif self._budget <= 0:
                self._leave(waiting)
            elif job.spec.gang:
                self._place_window(window)
                window = self._window()
                self._place_gang(waiting)
            else:
                kind, index = waiting.take()
                if kind in failed:
                    self._refusals.add(job.key, kind, [index])
                    continue
                if not window.takes(kind, job):
                    self._place_window(window)
                    window = self._window()
                window.add(kind, job, [index])
                self._budget -= 1
        self._place_window(window)

    def _window(self) -> Window:
        return Window(self._cpu_free / 2, self._ram_free / 2)

    def _leave(self, waiting: Waiting) -> None:
        """Leave what is left of a job to the next pass, save what is known to fail."""
        if not waiting.unusual:  # and the usual ones are not known to fail
            waiting.take_rest()
            self._more = True
        for index in waiting.take_rest():
            kind = waiting.class_of(index)
            if kind in self._refusals.failed:
                self._refusals.add(waiting.job.key, kind, [index])
            else:
                self._more = True

    # Placing

    def _place_window(self, window: Window) -> None:
        # The largest first, what is small fills what they leave; equals keep the order of their turns.
        for kind in sorted(window.runs, key=self._dominant_share, reverse=True):
            jobs = list(window.runs[kind].values())
            if kind in self._full:
                placed = [Taken() for _ in jobs]
            else:
                placed = self._place_class(kind, [(job, len(indexes)) for job, indexes in jobs])
            for (job, indexes), taken in zip(jobs, placed, strict=True):
                self._note(kind, job, indexes, taken)
                rest = indexes[len(taken.rows) :]
                if not rest:
                    continue
                if not kind.rules:
                    self._full.add(kind)
                if self._preemptions.may_help(kind):
                    rest = self._preemptions.make_room(kind, job, rest)
                if rest:
                    self._refusals.fail(job.key, kind, rest)

    def _dominant_share(self, kind: TaskClass) -> float:
        """Return which part of the cell a task needs of what it needs the largest part of."""
        totals = self._totals
        return max([amount / totals[number] for number, amount in kind.needs if totals[number]], default=0.0)

    def _place_class(self, kind: TaskClass, runs: list[tuple[Job, int]]) -> list[Taken]:
        """Place tasks of one class; return what was placed of each run."""
        own_max = max(self._running(job) for job, _ in runs)
        if kind.rules:
            scored = Scored(self._scores.costs(self._fleet, kind))
            return [taken for run in runs for taken in self._place_on(kind, scored, [run], own_max)]
        scored = self._scores.scored(self._fleet, kind, own_max + sum(count for _, count in runs))
        taken = self._place_on(kind, scored, runs, own_max)
        if scored.rows is not None and any(len(t.rows) < n for t, (_, n) in zip(taken, runs, strict=True)):
            everywhere = Scored(self._scores.costs(self._fleet, kind))
            left = [(job, count - len(t.rows)) for (job, count), t in zip(runs, taken, strict=True)]
            for first, more in zip(taken, self._place_on(kind, everywhere, left, own_max), strict=True):
                first.rows += more.rows
                first.devices += more.devices
        return taken

    def _place_on(
        self, kind: TaskClass, scored: Scored, runs: Sequence[tuple[Job, int]], own_max: int
    ) -> list[Taken]:
        if kind.is_service and any(domains_of(self._fleet, job.spec) for job, _ in runs):
            evenly = EvenPlacement(self._fleet, self._policy, kind, scored)
            return [evenly.place(job, count, self._replicas_of(job)) for job, count in runs]
        if kind.rules:
            return [
                place_by_rules(self._fleet, self._policy, kind, scored.costs, run, own_max) for run in runs
            ]
        return place(self._fleet, self._policy, kind, scored, runs, own_max)

    def _replicas_of(self, job: Job) -> Replicas:
        """Return where a job's tasks are, by failure domain where it is spread over any."""
        found = self._replicas.get(job.key)
        if found is None:
            names = domains_of(self._fleet, job.spec)
            rows = self._fleet.rows_of(self._cell, job.key) if names and self._running(job) else []
            found = self._replicas[job.key] = Replicas(names, rows)
        return found

    def _place_gang(self, waiting: Waiting) -> None:
        """Place all that waits of a job, or nothing of it."""
        job = waiting.job
        classes = waiting.by_class()
        waiting.take_rest()
        self._budget -= sum(map(len, classes.values()))
        # Known to fail as long as nothing helps any of them: where one goes elsewhere, another may fit.
        failed = self._refusals.failed
        if all(kind in failed for kind in classes):
            for kind, indexes in classes.items():
                self._refusals.add(job.key, kind, indexes)
            return
        taken: dict[TaskClass, Taken] = {}
        for kind, indexes in classes.items():
            (taken[kind],) = self._place_class(kind, [(job, len(indexes))])
        if all(len(taken[kind].rows) == len(indexes) for kind, indexes in classes.items()):
            for kind, indexes in classes.items():
                self._note(kind, job, indexes, taken[kind])
                failed.pop(kind, None)
            return
        members = [(kind, placed.rows) for kind, placed in taken.items()]
        for kind, indexes in classes.items():
            self._refusals.explain_gang(kind, len(taken[kind].rows), len(indexes), members)
        for kind, placed in taken.items():
            placed.undo(self._fleet, kind, job)
        self._replicas.pop(job.key, None)
        may_help = any(self._preemptions.may_help(kind) for kind in classes)
        if may_help and self._preemptions.make_room_for_all(classes, job):
            for kind in classes:
                failed.pop(kind, None)
            return
        for kind, indexes in classes.items():
            self._refusals.fail(job.key, kind, indexes)

    def _running(self, job: Job) -> int:
        placed = self._placed.get(job.key)
        return job.running + (len(placed.indexes) if placed else 0)

    def _note(self, kind: TaskClass, job: Job, indexes: list[int], taken: Taken) -> None:
        """Note where the first of these tasks went."""
        rows = taken.rows
        if not rows:
            return
        placed = self._placed.setdefault(job.key, Placed())
        placed.indexes += indexes[: len(rows)]
        placed.machines += [self._fleet.names[row] for row in rows]
        placed.devices += taken.devices or [()] * len(rows)  # other tasks of the job may have some
        if job.spec.ports:
            fixed = job.spec.fixed_ports
            for row in rows:
                chosen = iter(self._fleet.choose_ports(row, kind.ports))
                numbers = [fixed[name] if name in fixed else next(chosen) for name in job.spec.ports]
                placed.ports.append(tuple(numbers))  # in the order of their names
        self._cpu_free -= kind.cpu * len(rows)
        self._ram_free -= kind.ram * len(rows)
        kind.failed_version, kind.explanation = NOT_FAILED, None


class Refusals:
    """The tasks that one pass refuses. ``failed`` are the classes of which nothing more fits in it."""

    def __init__(self, cell: Cell, fleet: Fleet) -> None:
        self.failed: dict[TaskClass, None] = {}
        self._fleet = fleet
        self._explainer = Explainer(cell, fleet)
        self._changed: dict[int, _ChangedMachines] = {}  # by version, at the beginning of the pass
        self._refused: dict[str, dict[TaskClass, list[int]]] = {}  # indexes by job and class

    def recall(self, kinds: Iterable[TaskClass]) -> list[TaskClass]:
        """Take as failed what failed in an earlier pass: only counts or machines that changed can help it.
        Return the others: for these there may be room."""
        found, same = list[TaskClass](), dict[tuple[int, int], list[TaskClass]]()
        for kind in kinds:
            since = kind.failed_version
            if since < 0 or kind.counts_version != kind.failed_counts:
                found.append(kind)
            elif since == self._fleet.version:
                self.failed[kind] = None
            else:
                same.setdefault((since, kind.reach), []).append(kind)
        for (since, reach), those in same.items():
            may_fit = self._changed_since(since).may_fit(those, reach)
            for kind, may in zip(those, may_fit.tolist(), strict=True):
                if may:
                    found.append(kind)
                else:
                    self.failed[kind] = None
        return found

    def room(self, kind: TaskClass) -> int:
        """Return how many tasks may fit of a class that ``recall`` returned. Where it is none, take it as
        failed."""
        since = kind.failed_version
        if since == RETRY:
            return 1
        if since < 0 or kind.counts_version != kind.failed_counts:
            return NO_LIMIT
        found = self._changed_since(since).room(kind)
        if not found:
            self.failed[kind] = None
        return found

    def _changed_since(self, version: int) -> "_ChangedMachines":
        found = self._changed.get(version)
        if found is None:
            found = self._changed[version] = _ChangedMachines(self._fleet, version)
        return found

    def add(self, job: str, kind: TaskClass, indexes: list[int]) -> None:
        """Refuse tasks of a job."""
        self._refused.setdefault(job, {}).setdefault(kind, []).extend(indexes)

    def fail(self, job: str, kind: TaskClass, indexes: list[int]) -> None:
        """Refuse tasks of a job, and take nothing more of their class for the rest of the pass."""
        self.failed[kind] = None
        kind.failed_counts = kind.counts_version  # these may change for the better within the pass
        self.add(job, kind, indexes)

    def explain_gang(self, kind: TaskClass, fitting: int, wanted: int, members: Members) -> None:
        """Explain why a gang is not placed, while those of its tasks that fit are on the machines."""
        kind.explanation = self._explainer.explain_gang(kind, fitting, wanted, members)

    def explain(self, held_back: Collection[TaskClass], queue: PendingQueue) -> bool:
        """Let the classes that failed say why: the new ones, and of the others some of the oldest anew.
        Return whether all do; else the next pass goes on.

        ``held_back`` are classes that may preempt in the next pass; ``queue`` is what waits.
        """
        most: dict[TaskClass, int] = {}  # how many tasks of each were refused, at most of one job
        for by_class in self._refused.values():
            for kind, indexes in by_class.items():
                most[kind] = max(most.get(kind, 0), len(indexes))
        new: list[TaskClass] = []
        known: list[tuple[int, TaskClass]] = []
        for kind in self.failed:
            # Since it failed, room has only become less.
            kind.failed_version = NOT_FAILED if kind in held_back else self._fleet.version
            if kind.explanation is None:
                new.append(kind)
            elif self._explainer.is_stale(kind):
                known.append((kind.explanation.version, kind))
        known.sort(key=lambda pair: pair[0])
        for kind in [*new[:EXPLAINED_NEW], *(kind for _, kind in known[:EXPLAINED_AGAIN])]:
            tasks = queue.classes[kind].tasks_of_job_max if kind in queue.classes else 1
            kind.explanation = self._explainer.explain(kind, max(tasks, most.get(kind, 1)))
        return len(new) <= EXPLAINED_NEW

    def of(self, jobs: Iterable[str]) -> dict[str, tuple[Refusal, ...]]:
        """Return why tasks of these jobs were refused."""
        return {job: refusals(job, self._refused[job]) for job in jobs if job in self._refused}


class _ChangedMachines:
    """The machines that changed since a version of the rows: only these can help what failed then."""

    def __init__(self, fleet: Fleet, since: int) -> None:
        self._fleet = fleet
        self._rows: IntArray = np.flatnonzero((fleet.changed > since) & fleet.usable())
        self._free = fleet.free[:, self._rows]
        self._with_lower: dict[int, FloatArray | None] = {}  # by reach

    def may_fit(self, kinds: Sequence[TaskClass], reach: int) -> BoolArray:
        """Return of which of the classes, all of one reach, a task may fit by amounts alone: [class]."""
        there = self._there(reach)
        there = self._free if there is None else there
        wanted = np.full((len(kinds), there.shape[0]), -np.inf)
        for number, kind in enumerate(kinds):
            for resource, amount in kind.needs:
                wanted[number, resource] = amount
        found = np.zeros(len(kinds), dtype=np.bool_)
        for column in there.T:
            found |= (wanted <= column).all(axis=1)
            if found.all():
                break
        return found

    def room(self, kind: TaskClass) -> int:
        """Return how many tasks of the class they may take, also when lower ones leave them, by amounts; 0
        where they take none."""
        fleet, found = self._fleet, 0
        if _enough(self._free, kind).any():
            found = _count(self._free[:, feasible(fleet, kind, self._rows)], kind)
        there = self._there(kind.reach)
        if there is not None and _enough(there, kind).any():
            found = max(found, _count(there[:, suitable(fleet, kind)[self._rows]], kind))
        return found

    def _there(self, reach: int) -> FloatArray | None:
        """Return what is free, and held by tasks that may be preempted, [resource, machine]; None where there
        are none of these."""
        if reach not in self._with_lower:
            lower = [held[:, self._rows] for priority, held in self._fleet.held.items() if priority < reach]
            self._with_lower[reach] = self._free + np.sum(lower, axis=0) if lower else None
        return self._with_lower[reach]


def _enough(there: FloatArray, kind: TaskClass) -> BoolArray:
    """Return which columns of amounts [resource, machine] hold what a task of the class needs."""
    passes = np.ones(there.shape[1], dtype=np.bool_)
    for number, amount in kind.needs:
        passes &= there[number] >= amount
    return passes


def _count(there: FloatArray, kind: TaskClass) -> int:
    """Return how many tasks of a class amounts [resource, machine] are enough for."""
    if not kind.needs:
        return NO_LIMIT if there.shape[1] else 0
    each = [there[number] // amount for number, amount in kind.needs]
    return int(np.maximum(0.0, np.min(each, axis=0)).sum())
