"""Names on disk are reversible; a torn or foreign record is no record."""

import errno
import fcntl
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.borglet.runtimes.folders import Record, RunFolder, key_of, name_of, spread
from borgish.wire.link import Exit
from tests.deep import deep_folder

RECORD = Record(run=2, boot="b", pid=1, ticks=2, shim=3, shim_ticks=4, at=5.0, groups=[], oom="")


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80))
def test_any_key_has_its_own_safe_name(key: str) -> None:
    name = name_of(key)
    assert key_of(name) == key
    assert "/" not in name
    assert not name.startswith(".")


def test_the_usual_name_can_be_read() -> None:
    assert name_of("ann/web/3@1207") == "ann+web+3@1207"


def test_an_end_of_another_run_is_not_taken(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "exit.json").write_text('{"run": 1, "code": 0, "at": 1.0}  ')
    assert folder.end_of(RECORD) is None
    (tmp_path / "exit.json").write_text('{"run": 2, "signal": 9, "at": 1.0}  ')
    assert folder.end_of(RECORD) == Exit(signal=9, at=1.0)


def test_a_torn_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(RECORD)[:-5])
    assert RunFolder(tmp_path).record() is None


def test_a_run_being_started_comes_before_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(RECORD))
    (tmp_path / "starting.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(RECORD, run=3)))
    record = RunFolder(tmp_path).record()
    assert record is not None
    assert record.run == 3


def test_the_work_of_an_attempt_goes_however_deep_it_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with deep_folder(folder.path / "work"):
        folder.forget(keep_seconds=60.0)
        assert [path.name for path in folder.path.iterdir()] == ["forgotten"]
        assert folder.keep_seconds() == 60


def test_folders_of_runs_are_spread_beside_the_flags_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bytes] = []

    def ioctl(_fd: int, request: int, flags: bytes) -> bytes:
        if request == 0x80086601:
            return b"\0\0\x08\0"
        given.append(flags)
        return flags

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    spread(tmp_path)
    assert given == [b"\0\0\x0a\0"]


def test_a_file_system_without_such_a_flag_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ioctl(_fd: int, _request: int, _flags: bytes) -> bytes:
        raise OSError(errno.ENOTTY, "no such thing")

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    spread(tmp_path)
