"""The output of a run, in files of bounded size that are rotated."""

import contextlib
import os

from borgish.borglet.runtimes.process.shim.basics import CHUNK_BYTES, PRIVATE, wall_seconds, write_padded

LOG_BYTES_MAX = 10 * 1024**2
LOG_NAMES = ("log", "log.1", "log.2")
MARKS = ".at"
"""Beside a file of output, when it was written: lines of an offset and the milliseconds since 1970 from which
on what stands there came. The first is of offset 0; one without this file was written within a second."""
MARK_SECONDS = 1.0
"""What comes within this time after a mark belongs to it: a second is what people ask logs for, and a program
that writes all the time costs a mark a second."""


class Log:
    """The output of a run in files of bounded size. A full disk costs output, never the program."""

    def __init__(self, note: int = -1) -> None:
        """``note``: the file with room for what people should know; -1: the one that is there."""
        self.fd = -1
        self.size = 0
        self.dropped = 0
        self.reported = 0
        self.why = ""
        self.note = note if note >= 0 else os.open("note", os.O_CREAT | os.O_RDWR, PRIVATE)
        self.began = self.marked = wall_seconds()  # the file at hand; and when its latest mark is from

    def pump(self, source: int) -> bool:
        """Take what is there, at most a chunk; return whether there was something."""
        try:
            data = os.read(source, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._write(memoryview(data))
        return bool(data)

    def close(self) -> None:
        if self.dropped > self.reported:
            self._report_dropped()
        for fd in (self.note, self.fd):
            if fd >= 0:
                os.close(fd)

    def _write(self, data: memoryview) -> None:
        while data:
            try:
                if self.fd < 0:
                    self._open()
                if not 0 <= (now := wall_seconds()) - self.marked < MARK_SECONDS:  # clocks are set back, too
                    self._mark(now)
                written = os.write(self.fd, data[: LOG_BYTES_MAX - self.size])
            except OSError as error:
                self._drop(len(data), error.strerror or str(error))
                return
            self.size += written
            data = data[written:]
            if self.size >= LOG_BYTES_MAX:
                self._rotate()

    def _open(self) -> None:
        self.fd = os.open("log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE)
        there = os.fstat(self.fd)
        self.size = min(there.st_size, LOG_BYTES_MAX - 1)
        if there.st_size:  # of a shim before this one
            self.began = there.st_mtime

    def _mark(self, now: float) -> None:
        """Note that what follows in the file came from now on; a disk without room costs the time alone."""
        self.marked = now
        with contextlib.suppress(OSError):
            marks = os.open(f"log{MARKS}", os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE)
            try:
                first = f"0 {self.began * 1000:.0f}\n" if self.size and not os.fstat(marks).st_size else ""
                os.write(marks, f"{first}{self.size} {now * 1000:.0f}\n".encode())
            finally:
                os.close(marks)

    def _rotate(self) -> None:
        os.close(self.fd)
        self.fd = -1
        for young, old in (("log.1", "log.2"), ("log", "log.1")):
            with contextlib.suppress(OSError):
                os.unlink(old + MARKS)
            with contextlib.suppress(OSError):
                os.rename(young + MARKS, old + MARKS)
            with contextlib.suppress(OSError):
                os.rename(young, old)
        self.began = self.marked = wall_seconds()

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        self.why = why
        if self.fd >= 0:  # opened anew for the next chunk, when there may be room again
            os.close(self.fd)
            self.fd = -1
        if self.dropped >= 2 * self.reported:  # at each doubling: a flood must not cost a write a chunk
            self._report_dropped()

    def _report_dropped(self) -> None:
        self.reported = self.dropped
        with contextlib.suppress(OSError):
            write_padded(self.note, f"{self.dropped} bytes of output dropped: {self.why}".encode())


def begin_files() -> None:
    """Make way for a new run: the former run's output becomes the previous one."""
    for name in (*LOG_NAMES, *(f"{name}{MARKS}" for name in LOG_NAMES)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink("previous." + name)
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, "previous." + name)
    for name in ("exit.json", "over_memory"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
