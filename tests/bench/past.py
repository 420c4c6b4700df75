"""What it costs to look at the past of a large cell, and what the turns feel of it: a part of ``time``."""

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from borgish.cell.apply import apply_entry
from borgish.cell.diff import difference
from borgish.cell.events import Entry, TasksEvicted, TasksPlaced
from borgish.cell.model import Cell
from borgish.clock import SystemClock
from borgish.store.base import Records
from borgish.store.codec import compress, encode_snapshot
from borgish.store.open import open_store
from borgish.store.replay import cell_at
from borgish.store.sql import SqlStore
from borgish.vocabulary import Eviction
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes
from tests.bench.store import CELL, large_cell

ENTRIES = 1000
"""Between the two checkpoints; each moves tasks of one job."""
MOVED = 10
TICK_SECONDS = 0.001


def figures_of(kind: str, url: str, sizes: Sizes) -> Iterator[Figure]:
    """Yield what reads of the past cost, over one kind of store."""
    store = open_store(url, CELL)
    try:
        yield from _figures(f"time.{kind}", store, sizes)
    finally:
        store.close()
        gc.unfreeze()


def _figures(name: str, store: SqlStore, sizes: Sizes) -> Iterator[Figure]:
    first, last = _lived(store, sizes)
    tasks = sizes.checkpoint_tasks
    told = [_seconds(lambda: cell_at(store, CELL, last - 1)) for _ in range(sizes.rounds)]
    yield Figure(f"{name}.told.{tasks}.and_{ENTRIES}_entries", "s", told)
    compared = [_seconds(lambda: _compared(store, first, last)) for _ in range(sizes.rounds)]
    yield Figure(f"{name}.diff.{tasks}.of_2_checkpoints", "s", compared, at_most(3.0))
    pauses = [1000 * asyncio.run(_pause(store, last - 1)) for _ in range(sizes.rounds)]
    yield Figure(f"{name}.told.{tasks}.pause", "ms", pauses, at_most(100.0), quantile=1.0)


def _compared(store: SqlStore, first: int, last: int) -> None:
    old, new = (cell_at(store, CELL, position).cell for position in (first, last))
    assert difference(old, new)["tasks"], "tasks moved between the two"


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def _pause(store: SqlStore, position: int) -> float:
    """Return the longest that the loop was held up while the past was told beside it."""
    return await held_up(asyncio.to_thread(cell_at, store, CELL, position))


async def held_up(doing: Coroutine[Any, Any, object]) -> float:
    """Return the longest, in seconds, that the loop was held up while something was done beside it."""
    done = asyncio.create_task(doing)
    longest, last = 0.0, time.perf_counter()
    while not done.done():
        await asyncio.sleep(TICK_SECONDS)
        now = time.perf_counter()
        longest, last = max(longest, now - last - TICK_SECONDS), now
    await done
    return longest


def _lived(store: SqlStore, sizes: Sizes) -> tuple[int, int]:
    """Keep a large cell, let tasks move, keep it again; return the positions of the two checkpoints."""
    cell = large_cell(sizes.checkpoint_machines, sizes.checkpoint_tasks, 1)
    now = live(store, cell)
    store.save_checkpoint(compress(encode_snapshot(cell.snapshot())), cell.position, now, "bench", "last")
    gc.collect()
    gc.freeze()  # as a borgmaster does with its cell
    return 1, cell.position


def live(store: SqlStore, cell: Cell) -> float:
    """Write a cell of position 1 to a new store, as a checkpoint, and let tasks move; return when it was."""
    epoch, now = kept(store, cell)
    for position in range(2, 2 + ENTRIES):
        entry = _moved(cell, position, epoch, now)
        apply_entry(cell, entry)
        store.append([entry], Records())
    return now


def kept(store: SqlStore, cell: Cell) -> tuple[int, float]:
    """Write a cell of position 1 to a new store, as a checkpoint; return under which epoch, and when."""
    store.load()
    epoch, now = store.lead("bench", "bench"), SystemClock().now().wall
    store.append([Entry(1, now, 1, epoch, "bench", "begin", ())], Records())
    store.save_checkpoint(compress(encode_snapshot(cell.snapshot())), 1, now, "bench", "first")
    return epoch, now


def _moved(cell: Cell, position: int, epoch: int, now: float) -> Entry:
    key = f"{CELL}/job-{position % len(cell.jobs)}"
    tasks = cell.jobs[key].tasks
    begin = position * MOVED % max(1, len(tasks) - MOVED)
    indexes = tuple(range(begin, min(begin + MOVED, len(tasks))))
    machines = tuple(cell.jobs[key].tasks[index - 1].machine for index in indexes)
    events = (TasksEvicted(key, indexes, Eviction.RESTART), TasksPlaced(key, indexes, machines))
    return Entry(position, now + position, 1, epoch, "bench", "move", events)
