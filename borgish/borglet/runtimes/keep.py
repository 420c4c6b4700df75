"""What stays of attempts that were let go, for ``borgctl task logs``, and what has to go, and why.

The rule is here, for all runtimes; each holds and removes what it keeps itself: folders in
``kept_folders``, containers in ``docker_kept``. Nothing gets here before the master has its end for good.
"""

from collections.abc import Collection

import msgspec

from borgish.resources import show_bytes, show_seconds
from borgish.wire.link import split_attempt_key

REMOVED_MAX = 10_000


class Keep(msgspec.Struct, frozen=True):
    """Which stay: ``[keep]`` of ``borglet.toml``."""

    seconds: float = 24 * 3600.0
    last: int = 2  # of each task, and of each program beside it: these go after all others
    last_seconds: float = 7 * 24 * 3600.0  # what those may stay for; a task may have run elsewhere since
    folders: int = 1000  # of plain programs
    room_bytes: int = 1024**3  # for all these folders; 0: ``room_share`` counts
    room_share: float = 0.0  # of their file system
    containers: int = 50  # 0: none stays, not even one from before
    written_bytes: int = 64 * 1024**2  # in a container's own root; one with more goes at once


NOTHING = Keep(containers=0)


class Left(msgspec.Struct, frozen=True):
    """What is left of an attempt, or of one run of it."""

    name: str  # of its folder or container
    key: str
    at: float  # when it was let go, in seconds since 1970
    run: int = 0
    size_bytes: int = 0


class Room(msgspec.Struct, frozen=True):
    """How much may stay, and what is told of that which goes for want of it."""

    count: int
    room_bytes: float = float("inf")
    full: str = ""


def room_on_disk(keep: Keep, held_bytes: int, free_bytes: int, total_bytes: int, reserve_bytes: int) -> Room:
    """Return the room for folders that hold ``held_bytes``: as set, less what the disk's reserve lacks."""
    room = keep.room_bytes or int(keep.room_share * total_bytes)
    left = max(0, held_bytes + free_bytes - reserve_bytes)
    if left < room:
        return Room(keep.folders, left, f"less than {show_bytes(reserve_bytes)} of its disk was free")
    return Room(keep.folders, room, f"the output of ended tasks took more than {show_bytes(room)}")


def surplus(lefts: Collection[Left], keep: Keep, room: Room, now: float) -> list[tuple[Left, str]]:
    """Return what has to go, in this order, each with the reason."""
    last = _last_of_each(lefts, keep.last)
    order = sorted(lefts, key=lambda left: (left.name in last, left.at, left.run))
    gone, rest = [], []
    for left in order:
        seconds = keep.last_seconds if left.name in last else keep.seconds
        if now - left.at > seconds:
            gone.append((left, f"it ended more than {show_seconds(seconds)} ago"))
        else:
            rest.append(left)
    count, held = len(rest), sum(left.size_bytes for left in rest)
    for left in rest:
        if count > room.count:
            gone.append((left, f"more than {room.count} ended programs were kept"))
        elif held > room.room_bytes:
            gone.append((left, room.full))
        else:
            break
        count, held = count - 1, held - left.size_bytes
    return gone


def _last_of_each(lefts: Collection[Left], last: int) -> set[str]:
    """Return the names of the latest of each task, and of each program beside its main one."""
    by_task: dict[tuple[str, str], list[tuple[int, int, float, str]]] = {}
    for left in lefts:
        task, attempt, program = split_attempt_key(left.key) or (left.key, 0, "")
        by_task.setdefault((task, program), []).append((attempt, left.run, left.at, left.name))
    return {one[-1] for same in by_task.values() for one in sorted(same, reverse=True)[:last]}


class Removed:
    """Why output is not there any more, by attempt: the latest thousands, while this borglet runs."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}

    def add(self, key: str, why: str) -> None:
        self._why.pop(key, None)
        self._why[key] = why
        if len(self._why) > REMOVED_MAX:
            del self._why[next(iter(self._why))]

    def drop(self, key: str) -> None:
        self._why.pop(key, None)

    def why(self, key: str) -> str:
        """Return the reason; "" when none is known."""
        return self._why.get(key, "")
