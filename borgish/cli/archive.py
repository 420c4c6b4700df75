"""``borgctl archive``: all that happened, as Parquet files to ask more of than borgctl answers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import noun
from borgish.cli.moments import day_and_time, zoned
from borgish.cli.session import session_of
from borgish.text import safe

if TYPE_CHECKING:
    from borgish.cli.parquet import Manifest

app = noun("Events, attempts and usage, as Parquet files.")

SECONDS_MAX = 120.0  # until the answer begins
_TIMES = "2026-01-31T12:00, with your zone unless it names one, or an age: 30m, 2h, 1d"


@app.callback()
def archive() -> None:
    """Events, attempts and usage, as Parquet files."""


@app.command()
def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new folder, or an empty one.")],
    since: Annotated[str, typer.Option("--since", metavar="TIME|AGE", help=f"Not before: {_TIMES}.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME|AGE", help="Not after, likewise.")] = "",
) -> None:
    """Write all events, attempts and samples of usage of a time to a folder, all there are by default.

    It needs pyarrow. The folder is whole when manifest.json is in it. What the columns mean, and how to ask
    DuckDB about them, is in configs/archive.md.
    """
    from borgish.cli.parquet import expect_pyarrow, new_archive
    from borgish.cli.progress import Progress
    from borgish.cli.screen import data, say

    expect_pyarrow()
    client = session_of(context).client(SECONDS_MAX)
    progress = Progress()
    with new_archive(folder) as writer:
        pieces = client.stream("/v1/archive", {"since": zoned(since), "until": zoned(until)})
        try:
            for line in _lines(pieces):
                writer.take(line)
                progress.show(_counted(writer.rows))
        finally:
            progress.end()
        manifest = writer.finish()
    data(f"wrote {_counted(writer.rows)} to {safe(str(folder))}{_positions(manifest)}")
    if manifest.journal_begins and not since:
        say(f"the journal begins at {day_and_time(manifest.journal_begins)}: older entries are not kept")


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
    return f", of positions {first} to {last}" if first <= last else ", of no entry of the journal"
