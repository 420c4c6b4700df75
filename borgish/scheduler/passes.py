"""The work of one pass of the scheduler: windows of the queue, placed class by class.

First come those whose place was kept while others left. A class that found no room may preempt; what
is then left of it is refused, and in this pass nothing of its class is tried again.
"""

from collections.abc import Collection, Sequence

from borgish.cell.model import Job
from borgish.cell.state import Cell
from borgish.scheduler.census import CPU, RAM
from borgish.scheduler.changed import Changed
from borgish.scheduler.domains import Evenly, Replicas, domains_of
from borgish.scheduler.equivalence import Classes, Explanation, TaskClass
from borgish.scheduler.explain import Explainer
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.grouping import place_by_rules
from borgish.scheduler.placing import Taken, place
from borgish.scheduler.plan import Placement, Plan, Promise, Refusal
from borgish.scheduler.policy import Policy
from borgish.scheduler.preemption import Preempting
from borgish.scheduler.queue import Level, Waiting, Window, first_turns, levels, turns
from borgish.scheduler.scoring import ScoreCache, Scored
from borgish.scheduler.typical import CellDemand

EXPLAINED_AGAIN = 50  # how many known refusals a pass puts in new words; the rest has its turn later


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


class Pass:
    """One pass. ``used`` are the classes that waited in it."""

    def __init__(
        self,
        cell: Cell,
        fleet: Fleet,
        classes: Classes,
        scores: ScoreCache,
        policy: Policy,
        preemptions: Preempting,
        budget: int,
        jobs: Collection[str],
    ) -> None:
        """Place the waiting tasks of these jobs; ``budget`` is how many are tried."""
        self.used: set[TaskClass] = set()
        self._cell = cell
        self._fleet = fleet
        self._classes = classes
        self._scores = scores
        self._policy = policy
        self._preemptions = preemptions
        self._budget = budget
        self._more = False
        self._placed: dict[str, Placed] = {}
        self._replicas: dict[str, Replicas] = {}  # by job: where it is, for those spread over failure domains
        self._taken_back: list[Promise] = []
        self._full: set[TaskClass] = set()  # these have to preempt: room only becomes less within a pass
        self._failed: dict[TaskClass, None] = {}  # nothing of these fits any more, in this pass
        self._explainer = Explainer(cell, fleet)
        self._refused: dict[str, dict[TaskClass, list[int]]] = {}
        self._promised = _promised(cell, jobs)
        self._levels = list(levels(cell, classes, fleet, jobs))
        policy.learn(fleet, CellDemand(cell, fleet, classes, self._levels))
        usable = fleet.usable()
        self._cpu_free = float(fleet.free[CPU].sum(where=usable))
        self._ram_free = float(fleet.free[RAM].sum(where=usable))

    @property
    def budget_left(self) -> int:
        """How many more tasks may be tried."""
        return max(0, self._budget)

    def plan(self, leaving: frozenset[str]) -> Plan:
        """Go through the queue once. ``leaving``: machines with attempts that have yet to end."""
        self._redeem(leaving)
        self._look_at_failed()
        for level in self._levels:
            self._run(level)
        self._explain()
        preemptions = self._preemptions.preemptions()
        return Plan(
            tuple(placed.placement(job) for job, placed in self._placed.items()),
            {job: tuple(self._refusals(job)) for job in sorted(self._refused)},
            preemptions,
            (*self._taken_back, *self._preemptions.promises()),
            # Victims wait now, and may find room elsewhere.
            more=self._more or bool(preemptions) or bool(self._taken_back),
        )

    # Kept places

    def _redeem(self, leaving: frozenset[str]) -> None:
        """Place those whose kept place is free now; take back promises that will not come true."""
        for key in sorted(self._promised):
            job = self._cell.jobs[key]
            pairs = sorted(self._promised[key])
            if job.spec.gang:
                self._redeem_some(job, pairs, leaving)
            else:
                for pair in pairs:
                    self._redeem_some(job, [pair], leaving)

    def _redeem_some(self, job: Job, pairs: list[tuple[int, str]], leaving: frozenset[str]) -> None:
        """Place tasks of a job where their places were kept, all of them or none."""
        kinds = [self._classes.of(self._cell, job.spec, index, self._fleet) for index, _ in pairs]
        rows = [self._fleet.row.get(machine, -1) for _, machine in pairs]
        for kind, row in zip(kinds, rows, strict=True):
            self._fleet.let_go(row, kind)
        done, lacking = self._take_kept(job, kinds, rows)
        if not lacking:
            for (index, _), (kind, taken) in zip(pairs, done, strict=True):
                self._note(kind, job, [index], taken)
            return
        for kind, taken in done:
            taken.undo(self._fleet, kind, job.spec)
        for kind, row in zip(kinds, rows, strict=True):
            self._fleet.keep(row, kind)
        if any(self._is_void(kind, row, leaving) for kind, row in lacking):
            indexes = tuple(index for index, _ in pairs)
            self._taken_back.append(Promise(job.key, indexes, ("",) * len(indexes)))

    def _take_kept(
        self, job: Job, kinds: list[TaskClass], rows: list[int]
    ) -> tuple[list[tuple[TaskClass, Taken]], list[tuple[TaskClass, int]]]:
        """Take those of some kept places that are free; return them, and the others."""
        done, lacking = [], []
        for kind, row in zip(kinds, rows, strict=True):
            if row < 0 or not self._scores.takes(self._fleet, kind, row):
                lacking.append((kind, row))
                continue
            taken = Taken()
            taken.take(self._fleet, self._policy, kind, job.spec, [row])
            done.append((kind, taken))
        return done, lacking

    def _is_void(self, kind: TaskClass, row: int, leaving: frozenset[str]) -> bool:
        """Return whether a place that is taken will stay so: its machine will not do, or nobody leaves it."""
        if row < 0 or not self._scores.suits(self._fleet, kind, row):
            return True
        return self._fleet.names[row] not in leaving

    # What failed before

    def _look_at_failed(self) -> None:
        """Look whether what failed before fits now: only machines that changed since can tell."""
        changed: dict[int, Changed] = {}
        for waiting in (waiting for level in self._levels for user in level for waiting in user):
            for kind in (waiting.usual, *waiting.unusual.values()):
                if kind not in self.used:
                    self.used.add(kind)
                    if kind.failed_version >= 0 and not self._may_fit(kind, changed):
                        self._failed[kind] = None

    def _may_fit(self, kind: TaskClass, changed: dict[int, Changed]) -> bool:
        """Return whether a machine that changed since the class failed has room, or counts changed."""
        since = kind.failed_version
        if kind.counts_version != kind.failed_counts:
            return True
        if since == self._fleet.version:
            return False
        if since not in changed:
            changed[since] = Changed(self._fleet, since)
        return changed[since].help(self._fleet, kind)

    # The queue

    def _run(self, level: Level) -> None:
        """Place all of one priority: in one window where it fits in one, else turn by turn."""
        if any(waiting.job.spec.gang for user in level for waiting in user):
            self._run_by_turns(level)
            return
        whole = self._whole(level)
        if whole.holds and whole.tasks <= self._budget:
            self._budget -= whole.tasks
            self._refuse_failed(level)
            self._place(whole)
        else:
            self._run_by_turns(level)

    def _whole(self, level: Level) -> Window:
        """Return a window of all of one priority that may fit, whether or not it holds it."""
        window = self._window()
        for waiting in first_turns(level):
            for kind, indexes in waiting.by_class().items():
                if kind not in self._failed:
                    window.add(kind, waiting.job, indexes)
        return window

    def _refuse_failed(self, level: Level) -> None:
        """Refuse all of one priority whose class has failed."""
        for waiting in first_turns(level):
            for kind, indexes in waiting.by_class().items():
                if kind in self._failed:
                    self._refuse(waiting.job.key, kind, indexes)

    def _run_by_turns(self, level: Level) -> None:
        window = self._window()
        for waiting in turns(level):
            if self._drop_failed(waiting):
                continue
            if self._budget <= 0:
                self._leave(waiting)
                continue
            if waiting.job.spec.gang:
                self._place(window)
                window = self._window()
                self._place_gang(waiting)
                continue
            kind, index = waiting.take()
            if kind in self._failed:
                self._refuse(waiting.job.key, kind, [index])
                continue
            if not window.takes(kind, waiting.job):
                self._place(window)
                window = self._window()
            window.add(kind, waiting.job, [index])
            self._budget -= 1
        self._place(window)

    def _window(self) -> Window:
        return Window(self._cpu_free / 2, self._ram_free / 2)

    def _drop_failed(self, waiting: Waiting) -> bool:
        """Refuse all that is left of a job at once, when its class has failed."""
        if waiting.unusual or waiting.usual not in self._failed:
            return False
        self._refuse(waiting.job.key, waiting.usual, waiting.take_rest())
        return True

    def _leave(self, waiting: Waiting) -> None:
        """Leave what is left of a job to the next pass, save what is known to fail."""
        for index in waiting.take_rest():
            kind = waiting.class_of(index)
            if kind in self._failed:
                self._refuse(waiting.job.key, kind, [index])
            else:
                self._more = True

    # Placing

    def _place(self, window: Window) -> None:
        for kind, runs in window.runs.items():
            jobs = list(runs.values())
            if kind in self._full:
                placed = [Taken() for _ in jobs]
            else:
                placed = self._place_class(kind, [(job, len(indexes)) for job, indexes in jobs])
            for (job, indexes), taken in zip(jobs, placed, strict=True):
                self._note(kind, job, indexes, taken)
                if rest := indexes[len(taken.rows) :]:
                    self._preempt_or_refuse(kind, job, rest)

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
            evenly = Evenly(self._fleet, self._policy, kind, scored)
            return [evenly.place(job.spec, count, self._replicas_of(job)) for job, count in runs]
        counts = [(job.spec, count) for job, count in runs]
        if kind.rules:
            return [
                place_by_rules(self._fleet, self._policy, kind, scored.costs, run, own_max) for run in counts
            ]
        return place(self._fleet, self._policy, kind, scored, counts, own_max)

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
        job, spec = waiting.job, waiting.job.spec
        classes = waiting.by_class()
        waiting.take_rest()
        self._budget -= sum(map(len, classes.values()))
        # Known to fail as long as nothing helps any of them: where one goes elsewhere, another may fit.
        if all(kind in self._failed for kind in classes):
            for kind, indexes in classes.items():
                self._refuse(job.key, kind, indexes)
            return
        taken: dict[TaskClass, Taken] = {}
        for kind, indexes in classes.items():
            (taken[kind],) = self._place_class(kind, [(job, len(indexes))])
        if all(len(taken[kind].rows) == len(indexes) for kind, indexes in classes.items()):
            for kind, indexes in classes.items():
                self._note(kind, job, indexes, taken[kind])
                self._failed.pop(kind, None)
            return
        members = [(kind, placed.rows) for kind, placed in taken.items()]
        for kind, indexes in classes.items():
            fitting = len(taken[kind].rows)
            kind.explanation = self._explainer.explain_gang(kind, fitting, len(indexes), members)
        for kind, placed in taken.items():
            placed.undo(self._fleet, kind, spec)
        self._replicas.pop(job.key, None)
        may_help = any(self._preemptions.may_help(kind) for kind in classes)
        if may_help and self._preemptions.make_room_for_all(classes, spec):
            for kind in classes:
                self._failed.pop(kind, None)
            return
        for kind, indexes in classes.items():
            self._fail(kind, job.key, indexes)

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
            placed.ports += [self._ports(kind, job, row) for row in rows]
        self._cpu_free -= kind.cpu * len(rows)
        self._ram_free -= kind.ram * len(rows)
        kind.failed_version, kind.explanation = -1, None

    def _ports(self, kind: TaskClass, job: Job, row: int) -> tuple[int, ...]:
        """Return the numbers of a job's ports, in their order."""
        chosen = iter(self._fleet.choose_ports(row, kind.ports))
        fixed = job.spec.fixed_ports
        return tuple([fixed[name] if name in fixed else next(chosen) for name in job.spec.ports])

    def _preempt_or_refuse(self, kind: TaskClass, job: Job, indexes: list[int]) -> None:
        if not kind.rules:
            self._full.add(kind)
        if self._preemptions.may_help(kind):
            indexes = self._preemptions.make_room(kind, job.spec, indexes)
        if indexes:
            self._fail(kind, job.key, indexes)

    def _fail(self, kind: TaskClass, job: str, indexes: list[int]) -> None:
        self._failed[kind] = None
        kind.failed_counts = kind.counts_version  # these may change for the better within the pass
        self._refuse(job, kind, indexes)

    def _refuse(self, job: str, kind: TaskClass, indexes: list[int]) -> None:
        self._refused.setdefault(job, {}).setdefault(kind, []).extend(indexes)

    def _explain(self) -> None:
        """Put into words what failed: all that is new, and of the rest those not looked at longest."""
        known: list[tuple[int, TaskClass]] = []
        refused = self._refused_of()
        for kind in self._failed:
            # Since it failed, room has only become less; but who was held back may preempt in the next pass.
            held_back = kind in self._preemptions.held_back
            kind.failed_version = -1 if held_back else self._fleet.version
            if kind.explanation is None:
                kind.explanation = self._explainer.explain(kind, refused.get(kind, 1))
            elif self._explainer.is_stale(kind):
                known.append((kind.explanation.version, kind))
        for _, kind in sorted(known, key=lambda pair: pair[0])[:EXPLAINED_AGAIN]:
            kind.explanation = self._explainer.explain(kind, refused.get(kind, 1))

    def _refused_of(self) -> dict[TaskClass, int]:
        """Return how many tasks of each class were refused, at most of one job."""
        most: dict[TaskClass, int] = {}
        for by_class in self._refused.values():
            for kind, indexes in by_class.items():
                most[kind] = max(most.get(kind, 0), len(indexes))
        return most

    def _refusals(self, job: str) -> list[Refusal]:
        return [
            _refusal(job, sorted(indexes), kind.explanation)
            for kind, indexes in self._refused[job].items()
            if kind.explanation is not None
        ]


def _promised(cell: Cell, jobs: Collection[str]) -> dict[str, list[tuple[int, str]]]:
    """Return the tasks of these jobs for which places are kept, and where, by job."""
    found: dict[str, list[tuple[int, str]]] = {}
    wanted = set(jobs) if cell.promised else ()
    for machine, promised in cell.promised.items():
        for key, index in promised:
            if key in wanted:
                found.setdefault(key, []).append((index, machine))
    return found


def _refusal(job: str, indexes: list[int], why: Explanation) -> Refusal:
    return Refusal(
        job,
        tuple(indexes),
        why.machines,
        why.reasons,
        why.text,
        why.hint,
        why.impossible,
        why.waits_for,
    )
