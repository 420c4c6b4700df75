"""The output of a run, in files of bounded size that are rotated."""

import contextlib
import os

from borgish.borglet.runtimes.shim.basics import CHUNK_BYTES, PRIVATE, write_padded

LOG_BYTES_MAX = 10 * 1024**2
LOG_NAMES = ("log", "log.1", "log.2")


class Log:
    """The output of a run in files of bounded size. A full disk costs output, never the program."""

    def __init__(self) -> None:
        self.fd = -1
        self.size = 0
        self.dropped = 0
        self.reported = 0
        self.why = ""
        self.note = os.open("note", os.O_CREAT | os.O_RDWR, PRIVATE)

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
        self.size = min(os.fstat(self.fd).st_size, LOG_BYTES_MAX - 1)

    def _rotate(self) -> None:
        os.close(self.fd)
        self.fd = -1
        for young, old in (("log.1", "log.2"), ("log", "log.1")):
            with contextlib.suppress(OSError):
                os.rename(young, old)

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
    for name in LOG_NAMES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink("previous." + name)
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, "previous." + name)
    for name in ("exit.json", "over_memory"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
