"""The disk that an SQLite database is on: how much of it is free, and a reserve for starts on a full one.

A start has to write a little: who leads, the first entry of its epoch, SQLite's shared memory. So a file of
real blocks lies beside the database while there is room. Whoever opens the database on a full disk lets go of
it first, and then serves what is stored, instead of ending at each start until somebody makes room.
"""

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path

from borgish.cell.room import Floor, Level, Room, room_of
from borgish.clock import Clock, SystemClock

RESERVE_BYTES_MAX = 2 * 2**20  # of some dozen starts
RESERVE_BYTES_MIN = 2**19
RESERVE_SHARE = 0.02  # of a small file system
TRIED_BYTES = 2**18
RETRY_SECONDS = 10.0

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

log = logging.getLogger("borgmaster")


def space_of(folder: Path) -> tuple[int, int]:
    """Return how many bytes are free for us where a folder is, and how many there are."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


class Disk:
    """The disk of one database. Nothing here raises: a disk that is not as it should be is told by the next
    commit."""

    def __init__(self, path: Path, floor: Floor, clock: Clock | None = None) -> None:
        self._path = path
        self._reserve = path.with_suffix(".reserve")
        self.floor = floor
        self._clock = clock or SystemClock()
        self._level = Level.AMPLE
        self._is_denied = False  # by a quota, say: of what is free nothing is ours
        self._held_bytes: int | None = None  # of the reserve; None: not looked yet
        self._retry_at = 0.0
        self._warned: dict[str, str] = {}  # what fails, and why

    def change(self, floor: Floor) -> None:
        """Go by another floor from the next look on."""
        self.floor = floor
        self._level = Level.AMPLE  # it was by the other floor, and would hold a better one back

    def open(self) -> None:
        """Let go of the reserve if there is no room without it. To be called before the database is opened
        to write, by who has its lock."""
        room, wanted = self._looked()
        if room.level is not Level.FULL:
            self._is_denied = wanted > 0 and not self._can_have(TRIED_BYTES)
        if room.level is Level.FULL or self._is_denied:
            self._level = Level.FULL
            self._let_go()

    def room(self) -> Room:
        """Return what room is left, and make the reserve anew where it is missing and there is room."""
        room, wanted = self._looked()
        missing = room.level is Level.AMPLE and self._held() < wanted
        if (missing or self._is_denied) and self._clock.now().mono >= self._retry_at:
            self._make(wanted)
        if self._is_denied:
            room = Room(Level.FULL, 0, room.floor_bytes)
        self._level = room.level
        return room

    def _looked(self) -> tuple[Room, int]:
        """Return the room, counted as if the reserve were there, and what that should be."""
        unknown = f"{self._path.parent}: how much is free cannot be told"
        try:
            free, total = space_of(self._path.parent)
        except OSError as error:
            self._warn(unknown, error)
            return Room(), 0
        self._warned.pop(unknown, None)
        floor = self.floor.bytes_of(total)
        wanted = max(RESERVE_BYTES_MIN, min(RESERVE_BYTES_MAX, int(RESERVE_SHARE * total))) if floor else 0
        missing = max(0, wanted - self._held())
        return room_of(max(0, free - missing), floor, self._level), wanted

    def _held(self) -> int:
        if self._held_bytes is None:
            try:
                self._held_bytes = self._reserve.stat().st_size
            except OSError:
                self._held_bytes = 0
        return self._held_bytes

    def _make(self, size: int) -> None:
        try:
            _allocate(self._reserve, size)
        except OSError as error:
            self._let_go()
            self._is_denied = error.errno in _NO_ROOM
            self._retry_at = self._clock.now().mono + RETRY_SECONDS
            self._warn(f"{self._reserve} cannot be made", error)
        else:
            self._warned.clear()
            self._is_denied, self._held_bytes = False, size

    def _can_have(self, size: int) -> bool:
        """Return whether blocks can be had, whatever is said to be free."""
        tried = self._path.with_suffix(".reserve-tried")
        try:
            _allocate(tried, size)
        except OSError as error:
            return error.errno not in _NO_ROOM
        finally:
            with suppress(OSError):
                tried.unlink(missing_ok=True)
        return True

    def _let_go(self) -> None:
        try:
            self._reserve.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{self._reserve} cannot be removed", error)
        self._held_bytes = 0

    def _warn(self, what: str, error: OSError) -> None:
        """Log why something fails, unless that was the reason already when it was last tried."""
        if self._warned.get(what) != str(error.strerror):
            self._warned[what] = str(error.strerror)
            log.warning("%s: %s", what, error.strerror)


def _allocate(path: Path, size: int) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
    finally:
        os.close(file)
