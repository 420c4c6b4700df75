"""Who follows what moves to a machine and from it knows the same as who looks at all that runs there."""

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.cell.command import Command
from borgish.cell.commands import JoinMachine, SubmitJob
from borgish.cell.model import Cell, Snapshot
from borgish.cell.moves import LATEST_MIN, LATEST_SHARE, Cursor, Move, Moves
from borgish.cell.observed import leaving_attempts
from borgish.clock import Now
from borgish.link.conversation import Outgoing
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.fleet.usage import Kinds, PlacedUsage
from borgish.spec.job import JobSpec, Update
from borgish.vocabulary import Ending, JobKind
from borgish.wire.changes import Digests
from tests.profiles import examples
from tests.property.cell.test_random_lives import commands, machine, report, reports, specs

START = Now(100.0, 100.0)
NAMES = ("m1", "m2")

updates = st.builds(
    lambda spec, priority, label, handover: SubmitJob(
        msgspec.structs.replace(
            spec,
            priority=priority,
            labels={"label": label},
            update=Update(settle_seconds=0.0, handover=handover),
        )
    ),
    specs,
    st.sampled_from([0, 150, 220]),
    st.sampled_from(["x", "y"]),
    st.booleans(),
)
allocs = st.sampled_from(
    [
        SubmitJob(JobSpec("room", "u", 2, (), kind=JobKind.ALLOC_SET)),
        SubmitJob(JobSpec("guest", "u", 3, ("true",), inside="u/room")),
    ]
)
# Not ``|``, which would leave most to the many commands.
moves = st.sampled_from([updates, updates, updates, allocs, commands, reports, reports]).flatmap(
    lambda each: each
)
# With each move whether anybody looks then, and about how many tasks the sums catch up with behind it.
asked = st.lists(
    st.tuples(moves, st.booleans(), st.sampled_from([0, 0, 1, 3, 1000])), min_size=20, max_size=60
)


class Follower:
    """What is kept of one machine, and the same found anew."""

    def __init__(self, core: Core, name: str) -> None:
        self.core, self.name = core, name
        self.kinds, self.placed = Kinds(), PlacedUsage()
        self.outgoing = Outgoing(core.cell, name)
        self.generation = 0

    def check(self, now: Now) -> None:
        cell, observed = self.core.cell, self.core.observed
        counted = PlacedUsage().count(cell, self.name, self.kinds)
        assert normal(self.placed.count(cell, self.name, self.kinds)) == normal(counted)

        self.generation += 1
        made = self.outgoing.assignment(observed, self.generation, now)
        whole = Outgoing(cell, self.name)
        anew = whole.assignment(observed, self.generation, now)
        # An attempt is told once, whatever becomes of the alloc that it is in.
        assert [(each.key, each.labels) for each in made.run] == [
            (each.key, each.labels) for each in anew.run
        ]
        assert made.stop == anew.stop
        digests = Digests[str]()
        digests.follow({each.key: each for each in made.run})
        self.outgoing.confirm(self.generation, digests.whole)
        assert self.outgoing.change_since(self.generation) is not None  # the digest is that of the whole

        seen = observed.machines[self.name]
        leaving = {(each.task, each.attempt): each for each in leaving_attempts(cell, self.name, seen)}
        yet = {key: each for key, each in seen.attempts.items() if each.ended is None}
        assert leaving == {key: each for key, each in yet.items() if not cell.is_wanted(self.name, *key)}
        event(f"leaving: {bool(leaving)}")
        event(f"run: {bool(made.run)}")
        event(f"incoming: {self.name in cell.arriving}")


def check_tally(core: Core, tally: Tally, now: Now) -> None:
    anew, daemon = Tally(), Daemon(0.0, "memory")
    status, status_anew = (status_view(core.cell, core.observed, each, daemon, now) for each in (tally, anew))
    assert status == status_anew
    assert sum(use.tasks for use in status.bands) == status.running
    for name in core.cell.machines:
        assert tally.committed(core.cell, name) == anew.committed(core.cell, name)
        assert tally.fullness(name) == anew.fullness(name)
    assert {key: tally.up(key) for key in core.cell.jobs} == {key: anew.up(key) for key in core.cell.jobs}
    assert tally.all_up == anew.all_up
    assert tally.jobs(3) == anew.jobs(3)
    assert tally.jobs(100) == anew.jobs(100)
    assert not tally.is_behind
    sums, whole = tally.sums, anew.sums
    assert (sums.counts, sums.capacity, sums.draining) == (whole.counts, whole.capacity, whole.draining)
    assert sums.machines_up == whole.machines_up
    assert set(tally.jobs(len(core.cell.jobs) + 1)) == core.cell.jobs.keys()
    assert list(tally.jobs_after("")) == sorted(core.cell.jobs)
    event(f"up: {bool(anew.all_up)}")


def normal(usage: object) -> object:
    """Return what a machine holds without amounts of nothing, which count like none."""
    found = msgspec.to_builtins(usage)
    for amounts in (*found["held"].values(),):
        for kind in [kind for kind, amount in amounts.items() if not amount]:
            del amounts[kind]
    found["held"] = {priority: amounts for priority, amounts in found["held"].items() if amounts}
    return found


@settings(max_examples=examples(200))
@given(asked)
def test_followers_know_what_there_is(
    asked: list[tuple[Command | tuple[int, Ending | None, int, int], bool, int]],
) -> None:
    now = START
    core = Core(Cell(Snapshot("p")), ReconcileSettings(), now)
    core.begin(1, "me", now)
    core.step(
        [CommandRequest(1, JoinMachine(machine(name, 7000), "i", True), "ann", name, "d") for name in NAMES],
        now,
    )
    followers: dict[str, Follower] = {}
    tally = Tally()
    for move, looks, tasks_max in asked:
        now = now.later(1.5)
        command = report(core, *move) if isinstance(move, tuple) else move
        asks = [CommandRequest(1, command, "ann", f"r{now.mono}", "d")] if command else []
        step = core.step([PollsAnswered(dict.fromkeys(core.cell.machines, now.mono)), *asks], now)
        tally.note(step.touched, step.seen)
        if tasks_max:
            tally.fill_some(core.cell, core.observed, tasks_max)
        if looks:
            check_tally(core, tally, now)
        for name in core.cell.machines if looks else ():
            if name not in followers:
                followers[name] = Follower(core, name)
            followers[name].check(now)
    check_tally(core, tally, now)


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "", "", "forget", "join"]))))
def test_a_cursor_misses_nothing(steps: list[tuple[int, str]]) -> None:
    """It tells all that moved since it was last asked, or that it does not know."""
    tasks, spec = 3 * LATEST_SHARE, JobSpec("a", "u", 1, ("true",))
    moves, cursor, attempt = Moves(), Cursor(), 0
    assert cursor.news(moves) is None
    for count, what in steps:
        if what == "forget":
            moves.forget()
        elif what == "join":
            moves = Moves()
        fresh = range(attempt, attempt + count)
        attempt += count
        for each in fresh:
            moves.add(Move("u/a", 0, each, 1, spec), tasks)
        found = cursor.news(moves)
        if what:
            assert found is None
        elif count <= LATEST_MIN + 3:
            assert found is not None
        assert found is None or [move.attempt for move in found] == list(fresh)
        assert len(moves.latest) <= 2 * (LATEST_MIN + 3)
