"""``time``: what it costs to look at the past of a large cell, and what the turns feel of it."""

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator

from borgish.cell.apply import apply_entry
from borgish.cell.diff import difference
from borgish.cell.events import Entry, TasksEvicted, TasksPlaced
from borgish.cell.state import Cell
from borgish.clock import SystemClock
from borgish.store.base import Records
from borgish.store.codec import encode_snapshot
from borgish.store.moment import cell_at
from borgish.store.open import open_store
from borgish.store.sql import SqlStore
from borgish.vocabulary import Eviction
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes
from tests.bench.store import CELL, large_cell

ENTRIES = 1000
"""Between the two checkpoints; each moves tasks of one job."""
MOVED = 10
TICK_SECONDS = 0.001


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what reads of the past cost, over SQLite."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        store = open_store(f"sqlite:///{folder}/cell.db", CELL)
        try:
            yield from _figures(store, sizes)
        finally:
            store.close()


def _figures(store: SqlStore, sizes: Sizes) -> Iterator[Figure]:
    first, last = _lived(store, sizes)
    tasks = sizes.checkpoint_tasks
    told = [_seconds(lambda: cell_at(store, CELL, last - 1)) for _ in range(sizes.rounds)]
    yield Figure(f"time.told.{tasks}.and_{ENTRIES}_entries", "s", told)
    compared = [_seconds(lambda: _compared(store, first, last)) for _ in range(sizes.rounds)]
    yield Figure(f"time.diff.{tasks}.of_2_checkpoints", "s", compared, at_most(3.0))
    pauses = [1000 * asyncio.run(_pause(store, last - 1)) for _ in range(sizes.rounds)]
    yield Figure(f"time.told.{tasks}.pause", "ms", pauses, at_most(100.0), quantile=1.0)


def _compared(store: SqlStore, first: int, last: int) -> None:
    old, new = (cell_at(store, CELL, position).cell for position in (first, last))
    assert difference(old, new)["tasks"], "tasks moved between the two"


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def _pause(store: SqlStore, position: int) -> float:
    """Return the longest that the loop was held up while the past was told beside it."""
    telling = asyncio.create_task(asyncio.to_thread(cell_at, store, CELL, position))
    longest, last = 0.0, time.perf_counter()
    while not telling.done():
        await asyncio.sleep(TICK_SECONDS)
        now = time.perf_counter()
        longest, last = max(longest, now - last - TICK_SECONDS), now
    return longest


def _lived(store: SqlStore, sizes: Sizes) -> tuple[int, int]:
    """Keep a large cell, let tasks move, keep it again; return the positions of the two checkpoints."""
    store.load()
    epoch, now = store.lead("bench", "bench"), SystemClock().now().wall
    store.append([Entry(1, now, 1, epoch, "bench", "begin", ())], Records())
    cell = large_cell(sizes.checkpoint_machines, sizes.checkpoint_tasks, 1)
    store.save_checkpoint(encode_snapshot(cell.snapshot()), 1, now, "bench", "first")
    for position in range(2, 2 + ENTRIES):
        entry = _moved(cell, position, epoch, now)
        apply_entry(cell, entry)
        store.append([entry], Records())
    store.save_checkpoint(encode_snapshot(cell.snapshot()), cell.position, now, "bench", "last")
    gc.collect()
    gc.freeze()  # as a borgmaster does with its cell
    return 1, cell.position


def _moved(cell: Cell, position: int, epoch: int, now: float) -> Entry:
    key = f"{CELL}/job-{position % len(cell.jobs)}"
    tasks = cell.jobs[key].tasks
    begin = position * MOVED % max(1, len(tasks) - MOVED)
    indexes = tuple(range(begin, min(begin + MOVED, len(tasks))))
    machines = tuple(cell.jobs[key].tasks[index - 1].machine for index in indexes)
    events = (TasksEvicted(key, indexes, Eviction.RESTART), TasksPlaced(key, indexes, machines))
    return Entry(position, now + position, 1, epoch, "bench", "move", events)
