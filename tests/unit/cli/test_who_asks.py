"""Whose job it is, when neither the file nor ``--user`` says."""

from pathlib import Path

import pytest

from borgish.wire.api import Accepted, WhoamiView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text("name: web\nrun: [sleep, '60']\n")
    return path


def submitted_for(master: FakeMaster) -> str:
    (asked,) = (asked for asked in master.asked if asked.method == "POST")
    return asked.query["user"]


@pytest.mark.parametrize(
    ("whoami", "options", "user"),
    [
        (WhoamiView("zoe", "user"), (), "zoe"),  # with zoe's token a job is zoe's, whoever is logged in
        (WhoamiView("root", "admin"), (), "ann"),  # an admin's token is nobody's: the login name
        (None, (), "ann"),  # a master of the release before does not answer this
        (WhoamiView("zoe", "user"), ("--user", "bob"), "bob"),  # refused by the master, with the reason
    ],
)
def test_a_job_is_of_the_token_s_user(
    whoami: WhoamiView | None, options: tuple[str, ...], user: str, master: FakeMaster, run: Run, file: Path
) -> None:
    master.answers["POST /v1/jobs"] = Accepted(5, f"{user}/web", "submitted")
    if whoami:
        master.answers["GET /v1/whoami"] = whoami
    assert run("job", "submit", "--detach", *options, file) == 0
    assert submitted_for(master) == user


def test_a_check_names_the_job_as_a_submission_would(
    master: FakeMaster, run: Run, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["GET /v1/whoami"] = WhoamiView("zoe", "user")
    assert run("job", "check", file) == 0
    assert "job zoe/web" in capsys.readouterr().out


def test_a_check_needs_no_master(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BORGISH_URL", "http://127.0.0.1:1")
    assert run("job", "check", file) == 0
    assert "job ann/web" in capsys.readouterr().out
