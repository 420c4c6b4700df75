"""What an archive is made of: each event, each stay of a task, each sample; from where to where; and how much
of that is held at a time."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from borgish.cell.events import (
    AnyEvent,
    JobChanged,
    JobForgotten,
    MachineUp,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
    TasksRestarted,
    TasksResubmitted,
)
from borgish.clock import Now, SystemClock
from borgish.errors import Gone, Invalid, NotFound
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past import archive
from borgish.master.past.archive import Archive
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.memory import MemoryStore
from borgish.store.usage import encode_usage
from borgish.vocabulary import Ending, Eviction
from borgish.wire.archive import ArchiveBegin, ArchiveEnd, ArchivePiece, AttemptRow, EventRow, UsageRow
from tests.contract.store.samples import CELL, JOB, Life, job

BEGAN = 100.25
"""Entry ``p`` is of this and ``p`` seconds."""
PAIR = {("ann/web/0", 4): (10, 4096), ("ann/web/1", 4): (20, 8192)}


class Standing:
    def now(self) -> Now:
        return Now(1000.0, 5.0)


class Bench:
    """A story, and what archives it."""

    def __init__(self) -> None:
        self.life = Life(MemoryStore(CELL))
        self.life.story()
        core = Core(self.life.cell, ReconcileSettings(), SystemClock().now())
        self.turn = Turn(core, self.life.store, Inbox(), Standing(), lambda _: None, lambda _: None)
        self.archive = Archive(core, self.turn, self.life.store, Standing())

    def do(self, *events: AnyEvent) -> None:
        self.life.do(*events)

    async def all(self, since: float | None = None, until: float | None = None) -> "Told":
        lines = [line async for line in await self.archive.begin(since, until)]
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
        pieces = [msgspec.json.decode(line, type=ArchivePiece) for line in lines]
        first, *middle, last = pieces
        assert first.begin is not None
        assert last.end is not None
        told = Told(
            first.begin,
            [row for piece in middle for row in piece.events],
            [row for piece in middle for row in piece.attempts],
            [row for piece in middle for row in piece.usage],
            max([len(piece.events) for piece in middle], default=0),
        )
        assert last.end == ArchiveEnd(len(told.events), len(told.attempts), len(told.usage))
        return told


class Told(msgspec.Struct):
    begin: ArchiveBegin
    events: list[EventRow]
    attempts: list[AttemptRow]
    usage: list[UsageRow]
    events_at_once: int

    @property
    def stays(self) -> dict[tuple[str, int], tuple[object, ...]]:
        return {
            (row.task, row.attempt): (row.placed_at, row.ended_at, row.ending, row.restarts)
            for row in self.attempts
        }


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.turn.close()


async def test_every_event_is_a_row(bench: Bench) -> None:
    bench.do()
    found = (await bench.all()).events
    assert [(row.position, row.number, row.type, row.tasks) for row in found] == [
        (1, 0, "Elected", 0),
        (2, 0, "MachineJoined", 0),
        (3, 0, "JobSubmitted", 0),
        (4, 0, "TasksPlaced", 3),
        (5, 0, "TasksEvicted", 1),
        (6, 0, "TasksEnded", 1),
        (7, 0, None, 0),
    ]
    assert [(row.job, row.machine) for row in found[1:4]] == [(None, "m1"), (JOB, None), (JOB, None)]
    assert (found[4].happened_at, found[4].actor, found[4].asked, found[4].request_id) == (
        BEGAN + 5,
        "tester",
        "test",
        "r5",
    )
    written = next(iter(bench.life.store.entries(4))).events
    assert msgspec.json.decode(found[4].event or "", type=type(written[0])) == written[0]
    assert found[6].event is None


async def test_every_stay_is_a_row(bench: Bench) -> None:
    bench.do(TasksRestarted(JOB, (0,), (2,), (1,), (None,), ("exit 1",)))
    bench.do(TasksPlaced(JOB, (1,), ("m1",), ((20003,),)))
    found = await bench.all()
    placed = BEGAN + 4
    assert found.stays == {
        ("ann/web/0", 4): (placed, None, None, 2),
        ("ann/web/1", 4): (placed, BEGAN + 5, "drain", 0),
        ("ann/web/2", 4): (placed, BEGAN + 6, "fail", 0),
        ("ann/web/1", 8): (BEGAN + 8, None, None, 0),
    }
    failed = next(row for row in found.attempts if row.ending == "fail")
    assert (failed.exit_code, failed.signal, failed.ended_position) == (127, None, 6)
    assert (failed.reason, failed.machine, failed.band, failed.kind) == (
        "no \0 such file",
        "m1",
        "free",
        "job",
    )


async def test_a_stay_that_a_late_result_ends_did_not_end_so_itself(bench: Bench) -> None:
    bench.do(TasksEvicted(JOB, (0,), Eviction.MACHINE_LOST, "m1 is down", results_count=True))
    bench.do(TasksPlaced(JOB, (0,), ("m1",), ((20005,),)))
    bench.do(TasksEnded(JOB, (0,), Ending.FINISH, ("exit code 0",), (0,), (None,), attempts=(4,)))
    found = await bench.all()
    assert found.stays["ann/web/0", 4][2] == "machine lost"
    later = next(row for row in found.attempts if (row.task, row.attempt) == ("ann/web/0", 8))
    assert (later.ending, later.reason, later.exit_code) == ("superseded", "attempt 4 had ended", None)


async def test_a_task_that_is_no_more_has_left(bench: Bench) -> None:
    bench.do(TasksResubmitted(JOB, (2,)))
    bench.do(TasksPlaced(JOB, (1, 2), ("m1", "m1"), ((20003,), (20004,))))
    bench.do(JobChanged(JOB, job(tasks=1)))
    bench.do(TasksEnded(JOB, (0,), Ending.KILL, ("killed",)))
    bench.do(JobForgotten(JOB))
    stays = (await bench.all()).stays
    assert stays["ann/web/1", 8] == (BEGAN + 8, BEGAN + 9, "scale", 0)
    assert stays["ann/web/2", 8] == (BEGAN + 8, BEGAN + 9, "scale", 0)
    assert stays["ann/web/0", 4] == (BEGAN + 4, BEGAN + 10, "kill", 0)


async def test_only_of_the_time_asked_for_and_what_went_on_then(bench: Bench) -> None:
    found = await bench.all(BEGAN + 5, BEGAN + 5)
    assert (found.begin.after, found.begin.last) == (4, 5)
    assert [row.position for row in found.events] == [5]
    assert found.stays == {
        ("ann/web/0", 4): (BEGAN + 4, None, None, 0),
        ("ann/web/1", 4): (BEGAN + 4, BEGAN + 5, "drain", 0),
        ("ann/web/2", 4): (BEGAN + 4, None, None, 0),
    }
    later = await bench.all(BEGAN + 100)
    assert (later.events, list(later.stays)) == ([], [("ann/web/0", 4)])


async def test_parts_of_the_time_are_the_whole(bench: Bench) -> None:
    whole = await bench.all()
    parts = [await bench.all(BEGAN + p, BEGAN + p) for p in range(1, 7)]
    assert [row for part in parts for row in part.events] == whole.events
    ended = [row for part in parts for row in part.attempts if row.ended_at]
    assert ended == [row for row in whole.attempts if row.ended_at]


async def test_samples_of_the_time(bench: Bench) -> None:
    for at in (10.0, 20.0, 30.0):
        bench.life.store.save_usage([encode_usage(at + BEGAN, part, [("m1", PAIR)]) for part in (0, 1)])
    found = (await bench.all(BEGAN + 20, BEGAN + 29)).usage
    assert found == 2 * [
        UsageRow(BEGAN + 20, "m1", "ann/web/0", "ann", JOB, 0, 4, 10, 4096),
        UsageRow(BEGAN + 20, "m1", "ann/web/1", "ann", JOB, 1, 4, 20, 8192),
    ]
    assert len((await bench.all()).usage) == 12


async def test_a_long_journal_comes_in_pages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PAGE_ENTRIES", 3)
    monkeypatch.setattr(archive, "ROWS_AT_ONCE", 1)
    for _ in range(20):
        bench.do(MachineUp("m1"))
    found = await bench.all()
    assert [row.position for row in found.events] == list(range(1, 27))
    assert found.events_at_once == 3
    assert len(found.attempts) == 3


async def test_several_at_a_time_are_told_one_after_the_other(bench: Bench) -> None:
    first, second = await bench.archive.begin(None, None), await bench.archive.begin(None, None)
    assert b"begin" in await anext(first)
    await anext(first)
    assert b"begin" in await anext(second)
    rest = [line async for line in first]
    assert b"end" in rest[-1]
    assert [line async for line in second][-1] == rest[-1]


async def test_of_a_pruned_journal_what_is_left(bench: Bench) -> None:
    base = bench.life.checkpoint().position
    for _ in range(3):
        bench.do(MachineUp("m1"))
    bench.life.store.prune_journal(base, 100)
    found = await bench.all()
    assert [row.position for row in found.events] == [6, 7, 8, 9]
    assert (found.begin.journal_begins, list(found.stays)) == (BEGAN + 6, [("ann/web/0", 4)])
    for since, until in ((BEGAN + 5, None), (None, BEGAN + 5)):
        with pytest.raises(Gone, match="is no longer kept") as caught:
            await bench.all(since, until)
        assert caught.value.hint == "The journal begins then: --since 1970-01-01T00:01:46.250Z"
    assert [row.position for row in (await bench.all(BEGAN + 7)).events] == [7, 8, 9]


async def test_without_a_good_checkpoint_before_it_nothing_is_told(bench: Bench) -> None:
    store = bench.life.store
    assert isinstance(store, MemoryStore)
    base = bench.life.checkpoint().position
    bench.do(MachineUp("m1"))
    store.prune_journal(base, 100)
    info, stored = store.disk.checkpoints[base]
    store.disk.checkpoints[base] = (info, stored[:-1])
    last = [msgspec.json.decode(line) async for line in await bench.archive.begin(None, None)][-1]
    assert last["problem"].startswith("position 6 can no longer be reconstructed")
    assert "SHA-256 does not match" in last["problem"]
    assert "end" not in last


async def test_times_without_history(bench: Bench) -> None:
    with pytest.raises(NotFound, match="had no history yet"):
        await bench.all(until=50.0)
    with pytest.raises(Invalid, match="is in the future"):
        await bench.all(since=1001.0)
    assert (await bench.all(since=50.0)).begin.after == 0
    assert (await bench.all(until=2000.0)).begin.until == 1000.0
