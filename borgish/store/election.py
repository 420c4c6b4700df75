"""Leader election. Candidates for the lead of a store: each can read it meanwhile, and leads as soon as the
leader is gone.

SQLite: the lock beside the file is the election, and a candidate reads by a connection that cannot write.
Postgres: one connection, first to read and then to lead by. There the leader is gone when the advisory lock
of its session is free, or when it has not renewed its lease, for a host that vanished leaves a session
behind. To be wrong about that harms nothing (see ``store.leadership``).
"""

import os
import socket
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection, extract, func, select
from sqlalchemy.exc import SQLAlchemyError

from borgish.cell.free_space import Floor
from borgish.errors import BorgishError, InUse
from borgish.failpoints import reach
from borgish.store import migrate, postgres, sqlite
from borgish.store.base import Store, read_failed
from borgish.store.checkpoints import Retention
from borgish.store.leadership import FileLock, Leadership, read_leadership, try_advisory_lock
from borgish.store.open import open_store, parse_url
from borgish.store.sql import SqlStore
from borgish.store.tables import REVISION, journal

TERMS_WINDOW_SECONDS = 60.0
TERMS_STEADY = 2
"""So many terms may have begun within that time; after more, masters take the lead from one another."""
TAKEOVER_DELAY_SECONDS_MAX = 30.0

_STARVED_SHARE = 0.5
"""Of its lease. A leader that lives renews it sooner; one that was silent for longer was not just killed."""
_ENTRIES_SEARCHED = 1000  # at the end of the journal; what is busier than that has a leader

S_co = TypeVar("S_co", bound=Store, covariant=True)


class Candidate(Protocol[S_co]):
    """One who may come to lead a store. Every method may block; after an error it may be called again."""

    owns_folder: bool  # no other candidate for the store uses this master's folder

    def try_lead(self) -> S_co | None:
        """Return the store, open and at this version's schema, when nobody leads it; None when somebody does.

        Raises what ``open_store`` does.
        """
        ...

    def reader(self) -> S_co | None:
        """Return the store to read from while another leads; None when this version cannot read it."""
        ...

    def another_reader(self) -> S_co | None:
        """Return the store by a connection of its own, to read what takes long, in any thread; None as for
        ``reader``. It is the caller's to close."""
        ...

    def leadership(self) -> Leadership | None:
        """Return who leads, or led last; None when the database does not say."""
        ...

    def in_use_error(self) -> InUse | None:
        """Return why this one cannot lead now, as an error that names who does; None when that is not certain
        yet. To be asked again after ``try_lead``."""
        ...

    def close(self) -> None:
        """Close everything but a store that was returned. Idempotent."""
        ...


def make_candidate(
    url: str, cell: str, folder: Path, retention: Retention, lease_seconds: float, floor: Floor | None = None
) -> Candidate[SqlStore]:
    """Return a candidate for the store that a URL names. ``folder`` is the master's own; ``floor`` is as in
    ``open_store``.

    Raises UnsafeConfiguration for a URL that cannot be used and, as InUse, for a folder that another master
    uses on a server's database.
    """
    if parse_url(url).drivername.startswith("sqlite"):
        return SqliteCandidate(url, cell, folder / "cell.lock", retention, floor)
    return PostgresCandidate(url, cell, folder / "cell.lock", retention, lease_seconds)


class _BaseCandidate(ABC):
    """Reads by one connection, opened when it is first needed."""

    def __init__(self, cell: str, retention: Retention) -> None:
        self._cell, self._retention = cell, retention
        self._connection: Connection | None = None
        self._reader: SqlStore | None = None

    @abstractmethod
    def _connect(self) -> Connection: ...

    def reader(self) -> SqlStore | None:
        """Return the store, to read from; None for one of another version, which only its leader may migrate.

        Raises UnsafeConfiguration for another cell's.
        """
        if self._reader is None:
            with self._transaction() as connection:
                if self._is_readable(connection):
                    self._reader = SqlStore(connection, self._cell, self._retention, lambda: None)
        return self._reader

    def another_reader(self) -> SqlStore | None:
        """Return the store by a connection of its own. Raises as ``reader`` does."""
        with ExitStack() as unless_readable:
            connection = self._connect()
            store = SqlStore(connection, self._cell, self._retention, lambda: None)
            unless_readable.callback(store.close)
            try:
                with connection.begin():
                    is_readable = self._is_readable(connection)
            except SQLAlchemyError as error:
                raise read_failed(error) from error
            if not is_readable:
                return None
            unless_readable.pop_all()
        return store

    def _is_readable(self, connection: Connection) -> bool:
        """Return whether the schema is this version's. Raises UnsafeConfiguration for another cell's."""
        if migrate.stored_revision(connection) != REVISION:
            return False
        migrate.check_owner(connection, self._cell)
        return True

    def leadership(self) -> Leadership | None:
        """Return the row. On SQLite who holds the lock has written it, or is about to."""
        with self._transaction() as connection:
            return read_leadership(connection)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):  # it may be gone already
                self._connection.close()
                self._connection.engine.dispose()
        self._connection = self._reader = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        connection = self._connected()
        with self._closed_on_error(), connection.begin():
            yield connection

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """After an error the connection is closed: the next one may be to a server that answers."""
        try:
            yield
        except SQLAlchemyError as error:
            self.close()
            raise read_failed(error) from error
        except BorgishError:
            self.close()
            raise


class SqliteCandidate(_BaseCandidate):
    """Reads by a connection that cannot write, and opens the file for writing only with the lock."""

    owns_folder = False

    def __init__(
        self, url: str, cell: str, lock_path: Path, retention: Retention, floor: Floor | None
    ) -> None:
        super().__init__(cell, retention)
        self._url, self._lock_path, self._floor = url, lock_path, floor
        self._path = sqlite.path_of(parse_url(url))
        self._in_use: InUse | None = None

    def try_lead(self) -> SqlStore | None:
        """Return the store, if the lock was free."""
        try:
            store = open_store(
                self._url, self._cell, lock_path=self._lock_path, retention=self._retention, floor=self._floor
            )
        except InUse as error:
            self._in_use = error
            return None
        self.close()
        return store

    def in_use_error(self) -> InUse | None:
        """Return who has the lock."""
        return self._in_use

    def _connect(self) -> Connection:
        return sqlite.open_read_only(self._path)


class PostgresCandidate(_BaseCandidate):
    """Reads by the connection that is to lead.

    The folder stays locked as long as this process lives, or its store.
    """

    owns_folder = True

    def __init__(
        self, url: str, cell: str, lock_path: Path, retention: Retention, lease_seconds: float
    ) -> None:
        super().__init__(cell, retention)
        self._url, self._lease_seconds = parse_url(url), lease_seconds
        self._lock = FileLock(lock_path)
        reach("open.locked")
        self._first: Leadership | None = None

    def try_lead(self) -> SqlStore | None:
        """Return the store, if the leader's session is gone or its lease is over."""
        with self._transaction() as connection:
            led = read_leadership(connection)
            if led is not None and self._is_delayed(connection, led):
                return None  # before the lock is tried: who has it keeps the others from leading
            is_free = try_advisory_lock(connection, led.epoch if led else 0)
        if not is_free and (led is None or led.silent_seconds < self._lease_seconds):
            return None
        with self._closed_on_error():
            postgres.check_writable(connection)
            migrate.prepare(connection, self._cell)
        self._connection = self._reader = None  # the store has it from now on
        store = SqlStore(connection, self._cell, self._retention, self._lock.release)
        store.expected_epoch = led.epoch if led else 0
        return store

    def _is_delayed(self, connection: Connection, led: Leadership) -> bool:
        """Return whether to leave the lead alone for a while, where masters take it from one another.

        A leader that was killed, or resigned, has been silent for a moment only, and is followed at once.
        """
        if led.silent_seconds < self._lease_seconds * _STARVED_SHARE:
            return False
        own = f"{socket.gethostname()} {os.getpid()} {led.epoch}"
        share = zlib.crc32(own.encode()) / 2**32  # any number that candidates do not share
        delay = takeover_delay_seconds(recent_terms(connection, led.epoch), self._lease_seconds, share)
        return delay > 0 and led.silent_seconds < self._lease_seconds + delay

    def in_use_error(self) -> InUse | None:
        """Return who leads, once it has renewed its lease since this was first asked."""
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
        connection = postgres.connect_unpooled(self._url)
        reach("open.connected")
        return connection


def recent_terms(connection: Connection, epoch: int) -> int:
    """Return how many terms began within the last ``TERMS_WINDOW_SECONDS``, the one of this epoch included.

    Terms that wrote nothing are known by their numbers only, and counted. Postgres only.
    """
    c = journal.c
    last = select(func.coalesce(func.max(c.position), 0)).scalar_subquery()
    now = extract("epoch", func.clock_timestamp())
    begun = select(func.count()).where(
        c.position > last - _ENTRIES_SEARCHED, c.cause == "BeginEpoch", c.at > now - TERMS_WINDOW_SECONDS
    )
    written = select(c.epoch).order_by(c.position.desc()).limit(1)
    return int(connection.execute(begun).scalar_one()) + max(
        0, epoch - int(connection.execute(written).scalar() or epoch)
    )


def takeover_delay_seconds(terms: int, lease_seconds: float, share: float) -> float:
    """Return how much longer than a lease a leader must have been silent before another takes over.

    Where ``terms`` follow one another quickly, leases run out because the host is too busy to lead from, and
    to take over makes it busier. So candidates back off exponentially, and not all of them equally long:
    ``share``, from 0 to 1, is a candidate's own. After ``TERMS_STEADY`` or fewer nobody waits.
    """
    beyond = terms - TERMS_STEADY
    if beyond <= 0:
        return 0.0
    longest = min(TAKEOVER_DELAY_SECONDS_MAX, lease_seconds * 2.0 ** min(beyond - 1, 16))
    return longest * (1 + share) / 2
