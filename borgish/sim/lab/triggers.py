"""What wakes a reconciler, and what does it look at? Edges, levels, a timer, or both of the last.

The same code: master, core, reconcilers, scheduler, store, polls and borglets are borgish's own, in the
simulator. Each regime changes two things of the core's step and nothing that is decided: *whether* the
reconcilers and the scheduler are called in it, and *which* records they see (``Core._in_sight``).

The lab's own: in borgish nothing lies between a change and the loops that look at it, they are in one
process and one step. Here there is a channel, as between a store and controllers elsewhere. What a step has
touched, what machines reported and which polls were missed goes through it, an edge for each record, and the
channel loses, delays or doubles edges. ``edges`` sees of the cell only what the delivered edges name: it may
look up anything else, but walks over nothing else. That flatters it: the record is read as it is now, not as
the edge once found it, and what it decides is checked by the same ``decide`` as everything.

Counted as looked at is each record of a job or a machine that a reconciler walks over or looks up, and each
machine whose rows the scheduler reads. Not counted are tasks inside a job, and the scheduler's arrays.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

from borgish.cell.commands import Observe
from borgish.cell.free_space import AMPLE, FreeSpace
from borgish.cell.model import Cell
from borgish.clock import Now
from borgish.master.core import RESYNC_SECONDS, Core
from borgish.master.step import CommandRequest, Input, PollsMissed, Step
from borgish.reconcilers import RECONCILERS
from borgish.scheduler.schedule import TASKS_MAX
from borgish.sim.lab.cell import BEGIN_SECONDS, LabCell, Look, Watch, service
from borgish.sim.lab.plots import Figure, Line
from borgish.sim.lab.report import Report, Table, longest, middle, never, number, percent

MACHINES = 12
JOBS = 6
TASKS = 11
CHANGES_SECONDS = 90.0
QUIET_SECONDS = 45.0
PAUSE_SECONDS = 4.0
LOOK_SECONDS = 0.1
TRAVEL_SECONDS = 0.0005
AWAY_SECONDS = 25.0
SHARE = 0.3
"""Of the edges that are lost, late or doubled."""
LATE_SECONDS = 10.0
"""So late at most, and so long after the first at most comes the second."""


class Regime(StrEnum):
    """What wakes the loops, and what they see. The last is borgish as it is, without the channel."""

    EDGES = "edges"
    LEVELS = "edges, levels"
    RESYNC = "resync"
    BOTH = "levels, resync"
    ONE_STEP = "one process"


class Trouble(StrEnum):
    """What is in the way of changes. Only the first four are about the channel."""

    NONE = "none"
    LOST = "lost"
    LATE = "late"
    DOUBLED = "doubled"
    OVERLAPPING = "overlapping"
    SILENT = "silent"


class Edge(NamedTuple):
    """That something of a record has changed."""

    kind: str  # job or machine
    name: str


class Channel:
    """Carries edges from what changed to who is to look."""

    def __init__(self, chance: Random, trouble: Trouble, share: float, wake: Callable[[float], None]) -> None:
        """``wake`` is called with the seconds after which somebody is to call ``take``."""
        self.sent = 0
        self._chance, self._trouble, self._share, self._wake = chance, trouble, share, wake
        self._under_way: list[tuple[float, Edge]] = []

    def send(self, edges: Iterable[Edge], now: float) -> None:
        for edge in sorted(edges):
            self.sent += 1
            is_troubled = self._chance.random() < self._share
            later = self._chance.uniform(0.0, LATE_SECONDS)
            if is_troubled and self._trouble is Trouble.LOST:
                continue
            travel = TRAVEL_SECONDS + later * (is_troubled and self._trouble is Trouble.LATE)
            self._carry(edge, now, travel)
            if is_troubled and self._trouble is Trouble.DOUBLED:
                self._carry(edge, now, travel + later)

    def _carry(self, edge: Edge, now: float, seconds: float) -> None:
        self._under_way.append((now + seconds, edge))
        self._wake(seconds)

    def take(self, now: float) -> set[Edge]:
        """Return what has arrived."""
        arrived = {edge for at, edge in self._under_way if at <= now + 1e-9}
        self._under_way = [(at, edge) for at, edge in self._under_way if at > now + 1e-9]
        return arrived


class Seen(dict[str, Any]):
    """Records by name. Only those in sight are walked over; any can be looked up. All of it is counted."""

    def __init__(
        self, records: Mapping[str, Any], names: set[str] | None, note: Callable[[int], None]
    ) -> None:
        super().__init__(records)
        self._in_sight = [name for name in records if names is None or name in names]
        self._note = note

    def __getitem__(self, name: str) -> Any:
        self._note(1)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(1)
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self._note(len(self._in_sight))
        return iter(self._in_sight)

    def keys(self) -> Any:
        return dict.fromkeys(self).keys()

    def items(self) -> Any:
        return {name: dict.__getitem__(self, name) for name in self}.items()

    def values(self) -> Any:
        return {name: dict.__getitem__(self, name) for name in self}.values()


INDEXES_BY_JOB = "waiting", "deferred", "failing", "handovers", "rolling", "crowded"
"""Where reconcilers and the scheduler find the jobs that they go through."""


def in_sight(cell: Cell, edges: set[Edge] | None, note: Callable[[int], None]) -> Cell:
    """Return the cell as somebody sees it who is told of these records; None: of all of them."""
    seen = copy(cell)
    jobs = machines = None
    if edges is not None:
        jobs = {edge.name for edge in edges if edge.kind == "job"}
        machines = {edge.name for edge in edges if edge.kind == "machine"}
        for name in INDEXES_BY_JOB:
            there = getattr(cell, name)
            few = (
                there & jobs if isinstance(there, set) else {key: there[key] for key in there if key in jobs}
            )
            setattr(seen, name, few)
        seen.swept = copy(cell.swept)
        seen.swept.rechecked = cell.swept.rechecked & jobs
        seen.swept.over_max_failures = cell.swept.over_max_failures & jobs
    seen.jobs = Seen(cell.jobs, jobs, note)
    seen.machines = Seen(cell.machines, machines, note)
    return seen


class TriggeredCore(Core):
    """The core, woken as a regime has it. ``prepare`` comes before the first step."""

    regime = Regime.BOTH
    resync_seconds = RESYNC_SECONDS
    looked_at = 0
    passes = 0
    channel: Channel | None = None
    _edges: set[Edge] | None = None  # what is in sight in this step; None: everything
    _is_awake = True

    def prepare(self, regime: Regime, resync_seconds: float, channel: Channel) -> None:
        """Be woken like this from now on."""
        self.regime, self.resync_seconds, self.channel = regime, resync_seconds, channel
        self.looked_at = self.passes = 0

    def step(
        self,
        inputs: Iterable[Input],
        now: Now,
        free_space: FreeSpace = AMPLE,
        tasks_max: int = TASKS_MAX,
    ) -> Step:
        news: set[Edge] = set()
        step = super().step(_noting(inputs, news), now, free_space, tasks_max)
        if self.channel is not None:
            touched = step.touched
            jobs = touched.jobs | touched.tasks.keys() | touched.jobs_gone | touched.handovers.keys()
            news |= {Edge("job", name) for name in jobs | step.seen.keys()}
            machines = touched.machines | touched.placements | touched.machines_gone
            news |= {Edge("machine", name) for name in machines}
            self.channel.send(news, now.mono)
        return step

    def _reconcile(self, now: Now) -> None:
        if self.channel is None or self.regime is Regime.ONE_STEP:
            self.passes += 1
            super()._reconcile(now)
            return
        edges, is_due = self.channel.take(now.mono), now.mono >= self._resync_at
        has_timer = self.regime in (Regime.RESYNC, Regime.BOTH)
        is_told = bool(edges) and self.regime is not Regime.RESYNC
        self._is_awake = is_told or (is_due and has_timer)
        self._is_resync = False
        if not self._is_awake:
            return
        self.passes += 1
        self._has_more |= is_told  # what else the scheduler is woken by was touched in an earlier step
        self._edges = edges if self.regime is Regime.EDGES else None
        if not has_timer:
            self._resync_at = now.mono  # all that a resync looks at, whenever an edge comes
        super()._reconcile(now)
        if self._is_resync:
            self._resync_at = now.mono + self.resync_seconds

    def _schedule(self, now: Now, tasks_max: int) -> bool:
        if not self._is_awake:
            return False
        self._scheduler.read_anew()  # others are in sight than were before
        more = super()._schedule(now, tasks_max)
        self._note(len(self._read))
        return more

    def _in_sight(self) -> Cell:
        return in_sight(self.cell, self._edges, self._note)

    def _note(self, records: int) -> None:
        self.looked_at += records


def _noting(inputs: Iterable[Input], news: set[Edge]) -> Iterator[Input]:
    """Pass inputs on, and note the machines of which they tell something."""
    for each in inputs:
        if isinstance(each, PollsMissed):
            news |= {Edge("machine", name) for name in each.machines}
        elif isinstance(each, CommandRequest) and isinstance(each.command, Observe):
            news.add(Edge("machine", each.command.machine))
        yield each


class Outcome(msgspec.Struct, frozen=True):
    """What came of one life of a cell, or of several."""

    seconds: tuple[float, ...]  # of each change until it had come about; infinite: it never did
    looks: tuple[Look, ...]  # of the first life
    off: float  # programs that were not as wanted, times the seconds for which they were not
    looked_at: int  # records
    passes: int
    edges: int
    actions: int  # entries of the journal, of reconcilers and scheduler

    def plus(self, other: "Outcome") -> "Outcome":
        """Return what came of this and another."""
        return Outcome(
            self.seconds + other.seconds,
            self.looks,
            self.off + other.off,
            self.looked_at + other.looked_at,
            self.passes + other.passes,
            self.edges + other.edges,
            self.actions + other.actions,
        )


def live(
    seed: int, regime: Regime, trouble: Trouble, share: float, resync: float, machines: int = MACHINES
) -> Outcome:
    """Let a cell live through the changes of a seed."""
    cell = LabCell(seed, machines, TriggeredCore)
    try:
        cell.begin(service(f"job-{number}", TASKS, 1) for number in range(JOBS))
        core = cell.host.core
        assert isinstance(core, TriggeredCore)
        channel = Channel(_chance(seed, "channel"), trouble, share, partial(_wake, cell))
        core.prepare(regime, resync, channel)
        watch, before = Watch(cell, LOOK_SECONDS), core.cell.position
        watch.begin()
        for at, change in story(seed, trouble):
            cell.clock.after(at, partial(change, cell, watch))
        cell.clock.run_until(BEGIN_SECONDS + CHANGES_SECONDS + QUIET_SECONDS)
        watch.end()
        loops = {"scheduler", *(loop.name for loop in RECONCILERS)}
        return Outcome(
            tuple(watch.seconds),
            tuple(watch.looks),
            sum(look.gap for look in watch.looks) * LOOK_SECONDS,
            core.looked_at,
            core.passes,
            channel.sent,
            sum(entry.actor in loops for entry in cell.host.store.reopen().entries(before)),
        )
    finally:
        cell.close()


def _wake(cell: LabCell, seconds: float) -> None:
    def arrive() -> None:
        if cell.host.leader is not None:
            cell.host.leader.inbox.wake()

    cell.clock.after(seconds, arrive)


def _chance(seed: int, name: str) -> Random:
    return Random(f"{seed}:{name}")  # noqa: S311 - chance that can be repeated, not secrets


Change = Callable[[LabCell, Watch], None]


def _scale(job: str, tasks: int, cell: LabCell, watch: Watch) -> None:
    cell.scale(job, tasks)
    watch.changed([job])


def _update(job: str, version: int, cell: LabCell, watch: Watch) -> None:
    known = cell.wanted[job]
    cell.submit(msgspec.structs.replace(known, run=("serve", str(version))))
    watch.changed([job])


def _switch_off(machine: str, cell: LabCell, watch: Watch) -> None:
    watch.changed(cell.jobs_on(machine))
    cell.machines[machine].lose_programs()
    cell.clock.after(AWAY_SECONDS, cell.machines[machine].begin)


def story(seed: int, trouble: Trouble) -> Iterator[tuple[float, Change]]:
    """Yield what happens, and when: the same in all regimes."""
    chance, at, version = _chance(seed, f"story of {trouble}"), 1.0, 1
    keys = [f"ann/job-{number}" for number in range(JOBS)]
    sizes = dict.fromkeys(keys, TASKS)
    is_away_until = 0.0
    while at < CHANGES_SECONDS:
        job, kind, version = chance.choice(keys), chance.random(), version + 1
        if trouble is Trouble.OVERLAPPING:
            # One gives up what the other needs: there is no room for both until its programs have ended.
            other = chance.choice([key for key in keys if key != job])
            moved = min(8, sizes[other] - 2)
            room = MACHINES * 8 - sum(sizes.values())
            sizes[other] -= moved
            sizes[job] += moved + room
            yield at, partial(_scale, job, sizes[job])
            yield at + 0.3, partial(_scale, other, sizes[other])
        elif trouble is Trouble.SILENT and kind < 0.5 and at > is_away_until:
            is_away_until = at + AWAY_SECONDS + 15.0
            yield at, partial(_switch_off, f"m{chance.randrange(MACHINES) + 1:02}")
        elif trouble is Trouble.SILENT:
            yield at, partial(_update, job, version)
        else:
            sizes[job] = chance.choice([size for size in range(4, 15) if size != sizes[job]])
            yield at, partial(_scale, job, sizes[job])
        at += chance.uniform(0.5, 1.5) * PAUSE_SECONDS


PERIODS_SECONDS = 1.0, 3.0, 10.0, 30.0
Outcomes = dict[Trouble, dict[Regime, Outcome]]
Periods = dict[Regime, dict[float, Outcome]]


def run(seed: int, runs: int, share: float, resync: float) -> Report:
    """Let cells live in each regime under each trouble, each with the changes of so many seeds."""
    outcomes: Outcomes = {
        trouble: {regime: _lives(seed, runs, regime, trouble, share, resync) for regime in Regime}
        for trouble in Trouble
    }
    periods = {
        regime: {each: _lives(seed, 1, regime, Trouble.LOST, share, each) for each in PERIODS_SECONDS}
        for regime in (Regime.RESYNC, Regime.BOTH)
    }
    larger = {
        regime: _lives(seed, runs, regime, Trouble.NONE, share, resync, 2 * MACHINES)
        for regime in (Regime.EDGES, Regime.RESYNC)
    }
    return Report(
        "triggers",
        "What has to wake a reconciler, and what does it have to look at?",
        {"seed": seed, "runs": runs, "share": share, "resync": resync},
        (_table(outcomes), _periods_table(periods, share)),
        _figures(outcomes, periods),
        tuple(_conclusion(outcomes, periods, larger, share, resync)),
        {
            "outcomes": {
                str(t): {str(r): _data(each) for r, each in row.items()} for t, row in outcomes.items()
            },
            "periods": {
                str(r): {f"{p:g}": _data(each) for p, each in row.items()} for r, row in periods.items()
            },
        },
    )


def _lives(
    seed: int,
    runs: int,
    regime: Regime,
    trouble: Trouble,
    share: float,
    resync: float,
    machines: int = MACHINES,
) -> Outcome:
    seeds = range(seed, seed + runs)
    first, *others = (live(each, regime, trouble, share, resync, machines) for each in seeds)
    for other in others:
        first = first.plus(other)
    return first


def _data(outcome: Outcome) -> dict[str, object]:
    there = [each for each in outcome.seconds if each != float("inf")]
    return {
        "changes": len(outcome.seconds),
        "never": never(outcome.seconds),
        "seconds": [round(each, 3) for each in there],
        "off_program_seconds": round(outcome.off, 1),
        "records": outcome.looked_at,
        "passes": outcome.passes,
        "edges": outcome.edges,
        "actions": outcome.actions,
    }


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        f"{never(outcome.seconds)} of {len(outcome.seconds)}",
        number(middle(outcome.seconds)),
        number(longest(outcome.seconds), 1),
        number(outcome.off, 0),
        f"{outcome.passes:,}",
        f"{outcome.looked_at:,}",
        f"{outcome.actions:,}",
    )


COLUMNS = "never", "median s", "max s", "off, program s", "passes", "records", "actions"


def _table(outcomes: Outcomes) -> Table:
    rows = [
        (str(trouble), str(regime), *_row(outcome))
        for trouble, by_regime in outcomes.items()
        for regime, outcome in by_regime.items()
    ]
    title = "Changes until they had come about, and the work that it took"
    return Table(title, ("trouble", "woken by", *COLUMNS), tuple(rows), names=2)


def _periods_table(periods: Periods, share: float) -> Table:
    rows = [
        (f"{seconds:g} s", str(regime), *_row(outcome))
        for regime, by_period in periods.items()
        for seconds, outcome in by_period.items()
    ]
    title = f"The same with {percent(share)} of the edges lost, by the period of the resync"
    return Table(title, ("period", "woken by", *COLUMNS), tuple(rows), names=2)


def _figures(outcomes: Outcomes, periods: Periods) -> tuple[Figure, ...]:
    silent = outcomes[Trouble.SILENT]
    wanted = Line("wanted", tuple((look.at, look.wanted) for look in _thin(silent[Regime.ONE_STEP])))
    right = [
        Line(str(regime), tuple((look.at, look.right) for look in _thin(silent[regime])))
        for regime in (Regime.EDGES, Regime.LEVELS, Regime.BOTH)
    ]
    title = "Silent machines and updates: what is wanted, and what runs"
    figures = [Figure(title, "seconds", "programs", (wanted, *right), from_zero=False)]
    for trouble, by_regime in outcomes.items():
        lines = [Line(str(regime), tuple(_summed(outcome))) for regime, outcome in by_regime.items()]
        title = f"Trouble: {trouble}. How far off the cell was, added up"
        figures.append(Figure(title, "seconds", "program seconds", tuple(lines)))
    lines = [
        Line(
            str(regime), tuple((seconds, longest(outcome.seconds)) for seconds, outcome in by_period.items())
        )
        for regime, by_period in periods.items()
    ]
    figures.append(
        Figure("Edges are lost: the longest change", "period of the resync, s", "seconds", tuple(lines))
    )
    return tuple(figures)


def _thin(outcome: Outcome) -> tuple[Look, ...]:
    return outcome.looks[:: round(0.5 / LOOK_SECONDS)]


def _summed(outcome: Outcome) -> Iterator[tuple[float, float]]:
    off = 0.0
    for place, look in enumerate(outcome.looks):
        off += look.gap * LOOK_SECONDS
        if place % round(0.5 / LOOK_SECONDS) == 0:
            yield look.at, round(off, 2)


def _conclusion(
    outcomes: Outcomes, periods: Periods, larger: Mapping[Regime, Outcome], share: float, resync: float
) -> Iterator[str]:
    calm, lost, late = (outcomes[each] for each in (Trouble.NONE, Trouble.LOST, Trouble.LATE))
    doubled, overlapping, silent = (
        outcomes[each] for each in (Trouble.DOUBLED, Trouble.OVERLAPPING, Trouble.SILENT)
    )
    edges, levels, timer, both, one = Regime
    channel = [outcomes[each] for each in (Trouble.LOST, Trouble.LATE, Trouble.DOUBLED)]
    times = calm[both].looked_at / max(1, calm[edges].looked_at)
    small = {regime: max(1, calm[regime].looked_at) for regime in larger}
    long, short = periods[both][PERIODS_SECONDS[-1]], periods[both][PERIODS_SECONDS[0]]
    yield (
        f"Where nothing is wrong, edges alone leave {_of(calm[edges])} undone and look at "
        f"{calm[edges].looked_at:,} records; levels with a resync, as in production, look at "
        f"{calm[both].looked_at:,}, {times:.1f} times as many. That is what speaks for edges."
    )
    yield (
        f"With {percent(share)} of the edges lost, edges alone leave {_of(lost[edges])} undone, and the "
        f"slowest of the others took {longest(lost[edges].seconds):.1f} s. Read as levels, the next edge "
        f"of anything mends it: {_of(lost[levels])} undone, {longest(lost[levels].seconds):.1f} s at "
        f"most. With a resync as well it is {_of(lost[both])}, and {longest(lost[both].seconds):.1f} s. "
        f"Late edges cost {longest(late[edges].seconds):.1f} s alone and "
        f"{longest(late[levels].seconds):.1f} s as levels. Doubled ones leave {_of(doubled[edges])} "
        f"undone, {longest(doubled[edges].seconds):.1f} s at most: they cost "
        f"{doubled[edges].looked_at / max(1, calm[edges].looked_at):.1f} times the records, and nothing "
        f"else."
    )
    yield (
        f"No edge has to be lost for that. Where an addition waits for room that a subtraction has yet to "
        f"give, the edge that brings the room names a machine, and not the job that waits: edges leave "
        f"{_of(overlapping[edges])} undone, and the slowest of the others took "
        f"{longest(overlapping[edges].seconds):.1f} s, against {longest(overlapping[levels].seconds):.1f} "
        f"s with levels. Who wires that edge to all that waits has made a level of it. And what only time "
        f"makes so, a machine that is silent or a task that has settled, is nobody's edge: undone are "
        f"{_of(silent[edges])} on edges, {_of(silent[levels])} with levels that only edges wake, "
        f"{_of(silent[timer])} with a resync."
    )
    yield (
        f"The resync makes it right, and the edges make it quick: where nothing is wrong, the longest "
        f"change takes {longest(calm[timer].seconds):.1f} s with a resync of {resync:g} s alone, and "
        f"{longest(calm[both].seconds):.1f} s with edges beside it. Where edges are lost, "
        f"{longest(short.seconds):.1f} s with a period of {PERIODS_SECONDS[0]:g} s become "
        f"{longest(long.seconds):.1f} s with one of {PERIODS_SECONDS[-1]:g} s. It costs "
        f"{calm[timer].looked_at:,} records for {len(calm[timer].seconds)} changes, and with twice the "
        f"machines and the same changes {larger[timer].looked_at / small[timer]:.1f} times as many, where "
        f"edges look at {larger[edges].looked_at / small[edges]:.1f} times as many: hence the indexes of "
        f"what reconcilers go through."
    )
    yield (
        f"In one process there is no channel to lose anything on. Under the same changes the longest took "
        f"{max(longest(each[one].seconds) for each in channel):.1f} s where the channel of the others "
        f"lost, delayed or doubled edges, {longest(calm[one].seconds):.1f} s where it did not, and "
        f"{longest(silent[one].seconds):.1f} s instead of {longest(silent[both].seconds):.1f} s where "
        f"machines fell silent. That is no merit of the loops: it is a channel that is not there."
    )


def _of(outcome: Outcome) -> str:
    return f"{never(outcome.seconds)} of {len(outcome.seconds)} changes"
