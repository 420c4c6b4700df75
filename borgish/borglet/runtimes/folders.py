"""What is on disk of a run, and what it means: ``runs/<attempt>/`` of the runtime's folder.

    run.json       the latest run: its number, processes, boot, control groups, environment
    starting.json  the same while it is being started; stays when its shim was killed right then
    exit.json      how it ended; exit.new is the room kept for that
    over_disk      why it was killed for its disk, with the number of the run
    over_memory    there when it was killed for its memory by the borglet, not the kernel
    note           what people should know: output dropped
    lease          until when it may run, where it may not run for ever (``shim.lease``)
    output         the pipe between program and shim
    log log.1 log.2    output, newest first; previous.log* is that of the run before
    log.at log.1.at ...    when it was written (``shim.output.MARKS``)
    work/          where the program runs, and its user's own
    tmp/           what its user sees as /tmp and /var/tmp
    forgotten      there once the attempt was let go; in it, where there is more than a rule of age, for how
                   many seconds its output is wanted

The shim writes nearly all of it, and holds a lock on the folder itself while it lives. Its output is read
while the shim writes and rotates it: a file is identified by its inode, not its name, for rotation
renames files that are being read.
"""

import asyncio
import contextlib
import fcntl
import math
import os
import struct
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator
from io import FileIO
from pathlib import Path
from signal import SIGKILL
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from borgish.borglet.runtimes.base import RunState
from borgish.borglet.runtimes.process.shim.basics import read_file, replace_json
from borgish.borglet.runtimes.process.shim.output import LOG_NAMES, MARK_SECONDS, MARKS
from borgish.borglet.runtimes.process.shim.runs import FOLDERS
from borgish.text import instant
from borgish.trees import remove_tree
from borgish.wire.link import Exit, LogWanted

T = TypeVar("T")

UNKNOWN = "exit unknown: what watched it was killed"
REBOOTED = "exit unknown: the machine was booted since"
CHUNK_BYTES = 64 * 1024
POLL_SECONDS = 0.1
LOOKS = 20
_GET_FLAGS, _SET_FLAGS, _TOP_FLAG = 0x80086601, 0x40086602, 0x20000  # FS_IOC_GETFLAGS; chattr's T


class Record(msgspec.Struct, frozen=True):
    """A run as its shim wrote it down."""

    run: int
    boot: str
    pid: int
    ticks: int
    shim: int
    shim_ticks: int
    at: float  # when its shim wrote this; seconds since 1970
    groups: list[Any]  # see shim.groups
    oom: str  # the file that counts what the kernel ended for memory; "" where nothing does
    within: list[Any] = []  # groups around these, of all programs of the task; empty where it is the only one
    lease: tuple[int, float] | None = None  # the signal and the grace with which it ends when that is over
    inside: dict[str, Any] | None = None  # how it is confined; None: not at all
    init: tuple[int, int] | None = None  # pid and ticks of what holds its namespaces; None: it has none


class EndRecord(Exit, frozen=True, kw_only=True):
    """How a run ended, with its number: a run without an end must not be given that of another."""

    run: int


class Program(msgspec.Struct, frozen=True):
    """What commands beside a run need to know."""

    env: dict[str, str]
    workdir: str
    ram_bytes: int
    disk_bytes: int = 0  # what it may write; 0: as much as it likes
    secret_env: str = ""  # the folder with more variables; "": there are none


class _WithProgram(msgspec.Struct, frozen=True):
    program: Program


def spread(path: Path) -> None:
    """Have the file system put each folder that is made in this one at a place of its own.

    Else ext4 puts all of them close together, and whoever makes a file there steps over each one deleted in
    the last minutes (``recently_deleted``), one by one: beside short tasks that was half of a shim's cpu.
    """
    with contextlib.suppress(OSError):  # others have no such flag, and no need of it
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (flags,) = struct.unpack("I", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("I", flags | _TOP_FLAG))
        finally:
            os.close(fd)


def name_of(key: str) -> str:
    """Return the file name of an attempt: ``ann+web+3@1207``. Reversible for any key."""
    return quote(key, safe="@").replace("%2F", "+").replace(".", "%2E")


def key_of(name: str) -> str:
    """Return the attempt whose file name this is."""
    return unquote(name.replace("+", "%2F"))


class OverDisk(msgspec.Struct, frozen=True):
    """Why a run was killed for its disk."""

    run: int
    reason: str


class RunFolder:
    """One attempt's folder. Reading never fails: what is missing or torn is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return key_of(self.path.name)

    def record(self) -> Record | None:
        """Return the latest run that began here."""
        return self._read("starting.json", Record) or self._read("run.json", Record)

    def program(self) -> Program | None:
        """Return what commands beside the latest run need to know."""
        found = self._read("starting.json", _WithProgram) or self._read("run.json", _WithProgram)
        return found.program if found else None

    def end_of(self, record: Record) -> Exit | None:
        """Return how that run ended, if it is written down."""
        found = self._read("exit.json", EndRecord)
        if found is None or found.run != record.run:
            return None
        over = self._read("over_disk", OverDisk) if found.signal == SIGKILL and not found.reason else None
        reason = over.reason if over and over.run == record.run else found.reason
        return Exit(found.code, found.signal, found.oom, reason, found.at, found.lapsed)

    def write_over_disk(self, record: Record, reason: str) -> None:
        """Write down why a run is about to be killed for its disk."""
        with contextlib.suppress(OSError):  # then it looks as if somebody else had killed it
            replace_json(str(self.path / "over_disk"), {"run": record.run, "reason": reason})

    def write_end(self, record: Record, reason: str, at: float) -> None:
        """Write down an end that no shim saw, ``at`` that time, in seconds since 1970."""
        with contextlib.suppress(OSError):  # then it is found out again
            replace_json(str(self.path / "exit.json"), {"run": record.run, "reason": reason, "at": at})

    def note(self) -> str:
        try:
            return read_file(f"{self.path}/note").decode().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def state(self, record: Record) -> RunState:
        """Return what is known of a run."""
        return RunState(self.key, record.run, record.pid, record.at, self.end_of(record), self.note())

    def log_files(self, *, previous: bool) -> list[Path]:
        """Return where the output of a run is, oldest first; not all need be there."""
        return [self.path / (("previous." if previous else "") + name) for name in reversed(LOG_NAMES)]

    def forget(self, keep_seconds: float = 0.0) -> None:
        """Give the space back, but for the output, and mark the attempt as let go. ``keep_seconds``: for how
        long its output is wanted; 0: as for any other."""
        mark = self.path / "forgotten"
        with contextlib.suppress(OSError):
            mark.touch(mode=0o600)
            for name in FOLDERS:
                try:
                    os.rmdir(f"{self.path}/{name}")  # most are empty, which costs no look into them
                except FileNotFoundError:
                    continue
                except OSError:
                    remove_tree(self.path / name)
            if keep_seconds:
                mark.write_text(f"{keep_seconds:.0f}")

    def forgotten_at(self) -> float:
        """Return when the attempt was let go, in seconds since 1970; 0 when it was not."""
        try:
            return (self.path / "forgotten").stat().st_mtime
        except OSError:
            return 0.0

    def keep_seconds(self) -> int:
        """Return for how long the output of the attempt that was let go is wanted; 0: as for any other."""
        try:
            return int((self.path / "forgotten").read_text() or 0)
        except (OSError, ValueError):
            return 0

    def begin_anew(self) -> None:
        """Take back that the attempt was let go: its runs never were, but for the output. Raises OSError."""
        # The mark goes last: killed in between, we begin here again.
        for name in ("starting.json", "run.json", "exit.json", "over_disk", "forgotten"):
            (self.path / name).unlink(missing_ok=True)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(read_file(f"{self.path}/{name}"), type=kind)
        except (OSError, msgspec.MsgspecError):
            return None


# -- The output of a run: its last lines, then on and on ----------------------------------------------------


async def read_log(folder: RunFolder, wanted: LogWanted, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield what is wanted of the output of a run, then an empty piece.

    With ``follow``, until ``ended`` is true and all was read.
    """
    previous = wanted.previous
    names = folder.log_files(previous=previous)
    reader = LogReader(names, [] if previous else folder.log_files(previous=True))
    try:
        reader.seek(wanted.tail, wanted.since)
        while True:
            last = not wanted.follow or ended()  # asked before reading: what came before the end is read
            for chunk in reader.stamped() if wanted.timestamps else reader.chunks():
                yield chunk
                await asyncio.sleep(0)  # a long log must not keep others waiting
            if last:
                record = folder.record()
                if record and record.run > int(previous):  # one that writes nothing leaves no file of output
                    yield b""
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
        self._is_at_line = True  # what is read next begins a line

    def close(self) -> None:
        if self._file:
            self._file.close()

    def seek(self, lines: int, since: float = 0.0) -> None:
        """Go to where the last lines begin (0: all of them), of those written since a time, in seconds since
        1970: to a second."""
        files = [(path, file) for path in self._files if (file := _open(path))]
        opened = [file for _, file in files]
        start = _tail_start(opened, lines) if lines else (0, 0)
        if since:
            start = max(start, _since_start([(file, _marks(path, file)) for path, file in files], since))
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

    def stamped(self) -> Iterator[bytes]:
        """Yield the same, each line with the time in front at which it was written, in ISO 8601 and UTC."""
        for chunk in self.chunks():
            assert self._file is not None  # of which the chunk is
            at, marks = self._file.tell() - len(chunk), self._present_marks(self._file)
            pieces, place = [], 0
            while place < len(chunk):
                if self._is_at_line:
                    pieces.append(b"%s " % instant(_written(marks, at + place)).encode())
                end = chunk.find(b"\n", place) + 1 or len(chunk)
                pieces.append(chunk[place:end])
                self._is_at_line = chunk[end - 1 : end] == b"\n"
                place = end
            yield b"".join(pieces)

    def _present_marks(self, file: FileIO) -> "Marks":
        """Return the marks of a file, whatever its name is by now."""
        mine = os.fstat(file.fileno()).st_ino
        named = (path for path in (*self._files, *self._moved) if _node(path) == mine)
        return _marks(next(named, Path(os.devnull)), file)

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


Marks = list[tuple[int, float]]
"""Offsets in a file, ascending, and from when on what stands there was written, in seconds since 1970."""


def _marks(path: Path, file: FileIO) -> Marks:
    """Return the marks of a file of output; where there are none, it was written within a second."""
    found: Marks = []
    with contextlib.suppress(OSError, ValueError):
        for line in read_file(f"{path}{MARKS}").splitlines():
            offset, millis = map(int, line.split())
            found.append((offset, millis / 1000))
    return found or [(0, os.fstat(file.fileno()).st_mtime)]


def _written(marks: Marks, offset: int) -> float:
    """Return when what stands at an offset was written."""
    return marks[max(0, bisect_right(marks, (offset, math.inf)) - 1)][1]


def _since_start(files: list[tuple[FileIO, Marks]], since: float) -> tuple[int, int]:
    """Return the index of the file and the place in it where the first line begins that was written since a
    time; the end of all where there is none."""
    for index, (file, marks) in enumerate(files):
        for offset, at in marks:
            if at + MARK_SECONDS > since:
                return index, _line_start(file, offset)
    return (len(files) - 1, os.fstat(files[-1][0].fileno()).st_size) if files else (0, 0)


def _line_start(file: FileIO, offset: int) -> int:
    """Return where the first line begins that begins at an offset or after it."""
    at = offset - 1
    while offset and (block := os.pread(file.fileno(), CHUNK_BYTES, at)):
        if (end := block.find(b"\n")) >= 0:
            return at + end + 1
        at += len(block)
    return at + 1 if offset else 0


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
