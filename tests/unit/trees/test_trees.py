"""A tree of any depth is removed, with few descriptors; what is not of it stays, and what stays is said."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from borgish.trees import DEPTH_MAX, remove_tree
from tests.deep import deep_folder

NOBODY = 65534


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """Let this process open so many more, and no others."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_tree_deeper_than_any_path_goes(tmp_path: Path) -> None:
    with deep_folder(tmp_path / "top", levels=10_000):
        with few_descriptors(2 * DEPTH_MAX):
            assert remove_tree(tmp_path / "top") is None
        assert os.listdir(tmp_path) == []


def test_all_branches_of_a_tree_go(tmp_path: Path) -> None:
    bottom = tmp_path / "top"
    for level in range(3 * DEPTH_MAX):
        for name in ("a", "b"):
            (bottom / name / "inside").mkdir(parents=True)
            (bottom / name / "file").touch()
        (bottom / f"{level}").touch()
        bottom /= "b"
    assert remove_tree(tmp_path / "top") is None
    assert os.listdir(tmp_path) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "folder").symlink_to(theirs)
    (top / "file").symlink_to(theirs / "file")
    (top / "nothing").symlink_to(tmp_path / "nothing")
    assert remove_tree(top) is None
    (tmp_path / "top").symlink_to(theirs)
    assert remove_tree(top) is None
    assert os.listdir(tmp_path) == ["theirs"]
    assert os.listdir(theirs) == ["file"]


def test_a_file_goes_and_nothing_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert remove_tree(tmp_path / "file") is None
    assert remove_tree(tmp_path / "file") is None
    assert remove_tree(tmp_path / "no" / "such" / "folder") is None
    assert os.listdir(tmp_path) == []


def test_folders_that_let_nobody_in_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # nobody else comes in from above
    deep = Path("top", *["d"] * (DEPTH_MAX + 2))
    for path in (Path("top", "open"), Path("top", "shut", "inside"), deep):
        path.mkdir(parents=True)
        (path / "file").touch()
    for path in (deep, *deep.parents[:-2], Path("top", "shut", "inside"), Path("top", "shut")):
        path.chmod(0o000 if path.name == "shut" else 0o500)
    is_root = os.geteuid() == 0
    if is_root:
        subprocess.run(["chown", "-R", str(NOBODY), "."], check=True)
        os.seteuid(NOBODY)
    try:
        assert remove_tree(Path("top")) is None
    finally:
        if is_root:
            os.seteuid(0)
    assert os.listdir() == []


def test_what_cannot_be_removed_is_said_and_all_else_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "top" / name).mkdir(parents=True)
        (tmp_path / "top" / name / name).touch()
    unlink = os.unlink

    def refused(path: str, **more: int) -> None:
        if path == "b" and not os.path.isdir(f"/proc/self/fd/{more['dir_fd']}/b"):
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refused)
        why = remove_tree(tmp_path / "top")
    assert isinstance(why, PermissionError)
    assert (why.filename, why.strerror) == (str(tmp_path / "top" / "b" / "b"), "Operation not permitted")
    assert os.listdir(tmp_path / "top") == ["b"]
    assert remove_tree(tmp_path / "top") is None
    assert os.listdir(tmp_path) == []


def test_what_is_written_meanwhile_stays_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "top" / "a" / "file").touch()
    (tmp_path / "top" / "b").touch()
    listdir = os.listdir

    def with_a_writer(fd: int) -> list[str]:
        found = listdir(fd)
        if found == ["file"]:
            (tmp_path / "top" / "a" / "file").unlink()
            (tmp_path / "top" / "a" / "late").touch()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", with_a_writer)
        why = remove_tree(tmp_path / "top")
    assert why is not None
    assert (why.filename, why.strerror) == (str(tmp_path / "top" / "a"), "Directory not empty")
    assert [path.name for path in (tmp_path / "top").rglob("*")] == ["a", "late"]
    assert remove_tree(tmp_path / "top") is None


@pytest.mark.mounts
def test_what_is_mounted_inside_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "top" / "a" / "mounted"
    place.mkdir(parents=True)
    theirs = tmp_path / "theirs"
    (theirs / "inside").mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(theirs), str(place)], check=True)
    try:
        why = remove_tree(tmp_path / "top")
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert why is not None
    assert (why.filename, why.strerror) == (str(place), "Device or resource busy")
    assert os.listdir(theirs) == ["inside"]
    assert remove_tree(tmp_path / "top") is None
