"""The rules of kept checkpoints, the same for every store: which is good, which may go, how one is named."""

from collections.abc import Callable, Iterable

import msgspec

from borgish.cell.model import Snapshot
from borgish.errors import BorgishError, Conflict, NotFound, StoreDamaged
from borgish.store.base import CheckpointInfo
from borgish.store.codec import decode_snapshot, decompress
from borgish.wire.checkpoint_file import CheckpointHeader


class Start(msgspec.Struct, frozen=True):
    """Where to go on from: a checkpoint that is good, kept or from a file. ``position`` 0: the beginning."""

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
    """Return what a checkpoint's file says of it."""
    return CheckpointInfo(header.position, header.at, header.reason, header.sha256, header.bytes, header.name)


Judge = Callable[[CheckpointInfo, bytes], bool]
"""Says of a stored checkpoint whether it is good, perhaps elsewhere than in this process."""


def is_good(cell: str, info: CheckpointInfo, stored: bytes) -> bool:
    """Return whether a cell can be started from this checkpoint."""
    try:
        verified_snapshot(cell, info, stored)
    except BorgishError:
        return False
    return True


def good_besides(
    position: int, kept: Iterable[tuple[CheckpointInfo, bytes]], judge: Judge
) -> CheckpointInfo | None:
    """Return a good checkpoint other than the one at ``position``, the first in the order of ``kept``.

    None when there is no other, and the one at ``position`` is not good itself: then nothing is lost
    with it. Raises Conflict when it is the last good one.
    """
    is_last_good = False
    for info, stored in kept:
        if info.position == position:
            is_last_good = judge(info, stored)
        elif judge(info, stored):
            return info
    if is_last_good:
        raise Conflict(
            f"The checkpoint at {position} is the last good one", "Make another one first, then delete it"
        )
    return None


def name_for(kept: Iterable[CheckpointInfo], position: int, name: str) -> str:
    """Return the name that a checkpoint at ``position`` gets: an unnamed one takes over that of the one
    it replaces. Raises Conflict when the name, or the position, has another."""
    for info in kept:
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


def find_kept(kept: Iterable[CheckpointInfo], position: int) -> CheckpointInfo:
    """Return the one at ``position``. Raises NotFound."""
    for info in kept:
        if info.position == position:
            return info
    raise NotFound(
        f"no checkpoint is kept at position {position}", "`borgctl checkpoint list` shows those there are"
    )


def expect_room(kept: Iterable[CheckpointInfo], info: CheckpointInfo) -> None:
    """Raise Conflict when one that comes from elsewhere would take the place or the name of another."""
    there = list(kept)
    if any(one.position == info.position for one in there):
        raise Conflict(
            f"A checkpoint at {info.position} is kept already",
            "It is not overwritten: delete it first, if this one should take its place",
        )
    name_for(there, info.position, info.name)


def expect_base(kept: Iterable[CheckpointInfo], position: int) -> None:
    """Raise Conflict unless the journal can be replayed from a checkpoint at this position."""
    if all(info.position != position for info in kept):
        raise Conflict(
            f"The journal is not pruned below {position}: no checkpoint is kept there",
            "`borgctl checkpoint list` shows those there are",
        )


def expect_unchanged(
    kept: Iterable[CheckpointInfo], info: CheckpointInfo, besides: CheckpointInfo | None
) -> None:
    """Raise Conflict unless the one to delete, and the good one that stays, are there as they were found."""
    there = list(kept)
    if info not in there or (besides is not None and besides not in there):
        raise Conflict(
            f"The checkpoint at {info.position} was not deleted: others came or went meanwhile", "Ask again"
        )
