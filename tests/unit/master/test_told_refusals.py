"""Why tasks wait, in words: each job's once for a reading, however many of its tasks are shown."""

from typing import Any, cast

import pytest

from borgish.api.views.jobs import job_view
from borgish.api.views.why import why_job, why_task
from borgish.cell.commands import SubmitJob
from borgish.cell.events import TasksEvicted, TasksPlaced
from borgish.cell.model import Cell, FailedOn, Snapshot
from borgish.clock import SystemClock
from borgish.master.core import Core
from borgish.master.reading import Reader, RecentEvents
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import Eviction
from tests.unit.scheduler.cells import cell_of, happen, machine, spec


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


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ("cannot start: no command 'x' in PATH", "mend what it runs and submit it again; `borgctl why"),
        ("exit code 1; 7 starts in a row ended early", "`borgctl task logs ann/web/0` shows what it wrote"),
    ],
)
async def test_what_failed_is_said_before_the_lack_of_room_elsewhere(how: str, hint: str) -> None:
    clock, nobody = SystemClock(), cast("Any", None)
    cell = cell_of([machine("m1"), machine("m2", cpu=1000)], [spec("ann/web", 2, cpu=3000)])
    happen(cell, TasksPlaced("ann/web", (0,), ("m1",)))
    failed, record = f"failed on m1: {how}", FailedOn("m1", clock.now().wall + 60.0, 1)
    happen(cell, TasksEvicted("ann/web", (0,), Eviction.FAILED, failed, failed=(record,)))
    happen(cell, TasksPlaced("ann/web", (1,), ("m1",)))
    core = Core(cell, ReconcileSettings(), clock.now())
    core.begin(1, "me", clock.now())
    core.step([], clock.now())
    reading = Reader(core, nobody, RecentEvents(), nobody, clock, "memory")._reading()
    (refused,) = reading.refusals["ann/web"]
    assert refused.text.startswith(f"{failed}; 0 of 2 machines fit: ")
    assert "the task failed there" in refused.text
    assert refused.hint.startswith(hint)
    job = cell.jobs["ann/web"]
    assert job_view(cell, core.observed, job, (refused,)).reason.startswith(failed)
    assert how in why_job(cell, core.observed, job, (refused,), (), clock.now()).text
    # Of the task it is said once.
    assert why_task(cell, core.observed, job, 0, (refused,), (), clock.now()).text.count(how) == 1
