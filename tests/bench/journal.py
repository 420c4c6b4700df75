"""``journal``: what a long journal costs, of ten million entries: to start, to look back, to prune.

The entries are those of a small cell in which jobs come and go, as its master wrote them, again and again
with other positions and times, appended in batches; a checkpoint lies 1,000 entries before the end. In SQLite
on this machine's disk, and in a private Postgres server on the same host. ``load`` is from the opening of the
store to a cell in memory. ``latest`` and ``of_no_job`` look back as the API does: for the latest twenty, and
for those of a job of which there are none, until it has looked at as many entries as it may. ``at`` finds a
moment by its time. ``prune`` deletes nine tenths of the entries, a thousand at a time, and gives an SQLite
file's space back to the disk meanwhile; ``longest`` is how long one such piece holds the store.
"""

import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from itertools import cycle

import msgspec
import uvloop
from sqlalchemy import text

from borgish.api.views.history import HistoryFilter
from borgish.cell.commands import KillTasks
from borgish.cell.events import AnyEvent, Entry, MachineCordoned, MachineUncordoned
from borgish.cell.model import Cell
from borgish.clock import SystemClock
from borgish.master.past.checkpoints import PRUNED_AT_ONCE
from borgish.master.past.history import LOOKED_AT_MAX, History
from borgish.store import sqlite
from borgish.store.base import Records
from borgish.store.codec import compress, encode_snapshot
from borgish.store.open import open_store
from borgish.store.replay import position_at
from borgish.store.sql import SqlStore
from tests.bench.control import SimulatedCell, job_specs
from tests.bench.figure import Figure, at_least, at_most
from tests.bench.sizes import Sizes
from tests.bench.store import CELL, MIB, Writer, appends, load
from tests.fixtures_postgres import durable_server
from tests.groups import postgres_lacks

AFTER = 1_000
"""Entries after the last checkpoint."""
EVERY_SECONDS = 3.0
LITTLE_FREE = f"less than {sqlite.FREE_BYTES_MAX // MIB} MiB lie free"
AT_ONCE = 5_000


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of SQLite, then of Postgres where there is one."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        cell, lived = uvloop.run(_lived(f"sqlite:///{folder}/lived.db"))
        yield from _all_of("sqlite", f"sqlite:///{folder}/cell.db", cell, lived, sizes, _size_in_sqlite)
    if lacking := postgres_lacks():
        yield Figure("journal.postgres", "MiB", absent=lacking)
        return
    with durable_server() as server:
        yield from _all_of("postgres", server.fresh_url(), cell, lived, sizes, _size_in_postgres)


def _size_in_sqlite(store: SqlStore) -> int:
    """Return the size of the file when its log has been taken in."""
    [[pages]], [[page_bytes]] = (store.rows(text(f"PRAGMA {each}")) for each in ("page_count", "page_size"))
    return int(pages) * int(page_bytes)


def _size_in_postgres(store: SqlStore) -> int:
    [[size]] = store.rows(text("SELECT pg_total_relation_size('journal')"))
    return int(size)


async def _lived(url: str) -> tuple[Cell, list[Entry]]:
    """Return a cell that is at rest, and the entries of a life in it, from there to there."""
    cell = SimulatedCell(url)
    try:
        await cell.begin(20)
        begun = cell.core.cell.position
        specs = job_specs(400, 40)
        for spec in specs:
            await cell.submit([spec])
        await cell.until_up(400)
        for spec in specs:
            await cell.inbox.ask(KillTasks(spec.key), "bench")
        await cell.turn.durable()
        return cell.core.cell, list(cell.store.entries(begun))
    finally:
        await cell.close()


def _all_of(
    kind: str, url: str, cell: Cell, lived: list[Entry], sizes: Sizes, size: Callable[[SqlStore], int]
) -> Iterator[Figure]:
    name, count = f"journal.{kind}.{sizes.journal_entries}", sizes.journal_entries
    with closing(open_store(url, CELL)) as store:
        seconds = _written(store, cell, lived, count)
        yield Figure(f"{name}.rate", "entries/s", [count / seconds], note=f"{AT_ONCE} in a commit")
        yield Figure(f"{name}.size", "bytes/entry", [size(store) / count])
    loads = [load(url) for _ in range(sizes.rounds)]
    yield Figure(f"{name}.load.and_{AFTER}_entries", "s", loads, at_most(5.0))
    with closing(Writer(url)) as writer:
        yield from appends(name, writer, sizes)
    yield from uvloop.run(_looked_back(name, url, sizes))
    with closing(open_store(url, CELL)) as store:
        store.load()
        store.lead("bench", "bench")
        before = size(store)
        base = min(info.position for info in store.checkpoints())
        held = list(_pruned(store, base))
        yield Figure(f"{name}.prune", "entries/s", [(base - 1) / sum(held)])
        yield Figure(f"{name}.prune.longest", "ms", [1000 * max(held)], at_most(100.0))
        if kind == "sqlite":
            given = 1 - size(store) / before
            absent = "" if given else LITTLE_FREE
            samples = [] if absent else [given]
            yield Figure(f"{name}.given_back", "of the file", samples, at_least(0.85), absent=absent)


def _written(store: SqlStore, cell: Cell, lived: list[Entry], count: int) -> float:
    """Write a journal of so many entries, a checkpoint near its end and one after nine tenths; return the
    seconds of its appends."""
    store.load()
    epoch, now = store.lead("bench", "bench"), SystemClock().now().wall
    began, position, seconds = now - EVERY_SECONDS * count, 0, 0.0
    entries = cycle(lived)
    while position < count - AFTER:
        until = min(position + AT_ONCE, count - AFTER)
        batch = [
            msgspec.structs.replace(
                entry, position=at, at=began + at * EVERY_SECONDS, epoch=epoch, request_id=""
            )
            for at, entry in zip(range(position + 1, until + 1), entries, strict=False)
        ]
        since = time.perf_counter()
        store.append(batch, Records())
        seconds += time.perf_counter() - since
        position = until
    kept = cell.snapshot()
    for at in (count * 9 // 10, position):
        stored = compress(encode_snapshot(msgspec.structs.replace(kept, position=at)))
        store.save_checkpoint(stored, at, began + at * EVERY_SECONDS, "bench", f"at-{at}")
    marks: tuple[AnyEvent, ...] = (MachineCordoned("m1", "for the bench"), MachineUncordoned("m1"))
    for at, mark in zip(range(position + 1, count + 1), cycle(marks), strict=False):
        store.append([Entry(at, began + at * EVERY_SECONDS, 1, epoch, "bench", "cordon", (mark,))], Records())
    return seconds


async def _looked_back(name: str, url: str, sizes: Sizes) -> list[Figure]:
    cell = SimulatedCell(url)
    try:
        history = History(cell.turn, cell.store, cell.clock)
        head, now = cell.core.cell.position, cell.clock.now().wall
        latest = [await _seconds(history.latest(HistoryFilter(), 0, 20)) for _ in range(sizes.rounds)]
        middle = HistoryFilter(until=now - EVERY_SECONDS * head / 2)
        halfway = [await _seconds(history.latest(middle, 0, 20)) for _ in range(sizes.rounds)]
        absent = [await _seconds(history.latest(HistoryFilter("bench/none"), 0, 20))]
        found = []
        for share in range(1, sizes.rounds + 1):
            since = time.perf_counter()
            assert position_at(cell.store, now - EVERY_SECONDS * head * share / (sizes.rounds + 1), head)
            found.append(time.perf_counter() - since)
    finally:
        await cell.close()
    return [
        Figure(f"{name}.history.latest", "ms", [1000 * each for each in latest], at_most(100.0)),
        Figure(f"{name}.history.halfway", "ms", [1000 * each for each in halfway], at_most(100.0)),
        Figure(f"{name}.history.of_no_job", "s", absent, note=f"{min(LOOKED_AT_MAX, head)} looked at"),
        Figure(f"{name}.at", "ms", [1000 * each for each in found], at_most(100.0)),
    ]


async def _seconds(asked: Awaitable[object]) -> float:
    began = time.perf_counter()
    await asked
    return time.perf_counter() - began


def _pruned(store: SqlStore, base: int) -> Iterator[float]:
    """Prune up to a checkpoint, and give back, as a master does; yield the seconds that each piece took."""
    while True:
        began = time.perf_counter()
        pruned = store.prune_journal(base, PRUNED_AT_ONCE)
        middle = time.perf_counter()
        given = store.give_back()
        yield middle - began
        yield time.perf_counter() - middle
        if not pruned and not given:
            return
