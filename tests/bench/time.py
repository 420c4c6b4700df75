"""``time``: what the past of a large cell costs: to keep it, to start from it, to read it, to go back to it.

The cell has 10,000 machines and 200,000 tasks, in SQLite on this machine's disk and in a Postgres server of
its own. ``append`` and ``checkpoint`` are as in ``store``. ``told`` reads a moment between two checkpoints,
``diff`` compares two; ``pause`` and ``held_up`` are the longest that the master's loop waits meanwhile. A
rollback goes through the real core, turn and store, to machines simulated in this process; HTTP is left out.
``start`` is that of a real borgmaster which was killed, until it serves and until it has heard of all tasks,
by polls over real sockets.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.bench import past, rolled, standing, store
from tests.bench.figure import Figure
from tests.bench.sizes import Sizes
from tests.fixtures_postgres import durable_server
from tests.groups import postgres_lacks


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of SQLite, then of Postgres where there is one."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        files = (f"sqlite:///{folder}/{number}.db" for number in range(10))
        yield from _all_of("sqlite", files, sizes)
    if lacking := postgres_lacks():
        yield Figure("time.postgres", "s", absent=lacking)
        return
    with durable_server() as server:
        databases = (server.fresh_url() for _ in range(10))
        yield from _all_of("postgres", databases, sizes)


def _all_of(kind: str, urls: Iterator[str], sizes: Sizes) -> Iterator[Figure]:
    with closing(store.Writer(next(urls))) as writer:
        yield from store.appends(f"time.{kind}", writer, sizes)
        yield from store.checkpoints(f"time.{kind}", writer, sizes)
    yield from past.figures_of(kind, next(urls), sizes)
    yield from rolled.figures_of(kind, next(urls), sizes)
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        yield from standing.figures_of(kind, next(urls), Path(folder) / "cell", sizes)
