"""Who leads: a lock on a file (SQLite), or a row and an advisory lock (Postgres); the epoch is the fence.
Borg's elected master holds a Chubby lock, and its store is replicated by Paxos (section 3.1).

Every append is made under its epoch in its own transaction, and borglets obey the higher epoch, so to take
over too early harms nobody: the former leader is fenced at its next write. All else is speed. On SQLite the
election is a lock on a file: the kernel releases it when its holder is gone, however it went. On Postgres the
leader's session holds an advisory lock numbered by its epoch, which for a killed process is released at once;
who can take it knows that this session has ended. A lock of one number for all epochs would not do: when a
vanished leader's session is dropped at last, it would come free beside a healthy successor that had to lead
without it. The lease covers what leaves its session behind. A new leader raises the epoch only from the one
that it saw, so of two only one does.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Double, cast, extract, func, inspect, literal, select, update

from borgish.clock import SystemClock
from borgish.errors import InUse, LostElection, UnsafeConfiguration
from borgish.store.tables import leadership

HOLDER_EXIT_SECONDS_MAX = 5.0
"""How long to wait for the lock of a holder that is gone."""
_RETRY_SECONDS = 0.01

_LOCK_CLASS = 0x626F7267  # "borg": the first number of the advisory locks; the second is the epoch


class FileLock:
    """An ``flock`` that is held until ``release``, or until the process is gone, however it went."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises InUse when another process has it, UnsafeConfiguration when the file cannot
        be opened."""
        self.path = path
        self._file = _open(path)
        try:
            self._take()
        except BaseException:
            os.close(self._file)
            raise
        self._write(f"{os.getpid()}\n")

    def _take(self) -> None:
        """A child that the holder had just forked has the lock, too, until it runs its own program.

        So a lock whose holder is gone is about to be free, and is waited for.
        """
        clock = SystemClock()
        end = clock.now().mono + HOLDER_EXIT_SECONDS_MAX
        while not try_flock(self._file):
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            if not _is_gone(holder) or clock.now().mono >= end:
                raise _in_use(self.path, holder)
            time.sleep(_RETRY_SECONDS)

    def release(self) -> None:
        """Unlock. The file stays, as another process may be waiting for it. Idempotent."""
        if self._file >= 0:
            self._write("")
            os.close(self._file)
            self._file = -1

    def _write(self, text: str) -> None:
        """Name the holder in the file. On a full disk it stays unnamed; the lock is held all the same."""
        os.ftruncate(self._file, 0)
        with suppress(OSError):
            os.pwrite(self._file, text.encode(), 0)


def try_flock(file: int) -> bool:
    """Lock an open file, unless another process has it locked; return whether it is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_gone(holder: str) -> bool:
    """Return whether a process has ended, by its number; without a number it may be any."""
    if not holder.isdecimal():
        return False
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return True
    except (OverflowError, PermissionError):
        return False
    return False


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnsafeConfiguration(
            f"The lock {path} cannot be opened: {error.strerror}", "Give a folder that this user may write to"
        ) from error


def _in_use(path: Path, holder: str) -> InUse:
    who = f"process {holder}" if holder else "another process"
    return InUse(
        f"The store is in use: {who} holds {path}",
        "Stop that borgmaster first, or wait for it with --standby, or use another folder",
    )


class Leadership(msgspec.Struct, frozen=True):
    """The row of the leader."""

    timeline: int
    epoch: int
    holder: str
    address: str
    renewed: str  # when, as text of the database
    silent_seconds: float  # since then, by the database's clock; 0 on SQLite


def read_leadership(connection: Connection) -> Leadership | None:
    """Return who leads, or led last; None in a database that belongs to no cell yet."""
    if not inspect(connection).has_table(leadership.name):
        return None
    c = leadership.c
    since = func.clock_timestamp() - c.renewed_at
    silent = extract("epoch", since) if _is_postgres(connection) else literal(0.0)
    fields = (c.timeline, c.epoch, c.holder, c.address, c.renewed_at, cast(silent, Double))
    row = connection.execute(select(*fields)).one_or_none()
    return row and Leadership(row[0], row[1], row[2], row[3], str(row[4]), float(row[5]))


def raise_epoch(connection: Connection, holder: str, address: str, after: int | None) -> int:
    """Become the leader, within the caller's transaction; return the new epoch.

    With ``after`` only if nobody has led since that epoch; raises LostElection otherwise.
    """
    values = {"holder": holder, "address": address, "renewed_at": func.now()}
    raised = update(leadership).values(epoch=leadership.c.epoch + 1, **values)
    if after is not None:
        raised = raised.where(leadership.c.epoch == after)
    epoch = connection.execute(raised.returning(leadership.c.epoch)).scalar_one_or_none()
    if epoch is None:
        raise LostElection(
            f"Another borgmaster became leader after epoch {after} first", "It leads the cell now"
        )
    if _is_postgres(connection):
        connection.execute(select(func.pg_advisory_lock(_LOCK_CLASS, epoch)))
    return int(epoch)


def clear_holder(connection: Connection, epoch: int) -> None:
    """Note that who led by an epoch has resigned. Changes nothing where another leads.

    The lease is left as if it were just renewed: it is by the advisory lock that one candidate, and only one,
    follows (see ``advisory_unlock``), and by the lease only when that one does not come to lead.
    """
    values = {"holder": "", "address": "", "renewed_at": func.now()}
    connection.execute(update(leadership).where(leadership.c.epoch == epoch).values(**values))


def try_advisory_lock(connection: Connection, epoch: int) -> bool:
    """Return whether nobody's session leads by an epoch. Nobody else gets that answer as long as this session
    lives. Postgres only."""
    return bool(connection.execute(select(func.pg_try_advisory_lock(_LOCK_CLASS, epoch))).scalar_one())


def advisory_unlock(connection: Connection, epoch: int) -> None:
    """Release the lock of an epoch that this session led by, before the session ends."""
    if _is_postgres(connection):
        connection.execute(select(func.pg_advisory_unlock(_LOCK_CLASS, epoch)))


def _is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
