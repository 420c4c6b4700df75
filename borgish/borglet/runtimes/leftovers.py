"""Garbage collection of ended attempts: what stays of them for ``borgctl task logs``, what has to go, and
why.

One rule for all runtimes; each holds and removes what it keeps itself: folders here, containers in
``docker.inventory``. Nothing gets here before the master has its end for good, so the rule asks nobody.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from borgish.borglet.runtimes.folders import RunFolder
from borgish.borglet.runtimes.process.shim.runs import FOLDERS
from borgish.clock import Clock
from borgish.resources import show_bytes, show_seconds
from borgish.trees import remove_tree
from borgish.wire.link import split_attempt_key

REMOVED_MAX = 10_000
DISK_RESERVE_BYTES = 640 * 1024**2
"""What stays of ended tasks leaves so much free: enough for the disk not to count as under pressure."""
ROUND_SECONDS = 5.0
AT_ONCE = 32
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own are

log = logging.getLogger(__name__)


class Retention(msgspec.Struct, frozen=True):
    """Which stay: ``[keep]`` of ``borglet.toml``."""

    seconds: float = 24 * 3600.0
    last: int = 2  # of each task, and of each program beside it: these go after all others
    last_seconds: float = 7 * 24 * 3600.0  # what those may stay for; a task may have run elsewhere since
    folders: int = 1000  # of plain programs
    room_bytes: int = 1024**3  # for all these folders; 0: ``room_share`` counts
    room_share: float = 0.0  # of their file system
    containers: int = 50  # 0: none stays, not even one from before
    written_bytes: int = 64 * 1024**2  # in a container's own root; one with more goes at once


KEEP_NOTHING = Retention(containers=0)


class Leftover(msgspec.Struct, frozen=True):
    """What is left of an attempt, or of one run of it."""

    name: str  # of its folder or container
    key: str
    at: float  # when it was let go, in seconds since 1970
    run: int = 0
    size_bytes: int = 0
    keep_seconds: float = 0.0  # for so long it is wanted, if it is the last of its task; 0: as any other


class Room(msgspec.Struct, frozen=True):
    """How much may stay, and the reason given for what goes for want of it."""

    count: int
    room_bytes: float = float("inf")
    full: str = ""


def room_on_disk(
    keep: Retention, held_bytes: int, free_bytes: int, total_bytes: int, reserve_bytes: int
) -> Room:
    """Return the room for folders that hold ``held_bytes``: as set, less what the disk's reserve lacks."""
    room = keep.room_bytes or int(keep.room_share * total_bytes)
    left = max(0, held_bytes + free_bytes - reserve_bytes)
    if left < room:
        return Room(keep.folders, left, f"less than {show_bytes(reserve_bytes)} of its disk was free")
    return Room(keep.folders, room, f"the output of ended tasks took more than {show_bytes(room)}")


def to_remove(
    leftovers: Collection[Leftover], keep: Retention, room: Room, now: float
) -> list[tuple[Leftover, str]]:
    """Return what has to go, in this order, each with the reason; ``now`` is in seconds since 1970.

    What is wanted for a time of its own goes after all else: the runs of a weekly cron are older than those
    of one that runs each minute, each of which is the last of its task.
    """
    last = _last_of_each(leftovers, keep.last)
    order = sorted(leftovers, key=lambda left: (left.name in last, _is_wanted(left, now), left.at, left.run))
    gone, rest = [], []
    for left in order:
        seconds = max(keep.last_seconds, left.keep_seconds) if left.name in last else keep.seconds
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


def _is_wanted(left: Leftover, now: float) -> bool:
    return 0 < left.keep_seconds >= now - left.at


def _last_of_each(leftovers: Collection[Leftover], last: int) -> set[str]:
    """Return the names of the latest of each task, and of each program beside its main one."""
    by_task: dict[tuple[str, str], list[tuple[int, int, float, str]]] = {}
    for left in leftovers:
        task, attempt, program = split_attempt_key(left.key) or (left.key, 0, "")
        by_task.setdefault((task, program), []).append((attempt, left.run, left.at, left.name))
    return {one[-1] for same in by_task.values() for one in sorted(same, reverse=True)[:last]}


class RemovalReasons:
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


# -- Folders of plain programs ------------------------------------------------------------------------------


class KeptFolders:
    """Those of one runtime. ``folder`` is the runtime's own."""

    def __init__(self, folder: Path, clock: Clock, keep: Retention) -> None:
        self._folder, self._clock, self._keep = folder, clock, keep
        self.removed = RemovalReasons()
        self._leftovers: dict[str, Leftover] = {}  # by key
        self._unmeasured: dict[str, None] = {}
        self._tidying: asyncio.Task[None] | None = None

    def found(self, folder: RunFolder, at: float, keep_seconds: float = 0.0) -> None:
        """Keep what the borglet before has let go of, ``at`` that time (seconds since 1970)."""
        self._leftovers[folder.key] = Leftover(folder.path.name, folder.key, at, keep_seconds=keep_seconds)
        self._unmeasured[folder.key] = None

    async def take(self, folder: RunFolder, *, has_run: bool, keep_seconds: float = 0.0) -> None:
        """Let go of an attempt, and keep its folder. Of one that never ran there may be none."""
        at = await asyncio.to_thread(_let_go, folder, has_run=has_run, keep_seconds=keep_seconds)
        if at:
            self.found(folder, at, keep_seconds)

    def give_back(self, key: str) -> bool:
        """Stop keeping an attempt's folder, which begins anew; return whether it was kept."""
        was_kept = self._leftovers.pop(key, None) is not None
        self._unmeasured.pop(key, None)
        self.removed.drop(key)
        return was_kept

    def begin(self) -> None:
        """Keep them tidy from now on."""
        self._tidying = asyncio.create_task(self._tidy_regularly())

    async def close(self) -> None:
        if self._tidying:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)

    async def tidy(self) -> None:
        """Remove what has to go. Raises OSError."""
        await asyncio.to_thread(self._empty)  # what a borglet that was killed has left there
        while some := dict.fromkeys(islice(self._unmeasured, AT_ONCE)):
            paths = [self._path(self._leftovers[key]) for key in some]
            sizes = await asyncio.to_thread(_measure, paths)
            for key, size in zip(some, sizes, strict=True):
                if key in self._unmeasured:  # it was not given back meanwhile
                    del self._unmeasured[key]
                    self._leftovers[key] = msgspec.structs.replace(self._leftovers[key], size_bytes=size)
        disk = await asyncio.to_thread(shutil.disk_usage, self._folder)
        held = sum(left.size_bytes for left in self._leftovers.values())
        room = room_on_disk(self._keep, held, disk.free, disk.total, DISK_RESERVE_BYTES)
        gone = iter(to_remove(self._leftovers.values(), self._keep, room, self._clock.now().wall))
        while some_gone := list(islice(gone, AT_ONCE)):
            for left, why in some_gone:
                if self._leftovers.get(left.key) is left:
                    self._put_away(left, why)
            await asyncio.to_thread(self._empty)

    async def _tidy_regularly(self) -> None:
        while True:
            try:
                await self.tidy()
            except OSError as error:
                log.warning("folders of ended tasks cannot be removed: %s; it is tried again", error)
            await asyncio.sleep(ROUND_SECONDS)

    def _put_away(self, left: Leftover, why: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            self._away.mkdir(mode=0o700, exist_ok=True)
            self._path(left).rename(self._away / left.name)
        del self._leftovers[left.key]
        self._unmeasured.pop(left.key, None)
        self.removed.add(left.key, why)

    @property
    def _away(self) -> Path:
        return self._folder / "removed"

    def _path(self, left: Leftover) -> Path:
        return self._folder / "runs" / left.name

    def _empty(self) -> None:
        remove_tree(self._away)


def _let_go(folder: RunFolder, *, has_run: bool, keep_seconds: float) -> float:
    """Mark an attempt as let go, and return when that was; 0 when there is nothing that may be marked."""
    # A record that nobody has adopted may be of a program that runs: the next borglet finds out.
    if not has_run and (not folder.path.is_dir() or folder.record() is not None):
        return 0.0
    folder.forget(keep_seconds)
    return folder.forgotten_at()


def _measure(paths: list[Path]) -> list[int]:
    """Return what folders take on disk, without the work of their programs, which should be gone."""
    for path in paths:
        for name in FOLDERS:
            remove_tree(path / name)
    return [sum(_blocks(path)) * BLOCK_BYTES for path in paths]


def _blocks(path: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield path.stat().st_blocks
        for entry in os.scandir(path):
            with contextlib.suppress(OSError):
                yield entry.stat(follow_symlinks=False).st_blocks
