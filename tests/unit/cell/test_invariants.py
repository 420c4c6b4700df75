"""Each invariant holds of a sound cell, and what breaks it is named."""

import copy
from collections.abc import Callable

import msgspec
import pytest

from borgish.cell.commands import (
    JoinMachine,
    PlaceTasks,
    PromisePlaces,
    SubmitJob,
)
from borgish.cell.invariants import is_overfull, violations
from borgish.cell.model import Cell, LostAttempt, Task
from borgish.resources import Resources
from borgish.spec.job import Restart
from borgish.vocabulary import Ending, JobKind, RestartPolicy, State
from tests.unit.cell.test_decide import GIB, Desk, machine, spec

HAS = Resources(4000, 4 * GIB, 4 * GIB, {"licence": 2}, {"gpu": 2000})
WEB = Resources(1000, GIB, GIB, {"licence": 1}, {"gpu": 500})
ROOM = Resources(1000, GIB, GIB, {"seat": 0}, {"gpu": 1000})
GUEST = Resources(500, GIB // 2, GIB // 2, {}, {"gpu": 500})


def sound() -> Cell:
    """Return a cell in which m2 is full: two tasks share gpu:0, and two in an alloc share gpu:1."""
    desk = Desk()
    has = msgspec.structs.replace(machine("m2"), capacity=HAS)
    desk.do(JoinMachine(has, "i2", known=False))
    desk.do(SubmitJob(spec("web", ports=("http",), resources=WEB)))
    ports = ((20001,), (20002,))
    desk.do(PlaceTasks("ann/web", (0, 1), ("m2", "m2"), ports, (("gpu:0",), ("gpu:0",))))
    desk.do(SubmitJob(spec("room", 1, kind=JobKind.ALLOC_SET, run=(), resources=ROOM)))
    desk.do(PlaceTasks("ann/room", (0,), ("m2",), (), (("gpu:1",),)))
    desk.do(SubmitJob(spec("guest", 2, inside="ann/room", resources=GUEST)))
    desk.do(PlaceTasks("ann/guest", (0, 1), ("m2", "m2"), (), (("gpu:1",), ("gpu:1",)), (0, 0)))
    desk.do(SubmitJob(spec("late", 2)))
    desk.do(PromisePlaces("ann/late", (1,), ("m1",)))
    desk.do(SubmitJob(spec("once", 1, restart=Restart(RestartPolicy.ON_FAILURE))))
    return desk.cell


CELL = sound()
Break = Callable[[Cell], object]


def task(cell: Cell, name: str) -> Task:
    found = cell.task(f"ann/{name}")
    assert found is not None
    return found


def with_task(name: str, **fields: object) -> Break:
    """Return what changes fields of a task, and nothing that follows from them."""

    def broken(cell: Cell) -> None:
        for field, value in fields.items():
            setattr(task(cell, name), field, value)

    return broken


def with_needs(job: str, *, unnoticed: bool = False, **amounts: object) -> Break:
    """Return what changes the limits of a job, perhaps without that their sum follows."""

    def broken(cell: Cell) -> None:
        found = cell.jobs[f"ann/{job}"]
        needs = msgspec.structs.replace(found.spec.resources, **amounts)
        found.spec = msgspec.structs.replace(found.spec, resources=needs)
        assert cell.demand.totals  # as it was until now
        if not unnoticed:
            cell.demand.changed.add(found.key)

    return broken


def count(field: str) -> Break:
    """Return what miscounts the tasks of a job."""
    return lambda cell: setattr(cell.jobs["ann/web"], field, 7)


def moved(cell: Cell) -> None:
    """Guest 0 runs on another machine than its alloc, and the index has it there."""
    cell.placed["m2"].remove(("ann/guest", 0))
    cell.placed["m1"].add(("ann/guest", 0))
    task(cell, "guest/0").machine = "m1"
    task(cell, "guest/0").devices = ()


def left(cell: Cell) -> None:
    """The alloc has left, and what is in it has not."""
    room, alloc = cell.jobs["ann/room"], task(cell, "room/0")
    alloc.state, room.running, room.pending = State.PENDING, 0, 1
    cell.placed["m2"].remove(("ann/room", 0))
    cell.waiting["ann/room"] = {0}


def dead_and_waiting(cell: Cell) -> None:
    once = task(cell, "once/0")
    once.state, once.ending, once.lost = State.DEAD, Ending.FINISH, (LostAttempt(3, "m1"),)
    job = cell.jobs["ann/once"]
    job.pending, job.dead, job.finished = 0, 1, 1
    del cell.waiting["ann/once"]
    cell.demand.changed.add("ann/once")


def unleased(cell: Cell) -> None:
    job = cell.jobs["ann/web"]
    job.spec = msgspec.structs.replace(job.spec, exclusive=True)


BROKEN: dict[str, tuple[Break, str]] = {
    "a task is missing": (lambda cell: cell.jobs["ann/late"].tasks.pop(), "ann/late wants 2 tasks and has 1"),
    "pending": (count("pending"), "ann/web counts (7, 2, 0, 0, 0), not (0, 2, 0, 0, 0)"),
    "running": (count("running"), "ann/web counts (0, 7, 0, 0, 0), not (0, 2, 0, 0, 0)"),
    "dead": (count("dead"), "ann/web counts (0, 2, 7, 0, 0), not (0, 2, 0, 0, 0)"),
    "finished": (count("finished"), "ann/web counts (0, 2, 0, 7, 0), not (0, 2, 0, 0, 0)"),
    "failed": (count("failed"), "ann/web counts (0, 2, 0, 0, 7), not (0, 2, 0, 0, 0)"),
    "swept": (
        lambda cell: cell.swept.rechecked.add("ann/web"),
        "the index of jobs that reconcilers look at does not follow from the jobs",
    ),
    "placed": (lambda cell: cell.placed["m1"].add(("ann/web", 0)), "the index of placed tasks"),
    "waiting": (lambda cell: cell.waiting["ann/late"].remove(0), "the index of waiting tasks"),
    "rollout": (lambda cell: cell.rolling.add("ann/web"), "the index of jobs that lag behind"),
    "demand": (with_needs("late", unnoticed=True, cpu_millis=7), "the sums of what users ask for"),
    "never placed": (with_task("web/0", attempt=0), "ann/web/0 runs as attempt 0, which journal position"),
    "not yet": (with_task("web/0", attempt=CELL.position + 1), f"attempt {CELL.position + 1}, which journal"),
    "no machine": (with_task("web/0", machine="m9"), "ann/web/0 runs on m9, which is not in the cell"),
    "a port lacks": (with_task("web/0", ports=()), "ann/web/0 has 0 ports and needs 1"),
    "cpu": (with_needs("web", cpu_millis=1501), "m2 holds"),
    "ram": (with_needs("web", ram_bytes=2 * GIB), "m2 holds"),
    "disk": (with_needs("web", disk_bytes=2 * GIB), "m2 holds"),
    "named": (with_needs("web", named={"licence": 2}), "m2 holds"),
    "unknown": (with_needs("web", named={"seat": 1}), "m2 holds"),
    "devices": (with_needs("web", devices={"gpu": 600}), "m2 holds"),
    "device kind": (with_needs("web", devices={"tpu": 1}), "m2 holds"),
    "in no alloc": (with_task("guest/0", alloc=-1), "is to run in 'ann/room' and is in alloc -1"),
    "in an alloc": (with_task("web/0", alloc=0), "ann/web/0 is to run in '' and is in alloc 0"),
    "no such alloc": (with_task("guest/0", alloc=1), "runs in ann/room/1, which is no alloc"),
    "alloc elsewhere": (moved, "ann/guest/0 runs on m1 and its alloc is running on m2"),
    "alloc left": (left, "ann/guest/0 runs on m2 and its alloc is pending on m2"),
    "alloc is younger": (with_task("room/0", attempt=CELL.position), "in an alloc of attempt"),
    "alloc is as old": (
        lambda cell: with_task("room/0", attempt=task(cell, "guest/0").attempt)(cell),
        "in an alloc of attempt",
    ),
    "alloc overfull": (with_needs("guest", cpu_millis=501), "ann/room/0 holds"),
    "device overfull": (
        with_task("guest/0", devices=("gpu:0",)),
        "500 thousandths of gpu:0 of ann/room/0 are allocated, and it has 0",
    ),
    "device shared": (
        with_task("room/0", devices=("gpu:0",)),
        "2000 thousandths of gpu:0 of m2 are allocated, and it has 1000",
    ),
    "too few devices": (
        with_task("web/0", devices=()),
        "ann/web/0 has the devices () and needs {'gpu': 500}",
    ),
    "too many": (
        with_task("web/0", devices=("gpu:0", "gpu:1")),
        "ann/web/0 has the devices ('gpu:0', 'gpu:1')",
    ),
    "promise to who runs": (with_task("web/0", promised="m1"), "ann/web/0 is running with a place on m1"),
    "promise of no machine": (with_task("late/1", promised="m9"), "ann/late/1 is pending with a place on m9"),
    "promise": (with_task("late/0", promised="m1"), "the index of promised places"),
    "port": (with_task("web/1", ports=(20001,)), "port 20001 of m2 is held by ann/web/0 and by ann/web/1"),
    "service": (with_task("web/0", lost=(LostAttempt(3, "m1"),)), "ann/web/0 is running and waits for"),
    "no lease": (unleased, "ann/web/0 runs as attempt 4 and is exclusive, without a lease"),
    "dead and waiting": (dead_and_waiting, "ann/once/0 is dead and waits for"),
}


def test_a_sound_cell_violates_nothing() -> None:
    assert violations(CELL) == []
    assert violations(sound()) == []


def test_what_runs_to_completion_may_wait_for_a_late_result() -> None:
    cell = copy.deepcopy(CELL)
    task(cell, "once/0").lost = (LostAttempt(3, "m1"),)
    assert violations(cell) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named(name: str) -> None:
    broken, words = BROKEN[name]
    cell = copy.deepcopy(CELL)
    broken(cell)
    found = violations(cell)
    assert any(words in text for text in found), found


def test_a_machine_is_overfull_when_it_holds_more_than_it_has() -> None:
    cell = copy.deepcopy(CELL)
    assert not is_overfull(cell, "m2")
    with_needs("web", cpu_millis=1501)(cell)
    assert is_overfull(cell, "m2")
    assert not is_overfull(cell, "m1")
