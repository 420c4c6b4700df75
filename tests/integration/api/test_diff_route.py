"""``/v1/diff`` through the real client."""

import pytest

from borgish.client import Client
from borgish.errors import Gone, Invalid
from borgish.wire.api_past import ChangeView, DiffView
from tests.integration.api.fakes import PAST, RunningApi
from tests.unit.api.cells import NOW, small_cell


def test_what_differs_since_a_moment(api: RunningApi, admin: Client) -> None:
    before = small_cell()
    before.jobs["ann/web"].tasks[0].machine = "m2"
    before.jobs["ann/web"].tasks[1].machine = "m2"
    del before.machines["m3"]
    api.master.before = before

    found = admin.get("/v1/diff", {"from": "5m"}, DiffView)

    assert (found.old, found.new) == (PAST, PAST)
    assert list(found.changes) == ["rules", "machines", "quotas", "budgets", "apps", "crons", "jobs", "tasks"]
    assert found.changes["tasks"] == (ChangeView("changed", "ann/web", ("machine: m2 -> m1",), "0-1", 2),)
    assert [(change.kind, change.name) for change in found.changes["machines"]] == [("added", "m3")]
    first, second = api.master.sought
    assert (first.at, second.text) == (NOW.wall - 300, "now")


def test_two_moments_are_looked_up_each(api: RunningApi, admin: Client) -> None:
    admin.get("/v1/diff", {"from": "noon", "to": "2"}, DiffView)
    assert [(moment.checkpoint, moment.position) for moment in api.master.sought] == [
        ("noon", None),
        ("", 2),
    ]
    with pytest.raises(Gone):
        admin.get("/v1/diff", {"from": "2", "to": "1"}, DiffView)


@pytest.mark.parametrize("query", ["", "?from=", "?from=5%20moons", "?from=2&to=", "?to=2"])
def test_what_is_no_moment_is_refused(admin: Client, query: str) -> None:
    with pytest.raises(Invalid, match="invalid moment"):
        admin.raw("GET", f"/v1/diff{query}")
