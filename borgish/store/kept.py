"""The rows of the checkpoints, and what may go by rule. Who may write, and when, is ``sql.py``'s."""

from sqlalchemy import Connection, delete, func, select

from borgish.failpoints import reach
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import Retention, expired
from borgish.store.tables import checkpoints, journal

_INFO = [column for column in checkpoints.c if column.name != "body"]


def infos(connection: Connection) -> list[CheckpointInfo]:
    """Return what is kept, newest first."""
    rows = connection.execute(select(*_INFO).order_by(checkpoints.c.position.desc())).all()
    return [CheckpointInfo(*row) for row in rows]


def body(connection: Connection, position: int) -> bytes | None:
    """Return a checkpoint's body as stored; None when it is not kept, or no longer."""
    wanted = select(checkpoints.c.body).where(checkpoints.c.position == position)
    found = connection.execute(wanted).scalar_one_or_none()
    return None if found is None else bytes(found)


def put(connection: Connection, info: CheckpointInfo, stored: bytes, retention: Retention) -> None:
    """Write a checkpoint over the one at its position, and let go of those over the rule."""
    remove(connection, info.position)
    reach("checkpoint.replaced")
    values = {"position": info.position, "at": info.at, "reason": info.reason, "name": info.name}
    values |= {"sha256": info.sha256, "bytes": info.bytes, "body": stored}
    connection.execute(checkpoints.insert(), values)
    reach("checkpoint.inserted")
    begins = connection.execute(select(func.min(journal.c.position))).scalar_one() or 1
    for old in expired(infos(connection), retention, begins):
        remove(connection, old.position)
    reach("checkpoint.pruned")


def prune(connection: Connection, below: int, limit: int) -> int:
    """Delete the first entries of the journal, of those below a position; return how many."""
    first = connection.execute(select(func.min(journal.c.position))).scalar_one()
    if first is None or first >= below:
        return 0
    end = min(below, first + limit)
    return connection.execute(delete(journal).where(journal.c.position < end)).rowcount


def remove(connection: Connection, position: int) -> None:
    """Delete a checkpoint."""
    connection.execute(delete(checkpoints).where(checkpoints.c.position == position))
