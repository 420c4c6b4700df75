"""A checkpoint is inspected in a process of its own."""

from pathlib import Path

import pytest

from borgish.master.checkpoint_contents import inspect_checkpoint
from borgish.store.base import CheckpointInfo


def test_nothing_is_imported_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    found = inspect_checkpoint("c", CheckpointInfo(1, 0.0, "periodic", "no digest", 4), b"junk")
    assert found.contents is None
    assert found.problem
