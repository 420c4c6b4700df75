"""``borgctl budget``, ``freeze`` and ``unfreeze``: what they ask for and print."""

import json

import pytest

from borgish.wire.api import Accepted, BudgetList, BudgetView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster

WEB = BudgetView(
    name="web",
    where=("app == web",),
    max_unavailable="10%",
    allowed=2,
    tasks=20,
    down=2,
    job_count=12,
    jobs=tuple(f"ann/web-{n}" for n in range(12)),
    users=("ann/web-3/0 (pending)",),
)
DONE = Accepted(7, "web", "done")


def test_set_asks_for_all_conditions(master: FakeMaster, run: Run) -> None:
    master.answers["POST /v1/budgets/web"] = DONE
    asked = ("--where", "app == web", "--where", "tier == a", "--max-unavailable", "10%")
    assert run("budget", "set", "web", *asked) == 0
    assert json.loads(master.asked[-1].body) == {
        "where": ["app == web", "tier == a"],
        "max_unavailable": "10%",
    }


def test_it_is_shown_with_its_jobs_and_who_uses_it(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["GET /v1/budgets/web"] = WEB
    assert run("budget", "show", "web") == 0
    shown = capsys.readouterr().out
    for words in ("app == web", "10%: 2 of 20 tasks may be down", "ann/web-3/0 (pending)", "and 2 more"):
        assert words in shown
    master.answers["GET /v1/budgets"] = BudgetList((WEB,))
    assert run("budget", "list") == 0
    assert capsys.readouterr().out.split()[:7] == ["NAME", "WHERE", "MAX", "ALLOWED", "DOWN", "TASKS", "JOBS"]


def test_delete_freeze_and_unfreeze(master: FakeMaster, run: Run) -> None:
    for path in ("budgets/web/delete", "freeze", "unfreeze"):
        master.answers[f"POST /v1/{path}"] = DONE
    assert run("budget", "delete", "--yes", "web") == 0
    assert run("freeze", "--reason", "holidays") == 0
    assert json.loads(master.asked[-1].body) == {"reason": "holidays"}
    assert run("unfreeze") == 0
