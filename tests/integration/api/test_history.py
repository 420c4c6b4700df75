"""``/v1/history`` through the real client."""

import pytest

from borgish.api.views.history import HistoryFilter
from borgish.cell.events import Entry, JobSubmitted, MachineUp, TasksPlaced
from borgish.client import Client
from borgish.errors import Forbidden, Invalid, Unauthenticated
from borgish.spec.job import JobSpec
from borgish.wire.api_past import HistoryList
from tests.integration.api.fakes import RunningApi
from tests.unit.api.cells import NOW

SPEC = JobSpec("web", "ann", 3, ("true",))


@pytest.fixture
def api(api: RunningApi) -> RunningApi:
    api.master.journal = [
        Entry(
            1, NOW.wall - 300, 1, 1, "ann", "SubmitJob", (JobSubmitted(SPEC),), "r", "d", "ann/web", "done"
        ),
        Entry(2, NOW.wall - 200, 1, 1, "scheduler", "place", (TasksPlaced("ann/web", (0, 1), ("m1", "m2")),)),
        Entry(3, NOW.wall - 100, 1, 1, "machines", "SetMachineUp", (MachineUp("m1"),), subject="m1"),
    ]
    return api


def positions(client: Client, **params: str | int) -> list[int]:
    return [item.position for item in client.get("/v1/history", params, HistoryList).items]


def test_history_of_all_and_of_each(api: RunningApi, admin: Client) -> None:
    assert positions(admin) == [1, 2, 3]
    assert positions(admin, job="ann/web") == [1, 2]
    assert positions(admin, task="ann/web/1") == [1, 2]
    assert positions(admin, machine="m1") == [2, 3]
    assert positions(admin, machine="m2", job="ann/web") == [2]
    assert positions(admin, job="ann/gone") == []


def test_history_is_told_in_words(api: RunningApi, admin: Client) -> None:
    found = admin.get("/v1/history", {"task": "ann/web/1"}, HistoryList)
    told = [(item.actor, item.asked, [event.text for event in item.events]) for item in found.items]
    assert told == [
        ("ann", "submit", ["ann submitted ann/web: 3 tasks"]),
        ("scheduler", "place", ["ann/web/1 placed on m2"]),
    ]
    assert (found.looked_at, found.cut_short, found.page.next) == (3, False, "")


def test_history_in_pages(api: RunningApi, admin: Client) -> None:
    found = admin.get("/v1/history", {"limit": 2}, HistoryList)
    assert ([item.position for item in found.items], found.page.next) == ([2, 3], "2")
    assert positions(admin, limit=2, before=found.page.next) == [1]


def test_times_are_moments_or_ages(api: RunningApi, admin: Client) -> None:
    assert positions(admin, since="210s") == [2, 3]
    assert positions(admin, until="2025-12-31T23:57:00Z") == [1, 2]
    assert positions(admin, since="4m", until="2m") == [2]
    assert api.master.wanted == HistoryFilter(since=NOW.wall - 240, until=NOW.wall - 120)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("job=web", "not the full name of a job"),
        ("job=ann/web/0", "not the full name of a job"),
        ("task=ann/web", "not the full name of a task"),
        ("task=ann/web/10000", "not the full name of a task"),
        ("task=ann/web/01", "not the full name of a task"),
        ("task=ann/web/0%0A", "not the full name of a task"),
        ("job=ann/web&task=ann/web/0", "job and task cannot be combined"),
        ("since=yesterday", "since: 'yesterday' is neither"),
        ("until=2h%20before", "until: '2h before' is neither"),
        ("since=1h&until=2h", "since is after until"),
        ("limit=1001", "limit"),
        ("before=-1", "before"),
        ("user=ann", "unknown parameter"),
        ("job=ann/web&job=ann/db", "more than once"),
    ],
)
def test_bad_queries_are_refused(api: RunningApi, admin: Client, query: str, words: str) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        admin.raw("GET", f"/v1/history?{query}")
    assert caught.value.hint
    assert api.master.wanted is None


def test_readers_may_read_it_and_machines_may_not(api: RunningApi) -> None:
    assert positions(api.client("bgt_reader")) == [1, 2, 3]
    with pytest.raises(Forbidden):
        positions(api.client("bgt_join"))
    with pytest.raises(Unauthenticated):
        positions(api.client("bgt_nobody"))


def test_it_is_described(admin: Client) -> None:
    described = admin.get("/v1/openapi.json", None, dict)["paths"]["/v1/history"]["get"]
    names = [parameter["name"] for parameter in described["parameters"]]
    assert names == ["job", "task", "machine", "since", "until", "limit", "before", "at_least"]
    schema = described["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/HistoryList"}
