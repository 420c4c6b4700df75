import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import msgspec
import pytest

from borgish.api.services import Reading, WatchBatch, WatchMessage
from borgish.errors import Gone, Unreachable
from borgish.master import watch
from borgish.master.watch import WatchHub
from borgish.vocabulary import Phase
from borgish.wire.api import EventView, TaskView
from tests.integration.api.fakes import FakeMaster
from tests.unit.api.cells import small_cell

T = TypeVar("T")
EVENTS = frozenset({"event"})
TASKS = frozenset({"tasks"})
SUMMARY = frozenset({"summary"})


class Source(FakeMaster):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        self.reads += 1
        return await super().read(view, at_least)


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WINDOW_SECONDS", {"tasks": 0.01, "summary": 0.01})


def publish(hub: WatchHub, count: int) -> None:
    for number in range(count):
        hub.publish("event", b"%d" % number)


async def take(stream: AsyncGenerator[WatchBatch, None], count: int) -> list[WatchMessage]:
    found: list[WatchMessage] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += (await anext(stream)).messages
    return found


async def test_ids_count_on_within_an_epoch() -> None:
    hub = WatchHub(4, Source())
    stream = hub.subscribe(EVENTS, "", "")
    publish(hub, 2)
    assert [(m.id, m.data) for m in await take(stream, 2)] == [("4.0", b"0"), ("4.1", b"1")]


async def test_a_watcher_hears_only_what_comes_after_it_asked() -> None:
    hub = WatchHub(4, Source())
    publish(hub, 2)
    stream = hub.subscribe(EVENTS, "", "")
    hub.publish("event", b"new")
    assert (await take(stream, 1))[0].data == b"new"


async def test_a_watcher_that_waits_is_woken() -> None:
    hub = WatchHub(4, Source())
    waiting = asyncio.create_task(take(hub.subscribe(EVENTS, "", ""), 1))
    while not hub.watchers:
        await asyncio.sleep(0)
    hub.publish_events([EventView(1, "t", "placed", "x")])
    assert msgspec.json.decode((await waiting)[0].data, type=EventView).position == 1


async def test_a_slow_watcher_falls_off_and_the_others_go_on() -> None:
    hub = WatchHub(4, Source(), kept=10)
    slow, fast = hub.subscribe(EVENTS, "", ""), hub.subscribe(EVENTS, "", "")
    publish(hub, 1)
    await take(slow, 1)
    for _ in range(3):
        publish(hub, 5)
        await take(fast, 5)
    with pytest.raises(Gone):
        await take(slow, 1)
    assert hub.watchers == 1


async def test_resuming_at_the_edge_of_what_is_kept() -> None:
    hub = WatchHub(4, Source(), kept=10)
    publish(hub, 20)
    assert (await take(hub.subscribe(EVENTS, "", "4.9"), 1))[0].id == "4.10"
    with pytest.raises(Gone):
        hub.subscribe(EVENTS, "", "4.8")
    hub.subscribe(EVENTS, "", "4.19")
    with pytest.raises(Gone):
        hub.subscribe(EVENTS, "", "4.20")


async def test_tasks_are_gathered_within_the_window_and_built_once() -> None:
    source = Source()
    hub = WatchHub(4, source)
    streams = [hub.subscribe(TASKS, "ann/web", ""), hub.subscribe(TASKS, "", "")]
    for _ in range(10):
        hub.tasks_changed({"ann/web": [0, 1]})
    for stream in streams:
        (message,) = await take(stream, 1)
        tasks = msgspec.json.decode(message.data, type=list[TaskView])
        assert [(task.index, task.phase) for task in tasks] == [(0, Phase.HEALTHY), (1, Phase.UNHEALTHY)]
    assert source.reads == 1


async def test_nothing_is_built_for_nobody() -> None:
    source = Source()
    hub = WatchHub(4, source)
    hub.subscribe(TASKS, "bob/db", "")
    hub.tasks_changed({"ann/web": [0]})
    hub.summary_changed()
    await asyncio.sleep(0.03)
    assert source.reads == 0


async def test_a_large_change_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "TASKS_PER_MESSAGE_MAX", 3)
    hub = WatchHub(4, Source())
    stream = hub.subscribe(TASKS, "", "")
    hub.tasks_changed({"ann/web": [0, 1, 2, 3, 99], "gone/job": [1]})
    sizes = [len(msgspec.json.decode(m.data, type=list[TaskView])) for m in await take(stream, 2)]
    assert sizes == [3, 1]


async def test_tasks_resume_only_over_a_time_in_which_they_were_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = WatchHub(4, Source())
    publish(hub, 1)
    with pytest.raises(Gone, match="not watched"):
        hub.subscribe(TASKS, "", "4.0")
    stream = hub.subscribe(TASKS, "ann/web", "")
    hub.tasks_changed({"ann/web": [0]})
    (last,) = await take(stream, 1)
    hub.tasks_changed({"ann/web": [1]})
    (missed,) = await take(hub.subscribe(TASKS, "ann/web", last.id), 1)
    assert msgspec.json.decode(missed.data, type=list[TaskView])[0].index == 1
    with pytest.raises(Gone, match="not watched"):
        hub.subscribe(TASKS, "", last.id)


async def test_closing_ends_every_stream_after_what_was_published() -> None:
    hub = WatchHub(4, Source())
    streams = [hub.subscribe(EVENTS, "", "") for _ in range(3)]
    publish(hub, 1)
    hub.close()
    hub.close()
    for stream in streams:
        assert [message.data async for batch in stream for message in batch.messages] == [b"0"]
    hub.summary_changed()
    assert hub.watchers == 0


async def test_a_source_that_cannot_be_read_does_no_harm() -> None:
    source = Source()
    source.failure = Unreachable("the master is ending")
    hub = WatchHub(4, source)
    stream = hub.subscribe(SUMMARY | EVENTS, "", "")
    while hub._windows:
        await asyncio.sleep(0.001)
    source.failure = None
    hub.publish("event", b"x")
    assert (await take(stream, 1))[0].data == b"x"


async def test_a_job_that_was_forgotten_meanwhile_is_left_out() -> None:
    source = Source()
    source.cell = small_cell()
    hub = WatchHub(4, source)
    stream = hub.subscribe(TASKS, "", "")
    hub.tasks_changed({"ann/web": [0], "bob/db": [0]})
    del source.cell.jobs["ann/web"]
    (message,) = await take(stream, 1)
    assert message.job == "bob/db"


async def test_one_who_left_is_no_trouble_to_the_next() -> None:
    hub = WatchHub(4, Source())
    stream = hub.subscribe(EVENTS, "", "")
    hub.publish("event", b"1")
    await take(stream, 1)
    await stream.aclose()
    hub.publish("event", b"2")
    for kinds in (TASKS, EVENTS, SUMMARY):
        hub.subscribe(kinds, "", "")


async def test_what_is_kept_is_bounded_by_its_size_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BYTES_KEPT", 100)
    hub = WatchHub(4, Source())
    stream = hub.subscribe(EVENTS, "", "")
    for number in range(5):
        hub.publish("event", b"%d" % number * 30)
    with pytest.raises(Gone, match="too slow"):
        await take(stream, 1)
    with pytest.raises(Gone):
        hub.subscribe(EVENTS, "", "4.0")
    later = hub.subscribe(EVENTS, "", "4.2")
    assert [message.id for message in await take(later, 2)] == ["4.3", "4.4"]


async def next_batch(hub: WatchHub, job: str = "") -> WatchBatch:
    return await anext(hub.subscribe(EVENTS, job, ""))


async def test_many_are_woken_together_and_get_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_SECONDS", 0.01)
    hub = WatchHub(4, Source())
    waiting = [asyncio.create_task(next_batch(hub)) for _ in range(3)]
    other = asyncio.create_task(next_batch(hub, "ann/web"))
    while hub.watchers < 4:
        await asyncio.sleep(0)
    hub.publish("event", b"0")
    await asyncio.sleep(0)
    hub.publish("event", b"1", "ann/web")
    first, *others = await asyncio.gather(*waiting)
    assert [message.data for message in first.messages] == [b"0", b"1"]
    assert all(each is first for each in others)
    assert [message.data for message in (await other).messages] == [b"1"]


async def test_a_long_backlog_comes_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BATCH_MESSAGES_MAX", 3)
    monkeypatch.setattr(watch, "BATCH_BYTES_MAX", 10)
    hub = WatchHub(4, Source())
    stream = hub.subscribe(EVENTS, "", "")
    publish(hub, 4)
    hub.publish("event", b"x" * 30)
    publish(hub, 2)
    sizes = [len((await anext(stream)).messages) for _ in range(3)]
    assert sizes == [3, 2, 2]
