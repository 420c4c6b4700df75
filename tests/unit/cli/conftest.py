"""borgctl in this process, against a small master."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from borgish.cli import borgctl
from tests.unit.cli.samples import FakeMaster, serving

Run = Callable[..., int]


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with serving(FakeMaster()) as served:
        yield served


@pytest.fixture
def run(master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call borgctl with some arguments; returns the exit code."""
    token = tmp_path / "a.token"
    token.write_text("bgt_test\n")
    monkeypatch.setenv("BORGISH_URL", master.url)
    monkeypatch.setenv("BORGISH_TOKEN_FILE", str(token))
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr("borgish.cli.follow.SETTLE_SECONDS", 0.0)
    return lambda *arguments: borgctl.run([str(argument) for argument in arguments])


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same where nothing names a cell, in a home whose folder of cells is in ``config``."""
    for name in ("BORGISH_URL", "BORGISH_TOKEN_FILE", "BORGISH_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: borgctl.run([str(argument) for argument in arguments])
