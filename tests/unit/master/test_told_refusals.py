"""Why tasks wait, in words: each job's once for a reading, however many of its tasks are shown."""

from typing import Any, cast

from borgish.cell.commands import SubmitJob
from borgish.cell.model import Cell, Snapshot
from borgish.clock import SystemClock
from borgish.master.core import Core
from borgish.master.reading import Reader, RecentEvents
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from tests.unit.scheduler.cells import machine, spec


async def test_the_tasks_of_a_job_are_gone_through_once() -> None:
    clock, nobody = SystemClock(), cast("Any", None)
    core = Core(Cell(Snapshot("p", machines={"m0": machine("m0")})), ReconcileSettings(), clock.now())
    core.begin(1, "me", clock.now())
    core.step([CommandRequest(1, SubmitJob(spec("ann/web", 500)), "ann")], clock.now())
    reader = Reader(core, nobody, RecentEvents(), nobody, clock, "memory")
    refusals = reader._reading().refusals
    found = refusals.get("ann/web")
    assert found
    assert refusals.get("ann/web") is found
    assert refusals.get("ann/none") is None
    assert reader._reading().refusals.get("ann/web") is not found
