"""Allocs in decisions: what leaves with them, who may run in them, and what may be placed there."""

import pytest

from borgish.cell.commands import (
    EvictTasks,
    ForgetJob,
    KillTasks,
    PlaceTasks,
    RestartTasks,
    ScaleJob,
    SubmitJob,
)
from borgish.cell.tasks.allocs import alloc_name, is_reserved
from borgish.errors import Conflict, Forbidden, NotFound, Refused
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, JobKind, State
from tests.sentences import check_refusal
from tests.unit.cell.test_decide import Desk, spec

RESERVED = Resources(1000, 256 * 1024**2)
ROOM = spec("room", 2, kind=JobKind.ALLOC_SET, run=(), resources=RESERVED)
GUEST = spec("guest", 2, inside="ann/room", resources=Resources(100, 64 * 1024**2))


@pytest.fixture
def desk() -> Desk:
    """Two allocs on m1, and a task in each."""
    desk = Desk()
    desk.do(SubmitJob(ROOM))
    desk.do(PlaceTasks("ann/room", (0, 1), ("m1", "m1")))
    desk.do(SubmitJob(GUEST))
    desk.do(PlaceTasks("ann/guest", (0, 1), ("m1", "m1"), allocs=(1, 0)))
    return desk


def guests(desk: Desk) -> list[tuple[State, str]]:
    return [(task.state, task.reason) for task in desk.cell.jobs["ann/guest"].tasks]


def prod(name: str) -> JobSpec:
    return spec(name, 1, priority=200)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (KillTasks("ann/room", (1,)), "killed by ann"),
        (RestartTasks("ann/room", (1,), hurried=True), "restarted by ann"),
        (ScaleJob("ann/room", 1), "scaled to 1 task"),
        (EvictTasks("ann/room", (1,), Eviction.OUT_OF_RESOURCES), "out of resources"),
        (EvictTasks("ann/room", (1,), Eviction.MACHINE_LOST, "m1 is down"), "m1 is down"),
    ],
)
def test_what_is_in_an_alloc_leaves_with_it_and_is_told_why(desk: Desk, command: object, why: str) -> None:
    desk.do(command)  # type: ignore[arg-type]
    reason = f"its alloc of ann/room left: {why}"
    assert guests(desk) == [(State.PENDING, reason), (State.RUNNING, "")]


def test_the_notice_of_an_alloc_is_that_of_what_is_in_it(desk: Desk) -> None:
    desk.do(SubmitJob(prod("prod")))
    desk.do(EvictTasks("ann/room", (1,), Eviction.PREEMPTED, "preempted", 3.0, "ann/prod/0"))
    assert desk.cell.jobs["ann/guest"].tasks[0].notice_seconds == 3.0


def test_an_alloc_is_not_preempted_for_what_is_no_higher_than_what_is_in_it(desk: Desk) -> None:
    desk.do(SubmitJob(spec("high", 1, inside="ann/room", priority=200, resources=Resources(100, 1024**2))))
    desk.do(PlaceTasks("ann/high", (0,), ("m1",), allocs=(1,)))
    desk.do(SubmitJob(prod("prod")))
    desk.do(EvictTasks("ann/room", (0, 1), Eviction.PREEMPTED, "preempted", preemptor="ann/prod/0"))
    assert [task.state for task in desk.cell.jobs["ann/room"].tasks] == [State.PENDING, State.RUNNING]


def test_a_place_in_an_alloc_that_has_left_is_dropped(desk: Desk) -> None:
    desk.do(KillTasks("ann/room", (0,)))
    for machine, alloc in (("m1", 0), ("m1", 7), ("m1", -1)):
        desk.do(PlaceTasks("ann/guest", (1,), (machine,), allocs=(alloc,)))
        assert guests(desk)[1][0] is State.PENDING
    desk.do(PlaceTasks("ann/guest", (1,), ("m1",), allocs=(1,)))
    assert guests(desk)[1][0] is State.RUNNING


def test_a_place_in_an_alloc_set_that_is_no_more_is_dropped(desk: Desk) -> None:
    """Also where another job has got its name."""
    desk.do(KillTasks("ann/room"))
    desk.do(ForgetJob("ann/room"))
    place = PlaceTasks("ann/guest", (1,), ("m1",), allocs=(0,))
    desk.do(place)
    assert guests(desk)[1][0] is State.PENDING
    desk.do(SubmitJob(spec("room", 2)))
    desk.do(PlaceTasks("ann/room", (0,), ("m1",)))
    desk.do(place)
    assert guests(desk)[1][0] is State.PENDING


def test_the_name_of_an_alloc_is_of_its_stay_on_its_machine(desk: Desk) -> None:
    room = desk.cell.jobs["ann/room"]
    name = alloc_name(room, 1)
    assert name == f"ann/room/1@{room.tasks[1].attempt}"
    assert is_reserved(desk.cell, "m1", name)
    assert not is_reserved(desk.cell, "m2", name)
    desk.do(EvictTasks("ann/room", (1,), Eviction.OUT_OF_RESOURCES))
    desk.do(PlaceTasks("ann/room", (1,), ("m1",)))
    assert not is_reserved(desk.cell, "m1", name)
    assert is_reserved(desk.cell, "m1", alloc_name(desk.cell.jobs["ann/room"], 1))


def test_a_place_in_an_alloc_is_not_for_those_who_run_in_none(desk: Desk) -> None:
    desk.do(SubmitJob(spec("plain", 1)))
    desk.do(PlaceTasks("ann/plain", (0,), ("m1",), allocs=(0,)))
    assert desk.cell.jobs["ann/plain"].tasks[0].state is State.PENDING


def test_of_a_gang_all_are_placed_or_none(desk: Desk) -> None:
    desk.do(SubmitJob(spec("gang", 2, gang=True)))
    desk.do(PlaceTasks("ann/gang", (0, 1), ("m1", "m9")))
    assert {task.state for task in desk.cell.jobs["ann/gang"].tasks} == {State.PENDING}


@pytest.mark.parametrize(
    ("inside", "user", "error", "why", "way_out"),
    [
        ("ann/none", "ann", NotFound, "does not exist", "submit it first, with kind: alloc_set"),
        ("ann/guest", "ann", Conflict, "is a job", "name a job of kind: alloc_set"),
        ("ann/room", "bob", Forbidden, "is ann's", "an alloc set of your own"),
        ("ann/dead", "ann", Conflict, "is dead", "submit the alloc set again"),
    ],
)
def test_only_a_live_alloc_set_of_ones_own_takes_jobs(
    desk: Desk, inside: str, user: str, error: type[Refused], why: str, way_out: str
) -> None:
    desk.do(SubmitJob(spec("dead", 1, kind=JobKind.ALLOC_SET, run=(), resources=RESERVED)))
    desk.do(KillTasks("ann/dead"))
    with pytest.raises(error) as caught:
        desk.do(SubmitJob(spec("one", inside=inside, user=user)))
    check_refusal(caught.value, f"{user}/one", inside, why)
    assert way_out in caught.value.hint


def test_tasks_that_were_killed_come_back_only_into_a_live_alloc_set(desk: Desk) -> None:
    desk.do(KillTasks("ann/room"))
    desk.do(SubmitJob(GUEST))  # it is there already, and asks for nothing new
    desk.do(KillTasks("ann/guest", (0,)))
    with pytest.raises(Conflict, match="which is dead"):
        desk.do(SubmitJob(GUEST))
