"""``borgctl secret set``: values that are refused before the master is asked."""

import io
import sys
from pathlib import Path

import pytest

from borgish.cli.commands.secret import SECRET_BYTES_MAX
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster

Out = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("value", "fault"),
    [(b"", "nothing was given"), (b"x" * (SECRET_BYTES_MAX + 1), "it is longer than 32 KiB")],
)
def test_the_fault_is_where_the_value_came_from(
    run: Run,
    master: FakeMaster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Out,
    value: bytes,
    fault: str,
) -> None:
    file = tmp_path / "value"
    file.write_bytes(value)
    for option, source in (
        ((), "standard input"),
        (("--file", "-"), "standard input"),
        (("--file", file), "--file"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(value)))
        assert run("secret", "set", "db", *option) == 2
        assert f"Invalid value for {source}: {fault}" in " ".join(capsys.readouterr().err.split())
    assert not [asked for asked in master.asked if "secrets" in asked.path]
