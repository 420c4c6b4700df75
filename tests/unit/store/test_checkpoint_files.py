"""Checkpoints as files: complete or not there, the newest ones, for their owner only."""

import errno
import os
from pathlib import Path

import pytest

from borgish.errors import StoreDamaged
from borgish.store import checkpoint_files
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoint_files import FILES_KEPT, CheckpointFiles
from borgish.store.codec import compress, sha256_of
from borgish.store.memory import MemoryStore
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint, unpack_checkpoint
from tests.contract.store.samples import CELL, Life


class Kept:
    """A cell that is kept in files as it goes on."""

    def __init__(self, folder: Path) -> None:
        self.files = CheckpointFiles(folder / "cell.db", CELL)
        self.life = Life(MemoryStore(CELL))

    def keep(self) -> int:
        self.life.do()
        stored = compress(self.life.body())
        position = self.life.cell.position
        self.files.write(CheckpointInfo(position, 7.5, "test", sha256_of(stored), len(stored)), stored)
        return position

    def good(self) -> list[int]:
        return [start.position for start in self.files.good()]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.files.folder.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_there_are_none_at_first(kept: Kept) -> None:
    assert (kept.files.positions(), kept.good()) == ([], [])


def test_the_newest_are_kept_for_their_owner_only(kept: Kept) -> None:
    positions = [kept.keep() for _ in range(FILES_KEPT + 2)]
    newest_first = positions[::-1][:FILES_KEPT]
    assert kept.good() == kept.files.positions() == newest_first
    assert kept.names() == sorted(f"{position}.checkpoint" for position in newest_first)
    assert kept.files.folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept.files.folder.iterdir())
    start = next(kept.files.good())
    assert start.path == str(kept.files.path(positions[-1]))
    assert (start.info and start.info.at, start.info and start.info.reason) == (7.5, "test")


def test_those_up_to_a_position_are_not_read(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = [kept.keep() for _ in range(FILES_KEPT)]
    read: list[bytes] = []

    def unpacked(file: bytes) -> tuple[CheckpointHeader, bytes]:
        read.append(file)
        return unpack_checkpoint(file)

    monkeypatch.setattr(checkpoint_files, "unpack_checkpoint", unpacked)
    assert [start.position for start in kept.files.good(after=positions[-2])] == positions[-1:]
    assert len(read) == 1
    assert list(kept.files.good(after=positions[-1])) == []
    assert len(read) == 1


@pytest.mark.parametrize("cut", [0, 1, 30, 200])
def test_one_that_is_torn_off_altered_or_another_cells_is_passed_over(kept: Kept, cut: int) -> None:
    older, torn, altered = (kept.keep() for _ in range(3))
    path = kept.files.path(torn)
    path.write_bytes(path.read_bytes()[:cut])
    path = kept.files.path(altered)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert kept.good() == [older]
    (kept.files.folder / "x.checkpoint").write_bytes(b"")
    assert kept.good() == [older]
    assert list(CheckpointFiles(kept.files.folder.with_suffix(".db"), "other").good()) == []


def test_what_a_killed_one_left_by_half_goes(kept: Kept) -> None:
    kept.keep()
    (kept.files.folder / "9.draft").write_bytes(b"half")
    kept.keep()
    assert all(name.endswith(".checkpoint") for name in kept.names())


def test_a_disk_without_room_leaves_those_of_before(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = [kept.keep() for _ in range(FILES_KEPT)]

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept.keep()
    assert kept.good() == positions[::-1]
    assert len(kept.names()) == FILES_KEPT


def test_one_that_does_not_read_back_as_it_was_is_none(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = [kept.keep() for _ in range(FILES_KEPT)]
    torn = "borgish.store.checkpoint_files.pack_checkpoint"
    monkeypatch.setattr(torn, lambda *given: pack_checkpoint(*given)[:-1])
    with pytest.raises(StoreDamaged):
        kept.keep()
    assert kept.good() == positions[::-1]
