"""The master's sums catch up while nobody reads, and others are let in between."""

import asyncio
from typing import Any, cast

from borgish.cell.commands import SubmitJob
from borgish.cell.model import Cell, Snapshot
from borgish.clock import SystemClock
from borgish.master.core import Core
from borgish.master.reading import TASKS_AT_ONCE, Reader, RecentEvents
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from tests.unit.scheduler.cells import machine, spec

TASKS = 5 * TASKS_AT_ONCE


def submitted() -> tuple[Core, Reader]:
    """Return a master that has just taken in a large job, and what reads it."""
    clock, nobody = SystemClock(), cast("Any", None)
    core = Core(Cell(Snapshot("p", machines={"m0": machine("m0")})), ReconcileSettings(), clock.now())
    core.begin(1, "me", clock.now())
    step = core.step([CommandRequest(1, SubmitJob(spec("ann/web", TASKS)), "ann")], clock.now())
    reader = Reader(core, nobody, RecentEvents(), nobody, clock, "memory")
    reader.changed(step)
    return core, reader


async def test_sums_catch_up_in_pauses() -> None:
    core, reader = submitted()
    task = reader._catching_up
    assert task is not None
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > TASKS / TASKS_AT_ONCE  # others had the loop meanwhile
    assert not reader._tally.is_behind
    assert reader._tally.sums.counts[0] == len(core.cell.jobs["ann/web"].tasks) == TASKS


async def test_nothing_is_summed_up_of_a_master_that_has_ended() -> None:
    _, reader = submitted()
    task = reader._catching_up
    assert task is not None
    reader.close()
    await asyncio.wait([task])
    assert task.cancelled()
    assert reader._tally.is_behind
