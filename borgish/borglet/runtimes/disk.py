"""What tasks have written, counted every few seconds, so that one which writes more than it may is ended.

Where no file system holds a task to its disk, somebody has to look. Looking costs as much as there are files,
so it is done a slice at a time, from a thread, and in all for ``BUSY_SHARE_MAX`` of a core at most: what has
many files is counted more seldom, and what has not run since is not counted again. A flood shows before its
folder is counted to the end.

Each entry of a folder counts as a block at least, since a file system runs out of entries, too; what was
deleted and is still open, or mapped into memory, counts as well. A folder that cannot be counted counts as
too large: nobody hides there what they write.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from borgish.clock import Clock
from borgish.resources import show_bytes

LOOK_SECONDS = 2.0
BUSY_SHARE_MAX = 0.05
SLICE_SECONDS = 0.02
ENTRY_BYTES = 4096
BLOCK_BYTES = 512  # of which st_blocks counts, on any file system
AT_ONCE = 64  # entries between two looks at the clock
WATCHED = f"watched every {LOOK_SECONDS:g} s"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH)
_OF_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # noqa: S108 - names, not files


class Tree(msgspec.Struct, frozen=True):
    """What one run may write, where it does, and the processes that may hold open what is in no folder.

    ``folders`` may name files as well. ``rest`` tells the bytes of what cannot be looked at here,
    ``cpu_seconds`` what its processes have used so far, None when that is not known: whoever used nothing
    since the last count has written nothing.
    """

    key: str
    run: int
    limit_bytes: int
    folders: tuple[str, ...]
    pids: Callable[[], Iterable[int]] = tuple
    rest: Callable[[], int] = int
    cpu_seconds: Callable[[], float | None] = lambda: None


class Count:
    """One count of a tree, from its first folder to its last, a slice at a time."""

    def __init__(self, tree: Tree, clock: Clock, cpu_seconds: float | None = None) -> None:
        """``cpu_seconds``: what its processes had used when it began."""
        self._clock, self.cpu_seconds = clock, cpu_seconds
        self.written_bytes = 0
        self.uncounted = ""  # why it cannot be counted
        self.done = False
        self.seconds = 0.0  # that it has taken
        self._limit_bytes = tree.limit_bytes
        self._sizes = self._all(tree)

    def go_on(self, seconds_max: float) -> None:
        """Count for so long; less when it is done, or has seen enough. Reads folders: call it from a
        thread."""
        began = self._clock.now().mono
        try:
            while not self.is_too_much:
                for _ in range(AT_ONCE):
                    self.written_bytes += next(self._sizes)
                if self._clock.now().mono - began >= seconds_max:
                    break
        except StopIteration:
            self.done = True
        except OSError as error:
            self.uncounted = error.strerror or str(error)
        self.seconds += self._clock.now().mono - began

    @property
    def is_too_much(self) -> bool:
        return bool(self.uncounted) or self.written_bytes > self._limit_bytes

    def why(self) -> str:
        """Say that it is too much."""
        if self.uncounted:
            return f"its disk cannot be counted: {self.uncounted} in its folders"
        written, limit = show_bytes(self.written_bytes), show_bytes(self._limit_bytes)
        return f"its disk: {written} written, limit {limit}; raise resources.disk"

    def _all(self, tree: Tree) -> Iterator[int]:
        for folder in tree.folders:
            yield from _sizes_in(folder)
        yield tree.rest()
        seen: set[tuple[int, int]] = set()
        for pid in tree.pids():
            yield from _sizes_held(pid, seen)


def _sizes_in(top: str) -> Iterator[int]:
    """Yield the bytes of each entry below a folder, or of a file; what is linked several times is shared by
    its names. Raises OSError for what cannot be looked into, or is nested too deeply for the name of any
    file."""
    if os.path.isfile(top):
        with contextlib.suppress(FileNotFoundError):
            yield os.stat(top).st_blocks * BLOCK_BYTES
        return
    folders = [top]
    while folders:
        folder = folders.pop()
        # Names first: where a program makes files as fast as it can, each look at one of them waits for it,
        # and names, which come by the thousand, are enough to see that flood.
        with _entries_of(folder) as entries:
            for _ in entries:
                yield ENTRY_BYTES
        with _entries_of(folder) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                is_folder = stat.S_ISDIR(found.st_mode)
                if is_folder:
                    folders.append(entry.path)
                names = 1 if is_folder else max(1, found.st_nlink)
                yield max(0, found.st_blocks * BLOCK_BYTES // names - ENTRY_BYTES)


@contextlib.contextmanager
def _entries_of(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Provide the entries of a folder; none of one that is gone."""
    try:
        entries = os.scandir(folder)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        yield iter(())
        return
    with entries:
        yield entries


def _sizes_held(pid: int, seen: set[tuple[int, int]]) -> Iterator[int]:
    """Yield the bytes of each deleted file that a process has open or mapped, and that is not among those
    ``seen``; 0 for others. A program of the machine that was replaced is nothing that its tasks wrote."""
    owner = _owner_of(pid)
    for path in (*_opened(pid), *_mapped(pid)):
        size = 0
        with contextlib.suppress(OSError):  # it was closed, or its process is gone
            found = os.stat(path)
            node = found.st_dev, found.st_ino
            is_theirs = stat.S_ISREG(found.st_mode) and owner in (0, found.st_uid)
            if is_theirs and not found.st_nlink and node not in seen:
                seen.add(node)
                size = 0 if os.readlink(path).startswith(_OF_MEMORY) else found.st_blocks * BLOCK_BYTES
        yield size


def _owner_of(pid: int) -> int:
    """Return as whom a process makes files; -1 when it is gone."""
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/status").open(errors="replace") as status:
        for line in status:
            if line.startswith("Uid:"):
                return int(line.split()[4])
    return -1


def _opened(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as opened:
        for entry in opened:
            yield entry.path


def _mapped(pid: int) -> Iterator[str]:
    """The kernel shows these to root only."""
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open(errors="replace") as maps:
        for line in maps:
            if line.endswith("(deleted)\n"):
                yield f"/proc/{pid}/map_files/{line.partition(' ')[0]}"


_Mine = tuple[str, int]  # the key and the run


class _Last(msgspec.Struct, frozen=True):
    """The last count of a run: when (monotonic) the next is due, and what was used when it began."""

    due: float
    cpu_seconds: float | None


class DiskWatch:
    """Counts again and again what the runs of a runtime have written.

    ``trees`` returns those that run; ``end`` is called with one that wrote too much, and why.
    """

    def __init__(
        self,
        clock: Clock,
        trees: Callable[[], Iterable[Tree]],
        end: Callable[[Tree, str], Awaitable[None]],
    ) -> None:
        self._clock, self._trees, self._end = clock, trees, end
        self._turns: deque[_Mine] = deque()  # whose turn it is, then who is next
        self._counts: dict[_Mine, Count] = {}  # under way
        self._last: dict[_Mine, _Last] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            began = self._clock.now().mono
            await self.look()
            # What other threads took away from us counts as well, so that we are no burden then.
            busy = self._clock.now().mono - began
            await asyncio.sleep(max(LOOK_SECONDS, busy / BUSY_SHARE_MAX))

    async def look(self) -> None:
        """Give each tree that is due its slice, as far as there is time for in one look."""
        trees = {(tree.key, tree.run): tree for tree in self._trees() if tree.limit_bytes}
        for tree, why in await asyncio.to_thread(self._count_some, trees):
            await self._end(tree, why)

    def _count_some(self, trees: dict[_Mine, Tree]) -> list[tuple[Tree, str]]:
        """Return those that wrote too much, and why."""
        self._turns = deque(mine for mine in self._turns if mine in trees)
        self._turns.extend(trees.keys() - set(self._turns))
        self._counts = {mine: count for mine, count in self._counts.items() if mine in trees}
        self._last = {mine: last for mine, last in self._last.items() if mine in trees}
        until = self._clock.now().mono + LOOK_SECONDS * BUSY_SHARE_MAX
        found: dict[_Mine, str] = {}
        while self._clock.now().mono < until:
            for _ in range(len(self._turns)):
                mine = self._turns.popleft()
                self._turns.append(mine)
                if mine not in found and (why := self._count(mine, trees[mine])):
                    found[mine] = why
                if self._clock.now().mono >= until:
                    break
            if not self._counts:  # else they have what is left of the time
                break
        return [(trees[mine], why) for mine, why in found.items()]

    def _count(self, mine: _Mine, tree: Tree) -> str:
        """Go on with a count, or begin one that is due; return why it is too much, "" when it is not."""
        count, last = self._counts.pop(mine, None), self._last.get(mine)
        if count is None:
            cpu_seconds = tree.cpu_seconds()
            is_idle = last is not None and cpu_seconds is not None and cpu_seconds == last.cpu_seconds
            if is_idle or (last and last.due > self._clock.now().mono):
                return ""
            count = Count(tree, self._clock, cpu_seconds)
        count.go_on(SLICE_SECONDS)
        if count.is_too_much:
            return count.why()
        if count.done:
            due = self._clock.now().mono + count.seconds / BUSY_SHARE_MAX
            self._last[mine] = _Last(due, count.cpu_seconds)
        else:
            self._counts[mine] = count
        return ""
