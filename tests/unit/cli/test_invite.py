"""The line that is printed for a machine to join by."""

import pytest

from borgish.wire.api import Accepted, HealthView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster


@pytest.fixture
def inviting(master: FakeMaster) -> FakeMaster:
    master.answers["POST /v1/invitations"] = Accepted(1, "abc", "invitation abc is for m1, for 30m")
    return master


def test_the_line_names_all_masters_that_are_known(
    inviting: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    advertised = "https://10.0.0.1:7400"
    view = HealthView(
        "c1", "1", "leader", advertised, "", "", 1, 1, 1, True, None, "", "2026-01-01T00:00:00Z"
    )
    inviting.answers["GET /v1/health"] = view
    masters = f"{inviting.url},https://10.0.0.2:7400,http://127.0.0.1:1"
    assert run("--url", masters, "machine", "invite", "m1") == 0
    said = capsys.readouterr()
    line = said.out.split()
    assert "`borgctl cell adopt`" in said.err, "a cell with https and no authority has an operator's files"
    assert line[:3] == ["borglet", "join", f"{advertised},https://10.0.0.2:7400"], "others reach no loopback"


@pytest.mark.parametrize("time", ["0s", "25h"])
def test_how_long_an_invitation_may_hold(time: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("machine", "invite", "--for", time) == 2
    assert "holds for more than nothing and 24h at most" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "m_1", "Ä", "m\x1b[2J", "m" * 64])
def test_a_name_that_no_machine_can_have_is_said_before_anything_is_asked(
    name: str, inviting: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("machine", "invite", name) == 2
    hint = "Use at most 63 of a-z, 0-9 and -, which is neither first nor last"
    assert capsys.readouterr().err == f"error: invalid machine name {name[:63]!r}\nhint: {hint}\n"
    assert inviting.asked == []
