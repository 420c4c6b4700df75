"""``scripts/bench load`` on a cell that is there."""

from pathlib import Path

import pytest

from borgish.client import Client
from borgish.wire.api import StatusView
from tests.bench import load_url
from tests.bench.load import loaded
from tests.cells import wait_until


def test_a_load_is_measured_and_its_jobs_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with loaded(tmp_path / "cell", 2):
        client = Client.find(tmp_path / "cell")
        token = str(tmp_path / "cell" / "tokens" / "admin.token")
        load_url.main(
            [client.url, "--token-file", token, "--jobs", "3", "--tasks", "2", "--per-second", "20"]
        )
        wait_until(lambda: client.get("/v1/status", None, StatusView).dead == 6)
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("load.rate", "load.submit_p99", "load.running_p99"))


def test_a_cell_that_does_not_answer_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("nobody")
    with pytest.raises(SystemExit, match="error: "):
        load_url.main(["http://127.0.0.1:9", "--token-file", str(tmp_path / "token")])


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No such file or directory"):
        load_url.main(["http://127.0.0.1:9", "--token-file", str(tmp_path / "token")])
