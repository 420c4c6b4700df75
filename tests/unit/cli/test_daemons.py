"""Daemons of a local cell: none runs that nobody could stop."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from borgish.cli import daemons
from borgish.cli.local_cell import Daemon


def test_a_daemon_whose_number_cannot_be_kept_is_not_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: `borgctl down` would know of none."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeping(*_command: object, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(["sleep", "1000"], **options))
        return started[0]

    def full(_path: Path, _text: str) -> None:
        raise OSError(28, "No space left on device")

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", sleeping)
    monkeypatch.setattr(daemons, "_write", full)
    daemon = Daemon("m1", "x", tmp_path / "x.toml", tmp_path / "x.log", tmp_path / "x.pid")
    with pytest.raises(OSError, match="No space left"):
        daemons.start(daemon)
    try:
        assert started[0].poll() is not None
    finally:
        started[0].kill()
        started[0].wait()
