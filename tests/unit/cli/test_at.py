"""``--at``: one moment for all the reads of a command, said once; and times as people type them."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
import pytest

from borgish.clock import SystemClock
from borgish.text import day_and_time, zoned
from borgish.wire.api import AsOf, JobDetail, Problem, WhyView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster, event, job, machine, spec, status, task

Out = pytest.CaptureFixture[str]
MOMENT = AsOf(42, NOW, 1, ("The checkpoint at 40 is passed over: torn\x1b[2J",))
THEN = job(up=None)


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a zone two hours before UTC."""
    monkeypatch.setenv("TZ", "EAST-02:00")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def past(master: FakeMaster) -> FakeMaster:
    seen = {"phase": None, "pid": None, "usage": None}
    master.answers |= {
        "GET /v1/moment": MOMENT,
        "GET /v1/jobs": {"items": [THEN]},
        "GET /v1/jobs/ann/web": JobDetail(THEN, spec(), (), MOMENT),
        "GET /v1/tasks": {"items": [task(**seen)]},
        "GET /v1/tasks/ann/web/0": task(**seen, as_of=MOMENT),
        "GET /v1/machines": {"items": [machine(usage=None)]},
        "GET /v1/machines/m1": machine(usage=None, heard_seconds_ago=None, as_of=MOMENT),
        "GET /v1/why/ann/web": WhyView("ann/web", THEN.state, "It runs.", as_of=MOMENT),
        "GET /v1/events": {"items": [event(3)]},
        "GET /v1/status": msgspec.structs.replace(status(), up=None, last_checkpoint=None, as_of=MOMENT),
    }
    return master


COMMANDS = (
    ("status",),
    ("job", "list"),
    ("job", "show", "web"),
    ("task", "list"),
    ("task", "list", "web", "--machine", "m"),
    ("task", "show", "web/0"),
    ("machine", "list"),
    ("machine", "show", "m1"),
    ("why", "web"),
    ("events", "--job", "web"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_read_of_a_command_is_of_one_moment(
    past: FakeMaster, run: Run, capsys: Out, command: tuple[str, ...]
) -> None:
    assert run(*command, "--at", "5m ago") == 0
    first, *others = past.asked
    assert (first.path, first.query) == ("/v1/moment", {"at": "5m ago"})
    assert others
    assert {asked.query["at"] for asked in others} == {"42"}
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("As of position 42 (2026-01-02 05:04:05, ")
    assert "were not journalled" in shown[0]
    assert shown[1] == "warning: The checkpoint at 40 is passed over: torn\\x1b[2J"


@pytest.mark.parametrize("command", COMMANDS)
def test_programs_get_the_moment_beside_the_data(
    past: FakeMaster, run: Run, capsys: Out, command: tuple[str, ...]
) -> None:
    assert run(*command, "--at", "42", "-o", "json") == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert isinstance(found, list) or found["as_of"]["position"] == 42
    assert shown.err.startswith("As of position 42")


def test_what_is_not_known_is_not_shown(past: FakeMaster, run: Run, capsys: Out) -> None:
    run("job", "list", "--at", "42")
    assert "RUNNING" in (table := capsys.readouterr().out)
    assert "3/3" in table
    assert "UP " not in table
    run("job", "show", "web", "--at", "42")
    assert "3: 3 running" in capsys.readouterr().out
    run("status", "--at", "42")
    assert "3 running, 0 dead" in (one := capsys.readouterr().out)
    assert "checkpoint" not in one.splitlines()[2:]
    assert "none yet" not in one
    run("machine", "show", "m1", "--at", "42")
    assert "heard" not in (one := capsys.readouterr().out)
    assert "used" not in one


def test_before_everything(past: FakeMaster, run: Run, capsys: Out) -> None:
    past.answers |= {"GET /v1/moment": AsOf(0, ""), "GET /v1/jobs": {"items": []}}
    assert run("job", "list", "--at", "0") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("As of position 0 (before the first entry)")
    assert shown.err == "no jobs at that moment\n"


def test_a_moment_that_cannot_be_told(past: FakeMaster, run: Run, capsys: Out) -> None:
    past.answers["GET /v1/moment"] = Problem("Gone", 410, "it is no longer kept", hint="The earliest is 5")
    assert run("job", "list", "--at", "3") == 1
    assert capsys.readouterr().err == "error: it is no longer kept\nhint: The earliest is 5\n"
    assert len(past.asked) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_moment_is_not_taken_for_now(
    past: FakeMaster, run: Run, capsys: Out, command: tuple[str, ...]
) -> None:
    assert run(*command, "--at", "") == 2
    assert "must not be empty" in capsys.readouterr().err
    assert past.asked == []


@pytest.mark.parametrize(
    "command", [("task", "logs", "web/0"), ("task", "exec", "web/0", "--", "ls"), ("dashboard", "--once")]
)
def test_what_is_of_now_only_says_so(
    past: FakeMaster, run: Run, capsys: Out, command: tuple[str, ...]
) -> None:
    assert run(*command[:2], "--at", "5m", *command[2:]) == 2
    assert "the past has no running programs" in capsys.readouterr().err
    assert run("events", "-f", "--at", "5m") == 2
    assert past.asked == []


def test_a_time_of_day_is_the_latest_such() -> None:
    now = datetime.fromtimestamp(SystemClock().now().wall).astimezone()
    for minutes in (-90, -2, 2, 90):
        moment = now + timedelta(minutes=minutes)
        found = datetime.fromisoformat(zoned(moment.strftime("%H:%M")))
        assert found.strftime("%H:%M") == moment.strftime("%H:%M")
        assert timedelta(0) <= now - found <= timedelta(days=1, minutes=1)
        assert found.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("text", ["1200", "12", "20260131", "noon", "5m", "25:00", "", "now", "-5m"])
def test_what_is_no_time_goes_on_as_it_is(text: str) -> None:
    assert zoned(text) == text


def test_times_get_the_zone_of_who_asks() -> None:
    assert zoned("2026-01-31T12:00") == "2026-01-31T12:00:00+02:00"
    assert zoned("2026-01-31T12:00Z") == "2026-01-31T12:00:00+00:00"
    assert day_and_time("2026-01-31T12:00:00Z") == "2026-01-31 14:00:00"
