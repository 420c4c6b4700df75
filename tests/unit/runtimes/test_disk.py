"""What runs have written is counted, a slice at a time, and who wrote too much is ended."""

import asyncio
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from borgish.borglet.runtimes import disk
from borgish.borglet.runtimes.disk import AT_ONCE, ENTRY_BYTES, Count, DiskWatch, Tree
from borgish.clock import Now, SystemClock

MIB = 1024**2


class Ticking:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> Now:
        self._seconds += 1.0
        return Now(mono=self._seconds, wall=self._seconds)


def counted(tree: Tree) -> Count:
    count = Count(tree, SystemClock())
    count.go_on(60.0)
    return count


def tree(*folders: Path, limit_bytes: int = 1024**4, pids: tuple[int, ...] = ()) -> Tree:
    return Tree("ann/web/0@7", 1, limit_bytes, tuple(map(str, folders)), lambda: pids)


def test_what_takes_room_counts_and_a_hole_does_not(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "data").write_bytes(b"x" * MIB)
    with (tmp_path / "hole").open("wb") as hole:
        hole.truncate(1024**3)
    os.link(tmp_path / "inner" / "data", tmp_path / "again")
    count = counted(tree(tmp_path))
    assert count.done
    assert MIB <= count.written_bytes <= MIB + 8 * ENTRY_BYTES


def test_empty_files_count_since_a_file_system_runs_out_of_them(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).touch()
    assert counted(tree(tmp_path)).written_bytes == 300 * ENTRY_BYTES


def test_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/usr")
    assert counted(tree(tmp_path)).written_bytes == ENTRY_BYTES


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    count = counted(tree(tmp_path / "gone", tmp_path))
    assert (count.done, count.written_bytes) == (True, 0)


def test_a_deleted_file_counts_as_long_as_it_is_open(tmp_path: Path) -> None:
    file = (tmp_path / "data").open("wb")
    file.write(b"x" * MIB)
    file.flush()
    (tmp_path / "data").unlink()
    assert MIB <= counted(tree(tmp_path, pids=(os.getpid(), os.getpid()))).written_bytes < 2 * MIB
    file.close()
    assert counted(tree(tmp_path, pids=(os.getpid(),))).written_bytes < MIB


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel shows mapped files to root only")
def test_a_deleted_file_counts_as_long_as_it_is_mapped(tmp_path: Path) -> None:
    with (tmp_path / "data").open("w+b") as file:
        file.truncate(MIB)
        mapped = mmap.mmap(file.fileno(), MIB)
    mapped[:] = b"x" * MIB
    (tmp_path / "data").unlink()
    mapped.flush()
    assert counted(tree(pids=(os.getpid(),))).written_bytes >= MIB
    mapped.close()


def test_memory_is_no_disk() -> None:
    fd = os.memfd_create("data")
    os.write(fd, b"x" * MIB)
    assert counted(tree(pids=(os.getpid(),))).written_bytes < MIB
    os.close(fd)


def test_too_much_shows_before_the_end(tmp_path: Path) -> None:
    for number in range(10 * AT_ONCE):
        (tmp_path / str(number)).touch()
    count = counted(tree(tmp_path, limit_bytes=ENTRY_BYTES * 10))
    assert (count.is_too_much, count.done) == (True, False)
    assert count.why() == "its disk: 256KiB written, limit 40KiB; raise resources.disk"


def test_a_flood_of_files_shows_by_their_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entries(list[None]):
        def __enter__(self) -> "Entries":
            return self

        def __exit__(self, *_: object) -> None: ...

    # None has no ``stat``: a file that is looked at would raise.
    monkeypatch.setattr(os, "scandir", lambda _: Entries([None] * 10 * AT_ONCE))
    assert counted(tree(tmp_path, limit_bytes=ENTRY_BYTES * AT_ONCE)).is_too_much


async def test_one_that_takes_long_to_count_has_the_time_that_others_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5 * AT_ONCE):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(disk, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(disk, "BUSY_SHARE_MAX", 5.0)
    watched = Watched(named("one", tmp_path, 4 * AT_ONCE * ENTRY_BYTES))
    assert len(await watched.look()) == 1


def test_a_count_goes_on_where_it_was(tmp_path: Path) -> None:
    for number in range(3 * AT_ONCE):
        (tmp_path / str(number)).touch()
    count, slices = Count(tree(tmp_path), Ticking()), 0
    while not count.done:
        count.go_on(0.0)
        slices += 1
    # Once by name and once by size, and an end.
    assert (slices, count.written_bytes) == (7, 3 * AT_ONCE * ENTRY_BYTES)


def test_nobody_hides_in_folders_too_deep_for_a_name(tmp_path: Path) -> None:
    here, name = os.getcwd(), "d" * 200
    os.chdir(tmp_path)
    try:
        for _ in range(25):
            os.mkdir(name)
            os.chdir(name)
    finally:
        os.chdir(here)
    count = counted(tree(tmp_path))
    assert count.is_too_much
    assert count.why() == "its disk cannot be counted: File name too long in its folders"


class Watched:
    """A watch, and whom it ended."""

    def __init__(self, *trees: Tree) -> None:
        self.trees, self.ended = list(trees), list[tuple[str, str]]()
        self.watch = DiskWatch(SystemClock(), lambda: self.trees, self._end)

    async def _end(self, tree: Tree, why: str) -> None:
        self.ended.append((tree.key, why))

    async def look(self) -> list[tuple[str, str]]:
        self.ended.clear()
        await self.watch.look()
        return self.ended


def named(key: str, folder: Path, limit_bytes: int) -> Tree:
    return Tree(key, 1, limit_bytes, (str(folder),))


async def test_who_writes_too_much_is_ended_and_nobody_else(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "data").write_bytes(b"x" * MIB)
    limited = named("one", tmp_path / "one", MIB // 2)
    watched = Watched(limited, named("two", tmp_path / "two", MIB // 2), named("any", tmp_path, 0))
    ((key, why),) = await watched.look()
    assert (key, why.partition(";")[0]) == ("one", "its disk: 1MiB written, limit 512KiB")
    assert [key for key, _ in await watched.look()] == ["one"]  # until it has ended
    watched.trees.remove(limited)
    assert await watched.look() == []


async def test_what_has_not_run_since_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [1.0]
    (tmp_path / "data").write_bytes(b"x" * MIB)
    monkeypatch.setattr(disk, "BUSY_SHARE_MAX", float("inf"))  # all is due at once
    idle = Tree("one", 1, 2 * MIB, (str(tmp_path),), cpu_seconds=lambda: used[0])
    watched = Watched(idle)
    assert await watched.look() == []
    (tmp_path / "more").write_bytes(b"x" * 2 * MIB)  # by somebody else
    assert await watched.look() == []
    used[0] = 2.0
    assert [key for key, _ in await watched.look()] == ["one"]


async def test_what_takes_long_to_count_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_top: str) -> Iterator[int]:
        while True:
            yield 0

    monkeypatch.setattr(disk, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(disk, "_sizes_in", lambda top: endless(top) if "large" in top else iter([2 * MIB]))
    small = named("small", tmp_path / "small", MIB)
    watched = Watched(named("large", tmp_path / "large", MIB), small)
    for _ in range(3):
        if [key for key, _ in await watched.look()] == ["small"]:
            return
    raise AssertionError("the small one was never counted")


async def test_watching_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    watching = asyncio.create_task(Watched(named("one", tmp_path, MIB)).watch.run())
    await asyncio.sleep(0)
    watching.cancel()
    assert await asyncio.gather(watching, return_exceptions=True)
