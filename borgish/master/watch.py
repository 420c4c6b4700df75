"""What watchers receive: one shared log of encoded messages, each built once whoever reads it.

Events enter the log at once. Changed tasks are gathered for 100 ms and the summary for 250 ms, and
both are only built while somebody watches them. A watcher holds nothing but its place in the log, so
a slow one costs nothing: when the log has moved on over its place, it gets an error and is let go. Many are
woken less often: what came meanwhile goes out to all of them as one batch, which is put together once.
Nothing may be published here that is not durable; views are taken through ``read``, which waits for that.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from borgish.api.services import Reader, Reading, WatchBatch, WatchMessage
from borgish.api.views.status import EVENTS_SHOWN
from borgish.api.views.tasks import task_view_of
from borgish.errors import BorgishError, Gone
from borgish.wire.api import EventView, TaskView

log = logging.getLogger("borgmaster.watch")

T = TypeVar("T")

MESSAGES_KEPT = 10_000
BYTES_KEPT = 64 * 1024**2  # a message of 500 tasks has some 200 KiB
BATCH_MESSAGES_MAX, BATCH_BYTES_MAX = 1_000, 2**20
PAUSE_SECONDS = 0.00025
"""For each watcher, between two times that they are woken: to wake one and to send it a batch takes about a
third of that, and so all of them together take a third of the loop at the most. Two hundred hear of what
happens within 50 ms."""
PAUSE_SECONDS_MIN = 0.005
"""A shorter one is none."""
TASKS_PER_MESSAGE_MAX = 500

EVENT, TASKS, SUMMARY = "event", "tasks", "summary"
WINDOW_SECONDS = {TASKS: 0.1, SUMMARY: 0.25}
LINGER_SECONDS = {EVENT: 0.0, TASKS: 60.0, SUMMARY: 2.0}
"""How long each kind is still built after its last reader: one that comes back can then resume."""

_ANEW = "Read everything anew, then watch without an id"


class WatchHub:
    """The log and its readers. Lives in the daemon's loop; no method blocks."""

    def __init__(self, epoch: int, source: Reader, kept: int = MESSAGES_KEPT) -> None:
        self._epoch = epoch
        self._source = source
        self._kept = kept
        self._log: deque[WatchMessage] = deque()  # the latest
        self._bytes = 0  # of their data
        self._count = 0  # messages ever
        self._told = 0  # of them, those for which watchers were woken
        self._waking: asyncio.TimerHandle | None = None
        self._batches: dict[tuple[int, frozenset[str], str], tuple[WatchBatch, int]] = {}  # of those told
        self._news = asyncio.Event()
        self._closed = False
        self._demand = _Demand()
        self._changed: dict[str, set[int]] = {}  # tasks by job, not yet told
        self._windows: dict[str, asyncio.Task[None]] = {}  # by kind, while one is open

    def publish(self, kind: str, data: bytes, job: str = "") -> None:
        """Add a message to the log; ``data`` is JSON without line breaks."""
        message = WatchMessage(f"{self._epoch}.{self._count}", kind, data, job)
        self._log.append(message)
        self._bytes += len(data)
        self._count += 1
        while len(self._log) > self._kept or self._bytes > BYTES_KEPT:
            self._bytes -= len(self._log.popleft().data)
        if self._waking is None:
            pause = PAUSE_SECONDS * self._demand.readers
            if pause < PAUSE_SECONDS_MIN:
                self._wake()
            else:
                self._waking = asyncio.get_running_loop().call_later(pause, self._wake)

    @property
    def _oldest(self) -> int:
        """The place of the oldest message that is kept."""
        return self._count - len(self._log)

    def publish_events(self, events: Iterable[EventView]) -> None:
        """Publish what happened."""
        for event in events:
            self.publish(EVENT, msgspec.json.encode(event), event.job)

    def tasks_changed(self, tasks: Mapping[str, Iterable[int]]) -> None:
        """Say that tasks (indexes by job) look different; they are published within the window."""
        for job, indexes in tasks.items():
            if self._demand.has(TASKS, job) or self._demand.has(TASKS, ""):
                self._changed.setdefault(job, set()).update(indexes)
        if self._changed:
            self._open(TASKS, self._publish_tasks)

    def summary_changed(self) -> None:
        """Say that the summary looks different; it is published within the window."""
        if self._demand.has(SUMMARY, ""):
            self._open(SUMMARY, self._publish_summary)

    def subscribe(self, kinds: frozenset[str], job: str, last_id: str) -> AsyncGenerator[WatchBatch, None]:
        """Return batches of messages as they come, from after ``last_id`` when given. Raises Gone.

        The iterator itself raises Gone when its reader is too slow, and ends when the hub is closed.
        A summary is published soon after subscribing to it.
        """
        start = self._place_after(last_id, kinds, job) if last_id else self._count
        self._demand.note(kinds, job, self._count)
        if SUMMARY in kinds:
            self.summary_changed()
        return self._follow(kinds, job, start)

    def close(self) -> None:
        """End all streams now. Idempotent."""
        self._closed = True
        for window in self._windows.values():
            window.cancel()
        self._wake()

    @property
    def watchers(self) -> int:
        """How many streams are being read."""
        return self._demand.readers

    def _wake(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self._told = self._count
        self._batches.clear()
        self._news.set()
        self._news = asyncio.Event()

    async def _follow(self, kinds: frozenset[str], job: str, place: int) -> AsyncGenerator[WatchBatch, None]:
        with self._demand.reading(kinds, job):
            while True:
                news = self._news
                while place < self._told:
                    if place < self._oldest:
                        raise Gone("this watcher was too slow: what came next is no longer kept", _ANEW)
                    batch, place = self._batch(kinds, job, place)
                    if batch.messages:
                        yield batch
                if self._closed:
                    return
                await news.wait()

    def _batch(self, kinds: frozenset[str], job: str, place: int) -> tuple[WatchBatch, int]:
        """Return what there is for such a watcher from a place on, and the place behind it. Most watchers are
        at the same place and watch the same."""
        key = (place, kinds, job)
        if key not in self._batches:
            found, size, oldest = list[WatchMessage](), 0, self._oldest
            while place < self._told and len(found) < BATCH_MESSAGES_MAX and size < BATCH_BYTES_MAX:
                message = self._log[place - oldest]
                place += 1
                if message.kind in kinds and (not job or message.job == job or message.kind == SUMMARY):
                    found.append(message)
                    size += len(message.data)
            self._batches[key] = WatchBatch(found), place
        return self._batches[key]

    def _place_after(self, last_id: str, kinds: frozenset[str], job: str) -> int:
        """Return the place after a message of this epoch that is kept. Raises Gone."""
        epoch, _, number = last_id.partition(".")
        place = int(number) + 1 if number.isdecimal() and len(number) < 19 else -1
        if epoch != str(self._epoch) or not self._oldest <= place <= self._count:
            raise Gone(f"what came after {last_id[:40]} is not kept", _ANEW)
        if TASKS in kinds and not self._demand.recorded(job, place):
            raise Gone(f"tasks were not watched since {last_id}", _ANEW)
        return place

    def _open(self, kind: str, publish: Callable[[], Coroutine[None, None, None]]) -> None:
        """Open a window after which ``publish`` runs, unless one is open or the hub is closed."""
        if kind not in self._windows and not self._closed:
            self._windows[kind] = asyncio.create_task(self._window(kind, publish))

    async def _window(self, kind: str, publish: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await asyncio.sleep(WINDOW_SECONDS[kind])
            await publish()
        except BorgishError:
            pass  # nothing can be read any more: the daemon is ending and says so itself
        except Exception:  # a view that fails costs its watchers one message, and must not go unsaid
            log.exception("watchers could not be told of %s", kind)
        finally:
            del self._windows[kind]

    async def _publish_tasks(self) -> None:
        """Build and publish what changed, in pieces, so that a large change does not hold up the loop."""
        while self._changed:
            job, indexes = self._changed.popitem()
            chosen = sorted(indexes)
            if len(chosen) > TASKS_PER_MESSAGE_MAX:
                self._changed[job] = set(chosen[TASKS_PER_MESSAGE_MAX:])
                chosen = chosen[:TASKS_PER_MESSAGE_MAX]
            views = await self._source.read(partial(_task_views, job, chosen))
            if views:
                self.publish(TASKS, msgspec.json.encode(views), job)
            await asyncio.sleep(0)

    async def _publish_summary(self) -> None:
        events = self._source.events("", 0, EVENTS_SHOWN)
        summary = await self._source.read(lambda reading: reading.summary(events))
        self.publish(SUMMARY, msgspec.json.encode(summary))


class _Demand:
    """Who watches what, so that nothing is built for nobody. Counted by kind and job; "" is every job."""

    def __init__(self) -> None:
        self.readers = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._until: dict[tuple[str, str], float] = {}  # wanted so long after the last reader
        self._since: dict[tuple[str, str], int] = {}  # place in the log from which nothing is missing

    def note(self, kinds: Iterable[str], job: str, place: int) -> None:
        """Take note of a subscriber, who will begin to read in a moment."""
        for kind, about in _keys(kinds, job):
            if not self.has(kind, about):
                self._since[kind, about] = place
            self._until[kind, about] = _now() + LINGER_SECONDS[kind]
        self._forget()

    def has(self, kind: str, job: str) -> bool:
        """Return whether somebody watches this, or did a moment ago."""
        key = (kind, job)
        return self._counts[key] > 0 or self._until.get(key, 0.0) > _now()

    def recorded(self, job: str, place: int) -> bool:
        """Return whether the log misses no change of the job's tasks from a place on."""
        return any(self.has(TASKS, about) and self._since[TASKS, about] <= place for about in {job, ""})

    @contextmanager
    def reading(self, kinds: Iterable[str], job: str) -> Iterator[None]:
        """Count a reader while it reads."""
        keys = _keys(kinds, job)
        self._counts.update(keys)
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            self._counts.subtract(keys)
            for key in keys:
                self._until[key] = _now() + LINGER_SECONDS[key[0]]

    def _forget(self) -> None:
        for key in [key for key in self._until if not self.has(*key)]:
            del self._until[key], self._counts[key]
            self._since.pop(key, None)  # not there when it was forgotten before its reader began


def _keys(kinds: Iterable[str], job: str) -> list[tuple[str, str]]:
    """Return what is counted: only tasks are built by job."""
    return [(kind, job if kind == TASKS else "") for kind in kinds]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _task_views(job: str, indexes: list[int], reading: Reading) -> list[TaskView]:
    found = reading.cell.jobs.get(job)
    if found is None:
        return []
    refusals, there = reading.refusals.get(job, ()), (i for i in indexes if i < len(found.tasks))
    return [task_view_of(reading.cell, reading.observed, found, index, refusals) for index in there]
