"""Brings a damaged store back: what can be salvaged goes on, what is lost is put aside and said.

SQLite: a new file is built beside the old one, and takes its place. Postgres: one transaction. Nothing is
changed where nothing is wrong, and nothing that was there is thrown away.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from sqlalchemy import Connection, update
from sqlalchemy.exc import SQLAlchemyError

from borgish.errors import BorgishError, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store import migrate, postgres, sqlite
from borgish.store.base import CheckpointInfo, read_failed, reason_of
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import RestorePoint
from borgish.store.open import parse_url
from borgish.store.rebuild import copy_history, drop_lost, write_cell
from borgish.store.remains import Remains
from borgish.store.salvage import Salvaged, salvage
from borgish.store.tables import journal, leadership

_BESIDE = "Make room beside the database for three more of its size, then do the same again"


class Recovered(msgspec.Struct):
    """What came of it. ``checkpoint`` is None when nothing was wrong, and nothing was done."""

    saved: Salvaged
    checkpoint: CheckpointInfo | None = None
    aside: list[Path] = []  # where what was there is kept
    lost_file: Path | None = None  # where the entries are that are lost


class Recovery:
    """One attempt to bring back the store of a cell."""

    def __init__(self, url: str, name: str, folder: Path, at: float) -> None:
        """``folder`` is the master's; the lost entries are written to it. ``at``: seconds since 1970."""
        self._url = parse_url(url)
        self._name = name
        self._folder = folder
        self._files = CheckpointFiles(self._path, name) if self._is_file else None
        self._at = at

    def look(self) -> Salvaged:
        """Return what could be saved. Changes nothing; raises StoreDamaged when nothing could."""
        with self._opened() as remains:
            return self._salvaged(remains, None)

    def recover(self, given: RestorePoint | None = None, position: int = 0) -> Recovered:
        """Bring the store back from the newest good checkpoint, or from ``given``, or that at ``position``.

        The newest may be in a file beside an SQLite database. Raises StoreDamaged when there is nothing to go
        on from, NotFound for a position that has none.
        """
        with self._opened() as remains:
            start = given or (self._kept_at(remains, position) if position else None)
            saved = self._salvaged(remains, start)
            if saved.is_sound:
                return Recovered(saved)
            done = Recovered(saved, lost_file=self._written(saved))
            if self._is_file:
                self._build_beside(remains, done)
            else:
                done.checkpoint = _rebuild_in_place(remains.connection, saved, self._at)
            return done

    @property
    def _is_file(self) -> bool:
        return self._url.drivername.startswith("sqlite")

    def _salvaged(self, remains: Remains, start: RestorePoint | None) -> Salvaged:
        name, _, _ = remains.led()
        if name not in ("", self._name):
            raise UnsafeConfiguration(
                f"The database belongs to cell '{name}', not to '{self._name}'", "Name the right cell"
            )
        saved = salvage(remains, self._name, start, self._beside())
        if self._is_file:
            saved.wrong += remains.integrity()
        return saved

    def _beside(self) -> list[RestorePoint]:
        return list(self._files.good()) if self._files is not None else []

    def _kept_at(self, remains: Remains, position: int) -> RestorePoint:
        for info in remains.checkpoints():
            if info.position == position:
                return RestorePoint(position, remains.body(position), info)
        for start in self._beside():
            if start.position == position:
                return start
        raise NotFound(
            f"no checkpoint is kept at position {position}", "Leave it out for the newest good one"
        )

    # Reading

    @contextmanager
    def _opened(self) -> Iterator[Remains]:
        """Give what remains: of a copy of a file, or of the database itself in a transaction of ours."""
        with self._copy_opened() if self._is_file else self._server_opened() as remains:
            transaction = remains.connection.begin()
            try:
                if not self._is_file:  # whoever leads waits from now on, and is fenced when this is done
                    remains.connection.execute(update(leadership).values(epoch=leadership.c.epoch + 1))
                yield remains
            except SQLAlchemyError as error:
                raise read_failed(error) from error
            finally:
                if transaction.is_active:
                    transaction.rollback()

    @contextmanager
    def _server_opened(self) -> Iterator[Remains]:
        connection, release = postgres.connect(self._url, self._folder / "cell.lock")
        try:
            with _closing(connection):
                migrate.prepare(connection, self._name, keep_checkpoint=False)
                yield Remains(connection)
        finally:
            release()

    @contextmanager
    def _copy_opened(self) -> Iterator[Remains]:
        with sqlite.locked(self._path, self._folder / "cell.lock"):
            sqlite.finish_rebuild(self._path)
            work, building = sqlite.working_copies(self._path)
            try:
                with _making(f"{work}, the copy that is read, cannot be made", _BESIDE):
                    sqlite.copy_database(self._path, work)
                    work.touch(0o600)
                reach("rebuild.copied")
                remains = self._open_copy(work)
                with _closing(remains.connection):
                    yield remains
            finally:
                sqlite.remove_database(work)
                sqlite.remove_database(building)

    def _open_copy(self, work: Path) -> Remains:
        """Open a copy, brought to this version's schema where that can be; an empty one where it is none."""
        sqlite.pad_to_stated_size(work)
        try:
            connection = sqlite.open_file(work)
        except StoreDamaged as error:
            connection = sqlite.open_file(sqlite.remove_database(work))
            migrate.prepare(connection, self._name)
            return Remains(connection, error.message, is_end_known=False)
        try:
            migrate.prepare(connection, self._name, keep_checkpoint=False)
        except SQLAlchemyError as error:
            return Remains(connection, f"The schema cannot be read: {reason_of(error)}")
        except UnsafeConfiguration as error:
            if _has_revision(connection):  # of another version, or another cell
                raise
            return Remains(connection, error.message)
        return Remains(connection)

    @property
    def _path(self) -> Path:
        return sqlite.path_of(self._url)

    # Writing

    def _build_beside(self, remains: Remains, done: Recovered) -> None:
        _, building = sqlite.working_copies(self._path)
        with _making(f"{self._path} cannot be rebuilt", _BESIDE):
            with _closing(sqlite.open_file(sqlite.remove_database(building))) as target:
                migrate.prepare(target, self._name)
                with target.begin():
                    copy_history(target, remains, done.saved)
                    done.checkpoint = write_cell(target, done.saved, self._at)
                reach("rebuild.written")
            done.aside = sqlite.back_up(self._path)
            sqlite.commit_rebuild(self._path, building)
        sqlite.finish_rebuild(self._path)

    def _written(self, saved: Salvaged) -> Path | None:
        """Write the entries that are lost to a file of the folder, as far as they can be read."""
        if not saved.lost:
            return None
        path = self._folder / f"lost-{saved.lost[0][0]}.jsonl"
        names = journal.c.keys()
        with (
            _making(f"{path} cannot be written", "Make room there, then do the same again"),
            open(path, "w", opener=_for_its_user) as file,
        ):
            for row in saved.lost:
                file.write(json.dumps(dict(zip(names, row, strict=True)), default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())
            sqlite.sync_folder(path)
        return path


@contextmanager
def _making(what: str, way_out: str) -> Iterator[None]:
    """Raise BorgishError for what a disk refuses, as it does where there is no room."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        reason = error.strerror if isinstance(error, OSError) else reason_of(error)
        raise BorgishError(f"{what}: {reason}", f"Nothing was changed. {way_out}") from error


def _rebuild_in_place(target: Connection, saved: Salvaged, at: float) -> CheckpointInfo:
    drop_lost(target, saved)
    checkpoint = write_cell(target, saved, at)
    reach("rebuild.written")
    transaction = target.get_transaction()
    assert transaction is not None
    transaction.commit()
    return checkpoint


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


def _for_its_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
