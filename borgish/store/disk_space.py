"""Free space on the disk of an SQLite database, and a reserve for starts on a full one.

A start has to write a little: who leads, the first entry of its epoch, SQLite's shared memory. A start
without writing would need a second way to lead and to number assignments. Instead a reserve of real blocks, 2
MiB, lies beside the database while there is space. Whoever opens the database on a full disk deletes it
first, and then serves what is stored, instead of ending at each start until somebody frees space. Blocks are
also allocated on trial, since a file system may report free space that a quota denies.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

from borgish.cell.free_space import Floor, FreeSpace, Level, free_space_of
from borgish.clock import Clock, SystemClock
from borgish.durable import NO_ROOM

RESERVE_BYTES_MAX = 2 * 2**20  # of some dozen starts
RESERVE_BYTES_MIN = 2**19
RESERVE_SHARE = 0.02  # of a small file system
TRIAL_BYTES = 2**18
RETRY_SECONDS = 10.0

log = logging.getLogger("borgmaster")


def space_of(folder: Path) -> tuple[int, int]:
    """Return how many bytes are free for us where a folder is, and how many there are."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


class DiskSpace:
    """Of one database. Nothing here raises: what is wrong with a disk shows at the next commit."""

    def __init__(self, path: Path, floor: Floor, clock: Clock | None = None) -> None:
        self._path = path
        self._reserve = path.with_suffix(".reserve")
        self.floor = floor
        self._clock = clock or SystemClock()
        self._level = Level.AMPLE
        self._is_denied = False  # by a quota, say: nothing of what is free is for us
        self._reserve_bytes: int | None = None  # its size; None: not known yet
        self._retry_at = 0.0
        self._warned: dict[str, str] = {}  # what fails -> why

    def set_floor(self, floor: Floor) -> None:
        """Change the floor, from the next measurement on."""
        self.floor = floor
        self._level = Level.AMPLE  # the other floor's margin would hold a better level back

    def open(self) -> None:
        """Delete the reserve if there is no space without it. To be called before the database is opened for
        writing, with its lock held."""
        free_space, wanted = self._measure()
        if free_space.level is not Level.FULL:
            self._is_denied = wanted > 0 and not self._can_allocate(TRIAL_BYTES)
        if free_space.level is Level.FULL or self._is_denied:
            self._level = Level.FULL
            self._delete_reserve()

    def free_space(self) -> FreeSpace:
        """Return how much space is left, and make the reserve anew where it is missing and there is space."""
        free_space, wanted = self._measure()
        missing = free_space.level is Level.AMPLE and self._reserve_size() < wanted
        if (missing or self._is_denied) and self._clock.now().mono >= self._retry_at:
            self._make_reserve(wanted)
        if self._is_denied:
            free_space = FreeSpace(Level.FULL, 0, free_space.floor_bytes)
        self._level = free_space.level
        return free_space

    def _measure(self) -> tuple[FreeSpace, int]:
        """Return the space left, counted as if the reserve existed, and the size that it should have."""
        unknown = f"{self._path.parent}: free space is unknown"
        try:
            free, total = space_of(self._path.parent)
        except OSError as error:
            self._warn(unknown, error)
            return FreeSpace(), 0
        self._warned.pop(unknown, None)
        floor = self.floor.bytes_of(total)
        wanted = max(RESERVE_BYTES_MIN, min(RESERVE_BYTES_MAX, int(RESERVE_SHARE * total))) if floor else 0
        missing = max(0, wanted - self._reserve_size())
        return free_space_of(max(0, free - missing), floor, self._level), wanted

    def _reserve_size(self) -> int:
        if self._reserve_bytes is None:
            try:
                self._reserve_bytes = self._reserve.stat().st_size
            except OSError:
                self._reserve_bytes = 0
        return self._reserve_bytes

    def _make_reserve(self, size: int) -> None:
        try:
            _allocate(self._reserve, size)
        except OSError as error:
            self._delete_reserve()
            self._is_denied = error.errno in NO_ROOM
            self._retry_at = self._clock.now().mono + RETRY_SECONDS
            self._warn(f"{self._reserve} cannot be made", error)
        else:
            self._warned.clear()
            self._is_denied, self._reserve_bytes = False, size

    def _can_allocate(self, size: int) -> bool:
        """Return whether blocks can be allocated, whatever the file system reports as free."""
        trial = self._path.with_suffix(".reserve-tried")
        try:
            _allocate(trial, size)
        except OSError as error:
            return error.errno not in NO_ROOM
        finally:
            with suppress(OSError):
                trial.unlink(missing_ok=True)
        return True

    def _delete_reserve(self) -> None:
        try:
            self._reserve.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{self._reserve} cannot be removed", error)
        self._reserve_bytes = 0

    def _warn(self, what: str, error: OSError) -> None:
        """Log why something fails, unless the reason is the same as last time."""
        if self._warned.get(what) != str(error.strerror):
            self._warned[what] = str(error.strerror)
            log.warning("%s: %s", what, error.strerror)


def _allocate(path: Path, size: int) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
    finally:
        os.close(file)
