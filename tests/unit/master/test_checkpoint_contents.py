"""A checkpoint is inspected in a process of its own."""

from pathlib import Path

import pytest

from borgish.master.past.checkpoint_contents import inspect_checkpoint, inspect_file, packed
from borgish.store.base import CheckpointInfo
from borgish.store.memory import MemoryStore
from tests.contract.store.samples import CELL, Life


def test_nothing_is_imported_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    found = inspect_checkpoint("c", CheckpointInfo(1, 0.0, "periodic", "no digest", 4), b"junk")
    assert found.contents is None
    assert found.problem


@pytest.mark.parametrize(("cell", "is_good"), [(CELL, True), ("another", False)])
def test_a_process_says_the_same(cell: str, is_good: bool) -> None:
    store = MemoryStore(CELL)
    life = Life(store)
    life.story()
    life.checkpoint()
    info, stored = store.checkpoint_body(life.cell.position)
    found = inspect_checkpoint(cell, info, stored)
    assert found == inspect_file(packed(cell, info, stored))
    assert (found.contents is not None) is is_good
    assert bool(found.problem) is not is_good
