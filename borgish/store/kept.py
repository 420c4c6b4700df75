"""The rows of the checkpoints: which are kept, which are let go. Who may write, and when, is ``sql.py``'s.

Named checkpoints stay until somebody deletes them; of the others, the newest.
"""

from sqlalchemy import Connection, delete, select

from borgish.store.base import CheckpointInfo
from borgish.store.tables import checkpoints

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


def put(connection: Connection, info: CheckpointInfo, stored: bytes, keep: int) -> None:
    """Write a checkpoint over the one at its position, and let go of the unnamed over ``keep``."""
    table = checkpoints
    connection.execute(delete(table).where(table.c.position == info.position))
    values = {"position": info.position, "at": info.at, "reason": info.reason, "name": info.name}
    values |= {"sha256": info.sha256, "bytes": info.bytes, "body": stored}
    connection.execute(table.insert(), values)
    unnamed = table.c.name == ""
    newest = select(table.c.position).where(unnamed).order_by(table.c.position.desc()).limit(keep)
    connection.execute(delete(table).where(unnamed, table.c.position.not_in(newest)))


def remove(connection: Connection, position: int) -> None:
    """Delete a checkpoint."""
    connection.execute(delete(checkpoints).where(checkpoints.c.position == position))
