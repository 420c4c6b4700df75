"""Tasks that failed on machines: where they go, what they wait for, and what a held job's pass does."""

import msgspec

from borgish.cell.events import AnyEvent, JobHeld, TasksEvicted, TasksPlaced
from borgish.cell.model import Cell, FailedOn
from borgish.clock import Now
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, JobKind
from tests.unit.scheduler.cells import NOW, cell_of, happen, machine, observed_of, spec, where

UNTIL = NOW.wall + 60.0


def failed(job: str, index: int, name: str, until: float = UNTIL) -> AnyEvent:
    record = FailedOn(name, until, 1)
    return TasksEvicted(job, (index,), Eviction.FAILED, f"failed on {name}", failed=(record,))


def after_failing(*names: str, job: JobSpec | None = None, until: float = UNTIL) -> Cell:
    """Return a cell of two machines in which task 0 of ann/web failed on these."""
    cell = cell_of([machine("m1"), machine("m2", cpu=2000)], [job or spec("ann/web", tasks=2)])
    for name in names:
        happen(cell, TasksPlaced("ann/web", (0,), (name,)))
        happen(cell, failed("ann/web", 0, name, until))
    return cell


def plan_at(cell: Cell, seconds: float = 0.0) -> Plan:
    return Scheduler().schedule(cell, observed_of(cell), Now(NOW.wall + seconds, NOW.mono + seconds))


def test_it_avoids_the_machine_on_which_it_failed_and_the_others_do_not() -> None:
    for name, other in (("m1", "m2"), ("m2", "m1")):
        found = where(plan_at(after_failing(name)))
        assert found["ann/web/0"] == other
        assert set(found) == {"ann/web/0", "ann/web/1"}


def test_where_no_other_fits_it_waits_until_the_time_is_over() -> None:
    cell = after_failing("m1", job=spec("ann/web", tasks=1, cpu=3000))
    plan = plan_at(cell)
    (refused,) = plan.refusals["ann/web"]
    assert (plan.placements, refused.reasons) == ((), {"avoided": 1, "cpu": 1})
    assert "1 is avoided for a while: the task failed there" in refused.text
    assert refused.waits_for == "the end of its back-off on m1"
    assert where(plan_at(cell, 60.0)) == {"ann/web/0": "m1"}


def test_the_same_scheduler_sees_that_the_time_is_over() -> None:
    cell = after_failing("m1", job=spec("ann/web", tasks=1, cpu=3000))
    scheduler, observed = Scheduler(), observed_of(cell)
    assert not scheduler.schedule(cell, observed, NOW).placements
    assert scheduler.schedule(cell, observed, NOW.later(60.0)).placements


def test_a_held_job_says_so_and_tries_one_at_a_time() -> None:
    cell = after_failing("m1", "m2")
    happen(cell, TasksPlaced("ann/web", (1,), ("m1",)), JobHeld("ann/web", "it crashes", UNTIL))
    happen(cell, failed("ann/web", 1, "m1"))
    plan = plan_at(cell)
    (refused,) = plan.refusals["ann/web"]
    assert (plan.placements, refused.indexes) == ((), (0, 1))
    assert refused.text == "held, since it fails wherever it is: it crashes"
    # Task 0 has failed on both: it is tried all the same.
    assert where(plan_at(cell, 60.0)).keys() == {"ann/web/0"}


def test_a_trial_prefers_a_machine_on_which_it_has_not_failed() -> None:
    for name, other in (("m1", "m2"), ("m2", "m1")):
        cell = after_failing(name, job=spec("ann/web", tasks=1), until=NOW.wall + 600.0)
        happen(cell, JobHeld("ann/web", "it crashes", NOW.wall))
        assert where(plan_at(cell)) == {"ann/web/0": other}
        happen(cell, TasksPlaced("ann/web", (0,), (other,)))
        happen(cell, failed("ann/web", 0, other, NOW.wall + 600.0))
        assert where(plan_at(cell, 60.0)).keys() == {"ann/web/0"}


def test_what_runs_in_allocs_avoids_those_on_the_machine() -> None:
    room = msgspec.structs.replace(spec("ann/room", tasks=2, cpu=2000), kind=JobKind.ALLOC_SET, run=())
    guest = msgspec.structs.replace(spec("ann/web", tasks=1), inside="ann/room")
    cell = cell_of([machine("m1"), machine("m2")], [room, guest])
    happen(cell, TasksPlaced("ann/room", (0, 1), ("m1", "m2")))
    happen(cell, TasksPlaced("ann/web", (0,), ("m1",), allocs=(0,)))
    happen(cell, failed("ann/web", 0, "m1"))
    (placement,) = plan_at(cell).placements
    assert (placement.machines, placement.allocs) == (("m2",), (1,))
