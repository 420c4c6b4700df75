"""``borgctl diff``: moments as people type them, and differences as people read them."""

import json
import time
from collections.abc import Iterator

import pytest

from borgish.wire.api import AsOf
from borgish.wire.api_past import ChangeView, DiffView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster

Out = pytest.CaptureFixture[str]
OLD, NEW = AsOf(0, ""), AsOf(42, NOW, 1, ("The checkpoint at 40 is passed over: torn\x1b[2J",))
FOUND = DiffView(
    OLD,
    NEW,
    {
        "machines": (ChangeView("removed", "m3", ("up", "has 4 cpu")),),
        "quotas": (),
        "jobs": (
            ChangeView("added", "ann/new", ("3 tasks: 3 running",)),
            ChangeView("changed", "ann/web", ("tasks: 3 -> 5", "env.A: changed")),
        ),
        "tasks": (ChangeView("changed", "ann/web", ("state: running -> pending \x1b[2J",), "0-4,7", 6),),
    },
)
GOLDEN = """\
From position 0 (the beginning) to position 42 (2026-01-02 05:04:05): 1 machine, 2 jobs and 6 tasks
warning: The checkpoint at 40 is passed over: torn\\x1b[2J

machines
  - m3: up; has 4 cpu

jobs
  + ann/new: 3 tasks: 3 running
  ~ ann/web: tasks: 3 -> 5; env.A: changed

tasks
  ~ ann/web/0-4,7: state: running -> pending \\x1b[2J
"""


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EAST-02:00")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def there(master: FakeMaster) -> FakeMaster:
    master.answers["GET /v1/diff"] = FOUND
    return master


def test_differences_in_words(there: FakeMaster, run: Run, capsys: Out) -> None:
    assert run("diff", "0") == 0
    assert capsys.readouterr().out == GOLDEN
    assert there.asked[-1].query == {"from": "0", "to": "now"}


def test_nothing_differs(there: FakeMaster, run: Run, capsys: Out) -> None:
    there.answers["GET /v1/diff"] = DiffView(OLD, OLD, dict.fromkeys(FOUND.changes, ()))
    assert run("diff", "0", "0") == 0
    assert capsys.readouterr().out.endswith(": nothing differs\n")


def test_long_sections_are_cut_unless_wide(there: FakeMaster, run: Run, capsys: Out) -> None:
    many = tuple(ChangeView("added", f"m{number}", ("up",)) for number in range(50))
    there.answers["GET /v1/diff"] = DiffView(OLD, NEW, {"machines": many})
    assert run("diff", "0") == 0
    assert capsys.readouterr().out.endswith("  + m39: up\n  and 10 more: -o wide shows them\n")
    assert run("diff", "0", "-o", "wide") == 0
    assert capsys.readouterr().out.endswith("  + m49: up\n")


def test_other_forms(there: FakeMaster, run: Run, capsys: Out) -> None:
    assert run("diff", "0", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["new"]["position"], found["changes"]["tasks"][0]["indexes"]) == (42, "0-4,7")
    assert run("diff", "0", "-o", "name") == 0
    assert capsys.readouterr().out == "m3\nann/new\nann/web\nann/web/0-4,7\n"


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (("-5m",), {"from": "5m ago", "to": "now"}),
        (("-1h", "-30m"), {"from": "1h ago", "to": "30m ago"}),
        (("5m", "noon"), {"from": "5m", "to": "noon"}),
        (("5m ago", "-o", "json"), {"from": "5m ago", "to": "now"}),
        (("2026-01-31T12:00", "42"), {"from": "2026-01-31T12:00:00+02:00", "to": "42"}),
    ],
)
def test_moments(there: FakeMaster, run: Run, arguments: tuple[str, ...], query: dict[str, str]) -> None:
    assert run("diff", *arguments) == 0
    assert there.asked[-1].query == query


@pytest.mark.parametrize("arguments", [(), ("1", "2", "3"), ("--at", "5")])
def test_misuse(there: FakeMaster, run: Run, arguments: tuple[str, ...]) -> None:
    assert run("diff", *arguments) == 2
    assert there.asked == []
