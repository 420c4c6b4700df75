"""What the scenarios over the real API and core have in common."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from borgish.cli import borgctl
from tests.scenario.quota.real import CoreApi

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def running() -> Iterator[CoreApi]:
    api = CoreApi()
    yield api
    api.stop()


@pytest.fixture
def api(running: CoreApi) -> CoreApi:
    running.do(running.master.reset)
    return running


@pytest.fixture
def say(
    api: CoreApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Say:
    """Call borgctl as somebody; returns exit code, stdout, stderr."""
    monkeypatch.setenv("BORGISH_URL", api.serving.url)

    def call(who: str, *words: object) -> tuple[int, str, str]:
        token = tmp_path / f"{who}.token"
        token.write_text(f"bgt_{who}\n")
        capsys.readouterr()
        code = borgctl.run(["--token-file", str(token), *map(str, words)])
        return code, *capsys.readouterr()

    return call
