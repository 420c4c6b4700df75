"""The rows of the samples of usage. Who may write is ``sql.py``'s; what is in a body, ``usage.py``'s."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, delete, select, tuple_

from borgish.store.tables import usage_samples
from borgish.store.usage import UsageBlock

_key = tuple_(usage_samples.c.at, usage_samples.c.part)
_ORDER = (usage_samples.c.at, usage_samples.c.part)


def put(connection: Connection, blocks: Sequence[UsageBlock]) -> None:
    """Write blocks, over those of the same moments: a clock may have been set back."""
    if not blocks:
        return
    for at in {block.at for block in blocks}:
        connection.execute(delete(usage_samples).where(usage_samples.c.at == at))
    connection.execute(usage_samples.insert(), [msgspec.structs.asdict(block) for block in blocks])


def page(connection: Connection, after: tuple[float, int], until: float, limit: int) -> list[UsageBlock]:
    """Return blocks after one and not after a moment, in order."""
    wanted = select(usage_samples).where(_key > after, usage_samples.c.at <= until)
    rows = connection.execute(wanted.order_by(*_ORDER).limit(limit)).all()
    return [UsageBlock(at, part, samples, bytes(body)) for at, part, samples, body in rows]


def prune(connection: Connection, before: float, limit: int) -> int:
    """Delete the first blocks from before a moment; return how many."""
    oldest = select(*_ORDER).where(usage_samples.c.at < before).order_by(*_ORDER).limit(limit)
    gone = [tuple(row) for row in connection.execute(oldest)]
    if not gone:
        return 0
    last = gone[-1]
    return connection.execute(delete(usage_samples).where(_key <= last)).rowcount
