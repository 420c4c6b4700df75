"""``borgctl rollback``: what is asked of the master, and what people are told."""

import json
import time
from collections.abc import Iterator

import pytest

from borgish.wire.api import Accepted, AsOf, Problem
from borgish.wire.api_past import JobRollback, RollbackPlan
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster

Out = pytest.CaptureFixture[str]
PLAN = RollbackPlan(
    AsOf(42, NOW, 1, ("The checkpoint at 40 is passed over: torn\x1b[2J",)),
    stopped=5,
    started=8,
    kept=6,
    results_kept=2,
    jobs=(
        JobRollback("ann/late", "vanishes", (), 2),
        JobRollback("ann/sum", "changes", (), 0, 1, 0, 2),
        JobRollback("ann/web", "changes", ("tasks: 5 -> 3", "env.A: changed"), 3, 1, 2),
        JobRollback("ann/old", "returns", (), 0, 6),
        JobRollback("ann/noted", "changes", ("annotations.a: added x",)),
    ),
    machines=("m1 takes new tasks again",),
    quotas=("ann/batch is 4 cpu again", "bob/free is removed"),
    budgets=("web is at most 1 of app == web again",),
    apps=("ann/shop is removed",),
    crons=("ann/daily is every day again", "ann/hourly is removed"),
    freeze="the cell stays frozen by ann since 2026-01-01T00:00:00.000Z",
    machines_missing=("m3",),
    refusal="this would stop 5 of 11 running tasks, which is more than 20 %",
    hint="`--max-affected 5` allows it",
)
GOLDEN = """\
To position 42 (2026-01-02 05:04:05), done now: 5 of 11 running tasks stop, 8 start, 6 continue, 2 \
keep their result.
warning: The checkpoint at 40 is passed over: torn\\x1b[2J

machines
  ~ m1 takes new tasks again
  ! m3 was there, and is not now: it comes back when its borglet joins

quotas
  ~ ann/batch is 4 cpu again
  - bob/free is removed

budgets
  ~ web is at most 1 of app == web again

applications
  - ann/shop is removed

crons
  ~ ann/daily is every day again
  - ann/hourly is removed

freeze
  = the cell stays frozen by ann since 2026-01-01 02:00:00

jobs
  - ann/late: is removed; 2 stop
  ~ ann/sum: 1 starts, 2 keep their result
  ~ ann/web: tasks: 5 -> 3; env.A: changed; 3 stop, 1 starts, 2 continue
  + ann/old: comes back; 6 start
  ~ ann/noted: annotations.a: added x; nothing stops or starts

Nothing was changed.
As it was asked for it would be refused: this would stop 5 of 11 running tasks, which is more than 20 %
hint: `--max-affected 5` allows it
"""


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EAST-02:00")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_dry_run_in_words(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["POST /v1/rollback/plan"] = PLAN
    assert run("rollback", "42", "--dry-run") == 0
    assert capsys.readouterr().out == GOLDEN
    assert json.loads(master.asked[-1].body) == {"to": "42", "only": [], "now": False, "max_affected": None}


def test_a_dry_run_for_programs(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["POST /v1/rollback/plan"] = PLAN
    assert run("rollback", "42", "--dry-run", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["stopped"] == 5


def test_long_plans_are_cut(master: FakeMaster, run: Run, capsys: Out) -> None:
    many = tuple(JobRollback(f"ann/job-{n}", "vanishes", (), 1) for n in range(50))
    master.answers["POST /v1/rollback/plan"] = RollbackPlan(AsOf(42, NOW), 50, 0, 0, 0, jobs=many)
    assert run("rollback", "42", "--dry-run") == 0
    assert "and 10 more: -o wide shows them" in capsys.readouterr().out
    assert run("rollback", "42", "--dry-run", "-o", "wide") == 0
    assert "ann/job-49: is removed" in capsys.readouterr().out


def test_it_is_done_and_how_to_undo_it_is_said(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["POST /v1/rollback"] = Accepted(50, "", "cell local is rolled back")
    only = ("--only", "ann/web", "--only", "ann/db")
    assert run("rollback", "--yes", "-5m", *only, "--now", "--max-affected", "7") == 0
    assert capsys.readouterr().out == "cell local is rolled back\nto undo it: borgctl rollback 49\n"
    assert json.loads(master.asked[-1].body) == {
        "to": "5m ago",
        "only": ["ann/web", "ann/db"],
        "now": True,
        "max_affected": 7,
    }


def test_a_refusal_is_said_with_its_way_out(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["POST /v1/rollback"] = Problem(
        "Conflict", 409, "nothing differs", hint="There is nothing to roll back"
    )
    assert run("rollback", "--yes", "42") == 1
    assert "error: nothing differs\nhint: There is nothing to roll back" in capsys.readouterr().err


def test_a_number_below_zero_is_wrong_usage(master: FakeMaster, run: Run) -> None:
    assert run("rollback", "--yes", "42", "--max-affected", "-1") == 2
    assert run("rollback") == 2
