"""How allocs, which run nothing, and the tasks in them are shown."""

import msgspec
import pytest

from borgish.api.views.jobs import job_detail, job_view
from borgish.api.views.machines import machine_view
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.api.views.tasks import task_view
from borgish.api.views.why import why_task
from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Task
from borgish.spec.job import JobSpec, Program
from borgish.vocabulary import Band, JobKind, Phase
from tests.unit.api.cells import LARGE, NOW, SMALL, job, running, see, small_cell, small_observed


@pytest.fixture
def cell() -> Cell:
    """The small cell, with an alloc of ann/room on m1 and one that waits, and ann/guest in the first."""
    cell = small_cell()
    room = JobSpec("room", "ann", 2, (), resources=LARGE, kind=JobKind.ALLOC_SET, priority=200)
    guest = JobSpec("guest", "ann", 1, ("g",), resources=SMALL, inside="ann/room", priority=200)
    inner = msgspec.structs.replace(running(0, "m1", 16), alloc=0)
    cell.jobs["ann/room"] = job(room, [running(0, "m1", 15), Task(1)], uid=15)
    cell.jobs["ann/guest"] = job(guest, [inner], uid=16)
    cell.reindex()
    return cell


def test_an_alloc_is_up_without_a_word_from_its_machine(cell: Cell) -> None:
    observed = small_observed()
    room = cell.jobs["ann/room"]
    assert task_view(observed, room, 0).phase is Phase.UP
    assert task_view(observed, room, 1).phase is None
    tally = Tally()
    tally.fill(cell, observed)
    assert (job_view(cell, observed, room, ()).up, tally.up("ann/room")) == (1, 1)


def test_why_says_that_it_is_reserved_and_who_is_inside(cell: Cell) -> None:
    observed = small_observed()
    see(observed, "m1", "ann/guest", 0, SeenAttempt("ann/guest/0", 16, Phase.UP))
    room = why_task(cell, observed, cell.jobs["ann/room"], 0, (), (), NOW)
    assert room.text.startswith("ann/room/0 is reserved on m1")
    guest = why_task(cell, observed, cell.jobs["ann/guest"], 0, (), (), NOW)
    assert guest.text == "ann/guest/0 runs on m1. It is in the alloc ann/room/0."
    assert guest.tasks[0].alloc == "ann/room/0"


def test_what_is_inside_is_counted_once(cell: Cell) -> None:
    observed, tally = small_observed(), Tally()
    on_m1 = machine_view(cell, observed, tally, cell.machines["m1"], NOW)
    assert on_m1.committed.cpu_millis == SMALL.cpu_millis + LARGE.cpu_millis + LARGE.cpu_millis
    daemon = Daemon(started_at=0.0, store="memory")
    (prod,) = [
        use for use in status_view(cell, observed, tally, daemon, NOW).bands if use.band is Band.PRODUCTION
    ]
    assert (prod.cpu_millis, prod.tasks) == (SMALL.cpu_millis + 2 * LARGE.cpu_millis, 4)


def test_the_environment_of_sidecars_is_hidden_from_those_who_may_not_see_it(cell: Cell) -> None:
    guest = cell.jobs["ann/guest"]
    guest.spec = msgspec.structs.replace(
        guest.spec, group=(Program("proxy", ("p",), env={"KEY": "hunter4"}),)
    )
    assert b"hunter4" in msgspec.json.encode(job_detail(cell, small_observed(), guest, (), NOW, secrets=True))
    assert b"hunter4" not in msgspec.json.encode(
        job_detail(cell, small_observed(), guest, (), NOW, secrets=False)
    )
