"""Opens what a cell left behind: an exported checkpoint, a SQLite file or a database's URL. Only to read.

Of a SQLite file a copy is made, through a connection that cannot write, so that a running master is not
held up and an older database can be brought up to date. Postgres is read in a session that cannot write.
"""

import sqlite3
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from borgish.cell.events import Entry
from borgish.errors import NotFound
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import info_of, verified_snapshot
from borgish.store.codec import unpack_entries
from borgish.store.open import open_reader, open_store, parse_url
from borgish.store.replay import HistorySource, earliest_position
from borgish.store.sqlite import path_of
from borgish.wire.checkpoint_file import MARK, is_checkpoint, unpack_with_journal

_END = 2**63 - 1  # above every position
_KINDS = "`borgctl checkpoint export` writes such a file; a local cell's database is DIR/cell.db"


class Opened(msgspec.Struct, frozen=True):
    """What can be read of a cell, which can be reconstructed at the positions from ``first`` to ``head``."""

    what: str  # as it was named
    kind: str  # checkpoint, sqlite, postgresql
    cell: str
    source: HistorySource
    first: int
    head: int


@contextmanager
def opened(what: str) -> Iterator[Opened]:
    """Open a file or a URL, and let go of it afterwards.

    Raises NotFound for what is neither, StoreDamaged for what does not verify, UnsafeConfiguration for what
    another version wrote, Unreachable for a server that does not answer.
    """
    with ExitStack() as held:
        yield _open(what, held)


def _open(what: str, held: ExitStack) -> Opened:
    if "://" not in what:
        return _open_file(Path(what), held)
    url = parse_url(what)
    if url.drivername.startswith("sqlite"):
        return _open_file(path_of(url), held)
    store, name = open_reader(what)
    held.callback(store.close)
    return _opened(url.render_as_string(hide_password=True), store.kind, name, store)


def _open_file(file: Path, held: ExitStack) -> Opened:
    try:
        with file.open("rb") as there:
            is_exported = is_checkpoint(there.read(len(MARK)))
        if is_exported:
            return _exported(file, file.read_bytes())
        return _copied(file, held)
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}", _KINDS) from None


def _exported(file: Path, content: bytes) -> Opened:
    header, stored, journal = unpack_with_journal(content)
    info = info_of(header)
    verified_snapshot(header.cell, info, stored)
    return _opened(
        str(file),
        "checkpoint",
        header.cell,
        Exported(info, stored, unpack_entries(journal) if journal else ()),
    )


def _copied(file: Path, held: ExitStack) -> Opened:
    folder = held.enter_context(tempfile.TemporaryDirectory(prefix="fauxmaster-"))
    copy = Path(folder) / "cell.db"
    name = _copy(file, copy)
    store = open_store(f"sqlite:///{copy}", name)
    held.callback(store.close)
    return _opened(str(file), store.kind, name, store)


def _copy(file: Path, copy: Path) -> str:
    """Copy a database that may be in use, and return the name of its cell."""
    readable = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(readable, uri=True)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            (name,) = target.execute("SELECT cell FROM leadership").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise NotFound(
            f"{file} is neither a cell's database nor an exported checkpoint: {error}", _KINDS
        ) from None
    return str(name)


def _opened(what: str, kind: str, cell: str, source: HistorySource) -> Opened:
    latest = next(iter(source.entries_before(_END, 1)), None)
    kept = max((info.position for info in source.checkpoints()), default=0)
    head = max(kept, latest.position if latest else 0)
    first = earliest_position(source)
    return Opened(what, kind, cell, source, first if latest else kept, head)


class Exported:
    """One checkpoint and what followed. See ``store.replay.HistorySource``."""

    def __init__(self, info: CheckpointInfo, stored: bytes, after: Sequence[Entry] = ()) -> None:
        self._info = info
        self._stored = stored
        self._after = after

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]:
        """Return entries above a position, in order."""
        begin = bisect_right(self._after, after, key=lambda entry: entry.position)
        return self._after[begin : begin + limit if limit else None]

    def entries_before(self, before: int, limit: int) -> Iterable[Entry]:
        """Return entries next below a position, newest first."""
        end = bisect_left(self._after, before, key=lambda entry: entry.position)
        return self._after[max(0, end - limit) : end][::-1]

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the one there is."""
        return [self._info]

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return it with its body. Raises NotFound."""
        if position != self._info.position:
            raise NotFound(f"no checkpoint is at position {position}", f"The file's is {self._info.position}")
        return self._info, self._stored
