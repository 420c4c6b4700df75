"""A user without a home folder, as in a container under any uid: no HOME and no line in /etc/passwd."""

import os
import pwd
from pathlib import Path

import pytest

from borgish.borglet.runtimes.process.confinement import Confinement, ConfineRules
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
