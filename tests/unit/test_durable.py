"""Files that outlive a power cut."""

import os
from pathlib import Path

import pytest

from borgish.durable import whole_file


@pytest.mark.parametrize("replaces", [False, True])
def test_a_whole_file_is_synced_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    file, synced = tmp_path / "copy", []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, file.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    with whole_file(file, replaces=replaces) as opened:
        opened.write(b"all of it")
    assert synced == [(file.stat().st_ino, False), (tmp_path.stat().st_ino, True)]
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_file_that_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with whole_file(tmp_path / "copy") as opened:
            opened.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []
