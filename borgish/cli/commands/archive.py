"""``borgctl archive``: all that happened, as Parquet files to ask more of than borgctl answers.

The folder is whole or says that it is not: files have the ending ``.part`` until all of them are complete,
and the manifest comes last. Rows are written a group at a time, so memory does not grow with them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer

from borgish.cli.at_option import SinceOption, UntilOption
from borgish.cli.session import noun, session_of
from borgish.durable import sync
from borgish.errors import BorgishError, Conflict
from borgish.text import day_and_time, safe, zoned
from borgish.wire.archive import ArchiveBegin, ArchiveEnd, ArchivePiece, AttemptRow, EventRow, UsageRow

app = noun("Events, attempts and usage, as Parquet files.")

SECONDS_MAX = 120.0  # until the answer begins


@app.callback()
def archive() -> None:
    """Events, attempts and usage, as Parquet files."""


@app.command()
def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new folder, or an empty one.")],
    since: SinceOption = "",
    until: UntilOption = "",
) -> None:
    """Write all events, attempts and samples of usage of a time to a folder, all there are by default.

    It needs pyarrow. The folder is whole when manifest.json is in it. What the columns mean, and how to ask
    DuckDB about them, is in configs/archive.md.
    """
    from borgish.cli.render import Progress
    from borgish.cli.screen import print_err, print_out

    expect_pyarrow()
    client = session_of(context).client(SECONDS_MAX)
    progress = Progress()
    with new_archive(folder) as writer:
        pieces = client.stream("/v1/archive", {"since": zoned(since), "until": zoned(until)})
        try:
            for line in _lines(pieces):
                writer.take(line)
                if any(writer.rows.values()):  # the answer begins with a line that has none
                    progress.show(f"{_counted(writer.rows)} so far")
        finally:
            progress.end()
        manifest = writer.finish()
    print_out(f"wrote {_counted(writer.rows)} to {safe(str(folder))}{_positions(manifest)}")
    if manifest.journal_begins and not since:
        print_err(
            f"the journal begins at {day_and_time(manifest.journal_begins)}: older entries are not kept"
        )


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole lines; one that the stream broke off in is none."""
    rest: list[bytes] = []
    for piece in pieces:
        *whole, tail = piece.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line))
            rest.clear()
        rest.append(tail)


def _counted(rows: dict[str, int]) -> str:
    return f"{rows['events']} events, {rows['attempts']} attempts and {rows['usage']} samples of usage"


def _positions(manifest: "Manifest") -> str:
    first, last = manifest.first_position, manifest.last_position
    return f", of positions {first} to {last}" if first <= last else ", with no journal entry"


TABLES: Mapping[str, type[msgspec.Struct]] = {"events": EventRow, "attempts": AttemptRow, "usage": UsageRow}
MANIFEST = "manifest.json"
GROUP_ROWS = 50_000
GROUP_BYTES = 32 * 1024**2
"""A group is written when it has so many rows, or came in so many bytes."""
_PART = ".part"
_FORMAT = 1


class FileView(msgspec.Struct, frozen=True):
    """One file of an archive."""

    rows: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """What is in an archive; it is there when the archive is whole."""

    format: int
    cell: str
    borgish: str  # the version that made it
    made_at: str
    since: str | None  # as asked for
    until: str
    first_position: int  # of the journal's entries, both included; none when the last is below the first
    last_position: int
    journal_begins: str | None  # where older entries are no longer kept
    files: dict[str, FileView]


def expect_pyarrow() -> None:
    """Raise BorgishError when there is no pyarrow here."""
    try:
        import pyarrow.parquet  # noqa: F401 - an extra: only who archives has it
    except ImportError as error:
        raise BorgishError(
            f"archives need pyarrow, which cannot be imported: {error}",
            "Install it with: pip install 'borgish[archive]', or: pip install pyarrow",
        ) from error


@contextmanager
def new_archive(folder: Path) -> Iterator["Writer"]:
    """Have an empty folder, made if there is none, to write an archive to; on an error it is left as it was.

    Raises Conflict when something is in it, and OSError for what the system refuses.
    """
    made = _make(folder)
    parts = [folder / f"{name}{_PART}" for name in (*_files(), MANIFEST)]
    try:
        with ExitStack() as opened:
            yield Writer(folder, opened)
    except BaseException:
        for part in parts:
            part.unlink(missing_ok=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()
        raise


def _files() -> list[str]:
    return [f"{table}.parquet" for table in TABLES]


def _make(folder: Path) -> bool:
    """Return whether the folder was not there before."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        return True
    there = sorted(entry.name for entry in folder.iterdir())
    if there and all(name.endswith(_PART) for name in there):
        raise Conflict(f"{folder} has an incomplete archive in it", "Remove that folder, or name another")
    if there:
        raise Conflict(f"{folder} is not empty: {there[0]} is in it", "Name a new folder, or an empty one")
    return False


class Writer:
    """An archive that is being written."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._folder = folder
        self._groups = {
            table: opened.enter_context(_Group.opened(folder / f"{table}.parquet{_PART}", row))
            for table, row in TABLES.items()
        }
        self._begin: ArchiveBegin | None = None
        self._end: ArchiveEnd | None = None

    def take(self, line: bytes) -> None:
        """Take in a line of the master's answer. Raises BorgishError for one that cannot be understood."""
        try:
            piece = msgspec.json.decode(line, type=ArchivePiece)
        except msgspec.MsgspecError as error:
            raise BorgishError(
                f"the master's answer cannot be decoded: {error}",
                "Are master and client of the same version?",
            ) from error
        if piece.problem:
            raise BorgishError(piece.problem, piece.hint)
        self._begin, self._end = self._begin or piece.begin, piece.end
        for table, group in self._groups.items():
            group.add(getattr(piece, table), len(line))

    @property
    def rows(self) -> dict[str, int]:
        """How many rows of each table were written."""
        return {table: group.rows for table, group in self._groups.items()}

    def finish(self) -> Manifest:
        """Make the archive whole, and return what is in it. Raises BorgishError when something is missing."""
        if self._begin is None or self._end is None or msgspec.structs.asdict(self._end) != self.rows:
            raise BorgishError(
                "the master's answer broke off, and no archive was written", "Its log may say why; try again"
            )
        for group in self._groups.values():
            group.finish()
        for name in _files():
            os.rename(self._folder / f"{name}{_PART}", self._folder / name)
        manifest = self._manifest(self._begin)
        part = self._folder / f"{MANIFEST}{_PART}"
        part.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        sync(part)
        os.rename(part, self._folder / MANIFEST)
        sync(self._folder)
        return manifest

    def _manifest(self, begin: ArchiveBegin) -> Manifest:
        files = {
            f"{table}.parquet": FileView(rows, (self._folder / f"{table}.parquet").stat().st_size)
            for table, rows in self.rows.items()
        }
        return Manifest(
            _FORMAT,
            begin.cell,
            begin.version,
            _instant(begin.made_at),
            None if begin.since is None else _instant(begin.since),
            _instant(begin.until),
            begin.after + 1,
            begin.last,
            None if begin.journal_begins is None else _instant(begin.journal_begins),
            files,
        )


class _Group:
    """The rows of one table that are not yet written, and its file."""

    def __init__(self, file: Any, row: type[msgspec.Struct]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._file = file
        self._schema = pa.schema([_field(field) for field in msgspec.structs.fields(row)])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[msgspec.Struct] = []
        self._bytes = 0
        self.rows = 0

    @classmethod
    @contextmanager
    def opened(cls, path: Path, row: type[msgspec.Struct]) -> "Iterator[_Group]":
        with path.open("xb") as file:
            group = cls(file, row)
            try:
                yield group
            finally:
                group.close()

    def add(self, rows: Sequence[msgspec.Struct], size: int) -> None:
        """Take in rows that came in so many bytes, or in fewer."""
        if rows:
            self._waiting += rows
            self._bytes += size
            self.rows += len(rows)
        if len(self._waiting) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write()

    def finish(self) -> None:
        """Write the rest, durably."""
        self._write()
        self.close()
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End the file where it is. Idempotent."""
        self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        columns = zip(*map(msgspec.structs.astuple, self._waiting), strict=True)
        arrays = [_array(list(column), field) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._waiting, self._bytes = [], 0


def _field(field: msgspec.structs.FieldInfo) -> Any:
    """Return a column like a field of a row: its numbers with a point are moments."""
    import pyarrow as pa

    kinds = {int: pa.int64(), str: pa.string(), float: pa.timestamp("us", tz="UTC")}
    options = get_args(field.type) or (field.type,)
    return pa.field(field.name, kinds[options[0]], nullable=type(None) in options)


def _array(values: list[Any], field: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(field.type):
        values = [None if value is None else round(value * 1e6) for value in values]
    return pa.array(values, type=field.type)


def _instant(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
