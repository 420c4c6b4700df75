"""A cell with a story, kept in a database and exported at noon."""

import shutil
from pathlib import Path

import pytest

from borgish.cell.commands import (
    CordonMachine,
    KillTasks,
)
from tests.scenario.fauxmaster.asked import Asker
from tests.scenario.fauxmaster.kept_cell import KeptCell, job


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six machines on three racks; at noon all is well, then a bad version is deployed."""
    folder = tmp_path_factory.mktemp("story")
    kept = KeptCell(folder)
    kept.machines(6)
    kept.submit(job("web", 6))
    kept.submit(job("db", 3, cpu=2, priority="production"))
    noon = kept.checkpoint("noon").position
    kept.exported(folder / "noon.checkpoint", noon)
    kept.do(CordonMachine("m6", "by mistake"), "eve")
    kept.do(KillTasks("ann/web"), "eve")
    kept.submit(job("web", 8, version="bad"), "eve")
    kept.wait(3)
    kept.store.close()
    (folder / "more.yaml").write_text(job("more", 4))
    (folder / "prod.yaml").write_text(job("big", 12, cpu=2, priority="production"))
    (folder / "huge.yaml").write_text(job("huge", 1, cpu=64))
    (folder / "in.yaml").write_text("name: in\nrun: [serve]\nin: none\n")
    (folder / "bad.yaml").write_text("name: web\ntasks: 0\nrunn: [serve]\n")
    return folder


@pytest.fixture
def asker(
    story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Asker:
    """Who asks about a copy of the story."""
    shutil.copytree(story, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Asker(tmp_path, monkeypatch, capsys)
