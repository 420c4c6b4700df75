"""The ledger on disk: what it keeps, and what a torn, damaged or foreign file does."""

import contextlib
import os
import zlib
from pathlib import Path

import msgspec
import pytest

from borgish.borglet import ledger as module
from borgish.borglet.attempts.entry import Entry, Head
from borgish.borglet.attempts.transitions import Stage
from borgish.borglet.ledger import FILE_NAME, Ledger
from borgish.errors import UnsafeConfiguration
from borgish.resources import Resources
from borgish.spec.job import Restart, Stop
from borgish.vocabulary import Ending, Runtime
from borgish.wire.link import AttemptSpec, Leader


def entry(attempt: int, *, ended: Ending | None = None, run: int = 1) -> Entry:
    stage = Stage.ENDED if ended else Stage.UP
    return Entry("ann/web/0", attempt, None, stage, run=run, ended=ended)


def reopened(folder: Path) -> Ledger:
    return Ledger(folder, "m1")


def test_it_gives_back_what_was_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "m1")
    ledger.append({"a": entry(1), "b": entry(2)}, Head("m1", 2, 3, 4))
    ledger.append({"a": entry(1, run=2), "b": None}, None)
    ledger.close()
    again = reopened(tmp_path)
    assert (again.entries, again.head) == ({"a": entry(1, run=2)}, Head("m1", 2, 3, 4))
    assert again.damaged_lines == 0


def test_the_leader_of_a_term_is_kept_with_it(tmp_path: Path) -> None:
    head = Head("m1", 2, 3, 4, Leader("http://a:7400", "nonce"))
    Ledger(tmp_path, "m1").append({}, head)
    assert reopened(tmp_path).head == head


def test_a_head_from_before_leaders_were_kept_is_read(tmp_path: Path) -> None:
    text = b'{"head":{"machine":"m1","timeline":2,"epoch":3,"generation":4}}'
    (tmp_path / FILE_NAME).write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    assert reopened(tmp_path).head == Head("m1", 2, 3, 4)


def test_for_how_long_output_is_wanted_is_kept(tmp_path: Path) -> None:
    """And what was written by a borglet that knew nothing of it is read."""
    plain = AttemptSpec("ann/web/0", 1, ("a",), {}, Runtime.PROCESS, Resources(1), Restart(), Stop())
    wanted = msgspec.structs.replace(plain, keep_output_seconds=3600.0)
    entries = {
        key: msgspec.structs.replace(entry(1), spec=spec) for key, spec in (("a", plain), ("b", wanted))
    }
    Ledger(tmp_path, "m1").append(dict(entries), None)
    assert (tmp_path / FILE_NAME).read_bytes().count(b"keep_output_seconds") == 1
    assert reopened(tmp_path).entries == entries


def test_a_kill_needs_no_close(tmp_path: Path) -> None:
    Ledger(tmp_path, "m1").append({"a": entry(1)}, None)
    assert reopened(tmp_path).entries == {"a": entry(1)}


def test_only_ends_and_heads_owe_the_disk_a_sync(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "m1")
    ledger.append({"a": entry(1)}, None)
    assert not ledger.owes_sync
    ledger.append({"a": entry(1, ended=Ending.FAIL)}, None)
    assert ledger.owes_sync
    sync = ledger.syncing()
    ledger.append({}, Head("m1", 1, 1, 1))
    sync()
    assert ledger.owes_sync, "what came after the sync began is not covered by it"
    ledger.syncing()()
    assert not ledger.owes_sync


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_end_costs_the_last_line_only(tmp_path: Path, cut: int) -> None:
    ledger = Ledger(tmp_path, "m1")
    ledger.append({"a": entry(1)}, None)
    ledger.append({"b": entry(2)}, None)
    os.truncate(tmp_path / FILE_NAME, (tmp_path / FILE_NAME).stat().st_size - cut - 1)
    again = reopened(tmp_path)
    assert again.entries == {"a": entry(1)}
    assert again.damaged_lines == 1


def test_a_damaged_line_is_left_out_and_does_not_come_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "m1")
    for number, key in enumerate("abc"):
        ledger.append({key: entry(number)}, None)
    path = tmp_path / FILE_NAME
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"ann", b"bob")
    path.write_bytes(b"\n".join(lines))
    assert reopened(tmp_path).entries == {"a": entry(0), "c": entry(2)}
    assert reopened(tmp_path).damaged_lines == 0


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, b"nonsense\n\xff\xfe\n"])
def test_a_file_with_nothing_in_it_is_a_new_ledger(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert (reopened(tmp_path).entries, reopened(tmp_path).head) == ({}, Head("m1"))


def test_the_folder_of_another_machine_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path, "m2").close()
    with pytest.raises(UnsafeConfiguration, match="that of machine 'm2'"):
        Ledger(tmp_path, "m1")


def test_it_stays_small_however_much_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_BYTES_MIN", 4096)
    ledger = Ledger(tmp_path, "m1")
    for run in range(300):
        ledger.append({"a": entry(1, run=run)}, None)
    assert (tmp_path / FILE_NAME).stat().st_size < 6000
    assert reopened(tmp_path).entries == {"a": entry(1, run=299)}


def test_after_a_failed_write_the_next_one_says_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path, "m1")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) <= 10:
            raise OSError(28, "No space left on device")
        return real(fd, data[:10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        ledger.append({"a": entry(1)}, None)
    monkeypatch.setattr(os, "write", real)
    ledger.append({"b": entry(2)}, None)
    again = reopened(tmp_path)
    assert again.entries == {"a": entry(1), "b": entry(2)}
    assert again.damaged_lines == 0


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    Ledger(tmp_path, "m1").close()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def open_in(folder: Path) -> list[str]:
    """Return the files in a folder that this process has open, whatever else it opens and closes."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself, or another thread's
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [file for file in found if file.startswith(f"{folder}/")]


def test_a_full_disk_costs_neither_records_nor_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROWTH_BYTES_MIN", 100)
    ledger = Ledger(tmp_path, "m1")
    for run in range(8):
        ledger.append({"a": entry(1, run=run)}, None)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    open_before = len(open_in(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        failed = 0
        for number in range(20):
            try:
                ledger.append({f"b{number}": entry(2)}, None)
            except OSError:
                failed += 1
        assert failed
    assert len(open_in(tmp_path)) == open_before > 0
    ledger.append({}, None)
    assert reopened(tmp_path).entries.keys() == {"a", *(f"b{number}" for number in range(20))}
