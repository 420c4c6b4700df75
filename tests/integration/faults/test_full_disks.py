"""A real borgmaster under load whose disk fills up: it refuses, goes on serving, and recovers by itself."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.nursery import Nursery
from tests.faults.planted import PLENTY_BYTES
from tests.faults.siege import Siege

MIB = 2**20
FULL, LOW = str(50 * MIB), str(300 * MIB)


class Filling(Siege):
    """A siege on a disk whose free bytes are said."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self.free_file = folder / "free"
        self.has(str(PLENTY_BYTES))
        super().__init__(nursery, folder)

    def has(self, free: str) -> None:
        draft = self.free_file.with_suffix(".draft")
        draft.write_text(free)
        draft.replace(self.free_file)

    def fills(self) -> None:
        self.start(
            before="tests.faults.planted:fill_disk", environment={"DISK_FREE_FILE": str(self.free_file)}
        )

    def status(self) -> dict[str, Any]:
        code, body = self.get("/v1/status")
        assert code == 200, body
        found: dict[str, Any] = json.loads(body)
        return found


@pytest.mark.parametrize(("free", "words"), [(LOW, "new work is refused"), (FULL, "all changes are refused")])
def test_a_disk_that_fills_up_and_is_cleared(nursery: Nursery, tmp_path: Path, free: str, words: str) -> None:
    with Filling(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.fills()
        assert siege.serves(), siege.said()
        siege.more(6)
        siege.has(free)
        siege.full(6)
        status = siege.status()
        assert status["refusing"][0].startswith(words)
        assert status["store_free_bytes"] == int(free)
        assert siege.get("/metrics")[1].count(b"borgish_refusing 1.0") == 1
        assert words in siege.said()
        if free == FULL:
            siege.full(20)
            assert siege.status()["position"] == status["position"], "something was written"
        siege.has(str(PLENTY_BYTES))
        siege.more(6)
        assert siege.status()["refusing"] == []
        assert "has room again" in siege.said()
        siege.say_the_same_again()
        siege.kill()
        assert siege.problems() == []
        siege.start()
        assert siege.serves(), siege.said()
        assert siege.end_in_peace() == []


def test_a_disk_that_is_full_at_a_commit_ends_in_a_master_that_serves(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Full so suddenly that nobody looked: it ends with 70. Each start after that serves what is stored."""
    with Filling(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.fills()
        assert siege.serves(), siege.said()
        siege.more(6)
        assert (tmp_path / "cell.reserve").exists()
        siege.has("unnoticed")
        assert siege.ended() == 70
        assert "Make room on the database's disk" in siege.said()
        siege.has("0")
        assert siege.problems() == []
        for _ in range(3):
            siege.fills()
            assert siege.serves(), siege.said()
            siege.full(3)
            assert siege.status()["refusing"][0].startswith("all changes are refused")
            siege.signal(signal.SIGTERM)
            assert siege.ended() == 0, siege.said()
        assert not (tmp_path / "cell.reserve").exists()
        siege.fills()
        assert siege.serves(), siege.said()
        siege.has(str(PLENTY_BYTES))
        siege.more(6)
        assert (tmp_path / "cell.reserve").exists()
        assert siege.end_in_peace() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for a cell and little more."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def filled(folder: Path) -> Path:
    """Fill a file system to its last block; return the file to remove for it to be empty again."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


@pytest.mark.mounts
def test_a_file_system_that_is_full_to_its_last_block(nursery: Nursery, small_disk: Path) -> None:
    """Nothing of ours stands between: a lock that cannot name its holder, the roster, SQLite, its log."""
    with Siege(nursery, small_disk) as siege:
        siege.found_cell()
        siege.begin()
        siege.start()
        assert siege.serves(), siege.said()
        siege.more(6)
        siege.kill()
        ballast = filled(small_disk)
        for _ in range(3):
            siege.start()
            assert siege.serves(), siege.said()
            siege.full(3)
            assert json.loads(siege.get("/v1/status")[1])["refusing"]
            siege.kill()
        siege.start()
        assert siege.serves(), siege.said()
        ballast.unlink()
        siege.more(6)
        assert (small_disk / "cell.reserve").exists()
        assert siege.end_in_peace() == []
