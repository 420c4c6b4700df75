"""A user without a home folder, as in a container under any uid, and other folders that are not there."""

import os
import pwd
from pathlib import Path

import pytest

from borgish.borglet.runtimes.process.confinement import Confinement, ConfineRules
from borgish.cli import borgctl
from borgish.cli.session import Session
from borgish.errors import Invalid


@pytest.fixture(autouse=True)
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CONFIG_HOME", "BORGISH_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(tmp_path)


def test_a_cell_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no home folder") as refused:
        assert Session().cell_folder
    assert "--dir" in refused.value.hint
    assert Session(tmp_path).cell_folder == tmp_path


def test_a_borglet_confines_what_it_starts(tmp_path: Path) -> None:
    confinement = Confinement(tmp_path, ConfineRules())
    assert all(os.path.isabs(path) for path in confinement._hide)


def test_a_current_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert borgctl.run(["job", "list"]) == 1
    assert capsys.readouterr().err.startswith("error: the current folder was removed\nhint: ")
    monkeypatch.chdir(tmp_path)


def test_an_empty_folder_is_not_the_current_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert borgctl.run(["up", "--dir", ""]) == 2
    assert "it is empty; . is the current folder" in capsys.readouterr().err
