"""Recovers a damaged store: what can be salvaged goes on, what is lost is put aside and reported.

It goes on from a good checkpoint as far as the journal after it holds. The gap is an event (``EntriesLost``),
so replay still gives the cell. Positions of the gap are skipped, so an attempt's id, which is a position,
cannot come again: attempts with ids of the gap are orphans. Recovery is a command that ends, for in a unit
file it would lose something at each start.

SQLite: a new file is built beside the old one, and replaces it. Postgres: one transaction. Nothing is changed
where nothing is wrong, and nothing that was there is thrown away.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec
from sqlalchemy import Connection, delete, func, update
from sqlalchemy.exc import SQLAlchemyError

from borgish.cell.apply import apply_entry
from borgish.cell.events import EntriesLost, Entry
from borgish.durable import open_private
from borgish.errors import BorgishError, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store import migrate, postgres, sqlite
from borgish.store.base import CheckpointInfo, read_failed, reason_of
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import RestorePoint
from borgish.store.codec import compress, encode_snapshot, sha256_of
from borgish.store.open import parse_url
from borgish.store.salvage import DamagedDatabase, Salvaged, is_readable, salvage
from borgish.store.sql import checkpoint_infos, delete_checkpoint, insert_checkpoint
from borgish.store.statements import insert_text
from borgish.store.tables import (
    CELL_TABLES,
    Row,
    cell_rows,
    checkpoints,
    entry_row,
    journal,
    leadership,
)

ACTOR, CAUSE = "recovery", "recover"
_BATCH_ROWS = 500
_BESIDE = "Make room beside the database for three more of its size, then do the same again"


class Recovered(msgspec.Struct):
    """What came of it. ``checkpoint`` is None when nothing was wrong, and nothing was done."""

    saved: Salvaged
    checkpoint: CheckpointInfo | None = None
    aside: list[Path] = []  # where the damaged database is kept
    lost_file: Path | None = None  # with the lost entries


class Recovery:
    """One attempt to recover the store of a cell."""

    def __init__(self, url: str, name: str, folder: Path, at: float) -> None:
        """``folder`` is the master's; the lost entries are written to it. ``at``: seconds since 1970."""
        self._url = parse_url(url)
        self._name = name
        self._folder = folder
        self._files = CheckpointFiles(self._path, name) if self._is_file else None
        self._at = at

    def inspect(self) -> Salvaged:
        """Return what could be saved. Changes nothing; raises StoreDamaged when nothing could."""
        with self._open() as database:
            return self._salvage(database, None)

    def recover(self, given: RestorePoint | None = None, position: int = 0) -> Recovered:
        """Recover the store from the newest good checkpoint, or from ``given``, or that at ``position``.

        The newest may be in a file beside an SQLite database. Raises StoreDamaged when there is nothing to
        restore from, NotFound for a position that has none.
        """
        with self._open() as database:
            start = given or (self._checkpoint_at(database, position) if position else None)
            saved = self._salvage(database, start)
            if saved.is_sound:
                return Recovered(saved)
            done = Recovered(saved, lost_file=self._write_lost(saved))
            if self._is_file:
                self._build_beside(database, done)
            else:
                done.checkpoint = _rebuild_in_place(database.connection, saved, self._at)
            return done

    @property
    def _is_file(self) -> bool:
        return self._url.drivername.startswith("sqlite")

    def _salvage(self, database: DamagedDatabase, start: RestorePoint | None) -> Salvaged:
        name, _, _ = database.leadership()
        if name not in ("", self._name):
            raise UnsafeConfiguration(
                f"The database belongs to cell '{name}', not to '{self._name}'", "Name the right cell"
            )
        saved = salvage(database, self._name, start, self._checkpoint_files())
        if self._is_file:
            saved.wrong += database.integrity_check()
        return saved

    def _checkpoint_files(self) -> list[RestorePoint]:
        return list(self._files.good()) if self._files is not None else []

    def _checkpoint_at(self, database: DamagedDatabase, position: int) -> RestorePoint:
        for info in database.checkpoints():
            if info.position == position:
                return RestorePoint(position, database.body(position), info)
        for start in self._checkpoint_files():
            if start.position == position:
                return start
        raise NotFound(
            f"no checkpoint is kept at position {position}", "Leave it out for the newest good one"
        )

    # Reading

    @contextmanager
    def _open(self) -> Iterator[DamagedDatabase]:
        """Yield the database: a copy of a file, or the server's in a transaction of ours."""
        with self._open_copy_of_file() if self._is_file else self._open_on_server() as database:
            transaction = database.connection.begin()
            try:
                if not self._is_file:  # the leader waits from now on, and is fenced when this is done
                    database.connection.execute(update(leadership).values(epoch=leadership.c.epoch + 1))
                yield database
            except SQLAlchemyError as error:
                raise read_failed(error) from error
            finally:
                if transaction.is_active:
                    transaction.rollback()

    @contextmanager
    def _open_on_server(self) -> Iterator[DamagedDatabase]:
        connection, release = postgres.connect(self._url, self._folder / "cell.lock")
        try:
            with _closing(connection):
                migrate.prepare(connection, self._name, keep_checkpoint=False)
                yield DamagedDatabase(connection)
        finally:
            release()

    @contextmanager
    def _open_copy_of_file(self) -> Iterator[DamagedDatabase]:
        with sqlite.locked(self._path, self._folder / "cell.lock"):
            sqlite.finish_rebuild(self._path)
            work, building = sqlite.working_copies(self._path)
            try:
                with _disk_errors(f"{work}, the copy that is read, cannot be made", _BESIDE):
                    sqlite.copy_database(self._path, work)
                    work.touch(0o600)
                reach("rebuild.copied")
                database = self._open_copy(work)
                with _closing(database.connection):
                    yield database
            finally:
                sqlite.remove_database(work)
                sqlite.remove_database(building)

    def _open_copy(self, work: Path) -> DamagedDatabase:
        """Open a copy, brought to this version's schema where that can be; an empty one where it is none."""
        sqlite.pad_to_stated_size(work)
        try:
            connection = sqlite.open_file(work)
        except StoreDamaged as error:
            connection = sqlite.open_file(sqlite.remove_database(work))
            migrate.prepare(connection, self._name)
            return DamagedDatabase(connection, error.message, is_end_known=False)
        try:
            migrate.prepare(connection, self._name, keep_checkpoint=False)
        except SQLAlchemyError as error:
            return DamagedDatabase(connection, f"The schema cannot be read: {reason_of(error)}")
        except UnsafeConfiguration as error:
            if _has_revision(connection):  # of another version, or another cell
                raise
            return DamagedDatabase(connection, error.message)
        return DamagedDatabase(connection)

    @property
    def _path(self) -> Path:
        return sqlite.path_of(self._url)

    # Writing

    def _build_beside(self, database: DamagedDatabase, done: Recovered) -> None:
        _, building = sqlite.working_copies(self._path)
        with _disk_errors(f"{self._path} cannot be rebuilt", _BESIDE):
            with _closing(sqlite.open_file(sqlite.remove_database(building))) as target:
                migrate.prepare(target, self._name)
                with target.begin():
                    _copy_history(target, database, done.saved)
                    done.checkpoint = _write_cell(target, done.saved, self._at)
                reach("rebuild.written")
            done.aside = sqlite.back_up(self._path)
            sqlite.commit_rebuild(self._path, building)
        sqlite.finish_rebuild(self._path)

    def _write_lost(self, saved: Salvaged) -> Path | None:
        """Write the lost entries to a file in the folder, as far as they can be read."""
        if not saved.lost:
            return None
        path = self._folder / f"lost-{saved.lost[0][0]}.jsonl"
        names = journal.c.keys()
        with (
            _disk_errors(f"{path} cannot be written", "Make room there, then do the same again"),
            open(path, "w", opener=open_private) as file,
        ):
            for row in saved.lost:
                file.write(json.dumps(dict(zip(names, row, strict=True)), default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())
            sqlite.sync_folder(path)
        return path


@contextmanager
def _disk_errors(what: str, hint: str) -> Iterator[None]:
    """Raise BorgishError for what a disk refuses, as a full one does."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        reason = error.strerror if isinstance(error, OSError) else reason_of(error)
        raise BorgishError(f"{what}: {reason}", f"Nothing was changed. {hint}") from error


def _rebuild_in_place(target: Connection, saved: Salvaged, at: float) -> CheckpointInfo:
    """Within the transaction that is begun, and commit it."""
    for row in saved.lost:
        target.execute(delete(journal).where(journal.c.position == row[0]))
    target.execute(delete(checkpoints).where(checkpoints.c.position.not_in(saved.good)))
    checkpoint = _write_cell(target, saved, at)
    reach("rebuild.written")
    transaction = target.get_transaction()
    assert transaction is not None
    transaction.commit()
    return checkpoint


def _copy_history(target: Connection, database: DamagedDatabase, saved: Salvaged) -> None:
    """Write into an empty database the entries that hold, and the checkpoints that are good."""
    statement = insert_text(target.dialect, journal)
    for batch in _batches(row for row in database.journal() if row[0] <= saved.head and is_readable(row)):
        target.exec_driver_sql(statement, batch)
    for info in database.checkpoints():
        if info.position in saved.good:
            insert_checkpoint(target, info, database.body(info.position))


def _write_cell(target: Connection, saved: Salvaged, at: float) -> CheckpointInfo:
    """Write the tables anew and, in the journal, what is lost; store a checkpoint and return what it is."""
    cell = saved.cell
    if saved.resumes_at:
        reason = saved.stop or "; ".join(saved.unread)
        lost = EntriesLost(saved.head + 1, saved.resumes_at - 1, cell.timeline + 1, reason)
        text = f"goes on as at {saved.head}"
        entry = Entry(saved.resumes_at, at, cell.timeline + 1, saved.epoch, ACTOR, CAUSE, (lost,), text=text)
        apply_entry(cell, entry)
        target.exec_driver_sql(insert_text(target.dialect, journal), [entry_row(entry)])
    cell.take_touched()
    for name, rows in cell_rows(cell).items():
        table = CELL_TABLES[name]
        target.execute(delete(table))
        for batch in _batches(rows.values()):
            target.exec_driver_sql(insert_text(target.dialect, table), batch)
    led = {"timeline": cell.timeline, "epoch": saved.epoch, "holder": "", "address": ""}
    target.execute(update(leadership).values(renewed_at=func.now(), **led))
    stored = compress(encode_snapshot(cell.snapshot()))
    name = "".join(info.name for info in checkpoint_infos(target) if info.position == cell.position)
    checkpoint = CheckpointInfo(cell.position, at, ACTOR, sha256_of(stored), len(stored), name)
    delete_checkpoint(target, cell.position)
    insert_checkpoint(target, checkpoint, stored)
    return checkpoint


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while batch := list(islice(rest, _BATCH_ROWS)):
        yield batch


def _has_revision(connection: Connection) -> bool:
    try:
        with connection.begin():
            return bool(migrate.stored_revision(connection))
    except SQLAlchemyError:
        return False


@contextmanager
def _closing(connection: Connection) -> Iterator[Connection]:
    try:
        yield connection
    finally:
        connection.close()
        connection.engine.dispose()
