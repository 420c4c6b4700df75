"""Folders of attempts that were let go, in ``runs/`` of the process runtime: found, measured, removed.

All that touches many files is done in threads, some folders at a time, for there may be thousands and
the loop has programs to restart. What has to go is first moved into ``removed/``, in the loop: whoever
begins the same attempt anew meets its folder either whole or not at all.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from borgish.borglet.runtimes.folders import RunFolder
from borgish.borglet.runtimes.keep import Keep, Left, Removed, room_on_disk, surplus
from borgish.borglet.usage import DISK_FREE_BYTES_EASED
from borgish.clock import Clock

ROUND_SECONDS = 5.0
AT_ONCE = 32
BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own are

log = logging.getLogger(__name__)


class KeptFolders:
    """Those of one runtime. ``folder`` is the runtime's own."""

    def __init__(self, folder: Path, clock: Clock, keep: Keep) -> None:
        self._folder, self._clock, self._keep = folder, clock, keep
        self.removed = Removed()
        self._lefts: dict[str, Left] = {}  # by key
        self._unmeasured: dict[str, None] = {}
        self._tidying: asyncio.Task[None] | None = None

    def found(self, folder: RunFolder, at: float) -> None:
        """Keep what the borglet before has let go of."""
        self._lefts[folder.key] = Left(folder.path.name, folder.key, at)
        self._unmeasured[folder.key] = None

    async def take(self, folder: RunFolder, *, has_run: bool) -> None:
        """Let go of an attempt, and keep its folder. Of one that never ran there may be none."""
        at = await asyncio.to_thread(_let_go, folder, has_run=has_run)
        if at:
            self.found(folder, at)

    def give_back(self, key: str) -> None:
        """Stop keeping an attempt's folder: it begins anew."""
        self._lefts.pop(key, None)
        self._unmeasured.pop(key, None)
        self.removed.drop(key)

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
            paths = [self._path(self._lefts[key]) for key in some]
            sizes = await asyncio.to_thread(_measure, paths)
            for key, size in zip(some, sizes, strict=True):
                if key in self._unmeasured:  # it was not given back meanwhile
                    del self._unmeasured[key]
                    self._lefts[key] = msgspec.structs.replace(self._lefts[key], size_bytes=size)
        disk = await asyncio.to_thread(shutil.disk_usage, self._folder)
        held = sum(left.size_bytes for left in self._lefts.values())
        room = room_on_disk(self._keep, held, disk.free, disk.total, DISK_FREE_BYTES_EASED)
        gone = iter(surplus(self._lefts.values(), self._keep, room, self._clock.now().wall))
        while some_gone := list(islice(gone, AT_ONCE)):
            for left, why in some_gone:
                if self._lefts.get(left.key) is left:
                    self._put_away(left, why)
            await asyncio.to_thread(self._empty)

    async def _tidy_regularly(self) -> None:
        while True:
            try:
                await self.tidy()
            except OSError as error:
                log.warning("folders of ended tasks cannot be removed: %s; it is tried again", error)
            await asyncio.sleep(ROUND_SECONDS)

    def _put_away(self, left: Left, why: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            self._away.mkdir(mode=0o700, exist_ok=True)
            self._path(left).rename(self._away / left.name)
        del self._lefts[left.key]
        self._unmeasured.pop(left.key, None)
        self.removed.add(left.key, why)

    @property
    def _away(self) -> Path:
        return self._folder / "removed"

    def _path(self, left: Left) -> Path:
        return self._folder / "runs" / left.name

    def _empty(self) -> None:
        shutil.rmtree(self._away, ignore_errors=True)


def _let_go(folder: RunFolder, *, has_run: bool) -> float:
    """Mark an attempt as let go, and return when that was; 0 when there is nothing that may be marked."""
    # A record that nobody has adopted may be of a program that runs: the next borglet finds out.
    if not has_run and (not folder.path.is_dir() or folder.record() is not None):
        return 0.0
    folder.forget()
    return folder.forgotten_at()


def _measure(paths: list[Path]) -> list[int]:
    """Return what folders take on disk, without the work of their programs, which should be gone."""
    for path in paths:
        shutil.rmtree(path / "work", ignore_errors=True)
    return [sum(_blocks(path)) * BLOCK_BYTES for path in paths]


def _blocks(path: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield path.stat().st_blocks
        for entry in os.scandir(path):
            with contextlib.suppress(OSError):
                yield entry.stat(follow_symlinks=False).st_blocks
