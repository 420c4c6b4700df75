"""What is drawn of a cell: its machines by rack, usage over time, the journal entry by entry."""

import pytest

from borgish.api.moments import Moment
from borgish.api.routes.history import USAGE_SECONDS
from borgish.api.services import UsageOf
from borgish.cell.model import Cell
from borgish.client import Client
from borgish.errors import Invalid
from borgish.wire.api_figures import RackList, RackView, UsageSeries
from borgish.wire.api_past import PastWindow
from tests.integration.api.fakes import RunningApi
from tests.unit.api.cells import NOW


def test_machines_by_rack_with_how_they_are(api: RunningApi, admin: Client) -> None:
    def racked(cell: Cell) -> None:
        for name, rack in (("m1", "r2"), ("m2", "r1")):
            cell.machines[name].attributes = {"rack": rack}
        cell.machines["m2"].cordoned = True

    api.do(lambda: racked(api.master.cell))
    found = admin.get("/v1/racks", None, RackList).items
    assert [(each.rack, each.machines, each.states) for each in found] == [
        ("", ("m3",), ("down",)),
        ("r1", ("m2",), ("cordoned",)),
        ("r2", ("m1",), ("up",)),
    ]
    assert [type(each) for each in found] == [RackView] * 3
    full = {name: each.full_percent[0] for each in found for name in each.machines}
    assert full["m3"] == 0
    assert 0 < full["m1"] <= 100


@pytest.mark.parametrize(
    ("params", "of"),
    [
        ({}, UsageOf()),
        ({"job": "ann/web"}, UsageOf("ann/web")),
        ({"task": "ann/web/3"}, UsageOf("ann/web", 3)),
        ({"machine": "m1"}, UsageOf(machine="m1")),
    ],
)
def test_usage_of_what_is_named(api: RunningApi, admin: Client, params: dict[str, str], of: UsageOf) -> None:
    found = admin.get("/v1/usage", params, UsageSeries)
    assert found.items[0].cpu_millis == 500
    assert api.master.usage.asked[-1] == (of, NOW.wall - USAGE_SECONDS)
    admin.get("/v1/usage", {**params, "since": "10m"}, UsageSeries)
    assert api.master.usage.asked[-1] == (of, NOW.wall - 600)


@pytest.mark.parametrize("params", [{"job": "web"}, {"task": "ann/web"}, {"since": "soon"}])
def test_usage_of_nobody_is_refused(admin: Client, params: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        admin.get("/v1/usage", params, UsageSeries)


@pytest.mark.parametrize(
    ("params", "moment"),
    [
        ({}, Moment("now")),
        ({"around": "2"}, Moment("2", position=2)),
        ({"around": "noon"}, Moment("noon", checkpoint="noon")),
    ],
)
def test_a_window_of_the_journal_is_around_a_moment(
    api: RunningApi, admin: Client, params: dict[str, str], moment: Moment
) -> None:
    found = admin.get("/v1/window", params, PastWindow)
    assert found.steps == ()
    assert api.master.sought[-1] == moment
