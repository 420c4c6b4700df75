"""Reads the output of a run while its shim writes and rotates it: the last lines, then on and on.

A file is told by its inode, not its name: rotation renames files that are being read.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from io import FileIO
from pathlib import Path

from borgish.borglet.runtimes.folders import RunFolder

CHUNK_BYTES = 64 * 1024
POLL_SECONDS = 0.1
LOOKS = 20


async def read_log(
    folder: RunFolder, *, previous: bool, follow: bool, tail: int, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the output of a run, from its last ``tail`` lines (0: all).

    With ``follow``, until ``ended`` is true and all was read.
    """
    names = folder.log_files(previous=previous)
    reader = LogReader(names, [] if previous else folder.log_files(previous=True))
    try:
        reader.seek_tail(tail)
        while True:
            last = not follow or ended()  # asked before reading: what came before the end is read
            for chunk in reader.chunks():
                yield chunk
                await asyncio.sleep(0)  # a long log must not keep others waiting
            if last:
                return
            await asyncio.sleep(POLL_SECONDS)
    finally:
        reader.close()


class LogReader:
    """A place in a log. ``files`` are its names, oldest first; ``moved`` is where a new run moves them."""

    def __init__(self, files: list[Path], moved: list[Path]) -> None:
        self._files = files
        self._moved = moved
        self._file: FileIO | None = None

    def close(self) -> None:
        if self._file:
            self._file.close()

    def seek_tail(self, lines: int) -> None:
        """Go to where the last lines begin; 0 is the beginning of all."""
        opened = [file for file in map(_open, self._files) if file]
        start = _tail_start(opened, lines) if lines else (0, 0)
        for index, file in enumerate(opened):
            if index == start[0]:
                file.seek(start[1])
                self._file = file
            else:
                file.close()

    def chunks(self) -> Iterator[bytes]:
        """Yield all from here to the present end."""
        while True:
            follower = self._follower()  # when there is one, the file at hand is complete
            while self._file and (chunk := self._file.read(CHUNK_BYTES)):
                yield chunk
            if follower is None:
                return
            self.close()
            self._file = follower

    def _follower(self) -> FileIO | None:
        """Open the file that follows the one at hand; None when that one is the newest."""
        for _ in range(LOOKS):
            if self._file is None:
                return _open_first(self._files)
            mine = os.fstat(self._file.fileno())
            if mine.st_nlink == 0:  # rotated away before it was read: go on with the oldest there is
                return _open_first(self._files)
            for chain in (self._files, self._moved):
                nodes = [_node(path) for path in chain]
                if mine.st_ino in nodes:
                    place = nodes.index(mine.st_ino) + 1
                    if place == len(chain) or not nodes[place]:
                        return None
                    follower = _open(chain[place])
                    if follower and os.fstat(follower.fileno()).st_ino == nodes[place]:
                        return follower
                    if follower:  # renamed between the look and the opening
                        follower.close()
        return None  # being renamed all the time: the next call looks again


def _open(path: Path) -> FileIO | None:
    try:
        return FileIO(path)
    except OSError:
        return None


def _open_first(paths: list[Path]) -> FileIO | None:
    return next((file for file in map(_open, paths) if file), None)


def _node(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _tail_start(files: list[FileIO], lines: int) -> tuple[int, int]:
    """Return the index of the file and the place in it where the last lines begin."""
    wanted = lines + 1  # the line end before them; that of the very last line is not one of these
    newest = True
    for index in range(len(files) - 1, -1, -1):
        end = files[index].seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - CHUNK_BYTES)
            block = os.pread(files[index].fileno(), end - begin, begin)
            if newest and not block.endswith(b"\n"):
                wanted -= 1  # the last line is not complete
            newest = False
            found = block.count(b"\n")
            if found >= wanted:
                return index, begin + _nth_last(block, wanted) + 1
            wanted -= found
            end = begin
    return 0, 0


def _nth_last(block: bytes, count: int) -> int:
    place = len(block)
    for _ in range(count):
        place = block.rindex(b"\n", 0, place)
    return place
