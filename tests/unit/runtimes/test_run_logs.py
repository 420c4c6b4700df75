"""Reading while files are renamed under the reader, and writing when nothing can be written."""

import os
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.borglet.runtimes.folders import LogReader
from borgish.borglet.runtimes.process.shim import output
from borgish.borglet.runtimes.process.shim.output import MARK_SECONDS, Log, begin_files
from tests.profiles import examples


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _names(folder: Path, before: str = "") -> list[Path]:
    return [folder / (before + name) for name in ("log.2", "log.1", "log")]


def _reader(folder: Path) -> LogReader:
    return LogReader(_names(folder), _names(folder, "previous."))


def _write(log: Log, data: bytes) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    while data:
        data = data[os.write(write, data[:4096]) :]
        while log.pump(read):
            pass
    os.close(write)
    os.close(read)


@pytest.mark.parametrize("tail", [1, 2, 5, 11, 12, 13, 99])
def test_tail_goes_over_files(tmp_path: Path, tail: int) -> None:
    lines = [b"line %d\n" % i for i in range(12)]
    for path, part in zip(_names(tmp_path), (lines[:4], lines[4:8], lines[8:]), strict=True):
        path.write_bytes(b"".join(part))
    reader = _reader(tmp_path)
    reader.seek(tail)
    assert b"".join(reader.chunks()) == b"".join(lines[-tail:])
    reader.close()


@given(content=st.lists(st.sampled_from([b"a", b"\n", b"bc"]), max_size=40), tail=st.integers(1, 12))
@settings(max_examples=examples(60))
def test_tail_is_that_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], tail: int
) -> None:
    folder = tmp_path_factory.mktemp("tail")
    whole = b"".join(content)
    (folder / "log").write_bytes(whole)
    reader = _reader(folder)
    reader.seek(tail)
    assert b"".join(reader.chunks()) == b"".join(whole.splitlines(keepends=True)[-tail:])
    reader.close()


def test_a_reader_follows_every_rotation(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_BYTES_MAX", 1000)
    log, reader, seen, written = Log(), _reader(here), b"", b""
    reader.seek(0)
    for step in range(60):
        part = (b"%04d" % step) * (step * 7 % 150)
        _write(log, part)
        written += part
        seen += b"".join(reader.chunks())
    assert seen == written
    assert all(path.stat().st_size <= 1000 for path in _names(here) if path.exists())
    reader.close()


def test_a_reader_left_behind_goes_on_with_the_oldest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_BYTES_MAX", 100)
    log, reader = Log(), _reader(here)
    _write(log, b"a" * 50)
    reader.seek(0)
    assert b"".join(reader.chunks()) == b"a" * 50
    _write(log, b"b" * 50 + b"c" * 100 + b"d" * 100 + b"e" * 20)
    assert b"".join(reader.chunks()) == b"b" * 50 + b"c" * 100 + b"d" * 100 + b"e" * 20
    reader.close()


def test_a_reader_stays_with_its_run(here: Path) -> None:
    log, reader = Log(), _reader(here)
    _write(log, b"first ")
    reader.seek(0)
    assert b"".join(reader.chunks()) == b"first "
    _write(log, b"run")
    begin_files()
    _write(Log(), b"second run")
    assert b"".join(reader.chunks()) == b"run"
    reader.close()


def test_output_that_cannot_be_written_is_counted(here: Path) -> None:
    log = Log()
    (here / "log").symlink_to("/dev/full")
    _write(log, b"x" * 5000)
    (here / "log").unlink()
    _write(log, b"kept")
    log.close()
    assert (here / "note").read_text().split(":")[0] == "5000 bytes of output dropped"
    assert (here / "log").read_bytes() == b"kept"


class Clock:
    """The shim's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1_000_000.0
        monkeypatch.setattr(output, "wall_seconds", lambda: self.at)


def _lines(folder: Path, *, tail: int = 0, since: float = 0.0, previous: str = "") -> list[tuple[float, str]]:
    """Return the lines of a log and when they were written."""
    reader = LogReader(_names(folder, previous), [])
    reader.seek(tail, since)
    shown = b"".join(reader.stamped()).decode().splitlines()
    reader.close()
    found = [line.split(" ", 1) for line in shown]
    return [(datetime.fromisoformat(at).timestamp() - 1_000_000.0, text) for at, text in found]


def test_lines_have_the_time_at_which_they_were_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    log = Log()
    for at, text in ((0.0, b"one\ntw"), (0.5, b"o\n"), (5.25, b"three\n"), (5.75, b"four\n"), (9.0, b"five")):
        clock.at = 1_000_000.0 + at
        _write(log, text)
    assert _lines(here) == [(0.0, "one"), (0.0, "two"), (5.25, "three"), (5.25, "four"), (9.0, "five")]
    assert _lines(here, tail=2) == [(5.25, "four"), (9.0, "five")]
    assert _lines(here, since=1_000_005.0) == [(5.25, "three"), (5.25, "four"), (9.0, "five")]
    assert _lines(here, since=1_000_007.0) == [(9.0, "five")]
    assert _lines(here, since=1_000_020.0) == []
    assert _lines(here, tail=1, since=1_000_005.0) == [(9.0, "five")]


def test_what_is_written_within_a_second_costs_no_file_more(here: Path) -> None:
    _write(Log(), b"quick\n")
    assert sorted(os.listdir(here)) == ["log", "note"]
    os.utime(here / "log", (1_000_003.0, 1_000_003.0))
    assert _lines(here) == [(3.0, "quick")]


def test_times_go_along_with_rotation_and_with_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_BYTES_MAX", 40)
    clock, log, written = Clock(monkeypatch), Log(), []
    for number in range(12):
        clock.at = 1_000_000.0 + 3 * number
        _write(log, b"number %02d\n" % number)
        written.append((3.0 * number, f"number {number:02d}"))
    log.close()
    shown = _lines(here)
    assert shown == written[-len(shown) :]
    assert len(shown) >= 8
    assert _lines(here, since=1_000_030.0) == written[-2:]
    begin_files()
    assert _lines(here) == []
    assert _lines(here, previous="previous.") == shown
    again = Log()
    _write(again, b"of another run\n")
    assert [text for _, text in _lines(here)] == ["of another run"]


def test_a_shim_that_takes_over_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    _write(Log(), b"before\n")
    os.utime(here / "log", (1_000_000.0, 1_000_000.0))
    clock.at += 60.0
    later = Log()
    clock.at += 60.0
    _write(later, b"after\n")
    assert _lines(here) == [(0.0, "before"), (120.0, "after")]


def test_marks_that_cannot_be_read_cost_the_time_alone(here: Path) -> None:
    _write(Log(), b"one\ntwo\n")
    (here / "log.at").write_bytes(b"rub\xffbish")
    assert [text for _, text in _lines(here)] == ["one", "two"]


def test_a_clock_that_is_set_back_is_a_mark(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log = Clock(monkeypatch), Log()
    _write(log, b"one\n")
    clock.at -= 3600.0
    _write(log, b"two\n")
    assert _lines(here) == [(0.0, "one"), (-3600.0, "two")]


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 5), st.sampled_from([b"a", b"bc\n", b"\n", b"def\ngh"])), max_size=25
    ),
    ago=st.floats(0, 60),
)
@settings(max_examples=examples(60))
def test_since_leaves_nothing_out_that_is_newer(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, bytes]], ago: float
) -> None:
    folder = tmp_path_factory.mktemp("since")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        clock, log, whole, begun = Clock(patch), Log(), b"", []
        for pause, text in steps:
            clock.at += pause
            for byte in text:
                if not whole or whole.endswith(b"\n"):
                    begun.append(clock.at)
                whole += bytes([byte])
            _write(log, text)
        log.close()
        os.utime("log", (clock.at, clock.at)) if whole else None
        since = clock.at - ago
        lines = whole.decode().splitlines()
        shown = _lines(folder, since=since)
    kept = [text for _, text in shown]
    assert kept == lines[len(lines) - len(kept) :]
    newer = [text for at, text in zip(begun, lines, strict=True) if at >= since]
    assert len(kept) >= len(newer)
    for (at, _), began in zip(shown, begun[len(lines) - len(kept) :], strict=True):
        assert abs(began - (1_000_000.0 + at)) <= MARK_SECONDS + 0.01
