"""The rules of checkpoints, the same for every store: which one is good, which may go, how one is named.

Retention: the latest stay, one for each hour and each day, and those with a name.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from borgish.cell.model import Snapshot
from borgish.configuration import NumberKept
from borgish.errors import BorgishError, Conflict, NotFound, StoreDamaged
from borgish.store.base import CheckpointInfo
from borgish.store.codec import decode_snapshot, decompress
from borgish.wire.checkpoint_file import CheckpointHeader

ALL: Literal["all"] = "all"
HOUR_SECONDS, DAY_SECONDS = 3600, 86400


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many checkpoints stay. One that any of these keeps stays; the newest stays in any case.

    ``hourly`` is the newest of each of the last so many hours (of UTC) that have one, ``daily`` likewise.
    """

    latest: NumberKept = 6
    hourly: NumberKept = 24
    daily: NumberKept = 7
    named: NumberKept | Literal["all"] = ALL


class RestorePoint(msgspec.Struct, frozen=True):
    """Where to replay from: a good checkpoint, stored or from a file. ``position`` 0: the empty cell."""

    position: int
    stored: bytes = b""
    info: CheckpointInfo | None = None
    path: str = ""  # of the file, where it is from one


def verified_snapshot(cell: str, info: CheckpointInfo, stored: bytes) -> Snapshot:
    """Return what a checkpoint holds: its SHA-256 matches, it can be read, and it is this cell's.

    Raises StoreDamaged, and UnsafeConfiguration for what another version or another cell wrote.
    """
    snapshot = decode_snapshot(decompress(stored, info.sha256), cell)
    if snapshot.position != info.position:
        raise StoreDamaged(f"It holds position {snapshot.position}", "Use another checkpoint")
    return snapshot


def info_of(header: CheckpointHeader) -> CheckpointInfo:
    """Return what the header of a checkpoint's file says of it."""
    return CheckpointInfo(header.position, header.at, header.reason, header.sha256, header.bytes, header.name)


Verify = Callable[[CheckpointInfo, bytes], bool]
"""Returns whether a stored checkpoint is good, perhaps found out elsewhere than in this process."""


def is_good(cell: str, info: CheckpointInfo, stored: bytes) -> bool:
    """Return whether a cell can be started from this checkpoint."""
    try:
        verified_snapshot(cell, info, stored)
    except BorgishError:
        return False
    return True


def expired(
    checkpoints: Iterable[CheckpointInfo], retention: Retention, journal_begins: int
) -> list[CheckpointInfo]:
    """Return those that may go, of all that are stored.

    ``journal_begins`` is the position of the journal's first entry. Where the journal was pruned, the
    checkpoint from which it can be replayed stays as well: its first entries would be of no use without it.
    """
    newest_first = sorted(checkpoints, key=lambda info: info.position, reverse=True)
    named = [info for info in newest_first if info.name]
    unnamed = [info for info in newest_first if not info.name]
    bases = [info for info in newest_first if info.position >= journal_begins - 1]
    stay = {
        *newest_first[:1],
        *(named if retention.named == ALL else named[: retention.named]),
        *unnamed[: retention.latest],
        *_newest_per_period(unnamed, HOUR_SECONDS, retention.hourly),
        *_newest_per_period(unnamed, DAY_SECONDS, retention.daily),
        *(bases[-1:] if journal_begins > 1 else ()),
    }
    return [info for info in newest_first if info not in stay]


def _newest_per_period(
    newest_first: Sequence[CheckpointInfo], seconds: int, periods: int
) -> Iterable[CheckpointInfo]:
    by_period: dict[int, CheckpointInfo] = {}
    for info in newest_first:
        by_period.setdefault(int(info.at // seconds), info)
    return islice(by_period.values(), periods)


def name_for(checkpoints: Iterable[CheckpointInfo], position: int, name: str) -> str:
    """Return the name that a checkpoint at ``position`` gets: an unnamed one takes over that of the one it
    replaces. Raises Conflict when the name is that of another position, or the position has another."""
    for info in checkpoints:
        if name and info.name == name and info.position != position:
            raise Conflict(
                f"The name '{name}' is that of the checkpoint at {info.position}",
                "Choose another name, or delete that one first",
            )
        if info.position == position and info.name and name not in ("", info.name):
            raise Conflict(
                f"The checkpoint at {position} is named '{info.name}' already",
                "Nothing has happened since: use that name, or delete it first",
            )
        if info.position == position and not name:
            name = info.name
    return name


def find_checkpoint(checkpoints: Iterable[CheckpointInfo], position: int) -> CheckpointInfo:
    """Return the one at ``position``. Raises NotFound."""
    for info in checkpoints:
        if info.position == position:
            return info
    raise NotFound(
        f"no checkpoint is kept at position {position}", "`borgctl checkpoint list` shows those there are"
    )


def other_good_checkpoint(
    position: int, checkpoints: Iterable[tuple[CheckpointInfo, bytes]], verify: Verify
) -> CheckpointInfo | None:
    """Return a good checkpoint other than the one at ``position``, the first in the order given.

    None when there is no other, and the one at ``position`` is not good itself: then nothing is lost
    with it. Raises Conflict when it is the last good one.
    """
    is_last_good = False
    for info, stored in checkpoints:
        if info.position == position:
            is_last_good = verify(info, stored)
        elif verify(info, stored):
            return info
    if is_last_good:
        raise Conflict(
            f"The checkpoint at {position} is the last good one", "Make another one first, then delete it"
        )
    return None


def check_import_conflicts(checkpoints: Iterable[CheckpointInfo], info: CheckpointInfo) -> None:
    """Raise Conflict when an imported checkpoint would take the place or the name of another."""
    stored = list(checkpoints)
    if any(one.position == info.position for one in stored):
        raise Conflict(
            f"A checkpoint at {info.position} is kept already",
            "It is not overwritten: delete it first, if this one should take its place",
        )
    name_for(stored, info.position, info.name)


def check_prune_base(checkpoints: Iterable[CheckpointInfo], position: int) -> None:
    """Raise Conflict unless the journal can be replayed from a checkpoint at this position.

    What is pruned is below it: the entry at its position stays, so that the journal is never empty and says
    itself from when on it can be read; retention keeps that checkpoint.
    """
    if all(info.position != position for info in checkpoints):
        raise Conflict(
            f"The journal is not pruned below {position}: no checkpoint is kept there",
            "`borgctl checkpoint list` shows those there are",
        )


def check_unchanged(
    checkpoints: Iterable[CheckpointInfo], info: CheckpointInfo, other: CheckpointInfo | None
) -> None:
    """Raise Conflict unless the one to delete, and the good one that stays, are there as they were found."""
    stored = list(checkpoints)
    if info not in stored or (other is not None and other not in stored):
        raise Conflict(
            f"The checkpoint at {info.position} was not deleted: others came or went meanwhile", "Ask again"
        )
