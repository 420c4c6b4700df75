"""Writes what was salvaged into a database, in one transaction: all of it is there then, or nothing."""

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, delete, func, insert, update

from borgish.cell.apply import apply_entry
from borgish.cell.events import EntriesLost, Entry
from borgish.store import sql
from borgish.store.base import CheckpointInfo
from borgish.store.codec import compress, encode_snapshot, sha256_of
from borgish.store.remains import Remains
from borgish.store.salvage import Salvaged, is_readable
from borgish.store.tables import (
    CELL_TABLES,
    Row,
    cell_rows,
    checkpoints,
    entry_row,
    insert_text,
    journal,
    leadership,
)

ACTOR, CAUSE = "recovery", "recover"
_BATCH_ROWS = 500


def copy_history(target: Connection, remains: Remains, saved: Salvaged) -> None:
    """Write into an empty database the entries that hold, and the checkpoints that are good."""
    statement = insert_text(target.dialect, journal)
    stay = (row for row in remains.journal() if row[0] <= saved.head and is_readable(row))
    for batch in _batches(stay):
        target.exec_driver_sql(statement, batch)
    for info in remains.checkpoints():
        if info.position in saved.good:
            _keep(target, info, remains.body(info.position))


def drop_lost(target: Connection, saved: Salvaged) -> None:
    """Take out of a database the entries that do not hold, and the checkpoints that are not good."""
    for row in saved.lost:
        target.execute(delete(journal).where(journal.c.position == row[0]))
    target.execute(delete(checkpoints).where(checkpoints.c.position.not_in(saved.good)))


def write_cell(target: Connection, saved: Salvaged, at: float) -> CheckpointInfo:
    """Write the tables anew, say in the journal what is lost, and keep a checkpoint of it; return that."""
    statement = insert_text(target.dialect, journal)
    if saved.resumes_at:
        entry = _lost_entry(saved, at)
        apply_entry(saved.cell, entry)
        target.exec_driver_sql(statement, [entry_row(entry)])
    saved.cell.take_touched()
    for name, rows in cell_rows(saved.cell).items():
        target.execute(delete(CELL_TABLES[name]))
        for batch in _batches(rows.values()):
            target.exec_driver_sql(insert_text(target.dialect, CELL_TABLES[name]), batch)
    led = {"timeline": saved.cell.timeline, "epoch": saved.epoch, "holder": "", "address": ""}
    target.execute(update(leadership).values(renewed_at=func.now(), **led))
    return _checkpoint(target, saved, at)


def _lost_entry(saved: Salvaged, at: float) -> Entry:
    cell, position = saved.cell, saved.resumes_at
    reason = saved.stop or "; ".join(saved.unread)
    lost = EntriesLost(saved.head + 1, position - 1, cell.timeline + 1, reason)
    text = f"goes on as at {saved.head}"
    return Entry(position, at, cell.timeline + 1, saved.epoch, ACTOR, CAUSE, (lost,), text=text)


def _checkpoint(target: Connection, saved: Salvaged, at: float) -> CheckpointInfo:
    stored = compress(encode_snapshot(saved.cell.snapshot()))
    position = saved.cell.position
    name = "".join(info.name for info in sql.checkpoint_infos(target) if info.position == position)
    info = CheckpointInfo(position, at, ACTOR, sha256_of(stored), len(stored), name)
    sql.delete_checkpoint(target, position)
    _keep(target, info, stored)
    return info


def _keep(target: Connection, info: CheckpointInfo, stored: bytes) -> None:
    values = {"position": info.position, "at": info.at, "reason": info.reason, "name": info.name}
    target.execute(insert(checkpoints), values | {"sha256": info.sha256, "bytes": info.bytes, "body": stored})


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch
