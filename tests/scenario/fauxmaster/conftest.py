"""A cell with a story, kept in a database and exported at noon."""

from pathlib import Path

import pytest

from borgish.cell.commands import CordonMachine, KillTasks
from tests.scenario.fauxmaster.asked import Asker
from tests.scenario.fauxmaster.kept_cell import KeptCell, job


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asker:
    """Six machines on three racks; at noon all is well, then a bad version is deployed."""
    kept = KeptCell(tmp_path)
    kept.machines(6)
    kept.submit(job("web", 6))
    kept.submit(job("db", 3, cpu=2, priority="production"))
    noon = kept.checkpoint("noon").position
    kept.exported(tmp_path / "noon.checkpoint", noon)
    kept.do(CordonMachine("m6", "by mistake"), "eve")
    kept.do(KillTasks("ann/web"), "eve")
    kept.submit(job("web", 8, version="bad"), "eve")
    kept.wait(3)
    kept.store.close()
    (tmp_path / "more.yaml").write_text(job("more", 4))
    (tmp_path / "prod.yaml").write_text(job("big", 12, cpu=2, priority="production"))
    (tmp_path / "huge.yaml").write_text(job("huge", 1, cpu=64))
    (tmp_path / "in.yaml").write_text("name: in\nrun: [serve]\nin: none\n")
    (tmp_path / "bad.yaml").write_text("name: web\ntasks: 0\nrunn: [serve]\n")
    monkeypatch.chdir(tmp_path)
    return Asker(tmp_path, monkeypatch, capsys)
