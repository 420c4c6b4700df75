"""The work of one pass of the scheduler: windows of the queue, placed class by class."""

from borgish.cell.model import Job
from borgish.cell.state import Cell
from borgish.scheduler.census import CPU, RAM
from borgish.scheduler.equivalence import Classes, Explanation, TaskClass
from borgish.scheduler.explain import explain
from borgish.scheduler.feasibility import Changed
from borgish.scheduler.machines import Fleet
from borgish.scheduler.placing import place
from borgish.scheduler.plan import Placement, Plan, Refusal
from borgish.scheduler.queue import Level, Waiting, first_turns, levels, turns
from borgish.scheduler.scoring import ScoreCache

EXPLAINED_AGAIN = 50  # how many known refusals a pass puts in new words; the rest has its turn later


class Window:
    """Tasks whose order hardly matters, by class and job."""

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


class Placed:
    """What was placed of one job."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.machines: list[str] = []
        self.ports: list[tuple[int, ...]] = []

    def placement(self, job: str) -> Placement:
        """Return it as the plan has it."""
        return Placement(job, tuple(self.indexes), tuple(self.machines), tuple(self.ports))


class Pass:
    """One pass. ``used`` are the classes that waited in it."""

    def __init__(self, cell: Cell, fleet: Fleet, classes: Classes, scores: ScoreCache, budget: int) -> None:
        self.used: set[TaskClass] = set()
        self._fleet = fleet
        self._scores = scores
        self._budget = budget
        self._more = False
        self._placed: dict[str, Placed] = {}
        self._failed: dict[TaskClass, None] = {}  # nothing of these fits any more, in this pass
        self._refused: dict[str, dict[TaskClass, list[int]]] = {}
        self._levels = list(levels(cell, classes, fleet))
        usable = fleet.usable()
        self._cpu_free = float(fleet.free[CPU].sum(where=usable))
        self._ram_free = float(fleet.free[RAM].sum(where=usable))

    def plan(self) -> Plan:
        """Go through the queue once."""
        self._look_at_failed()
        for level in self._levels:
            self._run(level)
        self._explain()
        return Plan(
            tuple(placed.placement(job) for job, placed in self._placed.items()),
            {job: tuple(self._refusals(job)) for job in sorted(self._refused)},
            more=self._more,
        )

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
        """Return whether a machine that changed since the class failed has room for it."""
        since = kind.failed_version
        if since == self._fleet.version:
            return False
        if since not in changed:
            changed[since] = Changed(self._fleet, since)
        return changed[since].help(self._fleet, kind)

    def _run(self, level: Level) -> None:
        """Place all of one priority: in one window where it fits in one, else turn by turn."""
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

    def _place(self, window: Window) -> None:
        for kind, runs in window.runs.items():
            jobs = list(runs.values())
            costs = self._scores.costs(self._fleet, kind)
            counts = [(job.key, len(indexes)) for job, indexes in jobs]
            taken = place(self._fleet, kind, costs, counts, max(self._running(job) for job, _ in jobs))
            for (job, indexes), rows in zip(jobs, taken, strict=True):
                self._note(kind, job, indexes, rows)

    def _running(self, job: Job) -> int:
        placed = self._placed.get(job.key)
        return job.running + (len(placed.indexes) if placed else 0)

    def _note(self, kind: TaskClass, job: Job, indexes: list[int], rows: list[int]) -> None:
        """Note where tasks go; those beyond ``rows`` found no place."""
        if rows:
            placed = self._placed.setdefault(job.key, Placed())
            placed.indexes += indexes[: len(rows)]
            placed.machines += [self._fleet.names[row] for row in rows]
            if kind.ports:
                placed.ports += [self._fleet.ports[row].take(kind.ports) for row in rows]
            self._cpu_free -= kind.cpu * len(rows)
            self._ram_free -= kind.ram * len(rows)
            kind.failed_version, kind.explanation = -1, None
        if len(rows) < len(indexes):
            self._failed[kind] = None
            self._refuse(job.key, kind, indexes[len(rows) :])

    def _refuse(self, job: str, kind: TaskClass, indexes: list[int]) -> None:
        self._refused.setdefault(job, {}).setdefault(kind, []).extend(indexes)

    def _explain(self) -> None:
        """Put into words what failed: all that is new, and of the rest those not looked at longest."""
        known: list[tuple[int, TaskClass]] = []
        for kind in self._failed:
            kind.failed_version = self._fleet.version  # since it failed, room has only become less
            if kind.explanation is None:
                kind.explanation = explain(self._fleet, kind)
            elif kind.explanation.version != self._fleet.version:
                known.append((kind.explanation.version, kind))
        for _, kind in sorted(known, key=lambda pair: pair[0])[:EXPLAINED_AGAIN]:
            kind.explanation = explain(self._fleet, kind)

    def _refusals(self, job: str) -> list[Refusal]:
        return [
            _refusal(job, sorted(indexes), kind.explanation)
            for kind, indexes in self._refused[job].items()
            if kind.explanation is not None
        ]


def _refusal(job: str, indexes: list[int], why: Explanation) -> Refusal:
    return Refusal(job, tuple(indexes), why.machines, why.reasons, why.text, why.hint)
