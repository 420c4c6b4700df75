"""Whether the store is older than what machines have seen: looked at before a master leads.

A database that was restored from a backup, or failed over to a replica that lagged, has lost history: tasks
were placed and moved that it knows nothing of. To go on from it as if nothing were would start programs twice
and end some that should run. So nothing is commanded and nothing written until somebody says so.
"""

import logging
from collections.abc import Sequence

from borgish.cell.commands import Seen
from borgish.cell.decide_cell import is_older
from borgish.cell.state import Cell
from borgish.errors import StoreDamaged, StoreOlder
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import verified_snapshot
from borgish.wire.link import HeadReply

log = logging.getLogger("borgmaster")

FLAG = "--take-over-from-older-store"
_NAMED_MAX = 3


def seen_beyond(cell: Cell, heads: Sequence[HeadReply], *, take_over: bool) -> Seen | None:
    """Return what machines have seen and the store has not, to be taken over; None when the store is as new.

    One machine cannot keep a master from its cell: at least half of those that answered must have seen
    more. Raises StoreOlder unless it was said to ``take_over``.
    """
    newer = [head for head in heads if is_older(cell, _seen(head))]
    if not newer or 2 * len(newer) < len(heads):
        for head in newer:
            log.warning("%s has seen more than the store: %s", head.machine, _told(head))
        if take_over:
            log.info("the store is not older than what the machines have seen; nothing is to be taken over")
        return None
    if not take_over:
        raise StoreOlder(_what(cell, newer, len(heads)), _WAY_OUT)
    log.warning("%s; taken over as asked for", _what(cell, newer, len(heads)))
    highest = max(newer, key=lambda head: (head.timeline, head.epoch))
    return Seen(highest.timeline, highest.epoch, max(head.attempt for head in newer))


def seen_in_files(cell: Cell, files: CheckpointFiles, seen: Seen | None, *, take_over: bool) -> Seen | None:
    """Return what machines have ``seen``, and the checkpoints in files beside the database, of a history that
    the database has not; None where it has all of it.

    Raises StoreDamaged unless such a store is to be taken over: it lost its log, or was put back.
    """
    newest = next(files.good(after=cell.position), None)
    if newest is None:
        return seen
    if not take_over:
        raise StoreDamaged(
            f"The database ends at position {cell.position}, and beside it is a checkpoint of position "
            f"{newest.position}: {newest.path}",
            "What followed is lost, or an older database was put back. To go on from the older one all the "
            f"same, start once with {FLAG}",
        )
    log.warning("%s is of a history that the database has not; taken over as asked for", newest.path)
    assert newest.info is not None
    kept = verified_snapshot(cell.name, newest.info, newest.stored)
    before = seen or Seen()
    timeline, epoch = max((before.timeline, before.epoch), (kept.timeline, kept.epoch))
    return Seen(timeline, epoch, max(before.attempt, kept.position))


def _seen(head: HeadReply) -> Seen:
    return Seen(head.timeline, head.epoch, head.attempt)


def _told(head: HeadReply) -> str:
    return f"it obeys timeline {head.timeline}, epoch {head.epoch}, and knows attempt {head.attempt}"


def _what(cell: Cell, newer: Sequence[HeadReply], answered: int) -> str:
    named = "; ".join(f"{head.machine}: {_told(head)}" for head in newer[:_NAMED_MAX])
    return (
        f"The database is older than what {len(newer)} of {answered} machines that answered have seen: "
        f"it ends at position {cell.position} of timeline {cell.timeline}, epoch {cell.epoch}. {named}"
    )


_WAY_OUT = (
    "Nothing was commanded and nothing written; tasks go on. Was a backup restored, or did the database fail "
    "over to a replica that lagged? If there is a newer copy, start on that one. To go on from this one, "
    f"start once with {FLAG}: what was placed since by the history that is lost is then shown as orphans, "
    "and ends after 10 minutes"
)
