"""``--read-from standby``: which commands it answers, from which position on, and what is said of that."""

from collections.abc import Mapping

import pytest

from borgish.client import Client
from borgish.dashboard import app
from borgish.wire.api import AsOf, CheckpointView, HealthView, WhyView
from borgish.wire.api_past import CheckpointList, DiffView, HistoryList
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster, event, job

Out = pytest.CaptureFixture[str]
MOMENT = AsOf(42, NOW)
EMPTY: Mapping[str, object] = {"items": (), "page": {}}


def health(role: str) -> HealthView:
    return HealthView("test", "1", role, "http://127.0.0.1:9", "", "", 1, 3, 42, True, 0.1, "", NOW)


@pytest.fixture
def standby(master: FakeMaster) -> FakeMaster:
    master.answers |= {
        "GET /v1/health": health("standby"),
        "GET /v1/moment": MOMENT,
        "GET /v1/diff": DiffView(AsOf(1, NOW), MOMENT, {}),
        "GET /v1/history": HistoryList((), as_of=MOMENT),
        "GET /v1/events": {"items": [event(3)]},
        "GET /v1/checkpoints": CheckpointList((CheckpointView(40, NOW, "test", 100, "ab" * 32),)),
        "GET /v1/jobs": {"items": [job()]},
        "GET /v1/why/ann/web": WhyView("ann/web", job().state, "It runs."),
    }
    lists = ("users", "groups", "tokens", "secrets", "invitations")
    master.answers |= {f"GET /v1/{noun}": EMPTY for noun in lists}
    return master


@pytest.mark.parametrize(
    "command",
    [
        ("diff", "1"),
        ("history",),
        ("events",),
        ("checkpoint", "list"),
        ("user", "list"),
        ("group", "list"),
        ("token", "list"),
        ("secret", "list"),
        ("machine", "invitations"),
        ("job", "list"),
    ],
)
def test_a_standby_answers_from_the_position_on_that_is_asked_for(
    standby: FakeMaster, run: Run, capsys: Out, command: tuple[str, ...]
) -> None:
    assert run("--read-from", "standby", "--at-least", "40", *command) == 0
    asked = [each for each in standby.asked if each.path != "/v1/health"]
    assert len(asked) >= 2
    assert {each.query["at_least"] for each in asked} == {"40"}
    assert f"{standby.url} stands by.\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("why", "ann/web"), ("job", "wait", "ann/web")])
def test_what_only_the_leader_knows_it_is_asked_for(
    standby: FakeMaster, run: Run, command: tuple[str, ...]
) -> None:
    run("--read-from", "standby", *command)
    assert standby.asked
    assert not any("at_least" in each.query for each in standby.asked)


def test_why_something_waited_is_told_by_a_standby(standby: FakeMaster, run: Run, capsys: Out) -> None:
    assert run("--read-from", "standby", "why", "ann/web", "--at", "42") == 0
    last = standby.asked[-1]
    assert (last.path, last.query) == ("/v1/why/ann/web", {"at_least": "0", "at": "42"})


def test_where_nobody_stands_by_the_leader_answers_and_that_is_said(
    standby: FakeMaster, run: Run, capsys: Out
) -> None:
    standby.answers["GET /v1/health"] = health("leader")
    assert run("--read-from", "standby", "diff", "1") == 0
    shown = capsys.readouterr()
    assert shown.err == "no borgmaster stands by with a copy of the cell; the leader answers\n"
    assert shown.out.startswith("From position 1 ")
    assert not any("at_least" in each.query for each in standby.asked)


def test_the_leader_is_asked_whether_there_is_the_position(standby: FakeMaster, run: Run) -> None:
    standby.answers["GET /v1/health"] = health("leader")
    assert run("--read-from", "standby", "--at-least", "50", "job", "list") == 0
    asked = {each.path: each.query.get("at_least") for each in standby.asked}
    assert asked["/v1/moment"] == "50"
    assert asked["/v1/jobs"] is None
    assert run("--read-from", "standby", "--at-least", "51", "why", "ann/web") == 0
    moments = [each.query.get("at_least") for each in standby.asked if each.path == "/v1/moment"]
    assert moments == ["50", "51"]


def test_the_dashboard_asks_it_for_what_is_of_the_past(
    standby: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Client | None]()

    def shown(_live: Client, *, past: Client | None, **_others: object) -> int:
        given.append(past)
        return 0

    monkeypatch.setattr(app, "run", shown)
    assert run("dashboard") == 0
    assert run("--read-from", "standby", "dashboard") == 0
    nobody, past = given
    assert nobody is None
    assert past is not None
    assert past.get("/v1/diff", {"from": "1"}, DiffView).new == MOMENT
    assert standby.asked[-1].query["at_least"] == "0"
