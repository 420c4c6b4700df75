"""One process against many: what it costs to take the master apart, and what it buys.

The same cell and the same changes, while machines die, once with the master as it is, once with a store and
actors (``many`` says what is the same code and what is the lab's). Swept are how many changes come in a
second, and how long a message takes. Then what the parts are apart for: one loop hangs.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random

import msgspec

from borgish.master.core import Core
from borgish.master.step import Step
from borgish.sim.lab.cell import BEGIN_SECONDS, LabCell, Watch, service
from borgish.sim.lab.many import LOOPS, SCHEDULER, Counts, Many, StoreCore
from borgish.sim.lab.plots import Figure, Line
from borgish.sim.lab.report import Report, Table, longest, middle, never, number, percent
from borgish.vocabulary import split_task_name

MACHINES = 16
JOBS = 12
TASKS = 6
SIZES = range(3, 10)
CHANGES_SECONDS = 34.0
QUIET_SECONDS = 30.0
LOOK_SECONDS = 0.05
DEATHS_SECONDS = 3.0, 15.0, 27.0
"""Not more often than machines are given up one by one."""
AWAY_SECONDS = 30.0
UPDATES_SHARE = 0.4
LOADS = 0.5, 2.0, 5.0
DELAYS = 0.01, 0.1, 0.5
HANG_SECONDS = 20.0
HANGING = "taints", "rollout", "stranded", SCHEDULER


class Setting(msgspec.Struct, frozen=True):
    """How one life of a cell is. ``delay`` None: the master is one process. ``hangs``: the loop that hangs
    for ``HANG_SECONDS`` when the first machine dies; in one process that is all of it."""

    load: float  # changes in a second
    delay: float | None = None
    loss: float = 0.0
    whole_jobs: bool = False
    hangs: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What came of it."""

    changes: int
    seconds: tuple[float, ...]  # of each change until it had come about; infinite: it never did
    heals: tuple[float, ...]  # of each machine that died, until its tasks ran elsewhere; infinite: never
    counts: Counts

    @property
    def heal(self) -> float:
        """The mean seconds until what a machine ran is run by others."""
        return sum(self.heals) / max(1, len(self.heals))

    def each(self, count: int) -> float:
        """Return a count by change, where the death of a machine is one, too."""
        return count / max(1, self.changes + len(self.heals))

    @property
    def conflict_share(self) -> float:
        return self.counts.conflicts / max(1, self.counts.writes)

    @property
    def stale_share(self) -> float:
        return self.counts.stale / max(1, self.counts.writes)

    @property
    def age(self) -> float:
        """For how long, in the mean, there was something newer than what a write was decided on."""
        return sum(self.counts.ages) / max(1, len(self.counts.ages))


class Heals:
    """Measures how long it takes until what a machine ran is run by others."""

    def __init__(self, cell: LabCell) -> None:
        self.seconds: list[float] = []
        self._cell = cell
        self._open: list[tuple[float, set[tuple[str, int]]]] = []

    def die(self) -> None:
        """Let the machine that runs the most lose its power, for a while."""
        name = max(self._cell.machines, key=lambda each: (len(self._running([each])), each))
        lost = self._running([name])
        machine = self._cell.machines[name]
        machine.lose_programs()
        self._open.append((self._cell.clock.now().mono, lost))
        self._cell.clock.after(AWAY_SECONDS, machine.begin)

    def begin(self) -> None:
        """Look from now on."""
        now, runs = self._cell.clock.now().mono, self._running(self._cell.machines)
        wanted = {key: spec.tasks for key, spec in self._cell.wanted.items()}
        still = []
        for since, lost in self._open:
            if any(task not in runs and task[1] < wanted[task[0]] for task in lost):
                still.append((since, lost))
            else:
                self.seconds.append(now - since)
        self._open = still
        self._cell.clock.after(LOOK_SECONDS, self.begin)

    def end(self) -> tuple[float, ...]:
        """Return the seconds of each; infinite where it has not come about."""
        return (*self.seconds, *[float("inf")] * len(self._open))

    def _running(self, machines: Iterable[str]) -> set[tuple[str, int]]:
        return {
            split_task_name(program.spec.task)
            for name in machines
            for program in self._cell.machines[name].programs.by_key.values()
            if program.is_alive
        }


def live(seed: int, setting: Setting) -> Outcome:
    """Let a cell live through the changes of a seed."""
    is_one = setting.delay is None
    cell = LabCell(seed, MACHINES, Core if is_one else StoreCore)
    many = None
    counts = Counts()
    if setting.delay is None:
        cell.host.published = partial(_count, counts)
    else:
        many = Many(cell, setting.delay, setting.loss, whole_jobs=setting.whole_jobs)
        counts = many.counts
    try:
        cell.begin(service(f"job-{index}", TASKS, 1) for index in range(JOBS))
        for name in Counts.__struct_fields__:
            setattr(counts, name, type(getattr(counts, name))())
        watch, heals = Watch(cell, LOOK_SECONDS), Heals(cell)
        watch.begin()
        heals.begin()
        changes = _plan(cell, watch, seed, setting.load)
        for at in DEATHS_SECONDS:
            cell.clock.after(at, heals.die)
        if setting.hangs:
            cell.clock.after(DEATHS_SECONDS[0], partial(_hang, cell, many, setting.hangs))
        cell.clock.run_until(BEGIN_SECONDS + CHANGES_SECONDS + QUIET_SECONDS)
        watch.end()
        return Outcome(changes, tuple(watch.seconds), heals.end(), counts)
    finally:
        cell.close()


def _count(counts: Counts, step: Step) -> None:
    counts.commits += bool(step.entries)
    counts.entries += len(step.entries)


def _hang(cell: LabCell, many: Many | None, loop: str) -> None:
    if many is None:
        cell.host.stall(HANG_SECONDS)
    else:
        many.processes[loop].stop_for(HANG_SECONDS)


def _plan(cell: LabCell, watch: Watch, seed: int, load: float) -> int:
    """Plan changes, the same for one process and for many; return how many."""
    chance = Random(f"{seed}:changes")  # noqa: S311 - chance that can be repeated, not secrets
    at, changes = chance.expovariate(load), 0
    while at < CHANGES_SECONDS:
        job, size, kind = f"ann/job-{chance.randrange(JOBS)}", chance.choice(SIZES), chance.random()
        changes += 1
        cell.clock.after(at, partial(_change, cell, watch, job, size, changes + 1, kind))
        at += chance.expovariate(load)
    return changes


def _change(cell: LabCell, watch: Watch, job: str, size: int, version: int, kind: float) -> None:
    if kind < UPDATES_SHARE:
        cell.submit(msgspec.structs.replace(cell.wanted[job], run=("serve", str(version))))
    else:
        cell.scale(job, size)
    watch.changed([job])


Sweep = dict[float, dict[float | None, Outcome]]
"""By load and delay."""


def run(seed: int, loss: float) -> Report:
    """Sweep load and delay, then lose messages, then let a loop hang."""
    sweep: Sweep = {
        load: {delay: live(seed, Setting(load, delay)) for delay in (None, *DELAYS)} for load in LOADS
    }
    load, delay = LOADS[1], DELAYS[1]
    grains = {
        "tasks": sweep[load][delay],
        "whole jobs": live(seed, Setting(load, delay, whole_jobs=True)),
        f"tasks, {percent(loss)} of messages lost": live(seed, Setting(load, delay, loss)),
    }
    hung = {
        "one process: all of it": live(seed, Setting(LOADS[0], hangs=HANGING[0])),
        **{f"actors: {loop}": live(seed, Setting(LOADS[0], DELAYS[0], hangs=loop)) for loop in HANGING},
    }
    return Report(
        "actors",
        "What does it cost to take the master apart, and what does it buy?",
        {"seed": seed, "loss": loss},
        (_sweep_table(sweep), _grains_table(grains), _hung_table(hung)),
        _figures(sweep),
        tuple(_conclusion(sweep, grains, hung)),
        {
            "sweep": [
                {"load": load, "delay": delay, **_data(outcome)}
                for load, by_delay in sweep.items()
                for delay, outcome in by_delay.items()
            ],
            "grains": {name: _data(outcome) for name, outcome in grains.items()},
            "hung": {name: _data(outcome) for name, outcome in hung.items()},
        },
    )


def _data(outcome: Outcome) -> dict[str, object]:
    counts = msgspec.structs.asdict(outcome.counts)
    counts["ages"] = [round(each, 4) for each in outcome.counts.ages]
    return {
        "changes": outcome.changes,
        "never": never(outcome.seconds),
        "longest": round(longest(outcome.seconds), 3),
        "heals": [None if each == float("inf") else round(each, 3) for each in outcome.heals],
        **counts,
    }


def _heals(outcome: Outcome) -> tuple[str, str]:
    slowest = max(outcome.heals)
    return number(middle(outcome.heals), 1), number(None if slowest == float("inf") else slowest, 1)


def _apart(outcome: Outcome) -> tuple[str, ...]:
    return (
        number(outcome.each(outcome.counts.messages), 0),
        f"{outcome.counts.writes}",
        percent(outcome.stale_share),
        number(outcome.age, 3),
        percent(outcome.conflict_share),
    )


def _sweep_table(sweep: Sweep) -> Table:
    rows = [
        (
            f"{load:g}",
            "one process" if delay is None else f"actors, {delay:g} s",
            *_heals(outcome),
            number(longest(outcome.seconds), 1),
            number(outcome.each(outcome.counts.commits)),
            number(outcome.each(outcome.counts.entries)),
            *(("", "", "", "", "") if delay is None else _apart(outcome)),
        )
        for load, by_delay in sweep.items()
        for delay, outcome in by_delay.items()
    ]
    columns = ("changes/s", "", "heal s", "max", "change max s", "commits", "entries")
    others = ("messages", "writes", "stale", "by s", "conflicts")
    title = (
        "Time to heal, changes, and for each change commits, entries of the journal and messages between the "
        "parts; of all writes those decided on an old cell, how old it was, and those refused"
    )
    return Table(title, (*columns, *others), tuple(rows), names=2)


def _grains_table(grains: Mapping[str, Outcome]) -> Table:
    rows = [(name, *_heals(outcome), *_apart(outcome)) for name, outcome in grains.items()]
    columns = (
        "in conflict are writes about",
        "heal s",
        "max",
        "messages",
        "writes",
        "stale",
        "by s",
        "conflicts",
    )
    return Table(
        f"What counts as a conflict, at {LOADS[1]:g} changes/s and {DELAYS[1]:g} s", columns, tuple(rows)
    )


def _hung_table(hung: Mapping[str, Outcome]) -> Table:
    rows = [
        (
            name,
            *_heals(outcome),
            f"{never(outcome.seconds)}",
            number(middle(outcome.seconds)),
            number(longest(outcome.seconds), 1),
        )
        for name, outcome in hung.items()
    ]
    columns = ("what hangs", "heal s", "max", "never", "change median s", "max")
    return Table(f"A loop hangs for {HANG_SECONDS:g} s as a machine dies", columns, tuple(rows))


def _figures(sweep: Sweep) -> tuple[Figure, ...]:
    one = sweep[LOADS[1]][None]
    heals = [Line("one process", tuple((delay, one.heal) for delay in DELAYS))]
    for load, by_delay in sweep.items():
        heals.append(
            Line(f"actors, {load:g} changes/s", tuple((delay, by_delay[delay].heal) for delay in DELAYS))
        )
    shares = [
        *(
            Line(f"stale, {load:g} changes/s", tuple((d, 100 * by_delay[d].stale_share) for d in DELAYS))
            for load, by_delay in sweep.items()
        ),
        *(
            Line(
                f"conflict, {load:g} changes/s", tuple((d, 100 * by_delay[d].conflict_share) for d in DELAYS)
            )
            for load, by_delay in sweep.items()
        ),
    ]
    x = "delay of a message, s"
    return (
        Figure(
            "A machine dies: until others run what it ran", x, "mean seconds", tuple(heals), is_log_x=True
        ),
        Figure(
            "Writes of actors on an old cell, and in conflict", x, "% of writes", tuple(shares), is_log_x=True
        ),
    )


def _conclusion(sweep: Sweep, grains: Mapping[str, Outcome], hung: Mapping[str, Outcome]) -> Iterator[str]:
    quick, slow = DELAYS[0], DELAYS[-1]
    middle_load, high = LOADS[1], LOADS[-1]
    one, near, far = (sweep[middle_load][each] for each in (None, quick, slow))
    busy, hung_one = sweep[high][slow], hung["one process: all of it"]
    tasks, jobs, lost = grains.values()
    yield (
        f"Taken apart, a cell at {middle_load:g} changes a second needs "
        f"{near.each(near.counts.messages):,.0f} messages a change between its parts, of which one "
        f"process needs none: {len(LOOPS)} caches hear everything, and each entry is applied "
        f"{len(LOOPS) + 1} times. {near.each(near.counts.commits):.2f} commits a change stand against "
        f"{one.each(one.counts.commits):.2f}, since what one turn decides is written at once."
    )
    yield (
        f"A machine that dies is healed in {one.heal:.1f} s by one process, in the mean. With messages of "
        f"{1000 * quick:g} ms it is {near.heal:.1f} s, with {slow:g} s it is {far.heal:.1f} s. To find "
        f"the machine down, give it up, send its tasks back and place them is a chain of loops: in one "
        f"process it runs through in one step, apart each link waits for what the one before has written, "
        f"and for its own resync."
    )
    yield (
        f"Caches are old: {percent(near.stale_share)} of the writes were decided on a cell that was not "
        f"the latest with {1000 * quick:g} ms, {percent(busy.stale_share)} with {slow:g} s at {high:g} "
        f"changes a second, by {busy.age:.2f} s in the mean. Of the writes {percent(near.conflict_share)} "
        f"and {percent(busy.conflict_share)} were refused as conflicts; who is refused looks again, and "
        f"{_never(sweep)} changes were left undone. Where all writes about one job are in conflict it is "
        f"{percent(jobs.conflict_share)} in place of {percent(tasks.conflict_share)}. Lost messages make "
        f"caches {lost.age / max(1e-9, tasks.age):.1f} times as old, and the slowest change "
        f"{longest(lost.seconds):.1f} s in place of {longest(tasks.seconds):.1f} s."
    )
    apart = {loop: hung[f"actors: {loop}"] for loop in HANGING}
    yield (
        f"What the parts buy is that one may fail alone. Where one process hangs for {HANG_SECONDS:g} s, "
        f"nothing heals for so long: the slowest machine took {max(hung_one.heals):.1f} s, the slowest "
        f"change {longest(hung_one.seconds):.1f} s. Apart, the loop that looks after taints may hang as "
        f"long, and it is {max(apart['taints'].heals):.1f} s and {longest(apart['taints'].seconds):.1f} "
        f"s; where rollouts hang, updates wait ({longest(apart['rollout'].seconds):.1f} s) and machines "
        f"are healed ({max(apart['rollout'].heals):.1f} s). But where a link of the chain hangs, healing "
        f"hangs with it: {max(apart['stranded'].heals):.1f} s with the loop that gives machines up, "
        f"{max(apart[SCHEDULER].heals):.1f} s with the scheduler. An exception is none of this: one loop "
        f"that raises does not end the others in borgish either."
    )
    yield (
        "Not measured here: loops have no decision time in this lab, so what parts gain by deciding side "
        "by side on cores of their own is not in it (see the lab of schedulers), nor that they can be "
        "released one by one and be written by different people."
    )


def _never(sweep: Sweep) -> str:
    outcomes = [outcome for by_delay in sweep.values() for outcome in by_delay.values()]
    return (
        f"{sum(never(each.seconds) for each in outcomes)} of {sum(len(each.seconds) for each in outcomes):,}"
    )
