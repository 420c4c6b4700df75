"""The routes of disruption budgets and of the freeze: who may use them, what they take, what they answer."""

import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    FreezeCell,
    RemoveBudget,
    SetBudget,
    UnfreezeCell,
)
from borgish.cell.events import BudgetSet, CellFrozen, Entry
from borgish.cell.limits.budgets import Budget
from borgish.client import Client, quoted
from borgish.errors import Forbidden, Invalid, NotFound
from borgish.spec.job import Constraint
from borgish.spec.shares import Share
from borgish.wire.api import (
    Accepted,
    BudgetList,
    BudgetRequest,
    BudgetView,
    FreezeRequest,
    StatusView,
)
from tests.integration.api.fakes import RunningApi
from tests.unit.api.cells import NOW

PATH = quoted("budgets", "web")
WEB = Budget("web", (Constraint("team", "not present"),), Share(2))


def happen(api: RunningApi, *events: BudgetSet | CellFrozen) -> None:
    cell = api.master.cell
    api.do(lambda: apply_entry(cell, Entry(cell.position + 1, NOW.wall, 1, 1, "root", "test", events)))


def test_an_admin_sets_and_deletes_freezes_and_unfreezes(api: RunningApi, admin: Client) -> None:
    admin.post(PATH, BudgetRequest(("app == web", "tier in (a, b)"), "10%"), Accepted)
    admin.post(PATH + "/delete", None, Accepted)
    admin.post("/v1/freeze", FreezeRequest("holidays"), Accepted)
    admin.post("/v1/unfreeze", None, Accepted)
    where = (Constraint("app", "==", ("web",)), Constraint("tier", "in", ("a", "b")))
    assert [asked.command for asked in api.master.asked] == [
        SetBudget(Budget("web", where, Share(1, 10))),
        RemoveBudget("web"),
        FreezeCell("holidays"),
        UnfreezeCell(),
    ]


@pytest.mark.parametrize("path", [PATH, PATH + "/delete", "/v1/freeze", "/v1/unfreeze"])
def test_nobody_else_does(api: RunningApi, path: str) -> None:
    with pytest.raises(Forbidden):
        api.client("bgt_ann").post(path, BudgetRequest(("app == web",), "1"), Accepted)
    assert api.master.asked == []


@pytest.mark.parametrize(
    ("where", "most", "words"),
    [
        (("app",), "1", "where: 'app' is not a condition"),
        (("app = web",), "1", "has '=' where '==' is meant"),
        (("app == web",), "0", "max_unavailable: '0' is outside 1 to 10000"),
        (("app == web",), "some", "is neither a number of tasks nor a percentage"),
        (("app == web",) * 17, "1", "17 conditions are too many"),
    ],
)
def test_what_cannot_be_right_is_refused(
    api: RunningApi, admin: Client, where: tuple[str, ...], most: str, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        admin.post(PATH, BudgetRequest(where, most), Accepted)
    assert api.master.asked == []


def test_it_shows_whom_it_is_about_and_who_uses_it(api: RunningApi, admin: Client) -> None:
    happen(api, BudgetSet(WEB))
    shown = admin.get(PATH, None, BudgetView)
    assert (shown.where, shown.max_unavailable, shown.allowed) == (("not present(team)",), "2", 2)
    assert (shown.tasks, shown.down, shown.job_count) == (4, 2, 3)
    assert shown.jobs == ("ann/sum", "ann/web", "bob/db")
    assert shown.users == ("ann/web/1 (unhealthy)", "ann/web/2 (pending)")
    assert admin.get("/v1/budgets", None, BudgetList).items == (shown,)
    with pytest.raises(NotFound, match="no budget other"):
        admin.get(quoted("budgets", "other"), None, BudgetView)


def test_the_status_says_that_it_is_frozen(api: RunningApi, admin: Client) -> None:
    assert admin.get("/v1/status", None, StatusView).frozen == ""
    happen(api, CellFrozen("holidays"))
    frozen = admin.get("/v1/status", None, StatusView).frozen
    assert frozen == "frozen by root since 2026-01-01T00:00:00.000Z: holidays"
