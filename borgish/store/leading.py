"""Who leads, as the database has it: one row and, on Postgres, a lock of the leader's session.

The row's epoch is what fences: every append is made by the epoch that stands there. The lock only tells
sooner that a leader is gone: its number is the epoch, a session has it as long as it lives, and a killed
process's session ends at once. Whoever can take the lock of an epoch knows that who led by it does not.
"""

import msgspec
from sqlalchemy import Connection, Double, cast, extract, func, inspect, literal, select, update

from borgish.errors import Fenced
from borgish.store.tables import journal, leadership

_LOCKS = 0x626F7267  # "borg": the same in all masters


TERMS_WINDOW_SECONDS = 60.0
TERMS_STEADY = 2
"""So many terms may have begun within that time; more, and masters take the lead from one another."""

WAIT_SECONDS_MAX = 30.0
_ENTRIES_SEARCHED = 1000  # at the end of the journal; what is busier than that has a leader


class Leadership(msgspec.Struct, frozen=True):
    """The row. ``silent_seconds``: since it was last renewed, by the database's clock; 0 on SQLite."""

    timeline: int
    epoch: int
    holder: str
    address: str
    renewed: str
    silent_seconds: float


def read(connection: Connection) -> Leadership | None:
    """Return who leads, or led last; None in a database that is nobody's yet."""
    if not inspect(connection).has_table(leadership.name):
        return None
    c, is_server = leadership.c, _is_server(connection)
    age = extract("epoch", func.clock_timestamp() - c.renewed_at) if is_server else literal(0.0)
    fields = (c.timeline, c.epoch, c.holder, c.address, c.renewed_at, cast(age, Double))
    row = connection.execute(select(*fields)).one_or_none()
    return row and Leadership(row[0], row[1], row[2], row[3], str(row[4]), float(row[5]))


def raise_epoch(connection: Connection, holder: str, address: str, after: int | None) -> int:
    """Become the leader, within the caller's transaction; return the new epoch.

    With ``after`` only if nobody has led since that epoch; raises Fenced otherwise.
    """
    named = {"holder": holder, "address": address, "renewed_at": func.now()}
    raised = update(leadership).values(epoch=leadership.c.epoch + 1, **named)
    if after is not None:
        raised = raised.where(leadership.c.epoch == after)
    epoch = connection.execute(raised.returning(leadership.c.epoch)).scalar_one_or_none()
    if epoch is None:
        raise Fenced(f"Another borgmaster was quicker to lead after epoch {after}", "It leads the cell now")
    if _is_server(connection):
        connection.execute(select(func.pg_advisory_lock(_LOCKS, epoch)))
    return int(epoch)


def terms_lately(connection: Connection, epoch: int) -> int:
    """Return how many terms began lately, the one of this epoch included, on a server.

    Those that wrote nothing are known by their numbers only, and counted.
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


def wait_seconds(terms: int, lease_seconds: float, share: float) -> float:
    """Return how much longer than a lease a leader must have been silent, before another takes over.

    Where ``terms`` follow one another quickly, the host is too busy to lead from, and to take over makes it
    busier. So candidates wait longer each time, and not all of them equally long: ``share``, from 0 to 1, is
    a candidate's own. After a steady history nobody waits.
    """
    beyond = terms - TERMS_STEADY
    if beyond <= 0:
        return 0.0
    longest = min(WAIT_SECONDS_MAX, lease_seconds * 2.0 ** min(beyond - 1, 16))
    return longest * (1 + share) / 2


def is_free(connection: Connection, epoch: int) -> bool:
    """Return whether nobody's session leads by an epoch; then nobody else gets the same answer, as long as
    this session lives."""
    return bool(connection.execute(select(func.pg_try_advisory_lock(_LOCKS, epoch))).scalar_one())


def let_go(connection: Connection, epoch: int) -> None:
    """Say that who led by an epoch does so no more. Changes nothing where another leads.

    The lease is left as if it were just renewed: it is by the lock that one candidate, and only one, follows
    (see ``unlock``), and by the lease only when that one does not come to lead.
    """
    gone = {"holder": "", "address": "", "renewed_at": func.now()}
    connection.execute(update(leadership).where(leadership.c.epoch == epoch).values(**gone))


def unlock(connection: Connection, epoch: int) -> None:
    """Let others have the lock of an epoch that this session led by, before the session ends."""
    if _is_server(connection):
        connection.execute(select(func.pg_advisory_unlock(_LOCKS, epoch)))


def _is_server(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
