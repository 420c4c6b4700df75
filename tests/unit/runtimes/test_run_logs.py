"""Reading while files are renamed under the reader, and writing when nothing can be written."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.borglet.runtimes.folders import LogReader
from borgish.borglet.runtimes.shim import output
from borgish.borglet.runtimes.shim.output import Log, begin_files
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
    reader.seek_tail(tail)
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
    reader.seek_tail(tail)
    assert b"".join(reader.chunks()) == b"".join(whole.splitlines(keepends=True)[-tail:])
    reader.close()


def test_a_reader_follows_every_rotation(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_BYTES_MAX", 1000)
    log, reader, seen, written = Log(), _reader(here), b"", b""
    reader.seek_tail(0)
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
    reader.seek_tail(0)
    assert b"".join(reader.chunks()) == b"a" * 50
    _write(log, b"b" * 50 + b"c" * 100 + b"d" * 100 + b"e" * 20)
    assert b"".join(reader.chunks()) == b"b" * 50 + b"c" * 100 + b"d" * 100 + b"e" * 20
    reader.close()


def test_a_reader_stays_with_its_run(here: Path) -> None:
    log, reader = Log(), _reader(here)
    _write(log, b"first ")
    reader.seek_tail(0)
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
