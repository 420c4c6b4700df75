"""The folder of a local cell: what is made, for whose eyes, and what is never touched."""

import errno
import os
import shutil
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from borgish.cli import borgctl, local_cell
from borgish.cli.daemons import last_words, rotate, running_pid, start, stop
from borgish.cli.errors import report
from borgish.cli.local_cell import PLACE, alone
from borgish.cli.session import Session, nearest_folder
from borgish.errors import Conflict, Invalid, UnsafeConfiguration
from borgish.trees import remove_tree
from tests.deep import deep_folder


def ranges(folder: Path) -> list[tuple[int, int]]:
    found = []
    for daemon in local_cell.borglets_of(folder):
        low, _, high = tomllib.loads(daemon.config.read_text())["ports"].partition("-")
        found.append((int(low), int(high)))
    return sorted(found)


def test_a_new_cell_is_for_its_user_only(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    assert local_cell.make(folder, 3) == ["m1", "m2", "m3"]
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    for name in (
        "cell.toml",
        "client.json",
        "secret",
        "tokens.toml",
        "tokens/admin.token",
        "machines/m3/join.token",
    ):
        assert (folder / name).is_file(), name


def test_machines_share_the_host_and_no_port(tmp_path: Path) -> None:
    local_cell.make(tmp_path / "cell", 3)
    configs = [
        tomllib.loads(daemon.config.read_text()) for daemon in local_cell.borglets_of(tmp_path / "cell")
    ]
    cores = len(os.sched_getaffinity(0))
    assert sum(int(config["capacity"]["cpu"].removesuffix("m")) for config in configs) <= cores * 1000
    taken = ranges(tmp_path / "cell")
    assert all(before[1] < after[0] for before, after in pairwise(taken))
    assert all(1024 <= low < high < 32768 for low, high in taken)


def test_as_many_machines_as_there_may_be_have_ports_of_their_own(tmp_path: Path) -> None:
    lows = {local_cell.ports_low(tmp_path, number) for number in range(1, local_cell.MACHINES_MAX + 1)}
    assert len(lows) == local_cell.MACHINES_MAX
    with pytest.raises(Invalid):
        local_cell.make(tmp_path / "cell", local_cell.MACHINES_MAX + 1)


def test_making_again_adds_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    (folder / "machines" / "m1" / "borglet.toml").write_text("# mine\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert local_cell.make(folder, 1) == []
    assert local_cell.make(folder, 2) == ["m2"]
    # A machine that has not joined yet is invited anew: the older invitation may be over.
    anew = {folder / "machines" / "m1" / "join.token", folder / "tokens.toml"}
    assert {path: path.read_bytes() for path in before.keys() - anew} == {
        path: text for path, text in before.items() if path not in anew
    }


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(Conflict, match="neither a cell nor empty"):
        local_cell.make(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["cell.db", "client.json"])
def test_the_state_of_another_borgmaster_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(Conflict, match="did not start"):
        local_cell.make(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_purge_removes_only_what_is_a_cells(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    (folder / "thesis.txt").write_text("x")
    assert local_cell.purge(folder) == ["thesis.txt"]
    assert (folder / "thesis.txt").exists()
    (folder / "thesis.txt").unlink()
    assert local_cell.purge(folder) == []
    assert not folder.exists()


def test_a_purge_removes_drafts_that_a_death_left_too(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    for name in (".tokens.toml.4711", ".client.json.1", ".cell.toml.12"):
        (folder / name).touch()
    others = [".thesis.txt.4711", ".tokens.toml.swp"]
    for name in others:
        (folder / name).touch()
    assert local_cell.purge(folder) == others


def test_a_full_disk_is_said_with_the_file_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, real, left = tmp_path / "cell", os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files = [folder / name for name in ("cell.toml", "secret", "tokens/admin.token", "client.json", PLACE)]
    for number, file in enumerate([*files, folder / "machines/m1/borglet.toml", folder / "tokens.toml"]):
        left = 2 * (number > 0)  # each is written after its elder, which is made durable with its folder
        with pytest.raises((OSError, UnsafeConfiguration)) as caught:
            local_cell.make(folder, 1)
        assert report(caught.value) == 1
        said = capsys.readouterr().err
        assert f"error: {file}: no space left on device" in said.lower()
        assert f"of {file.parent}" in said or f"of {folder}" in said
        assert "ake room on the disk" in said
        assert [path for path in folder.rglob(".*") if path.is_file()] == []
    left = 1000
    assert local_cell.make(folder, 1) == []
    assert (folder / "machines/m1/join.token").exists()


def purged(folder: Path) -> int:
    return borgctl.run(["--dir", str(folder), "down", "--purge", "--yes"])


def test_a_purge_removes_what_is_deeper_than_any_path(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    with deep_folder(folder / "machines" / "m1" / "work"):
        assert purged(folder) == 0
        assert not folder.exists()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What is called so cannot be removed, until this is undone."""
    unlink = os.unlink

    def refused(path: str, **more: int) -> None:
        if path == "stuck":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refused)
        yield patched


def test_what_cannot_be_purged_is_said_and_the_next_purge_goes_on(
    tmp_path: Path, stuck: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    path = folder / "machines" / "m1" / "stuck"
    path.touch()
    for _ in range(2):
        assert purged(folder) == 1
        said = capfd.readouterr().err
        assert f"error: {path} cannot be removed: operation not permitted" in said
        assert "hint: " in said
        assert "`borgctl down --purge`" in said
        assert {found.name for found in folder.iterdir()} == {"cell.toml", "machines", "up.lock"}
        assert [found.name for found in (folder / "machines").rglob("*")] == ["m1", "stuck"]
    stuck.undo()
    assert purged(folder) == 0
    assert not folder.exists()


def test_secrets_go_before_all_else_and_what_makes_it_a_cell_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    (folder / "cell.db").touch()
    (folder / "up.lock").touch()
    gone: list[str] = []

    def removed(path: Path) -> OSError | None:
        gone.append(path.name)
        return remove_tree(path)

    monkeypatch.setattr(local_cell, "remove_tree", removed)
    assert local_cell.purge(folder) == []
    assert set(gone[:4]) == {"client.json", "secret", "tokens", "tokens.toml"}
    assert gone[-2:] == ["cell.toml", "up.lock"]


def test_a_purge_goes_on_where_one_was_cut_short(tmp_path: Path) -> None:
    """As one was that removed what makes it a cell, and then failed at its machines."""
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    for name in ("cell.toml", "cell.place", "client.json"):
        (folder / name).unlink()
    with alone(folder, make=False):
        pass
    assert purged(folder) == 0
    assert not folder.exists()


@pytest.mark.parametrize("name", ["cell.db", "client.json", "thesis.txt"])
def test_no_purge_removes_what_is_no_cell(tmp_path: Path, name: str) -> None:
    with alone(tmp_path, make=False):
        (tmp_path / "secret").touch()
        (tmp_path / name).touch()
    assert purged(tmp_path) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "up.lock", name}


def test_an_interrupted_up_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    (folder / "client.json").unlink()
    (folder / "tokens.toml").unlink()
    local_cell.make(folder, 1)
    assert (folder / "client.json").is_file()


def test_a_pid_of_another_program_is_not_the_daemon(tmp_path: Path) -> None:
    master, own = local_cell.master_of(tmp_path), os.getpid()
    assert running_pid(master) == 0
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    for pid in ("", "x", f"{own}", "999999999"):
        for words in ("", "x", f"{own}", f"{own} 1", f"1 {started}", "999999999 1"):
            master.pid_file.write_text(pid)
            master.started_file.write_text(words)
            assert running_pid(master) == 0, words
    master.pid_file.write_text(f"{own}\n")
    master.started_file.write_text(f"{own} {started}\n")
    assert running_pid(master) == own


def test_a_pid_file_holds_the_pid_alone(tmp_path: Path) -> None:
    """What people and `pkill -F` do with it must reach nothing else."""
    one = msgspec.structs.replace(local_cell.master_of(tmp_path), module="sleeper")
    (tmp_path / "sleeper.py").write_text("import time\n\ntime.sleep(600)\n")
    process = start(one)
    try:
        assert one.pid_file.read_text() == f"{process.pid}\n"
        assert running_pid(one) == process.pid
        assert {path.stat().st_mode & 0o777 for path in (one.pid_file, one.started_file)} == {0o600}
        assert stop([one], 20) == ["borgmaster"]
        assert not one.pid_file.exists()
        assert not one.started_file.exists()
    finally:
        process.kill()
        process.wait()


def test_logs_are_rotated_and_their_end_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master = local_cell.master_of(tmp_path)
    master.log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert last_words(master).splitlines()[-1] == "line 99"
    rotate(master.log)
    assert master.log.exists()
    monkeypatch.setattr("borgish.cli.daemons.LOG_BYTES_MAX", 10)
    rotate(master.log)
    assert not master.log.exists()
    assert (tmp_path / "borgmaster.log.1").exists()


def test_one_at_a_time(tmp_path: Path) -> None:
    with alone(tmp_path, make=True), pytest.raises(Conflict, match="another"), alone(tmp_path, make=True):
        pass
    with alone(tmp_path, make=True):
        pass


def test_which_folder_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    monkeypatch.delenv("BORGISH_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Session().cell_folder == tmp_path / "home" / ".borgish"
    local_cell.make(tmp_path / ".borgish", 1)
    assert nearest_folder(deep) == tmp_path / ".borgish"
    assert Session().cell_folder == tmp_path / ".borgish"
    monkeypatch.setenv("BORGISH_DIR", str(tmp_path / "named"))
    assert Session().cell_folder == tmp_path / "named"
    assert Session(Path("given")).cell_folder == deep / "given"


def test_a_copy_of_a_cell_s_folder_is_neither_started_nor_stopped(tmp_path: Path) -> None:
    """Its pid files and ledgers name the original's processes."""
    original, copy, moved = tmp_path / "original", tmp_path / "copy", tmp_path / "moved"
    local_cell.make(original, 1)
    shutil.copytree(original, copy)
    with pytest.raises(Conflict, match=f"is a copy of the cell in {original}") as caught:
        local_cell.refuse_copy(copy)
    assert str(copy / local_cell.PLACE) in caught.value.hint
    for command in ("up", "down"):
        assert borgctl.run(["--dir", str(copy), command]) == 1
    assert (copy / "cell.toml").exists()
    original.rename(moved)
    local_cell.refuse_copy(moved)
    (copy / local_cell.PLACE).unlink()
    local_cell.refuse_copy(copy)
