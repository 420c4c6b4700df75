"""borgctl machine drain, undrain and maintain: what is asked, what is followed, and when it ends."""

import itertools
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from borgish.cli.commands.drain import moment_to_come
from borgish.wire.api import Accepted, DrainView, MachineView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster, machine

Out = pytest.CaptureFixture[str]
PERSON = DrainView("drained by ann: new disk", "ann", NOW, NOW, begun=True, reason="new disk")
WINDOW = DrainView("maintenance", "ann", NOW, NOW, begun=False, begins=NOW, ends=NOW)
WHY = "ann/web/3: of ann/web at most 1 of 3 tasks may be down"


def drained(tasks: int, *, drains: tuple[DrainView, ...] = (PERSON,), **more: Any) -> MachineView:
    state = "draining" if tasks or more.get("ending") else "drained"
    return machine(**{"state": state, "tasks": tasks, "drains": drains, **more})


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC-2")  # two hours ahead of UTC, as POSIX writes it
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def answering(master: FakeMaster, *looks: MachineView, subject: str = "m1") -> None:
    there = itertools.chain(looks, itertools.repeat(looks[-1])) if looks else iter(())
    master.answers |= {
        "GET /v1/machines": {
            "items": [machine(), machine(name="m2", attributes={"rack": "r2"}, drains=(PERSON,))]
        },
        "GET /v1/machines/m1": lambda _: next(there),
        "GET /v1/machines/m2": drained(0, name="m2"),
        "POST /v1/drains": Accepted(9, subject, "it is drained"),
        "POST /v1/drains/delete": Accepted(9, subject, "it is not"),
        "POST /v1/windows": Accepted(9, subject, "it is planned"),
        "POST /v1/windows/delete": Accepted(9, subject, "it is not planned"),
    }


def sent(master: FakeMaster) -> Any:
    return json.loads(next(asked for asked in master.asked if asked.method == "POST").body)


def test_a_drain_is_followed_until_the_machine_is_empty(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master, drained(2, staying=(WHY,)), drained(0, ending=1), drained(0))
    assert run("machine", "drain", "m1", "--reason", "new disk", "--deadline", "5m") == 0
    shown = capsys.readouterr()
    assert shown.out == "it is drained\nm1 is empty: safe to switch off\n"
    assert f"m1: 2 tasks left; {WHY}" in shown.err
    assert sent(master) | {"deadline_seconds": 300.0, "reason": "new disk"} == sent(master)


def test_by_a_condition_those_are_followed_that_meet_it(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master, subject="1 machines")
    assert run("machine", "drain", "--where", "rack == r2") == 0
    assert capsys.readouterr().out == "it is drained\nm2 is empty: safe to switch off\n"


def test_where_no_machine_is_meant_the_exit_code_is_3(master: FakeMaster, run: Run) -> None:
    answering(master, subject="")
    assert run("machine", "drain", "--where", "rack == r9") == 3
    assert run("machine", "undrain", "--where", "rack == r9") == 3


def test_what_stays_is_said_when_the_time_is_over(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master, drained(1, staying=(WHY,)))
    assert run("machine", "drain", "m1", "--timeout", "1ms") == 3
    said = capsys.readouterr().err
    assert "not empty after 0s: m1; it goes on" in said
    assert f"m1: {WHY}" in said


def test_a_drain_that_somebody_took_back_is_over(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master, drained(2), machine(drains=(WINDOW,)))
    assert run("machine", "drain", "m1") == 1
    assert "m1 is not drained any more: somebody took it back" in capsys.readouterr().err


def test_a_machine_that_goes_down_is_not_called_safe(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(
        master,
        machine(state="down", tasks=1, drains=(PERSON,)),
        machine(state="down", tasks=0, drains=(PERSON,)),
    )
    assert run("machine", "drain", "m1") == 0
    assert capsys.readouterr().out.endswith("m1 is down, and nothing is placed there any more\n")


def test_ctrl_c_leaves_it_going_and_says_so(
    master: FakeMaster, run: Run, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("borgish.cli.changes.Changes.wait", interrupted)
    answering(master, drained(2))
    assert run("machine", "drain", "m1") == 130
    assert "m1: the drain goes on." in capsys.readouterr().err


def test_detached_it_returns_at_once(master: FakeMaster, run: Run) -> None:
    answering(master)
    assert run("machine", "drain", "m1", "--detach") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("drain",),
        ("drain", "m1", "--where", "rack == r2"),
        ("drain", "m1", "--deadline", "soon"),
        ("drain", "m1", "--max-affected", "-1"),
        ("maintain", "m1", "--from", "22:00"),
        ("maintain", "m1", "--from", "25:00", "--for", "2h"),
        ("maintain", "m1", "--from", "22:00", "--for", "long"),
        ("maintain", "--cancel"),
    ],
)
def test_what_is_wrong_is_a_mistake_of_usage(master: FakeMaster, run: Run, words: tuple[str, ...]) -> None:
    answering(master)
    assert run("machine", *words) == 2
    assert all(asked.method == "GET" for asked in master.asked)


def test_undrain(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master)
    assert run("machine", "undrain", "m1", "m2") == 0
    assert sent(master) == {"machines": ["m1", "m2"], "where": ""}
    assert capsys.readouterr().out == "it is not\n"


# Windows


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("22:00", "2026-06-01T22:00:00+02:00"),
        ("9:30", "2026-06-02T09:30:00+02:00"),  # over today
        ("12:00", "2026-06-02T12:00:00+02:00"),  # it is just that now
        ("2h", "2026-06-01T14:00:00+02:00"),
        ("now", "2026-06-01T12:00:00+02:00"),
        ("2026-12-31T22:00", "2026-12-31T22:00:00+02:00"),
        ("2026-12-31T22:00:00Z", "2027-01-01T00:00:00+02:00"),
    ],
)
def test_when_a_window_begins(text: str, at: str) -> None:
    noon = datetime(2026, 6, 1, 10, tzinfo=UTC).timestamp()
    assert moment_to_come(text, noon).isoformat() == at


@pytest.mark.parametrize("text", ["24:00", "noon", "", "12:60", "-2h", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        moment_to_come(text, 0.0)


def test_a_window_is_told_in_the_zone_of_who_asks(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master)
    asked = (
        "maintain",
        "m1",
        "--from",
        "2999-01-01T22:00",
        "--for",
        "3h",
        "--lead",
        "30m",
        "--reason",
        "kernel",
    )
    assert run("machine", *asked) == 0
    assert sent(master) == {
        "machines": ["m1"],
        "where": "",
        "begins": "2999-01-01T20:00:00Z",
        "ends": "2999-01-01T23:00:00Z",
        "lead_seconds": 1800.0,
        "reason": "kernel",
    }
    zone = "in your time zone: 2999-01-01 22:00 to 2999-01-02 01:00 (UTC+02:00)"
    assert capsys.readouterr().out == f"it is planned\n{zone}\n"


def test_windows_are_listed_and_cancelled(master: FakeMaster, run: Run, capsys: Out) -> None:
    answering(master)
    assert run("machine", "maintain", "--list") == 0
    assert "no maintenance is planned" in capsys.readouterr().err
    master.answers["GET /v1/machines"] = {"items": [machine(drains=(PERSON, WINDOW))]}
    assert run("machine", "maintain", "--list") == 0
    assert "planned" in capsys.readouterr().out
    assert run("machine", "maintain", "m1", "--cancel") == 0
    assert sent(master) == {"machines": ["m1"], "where": ""}


def test_it_is_shown_with_the_machine(master: FakeMaster, run: Run, capsys: Out) -> None:
    view = drained(2, drains=(PERSON, WINDOW), staying=(WHY,), ending=1)
    master.answers |= {"GET /v1/machines": {"items": [view]}, "GET /v1/machines/m1": view}
    assert run("machine", "show", "m1") == 0
    shown = capsys.readouterr().out
    for words in ("draining", "drained by ann: new disk; asked", "not begun yet", WHY, "1 program"):
        assert words in shown
