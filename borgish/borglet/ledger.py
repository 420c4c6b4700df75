"""The borglet's memory on disk: a log of records, one line each, in one file.

A line is the CRC-32 of its text in hex, a blank, and JSON. Lines are appended in one write a step,
without waiting for the disk; ``syncing`` makes them durable, which an end and a new head ask for before
they are reported to the master. A torn or damaged line is left out: what it had is found again by the
runtimes and from the next assignment. At each opening, and when it has grown, the file is written anew
and put in place by a rename.
"""

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from borgish.borglet.attempts.entry import Entry, Head
from borgish.durable import sync
from borgish.errors import UnsafeConfiguration

FILE_NAME = "ledger"
GROWTH_BYTES_MIN = 1024**2


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record: the head, or an attempt (``entry`` None takes it out)."""

    head: Head | None = None
    key: str = ""
    entry: Entry | None = None


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


class Ledger:
    """The ledger of one machine in one folder. One process has it; see ``state_folder.FolderLock``."""

    def __init__(self, folder: Path, machine: str) -> None:
        """Read what is there. Raises OSError, and UnsafeConfiguration when it is another machine's."""
        self._folder, self._path = folder, folder / FILE_NAME
        self.head = Head(machine)
        self.entries: dict[str, Entry] = {}
        self.damaged_lines = 0
        self._read()
        if self.head.machine != machine:
            raise UnsafeConfiguration(
                f"the state folder {folder} is that of machine '{self.head.machine}', not of '{machine}'",
                "Give each machine a state folder of its own, or correct 'machine' in the configuration.",
            )
        self._fd, self._size_bytes, self._limit_bytes = -1, 0, 0
        self._owed = self._paid = 0  # writes that ask for a sync; those that had it
        self._rewrite()

    def append(self, records: Mapping[str, Entry | None], head: Head | None) -> None:
        """Write records at the end of the file. Raises OSError; what was kept in memory is written
        again, with all else, by the next ``append``."""
        for key, entry in records.items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry
        self.head = head or self.head
        if self._size_bytes > self._limit_bytes:
            self._rewrite()
            return
        self._owed += head is not None or any(e is not None and e.ended is not None for e in records.values())
        lines = [_Line(key=key, entry=entry) for key, entry in records.items()]
        if head:
            lines.append(_Line(head=head))
        try:
            self._write(self._fd, b"".join(map(_line, lines)))
        except OSError:
            self._limit_bytes = -1  # the file may end in half a line: write it anew next time
            raise

    @property
    def owes_sync(self) -> bool:
        """Whether the disk may lack something that must be durable before it is reported."""
        return self._owed > self._paid

    def syncing(self) -> Callable[[], None]:
        """Return a call that waits until the disk has all that was appended by now.

        It may be made in another thread, once, and raises OSError.
        """
        fd, owed = os.dup(self._fd), self._owed

        def sync_file() -> None:
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
            self._paid = max(self._paid, owed)

        return sync_file

    def close(self) -> None:
        """Make all durable and let go of the file."""
        self.syncing()()
        os.close(self._fd)

    def _read(self) -> None:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return
        for raw in text.split(b"\n"):
            line = _parse(raw)
            if line is None:
                self.damaged_lines += bool(raw)
            elif line.head:
                self.head = line.head
            elif line.entry:
                self.entries[line.key] = line.entry
            else:
                self.entries.pop(line.key, None)

    def _rewrite(self) -> None:
        """Put a file in place that has the same in the fewest lines. Raises OSError; then the next
        ``append`` tries again, for the file in place lacks what this one was to have."""
        self._limit_bytes = -1
        lines = [_Line(head=self.head), *(_Line(key=k, entry=e) for k, e in self.entries.items())]
        fresh = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        fd = os.open(fresh, flags, 0o600)
        try:
            self._size_bytes = 0
            self._write(fd, b"".join(map(_line, lines)))
            os.fsync(fd)
            os.replace(fresh, self._path)
            sync(self._folder)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._paid = fd, self._owed
        self._limit_bytes = max(GROWTH_BYTES_MIN, 4 * self._size_bytes)

    def _write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        self._size_bytes += len(data)


def _line(line: _Line) -> bytes:
    text = _encode(line)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(raw: bytes) -> _Line | None:
    """Return the record in a line, None when it is damaged."""
    mark, _, text = raw.partition(b" ")
    try:
        if int(mark, 16) != zlib.crc32(text):
            return None
        return _decode(text)
    except (ValueError, msgspec.MsgspecError):
        return None
