"""Sums that are brought up to date bit by bit, at whatever moments, are those of all tasks at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.api.views.tally import Tally
from borgish.cell.command import Command
from borgish.cell.model import Cell, Snapshot
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import Ending
from tests.profiles import examples
from tests.property.cell.test_random_lives import commands, report, reports

moves = st.lists(st.tuples(commands | reports, st.sampled_from([0, 1, 3, 1000])), max_size=20)


@settings(max_examples=examples(60))
@given(moves)
def test_sums_are_right_however_they_came_about(
    moves: list[tuple[Command | tuple[int, Ending | None, int, int], int]],
) -> None:
    now = Now(100.0, 100.0)
    core = Core(Cell(Snapshot("p")), ReconcileSettings(), now)
    core.begin(1, "me", now)
    kept = Tally()
    for move, tasks_max in moves:
        now = now.later(1.5)
        command = report(core, *move) if isinstance(move, tuple) else move
        asks = [CommandRequest(1, command, "ann", f"r{now.mono}", "d")] if command else []
        step = core.step([PollsAnswered(dict.fromkeys(core.cell.machines, now.mono)), *asks], now)
        kept.note(step.touched, step.seen)
        if tasks_max:
            kept.fill_some(core.cell, core.observed, tasks_max)
    kept.fill(core.cell, core.observed)
    assert not kept.is_behind
    anew = Tally()
    anew.fill(core.cell, core.observed)
    assert told(core.cell, kept) == told(core.cell, anew)


def told(cell: Cell, tally: Tally) -> list[object]:
    """Return all that a tally says of a cell."""
    sums = tally.sums
    return [
        sums.counts,
        sums.capacity,
        sums.draining,
        sums.machines_up,
        {key: tally.up(key) for key in cell.jobs},
        tally.all_up,
        {name: tally.fullness(name) for name in cell.machines},
        tally.jobs(100),
        list(tally.jobs_after("")),
    ]
