"""A store that another master may lead: it can be read meanwhile, and be had as soon as that one is gone.

SQLite: the lock beside the file is the election, and reading is by a connection that cannot write. Postgres:
one connection, first to read and then to lead by. There the leader is gone when the lock of its session is
free, or when it has not renewed its lease, for a host that vanished leaves a session behind. To be wrong
about that harms nothing: every append is fenced by its epoch, and machines obey the higher one.
"""

import os
import socket
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from borgish.cell.room import Floor
from borgish.errors import BorgishError, InUse
from borgish.failpoints import reach
from borgish.store import leading, migrate, postgres, sqlite
from borgish.store.base import Store, read_failed
from borgish.store.checkpoints import Retention
from borgish.store.leading import Leadership
from borgish.store.lock import FileLock
from borgish.store.open import open_store, parse_url
from borgish.store.sql import SqlStore
from borgish.store.tables import REVISION

_STARVED_SHARE = 0.5
"""Of its lease. A leader that lives renews it sooner; who was silent for longer was not just killed."""


S_co = TypeVar("S_co", bound=Store, covariant=True)


class Candidate(Protocol[S_co]):
    """One who may come to lead a store. Every method may block; after an error it may be asked again."""

    is_alone: bool  # nobody else uses the master's folder, whoever leads

    def win(self) -> S_co | None:
        """Return the store, open and at this version's schema, when nobody leads it; None when somebody does.

        Raises what ``open_store`` does.
        """
        ...

    def reader(self) -> S_co | None:
        """Return the store to read from while another leads; None when this version cannot read it."""
        ...

    def leadership(self) -> Leadership | None:
        """Return who leads, or led last; None when the database does not say."""
        ...

    def refusal(self) -> InUse | None:
        """Return why this one cannot lead now, as an error that names who does; None when that is not
        certain yet. To be asked again after ``win``."""
        ...

    def close(self) -> None:
        """Let go of everything but a store that was won. Idempotent."""
        ...


def candidate(
    url: str, cell: str, folder: Path, retention: Retention, lease_seconds: float, floor: Floor | None = None
) -> Candidate[SqlStore]:
    """Return a candidate for the store that a URL names. ``folder`` is the master's own; ``floor`` is as in
    ``open_store``.

    Raises UnsafeConfiguration for a URL that cannot be used and, as InUse, for a folder that another master
    uses on a server's database.
    """
    if parse_url(url).drivername.startswith("sqlite"):
        return FileCandidate(url, cell, folder / "cell.lock", retention, floor)
    return ServerCandidate(url, cell, folder / "cell.lock", retention, lease_seconds)


class _Reading(ABC):
    """What both kinds read by: one connection, opened when it is first needed."""

    def __init__(self, cell: str, retention: Retention) -> None:
        self._cell, self._retention = cell, retention
        self._connection: Connection | None = None
        self._reader: SqlStore | None = None

    @abstractmethod
    def _connect(self) -> Connection: ...

    def reader(self) -> SqlStore | None:
        """Return the store, to read from."""
        connection = self._connected()
        if self._reader is None:
            with _speaking_for(connection, self):
                self._reader = _readable(connection, self._cell, self._retention)
        return self._reader

    def leadership(self) -> Leadership | None:
        """Return what the row says. On SQLite who holds the lock has written it, or is about to."""
        connection = self._connected()
        with _speaking_for(connection, self):
            return leading.read(connection)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            _closed(self._connection)
        self._connection = self._reader = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection


class FileCandidate(_Reading):
    """For SQLite. It reads by a connection that cannot write."""

    is_alone = False

    def __init__(
        self, url: str, cell: str, lock_path: Path, retention: Retention, floor: Floor | None
    ) -> None:
        super().__init__(cell, retention)
        self._url, self._lock_path, self._floor = url, lock_path, floor
        self._path = sqlite.path_of(parse_url(url))
        self._taken: InUse | None = None

    def win(self) -> SqlStore | None:
        """Return the store, if the lock could be had."""
        try:
            store = open_store(
                self._url, self._cell, lock_path=self._lock_path, retention=self._retention, floor=self._floor
            )
        except InUse as error:
            self._taken = error
            return None
        self.close()
        return store

    def refusal(self) -> InUse | None:
        """Return who has the lock."""
        return self._taken

    def _connect(self) -> Connection:
        return sqlite.open_to_read(self._path)


class ServerCandidate(_Reading):
    """For Postgres. It reads by the connection that is to lead.

    The folder stays locked as long as this process lives, or its store.
    """

    is_alone = True

    def __init__(
        self, url: str, cell: str, lock_path: Path, retention: Retention, lease_seconds: float
    ) -> None:
        super().__init__(cell, retention)
        self._url, self._lease_seconds = parse_url(url), lease_seconds
        self._lock = FileLock(lock_path)
        reach("open.locked")
        self._first: Leadership | None = None

    def win(self) -> SqlStore | None:
        """Return the store, if the leader's session is gone or its lease is over."""
        connection = self._connected()
        with _speaking_for(connection, self):
            led = leading.read(connection)
            if led is not None and self._waits(connection, led):
                return None  # before the lock is tried: who has it keeps the others from leading
            free = leading.is_free(connection, led.epoch if led else 0)
        if not free and (led is None or led.silent_seconds < self._lease_seconds):
            return None
        with _speaking_for(connection, self, in_one=False):
            postgres.expect_writable(connection)
            migrate.prepare(connection, self._cell)
        self._connection = self._reader = None  # it is the store's from now on
        store = SqlStore(connection, self._cell, self._retention, self._lock.release)
        store.won_after = led.epoch if led else 0
        return store

    def _waits(self, connection: Connection, led: Leadership) -> bool:
        """Return whether to leave the lead for a while where masters take it from one another.

        One that was killed, or ended in order, has been silent for a moment only, and is followed at once.
        """
        if led.silent_seconds < self._lease_seconds * _STARVED_SHARE:
            return False
        own = f"{socket.gethostname()} {os.getpid()} {led.epoch}"
        share = zlib.crc32(own.encode()) / 2**32  # any number that candidates do not share
        more = leading.wait_seconds(leading.terms_lately(connection, led.epoch), self._lease_seconds, share)
        return more > 0 and led.silent_seconds < self._lease_seconds + more

    def refusal(self) -> InUse | None:
        """Return who leads, once it has renewed its lease before our eyes."""
        led = self.leadership()
        self._first = self._first or led
        if led is None or self._first is None or led.renewed == self._first.renewed:
            return None
        where = f" at {led.address}" if led.address else ""
        return InUse(
            f"The store is in use: {led.holder or 'another borgmaster'}{where} leads cell '{self._cell}'",
            "Stop that borgmaster first, or wait for it with --standby",
        )

    def _connect(self) -> Connection:
        connection = postgres.connect_alone(self._url)
        reach("open.connected")
        return connection


@contextmanager
def _speaking_for(connection: Connection, one: _Reading, *, in_one: bool = True) -> Iterator[None]:
    """Ask in a transaction, unless each question has one of its own. After an error the connection is let
    go of: the next one may be to a server that answers."""
    try:
        if in_one:
            with connection.begin():
                yield
        else:
            yield
    except SQLAlchemyError as error:
        one.close()
        raise read_failed(error) from error
    except BorgishError:
        one.close()
        raise


def _readable(connection: Connection, cell: str, retention: Retention) -> SqlStore | None:
    """Return a store to read from; None for one of another version, which only who leads it may migrate.

    Raises UnsafeConfiguration for another cell's.
    """
    if migrate.stored_revision(connection) != REVISION:
        return None
    migrate.expect_owner(connection, cell)
    return SqlStore(connection, cell, retention, lambda: None)


def _closed(connection: Connection) -> None:
    with suppress(SQLAlchemyError):  # it may be gone already
        connection.close()
        connection.engine.dispose()
