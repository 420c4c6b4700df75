"""Keeps the cell that an older database holds, as a checkpoint, before its schema is migrated.

Only columns that are there are read and written, so that this works on every schema there ever was.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Connection, RowMapping, Table, insert, inspect, select

from borgish.cell.events import Entry
from borgish.clock import SystemClock
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import is_good
from borgish.store.codec import compress, decode_command, decode_events, encode_snapshot, sha256_of
from borgish.store.replay import recover
from borgish.store.tables import checkpoints, columns_as_written, journal

BEFORE_MIGRATION = "before the migration"
"""How the reason of such a checkpoint begins."""

_PAGE_ENTRIES = 500


def keep_before(connection: Connection, cell: str, old: str, new: str) -> None:
    """Make a checkpoint of what is stored at schema ``old``, named for the schema ``new`` that follows.

    Nothing is made of an empty journal; a good checkpoint at its end is marked as this one. Within the
    caller's transaction. Raises StoreDamaged for a store from which no cell can be read: it is not migrated.
    """
    found = recover(cell, _kept(connection), lambda after: _entries(connection, after)).cell
    if not found.position:
        return
    named = {row["name"] for row in _rows(connection, checkpoints, "body") if row.get("name")}
    values: dict[str, Any] = {"reason": f"{BEFORE_MIGRATION} from {old} to {new}"}
    there = {column.name for column in _columns(connection, checkpoints)}
    of_this = checkpoints.c.position == found.position
    for info, stored in _kept(connection):
        if info.position == found.position and is_good(cell, info, stored):
            values["name"] = info.name or _free_name(new, named)
            marked = {key: value for key, value in values.items() if key in there}
            connection.execute(checkpoints.update().where(of_this).values(marked))
            return
    stored = compress(encode_snapshot(found.snapshot()))
    values |= {
        "position": found.position,
        "at": SystemClock().now().wall,
        "sha256": sha256_of(stored),
        "bytes": len(stored),
        "body": stored,
        "name": _free_name(new, named),
    }
    connection.execute(checkpoints.delete().where(of_this))
    connection.execute(insert(checkpoints), {key: value for key, value in values.items() if key in there})


def _free_name(new: str, named: set[str]) -> str:
    name = f"before-{new}"
    return "" if name in named else name


def _kept(connection: Connection) -> Iterator[tuple[CheckpointInfo, bytes]]:
    """Yield the checkpoints with their bodies, newest first."""
    rows = _rows(connection, checkpoints, "body")
    for row in sorted(rows, key=lambda row: -row["position"]):
        wanted = select(checkpoints.c.body).where(checkpoints.c.position == row["position"])
        yield CheckpointInfo(**row), bytes(connection.execute(wanted).scalar_one())


def _entries(connection: Connection, after: int) -> Iterator[Entry]:
    columns = columns_as_written(_columns(connection, journal))
    while True:
        page = select(*columns).where(journal.c.position > after).order_by(journal.c.position)
        rows = connection.execute(page.limit(_PAGE_ENTRIES)).mappings().all()
        yield from map(_entry, rows)
        if len(rows) < _PAGE_ENTRIES:
            return
        after = rows[-1]["position"]


def _entry(row: RowMapping) -> Entry:
    fields: dict[str, Any] = dict(row)
    fields["events"] = decode_events(fields["events"], fields["position"])
    fields["command"] = decode_command(fields.get("command"), fields["position"])
    return Entry(**fields)


def _rows(connection: Connection, table: Table, besides: str) -> list[dict[str, Any]]:
    columns = [column for column in _columns(connection, table) if column.name != besides]
    return [dict(row) for row in connection.execute(select(*columns)).mappings()]


def _columns(connection: Connection, table: Table) -> list[Column[Any]]:
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    return [column for column in table.c if column.name in there]
