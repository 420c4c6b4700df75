"""The disk of a database: how much is free, and the reserve that a start on a full one lives on."""

import errno
import os
from pathlib import Path

import pytest

from borgish.cell.free_space import Floor, Level
from borgish.clock import Now
from borgish.store import disk_space
from borgish.store.disk_space import RESERVE_BYTES_MAX, RETRY_SECONDS, TRIAL_BYTES, DiskSpace
from borgish.store.open import open_store
from tests.contract.store.samples import CELL, Life

GIB = 1024**3
TOTAL = 100 * GIB
FLOOR = 512 * 1024**2


class Standing:
    """A clock that is set."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> Now:
        return Now(self.seconds, self.seconds)


class Host:
    """A host that says what it is told to say of its disk."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.free = 50 * GIB
        self.refuses = 0  # the error of each attempt to have blocks
        self.path = folder / "cell.db"
        self.reserve = folder / "cell.reserve"
        self.clock = Standing()
        allocate = os.posix_fallocate

        def fallocate(file: int, offset: int, size: int) -> None:
            if self.refuses:
                allocate(file, offset, size // 2)  # some of it may be had before there is none left
                raise OSError(self.refuses, os.strerror(self.refuses))
            allocate(file, offset, size)

        patch.setattr(disk_space, "space_of", lambda _folder: (self.free, TOTAL))
        patch.setattr(os, "posix_fallocate", fallocate)

    def opened(self) -> DiskSpace:
        disk = DiskSpace(self.path, Floor(), self.clock)
        disk.open()
        return disk


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    return Host(monkeypatch, tmp_path)


def test_a_reserve_of_real_blocks_is_made_while_there_is_room(host: Host) -> None:
    disk = host.opened()
    assert not host.reserve.exists()
    assert disk.free_space().level is Level.AMPLE
    found = host.reserve.stat()
    assert (found.st_size, found.st_blocks * 512) == (RESERVE_BYTES_MAX, RESERVE_BYTES_MAX)
    assert found.st_mode & 0o077 == 0
    assert not list(host.path.parent.glob("*tried"))


def test_it_is_let_go_of_by_a_start_on_a_full_disk_and_made_anew_later(host: Host) -> None:
    host.opened().free_space()
    host.free = 0
    disk = host.opened()
    assert not host.reserve.exists()
    assert disk.free_space().level is Level.FULL
    host.free = FLOOR // 2
    assert disk.free_space().level is Level.LOW
    assert not host.reserve.exists()
    host.free = 2 * FLOOR
    assert disk.free_space().level is Level.AMPLE
    assert host.reserve.stat().st_size == RESERVE_BYTES_MAX


def test_a_disk_that_fills_under_a_running_master_leaves_the_reserve_to_the_next_start(host: Host) -> None:
    disk = host.opened()
    disk.free_space()
    host.free = 0
    assert disk.free_space().level is Level.FULL
    assert host.reserve.exists()


def test_the_reserve_that_was_let_go_of_counts_for_nothing(host: Host) -> None:
    """Else who let go of it would believe to have room, and write there."""
    host.opened().free_space()
    host.free = FLOOR // 4 - RESERVE_BYTES_MAX // 2
    disk = host.opened()
    assert not host.reserve.exists()
    host.free += RESERVE_BYTES_MAX
    assert disk.free_space().level is Level.FULL


@pytest.mark.parametrize("refused", [errno.EDQUOT, errno.ENOSPC])
def test_a_quota_under_which_nothing_can_be_had_is_a_full_disk(host: Host, refused: int) -> None:
    host.opened().free_space()
    host.refuses = refused
    disk = host.opened()
    assert not host.reserve.exists()
    assert disk.free_space().level is Level.FULL
    assert not host.reserve.exists()
    host.refuses = 0
    assert disk.free_space().level is Level.FULL  # not tried at each turn
    host.clock.seconds += RETRY_SECONDS
    assert disk.free_space().level is Level.AMPLE
    assert host.reserve.exists()


def test_a_quota_that_is_reached_later_is_found_with_the_reserve(host: Host) -> None:
    disk = host.opened()
    host.refuses = errno.EDQUOT
    assert disk.free_space().level is Level.FULL


def test_a_host_on_which_no_reserve_can_be_made_goes_on_without(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.refuses = errno.EFBIG
    disk = host.opened()
    assert [disk.free_space().level for _ in range(3)] == [Level.AMPLE] * 3
    assert not host.reserve.exists()
    assert caplog.text.count("cell.reserve cannot be made: File too large") == 1


def test_a_reason_is_logged_when_it_changes_however_often_it_is_tried(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    disk = host.opened()
    for refused in (errno.EOPNOTSUPP, errno.EOPNOTSUPP, errno.EFBIG, errno.EFBIG, errno.EOPNOTSUPP):
        host.refuses = refused
        disk.free_space()
        host.clock.seconds += RETRY_SECONDS
    assert [record.getMessage() for record in caplog.records] == [
        f"{host.reserve} cannot be made: {os.strerror(number)}"
        for number in (errno.EOPNOTSUPP, errno.EFBIG, errno.EOPNOTSUPP)
    ]


def test_that_the_free_space_is_unknown_is_logged_once_until_it_is_known_again(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_folder: Path) -> tuple[int, int]:
        raise OSError(errno.EIO, "Input/output error")

    disk = host.opened()
    for look in (failing, failing, lambda _folder: (50 * GIB, TOTAL), failing):
        monkeypatch.setattr(disk_space, "space_of", look)
        disk.free_space()
    assert caplog.text.count("free space is unknown: Input/output error") == 2


def test_without_a_floor_there_is_no_reserve(host: Host) -> None:
    host.free = 0
    disk = DiskSpace(host.path, Floor(free_mib=0), host.clock)
    disk.open()
    assert disk.free_space().level is Level.AMPLE
    assert not host.reserve.exists()


def test_another_floor_counts_from_the_next_look_on(host: Host) -> None:
    disk = host.opened()
    host.free = FLOOR // 8
    assert disk.free_space().level is Level.FULL
    disk.set_floor(Floor(free_mib=60))  # between that and a tenth more
    assert disk.free_space().level is Level.AMPLE
    disk.set_floor(Floor())
    assert disk.free_space().level is Level.FULL
    disk.set_floor(Floor(free_mib=0))
    assert disk.free_space().level is Level.AMPLE


def test_a_store_says_what_its_disk_says(host: Host) -> None:
    store = open_store(f"sqlite:///{host.path}", CELL)
    assert (store.free_space().level, store.free_space().free_bytes) == (Level.AMPLE, host.free)
    host.free = 0
    assert store.free_space().level is Level.FULL
    store.close()


def test_a_store_on_a_full_disk_is_opened_read_and_led(host: Host) -> None:
    """What is let go of is enough for that: here the blocks are counted, and not merely said to be there."""
    life = Life(open_store(f"sqlite:///{host.path}", CELL))
    life.store.free_space()
    life.story()
    life.store.close()
    host.free = 0
    store = open_store(f"sqlite:///{host.path}", CELL)
    before = sum(file.stat().st_blocks * 512 for file in host.path.parent.iterdir())
    again = Life(store)
    again.do()
    after = sum(file.stat().st_blocks * 512 for file in host.path.parent.iterdir())
    assert after - before < TRIAL_BYTES < RESERVE_BYTES_MAX
    store.close()
