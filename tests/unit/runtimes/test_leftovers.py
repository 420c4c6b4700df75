"""What has to go of ended attempts, in which order and why; and the same with folders on disk."""

import asyncio
import os
from pathlib import Path

import pytest

from borgish.borglet.runtimes import leftovers as rule
from borgish.borglet.runtimes.folders import RunFolder, name_of
from borgish.borglet.runtimes.leftovers import (
    KeptFolders,
    Leftover,
    RemovalReasons,
    Retention,
    Room,
    room_on_disk,
    to_remove,
)
from borgish.clock import Now
from tests.deep import deep_folder

NOW = 1_000_000.0
AMPLE = Room(1000)
MIB = 1024**2
GIB = 1024**3


def left(key: str, *, ago: float = 10.0, run: int = 0, size: int = 0, keep: float = 0.0) -> Leftover:
    return Leftover(f"{key}#{run}", key, NOW - ago, run, size, keep)


def names(gone: list[tuple[Leftover, str]]) -> list[str]:
    return [one.key for one, _ in gone]


def test_nothing_goes_while_there_is_room() -> None:
    assert to_remove([left(f"ann/web/0@{n}", ago=n) for n in range(1, 100)], Retention(), AMPLE, NOW) == []


def test_what_is_old_goes_but_for_the_last_ones_of_each_task() -> None:
    leftovers = [left(f"ann/web/{i}@{n}", ago=100 - n) for i in (0, 1) for n in (1, 2, 3, 4)]
    gone = to_remove(leftovers, Retention(seconds=50, last=2), AMPLE, NOW)
    assert sorted(names(gone)) == ["ann/web/0@1", "ann/web/0@2", "ann/web/1@1", "ann/web/1@2"]
    assert {why for _, why in gone} == {"it ended more than 50s ago"}


def test_the_last_ones_go_by_an_age_of_their_own() -> None:
    leftovers = [left("ann/web/0@1", ago=300), left("ann/web/0@2", ago=100)]
    gone = to_remove(leftovers, Retention(seconds=50, last_seconds=200), AMPLE, NOW)
    assert [(one.key, why) for one, why in gone] == [("ann/web/0@1", "it ended more than 3.33m ago")]


@pytest.mark.parametrize(
    ("keep_seconds", "ago", "why"),
    [
        (0.0, 199, ""),
        (0.0, 201, "it ended more than 3.33m ago"),
        (100.0, 199, ""),  # less than what any last one has
        (100.0, 201, "it ended more than 3.33m ago"),
        (3600.0, 3599, ""),
        (3600.0, 3601, "it ended more than 60m ago"),
    ],
)
def test_what_is_wanted_for_longer_stays_so_long(keep_seconds: float, ago: float, why: str) -> None:
    leftovers = [left("ann/nightly-1/0@1", ago=ago, keep=keep_seconds)]
    gone = to_remove(leftovers, Retention(seconds=50, last_seconds=200), AMPLE, NOW)
    assert [reason for _, reason in gone] == ([why] if why else [])


def test_of_what_is_wanted_for_longer_only_the_last_ones_of_each_task_stay() -> None:
    leftovers = [left(f"ann/nightly-1/0@{n}", ago=100 - n, keep=3600) for n in (1, 2, 3, 4)]
    gone = to_remove(leftovers, Retention(seconds=50, last=2), AMPLE, NOW)
    assert names(gone) == ["ann/nightly-1/0@1", "ann/nightly-1/0@2"]
    assert len(to_remove(leftovers, Retention(seconds=50, last=0), AMPLE, NOW)) == 4


def test_what_is_wanted_for_longer_goes_after_all_others_and_by_number_and_size_too() -> None:
    weekly = [left(f"ann/weekly-{n}/0@{n}", ago=900 - n, size=10, keep=3600) for n in (1, 2)]
    each_minute = [left(f"ann/tick-{n}/0@{n}", ago=100 - n, size=10, keep=20) for n in (3, 4)]
    leftovers = [*weekly, *each_minute]
    assert names(to_remove(leftovers, Retention(), Room(2), NOW)) == ["ann/tick-3/0@3", "ann/tick-4/0@4"]
    assert names(to_remove(leftovers, Retention(), Room(100, 15, "full"), NOW))[-1] == "ann/weekly-1/0@1"
    assert len(to_remove(leftovers, Retention(), Room(0), NOW)) == 4


def test_a_clock_that_was_set_back_makes_nothing_wanted() -> None:
    leftovers = [left("ann/web/0@1", ago=-10), left("ann/nightly-1/0@2", ago=-5, keep=3600)]
    assert names(to_remove(leftovers, Retention(), Room(1), NOW)) == ["ann/web/0@1"]


def test_a_program_beside_the_main_one_has_last_ones_of_its_own() -> None:
    leftovers = [left(f"ann/web/0@{n}{program}", ago=100) for n in (1, 2) for program in ("", ":proxy")]
    gone = to_remove(leftovers, Retention(seconds=50, last=1), AMPLE, NOW)
    assert names(gone) == ["ann/web/0@1", "ann/web/0@1:proxy"]


def test_too_many_go_oldest_first_and_the_last_ones_after_all_others() -> None:
    leftovers = [left("ann/old/0@1", ago=90), *(left(f"ann/web/0@{n}", ago=50 - n) for n in (2, 3, 4, 5))]
    keep = Retention(last=1)
    gone = to_remove(leftovers, keep, Room(3), NOW)
    assert names(gone) == ["ann/web/0@2", "ann/web/0@3"]
    assert gone[0][1] == "more than 3 ended programs were kept"
    # Of thousands of tasks that ran once each is the last of its own; the bound holds all the same.
    assert names(to_remove(leftovers, keep, Room(1), NOW))[-1] == "ann/old/0@1"
    assert len(to_remove(leftovers, keep, Room(0), NOW)) == len(leftovers)


def test_as_many_go_as_there_is_room_wanted() -> None:
    leftovers = [left(f"ann/web/{n}@{n}", ago=100 - n, size=10) for n in range(10)]
    gone = to_remove(leftovers, Retention(), Room(100, 75, "full"), NOW)
    assert [(one.key, why) for one, why in gone] == [(f"ann/web/{n}@{n}", "full") for n in range(3)]
    assert to_remove(leftovers, Retention(), Room(100, 100, "full"), NOW) == []


def test_what_goes_by_age_makes_room() -> None:
    leftovers = [left(f"ann/web/0@{n}", ago=100 - n, size=10) for n in range(10)]
    assert len(to_remove(leftovers, Retention(seconds=95, last=2), Room(5, 50, "full"), NOW)) == 5
    gone = to_remove(leftovers, Retention(seconds=95, last=2), Room(5, 40, "full"), NOW)
    assert [why for _, why in gone] == ["it ended more than 95s ago"] * 5 + ["full"]


def test_the_room_is_as_set_or_what_the_disk_has_beyond_its_reserve() -> None:
    ample = room_on_disk(Retention(room_bytes=GIB), 100 * MIB, 10 * GIB, 100 * GIB, 640 * MIB)
    assert (ample.room_bytes, ample.full) == (GIB, "the output of ended tasks took more than 1GiB")
    share = room_on_disk(Retention(room_bytes=0, room_share=0.05), 0, 90 * GIB, 100 * GIB, 640 * MIB)
    assert share.room_bytes == 5 * GIB
    pressed = room_on_disk(Retention(room_bytes=GIB), 300 * MIB, 500 * MIB, 100 * GIB, 640 * MIB)
    assert (pressed.room_bytes, pressed.full) == (160 * MIB, "less than 640MiB of its disk was free")
    assert room_on_disk(Retention(), 10 * MIB, 0, 100 * GIB, 640 * MIB).room_bytes == 0


def test_reasons_are_remembered_for_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "REMOVED_MAX", 2)
    removed = RemovalReasons()
    for key in ("a", "b", "a", "c"):
        removed.add(key, f"why {key}")
    assert [removed.why(key) for key in ("a", "b", "c")] == ["why a", "", "why c"]
    removed.drop("a")
    assert removed.why("a") == ""


class FixedClock:
    def now(self) -> Now:
        return Now(NOW, 0.0)


def let_go(folder: Path, key: str, ago: float = 0.0, size: int = 10) -> RunFolder:
    made = RunFolder(folder / "runs" / name_of(key))
    made.path.mkdir(parents=True)
    (made.path / "log").write_bytes(b"x" * size)
    made.forget()
    os.utime(made.path / "forgotten", (NOW - ago, NOW - ago))
    return made


def kept(folder: Path, keep: Retention, *keys: str) -> KeptFolders:
    made = KeptFolders(folder, FixedClock(), keep)
    for age, key in enumerate(reversed(keys)):
        one = let_go(folder, key, age)
        made.found(one, one.forgotten_at())
    return made


def here(folder: Path) -> set[str]:
    return {RunFolder(path).key for path in (folder / "runs").iterdir()}


async def test_folders_go_by_number_and_say_why(tmp_path: Path) -> None:
    folders = kept(tmp_path, Retention(folders=2), *(f"ann/web/{n}@{n}" for n in range(5)))
    await folders.tidy()
    assert here(tmp_path) == {"ann/web/3@3", "ann/web/4@4"}
    assert folders.removed.why("ann/web/0@0") == "more than 2 ended programs were kept"
    assert folders.removed.why("ann/web/4@4") == ""
    assert not (tmp_path / "removed").exists()


async def test_a_folder_says_for_how_long_it_is_wanted(tmp_path: Path) -> None:
    """To the borglets to come, too, which know nothing else of it."""
    paths = [tmp_path / "runs" / name_of(key) for key in ("ann/nightly-1/0@1", "ann/web/0@2")]
    folders = KeptFolders(tmp_path, FixedClock(), Retention(seconds=50, last_seconds=200))
    for path, keep_seconds in zip(paths, (3600.0, 0.0), strict=True):
        path.mkdir(parents=True)
        await folders.take(RunFolder(path), has_run=True, keep_seconds=keep_seconds)
        os.utime(path / "forgotten", (NOW - 300, NOW - 300))
    later = KeptFolders(tmp_path, FixedClock(), Retention(seconds=50, last_seconds=200))
    for path in paths:
        folder = RunFolder(path)
        later.found(folder, folder.forgotten_at(), folder.keep_seconds())
    await later.tidy()
    assert here(tmp_path) == {"ann/nightly-1/0@1"}


@pytest.mark.parametrize("text", [b"", b"soon", b"1e9", b"\xff", b"9" * 5000])
def test_a_mark_without_a_time_is_that_of_any_other(tmp_path: Path, text: bytes) -> None:
    """As those of borglets before are."""
    (tmp_path / "forgotten").write_bytes(text)
    assert RunFolder(tmp_path).keep_seconds() == 0
    assert RunFolder(tmp_path).forgotten_at() > 0


async def test_folders_go_by_what_they_take_on_disk(tmp_path: Path) -> None:
    keys = [f"ann/web/{n}@{n}" for n in range(5)]
    folders = kept(tmp_path, Retention(room_bytes=2 * MIB), *keys[:-1])
    (tmp_path / "runs" / name_of(keys[3]) / "log").write_bytes(b"x" * (MIB + 4096))
    await folders.take(let_go(tmp_path, keys[4], size=MIB), has_run=True)
    await folders.tidy()
    assert here(tmp_path) == {keys[4]}


async def test_thousands_are_removed_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a removal does in the loop, and holds it up for, is bounded by how many go at once."""
    folders = kept(tmp_path, Retention(folders=10), *(f"ann/web/{n}@{n}" for n in range(500)))
    at_once: list[int] = []
    empty = KeptFolders._empty

    def counted(mine: KeptFolders) -> None:
        away = tmp_path / "removed"
        at_once.append(len(list(away.iterdir())) if away.exists() else 0)
        empty(mine)

    monkeypatch.setattr(KeptFolders, "_empty", counted)
    await folders.tidy()
    assert len(here(tmp_path)) == 10
    assert sum(at_once) == 490
    assert max(at_once) == rule.AT_ONCE


async def test_work_that_a_killed_borglet_left_behind_goes(tmp_path: Path) -> None:
    folders = kept(tmp_path, Retention(), "ann/web/0@1")
    work = tmp_path / "runs" / name_of("ann/web/0@1") / "work"
    work.mkdir()
    (tmp_path / "removed" / "other").mkdir(parents=True)
    await folders.tidy()
    assert not work.exists()
    assert not (tmp_path / "removed").exists()


async def test_what_is_left_goes_however_deep_it_is(tmp_path: Path) -> None:
    folders = kept(tmp_path, Retention(), "ann/web/0@1")
    work = tmp_path / "runs" / name_of("ann/web/0@1") / "work"
    with deep_folder(work), deep_folder(tmp_path / "removed" / "other" / "work"):
        await folders.tidy()
        assert not work.exists()
        assert not (tmp_path / "removed").exists()


async def test_an_attempt_that_begins_anew_is_not_removed(tmp_path: Path) -> None:
    folders = kept(tmp_path, Retention(folders=0), "ann/web/0@1", "ann/web/1@1")
    tidying = asyncio.create_task(folders.tidy())
    await asyncio.sleep(0)
    folders.give_back("ann/web/1@1")
    await tidying
    assert here(tmp_path) == {"ann/web/1@1"}


async def test_what_cannot_be_removed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = kept(tmp_path, Retention(folders=0), "ann/web/0@1")
    (tmp_path / "removed").write_text("in the way")
    with monkeypatch.context() as patched:
        patched.setattr(rule, "remove_tree", lambda _path: None)
        with pytest.raises(OSError, match="exists"):
            await folders.tidy()
    await folders.tidy()
    assert here(tmp_path) == set()


async def test_only_what_never_ran_may_be_let_go_of_unseen(tmp_path: Path) -> None:
    folders = KeptFolders(tmp_path, FixedClock(), Retention(folders=0))
    failed, running = (RunFolder(tmp_path / "runs" / name_of(f"ann/web/{n}@1")) for n in (0, 1))
    for folder in (failed, running):
        folder.path.mkdir(parents=True)
    (running.path / "run.json").write_text(
        '{"run": 1, "boot": "b", "pid": 1, "ticks": 2, "shim": 3, "shim_ticks": 4, "at": 5.0, "groups": [], '
        '"oom": ""}'
    )
    for folder in (failed, running, RunFolder(tmp_path / "runs" / "nothing")):
        await folders.take(folder, has_run=False)
    await folders.tidy()
    assert here(tmp_path) == {"ann/web/1@1"}
