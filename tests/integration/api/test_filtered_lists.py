"""Lists that are filtered and sorted, through the API: what may be asked, in which words it is refused, and
that the past and a standby answer alike."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from borgish.api import lists
from borgish.api.services import Reading
from borgish.client import Client
from borgish.errors import Invalid, NotFound
from borgish.spec.selectors import parse_selector
from borgish.wire.api import JobList, MachineList, TaskList
from tests.integration.api.fakes import PAST, RunningApi
from tests.unit.api.cells import NOW

SHAPES: dict[str, Any] = {"jobs": JobList, "tasks": TaskList, "machines": MachineList}


def names(client: Client, what: str, **query: str | int | bool) -> list[str]:
    return [item.name for item in client.get(f"/v1/{what}", query, SHAPES[what]).items]


@pytest.mark.parametrize(
    ("what", "query", "expected"),
    [
        ("jobs", {"user": "ann"}, ["ann/sum", "ann/web"]),
        ("jobs", {"state": "dead"}, ["ann/sum"]),
        ("jobs", {"label": "app=web"}, ["ann/web"]),
        ("jobs", {"label": "!app,tier!=db"}, ["ann/sum", "bob/db"]),
        ("jobs", {"text": "NO ATTEMPTS"}, ["ann/sum"]),
        ("jobs", {"text": "b/d"}, ["bob/db"]),
        ("jobs", {"machine": "m2"}, ["bob/db"]),
        ("jobs", {"sort": "trouble"}, ["ann/sum", "ann/web", "bob/db"]),
        ("jobs", {"sort": "-tasks"}, ["bob/db", "ann/sum", "ann/web"]),
        ("tasks", {"user": "bob"}, ["bob/db/0"]),
        ("tasks", {"state": "pending"}, ["ann/web/2"]),
        ("tasks", {"label": "app in (web, api)", "state": "running"}, ["ann/web/0", "ann/web/1"]),
        ("tasks", {"text": "little ram"}, ["ann/web/2"]),
        ("tasks", {"sort": "trouble", "limit": 3}, ["ann/web/1", "ann/web/2", "ann/sum/1"]),
        ("tasks", {"sort": "cpu", "limit": 2}, ["ann/web/1", "ann/web/0"]),
        ("tasks", {"sort": "restarts", "limit": 1}, ["ann/web/1"]),
        ("machines", {"state": "cordoned"}, ["m2"]),
        ("machines", {"label": "arch=amd64", "text": "SILENT"}, ["m3"]),
        ("machines", {"sort": "tasks"}, ["m1", "m2", "m3"]),
        ("machines", {"sort": "trouble"}, ["m2", "m3", "m1"]),
    ],
)
def test_lists_are_filtered_and_sorted(
    api: RunningApi, admin: Client, what: str, query: dict[str, str | int], expected: list[str]
) -> None:
    api.master.cell.jobs["ann/web"].spec.labels["app"] = "web"
    assert names(admin, what, **query) == expected


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/jobs?sort=age", "there is no order 'age'. Use one of name, trouble, since"),
        ("/v1/tasks?sort=--name", "there is no order '--name'"),
        ("/v1/machines?sort=up", "there is no order 'up'. Use one of name, trouble, tasks, cpu, ram"),
        ("/v1/jobs?label=app%3D", "'app=' is not a condition. Write it like app=web"),
        ("/v1/jobs?label=a,,b", "'' is not a condition"),
        ("/v1/machines?label=rack+in+(r1", "without a"),
        ("/v1/jobs?after=x&sort=tasks", "after: 'x' is not of a list by tasks. Pass page.next"),
        ("/v1/tasks?after=x", "after: 'x' is not the name of a record"),
        ("/v1/jobs?recent=maybe", "recent"),
        ("/v1/jobs?rack=r1", "unknown parameter 'rack'"),
        ("/v1/machines?state=running", "state"),
        (f"/v1/jobs?text={'x' * 101}", "text"),
        (f"/v1/jobs?label={'x' * 1025}", "label"),
    ],
)
def test_what_is_no_filter_is_refused(admin: Client, path: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        admin.get(path, None, JobList)
    assert words in str(refused.value)


def test_a_page_goes_on_in_its_own_order_only(admin: Client) -> None:
    page = admin.get("/v1/jobs", {"sort": "tasks", "limit": 1}, JobList)
    assert [job.name for job in page.items] == ["ann/web"]
    query = {"sort": "tasks", "after": page.page.next}
    assert names(admin, "jobs", **query) == ["ann/sum", "bob/db"]
    with pytest.raises(Invalid, match=r"is not of a list by -tasks"):
        admin.get("/v1/jobs", query | {"sort": "-tasks"}, JobList)


def test_a_machine_that_is_not_there_is_said(admin: Client) -> None:
    with pytest.raises(NotFound, match="there is no machine m9"):
        names(admin, "jobs", machine="m9")


def test_what_ended_long_ago_is_left_out_and_counted(api: RunningApi, admin: Client) -> None:
    jobs = api.master.cell.jobs
    assert names(admin, "jobs", recent=True) == ["ann/sum", "ann/web", "bob/db"]
    for task in jobs["ann/sum"].tasks:
        task.since = NOW.wall - 86_401
    page = admin.get("/v1/jobs", {"recent": True, "limit": 1}, JobList)
    assert ([job.name for job in page.items], page.left_out) == (["ann/web"], 1)
    later = admin.get("/v1/jobs", {"recent": True, "after": page.page.next}, JobList)
    assert ([job.name for job in later.items], later.left_out) == (["bob/db"], 1)
    assert admin.get("/v1/jobs", {}, JobList).left_out == 0


def test_of_the_past_what_is_recent_is_judged_by_then(api: RunningApi, admin: Client) -> None:
    """``PAST`` is some minutes before ``NOW``: what had ended shortly before it is recent there."""
    for task in api.master.cell.jobs["ann/sum"].tasks:
        task.since = NOW.wall - 86_500
    past = admin.as_of(PAST.position)
    assert "ann/sum" not in names(admin, "jobs", recent=True)
    assert "ann/sum" in names(past, "jobs", recent=True)
    assert names(past, "jobs", sort="trouble") == ["ann/sum", "ann/web", "bob/db"]
    assert names(past, "tasks", sort="cpu", state="running") == ["ann/web/0", "ann/web/1", "bob/db/0"]


def test_a_task_tells_where_it_is_reached(api: RunningApi, admin: Client) -> None:
    first, _, waiting, *_ = admin.get("/v1/tasks", {"job": "ann/web"}, TaskList).items
    assert first.address == {"http": "127.0.0.1:20000"}
    assert waiting.address == {}
    api.master.cell.machines["m1"].host = "fe80::1"
    first, *_ = admin.get("/v1/tasks", {"job": "ann/web"}, TaskList).items
    assert first.address == {"http": "[fe80::1]:20000"}


def test_a_long_list_is_made_of_several_readings(
    api: RunningApi, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of them the loop serves all others, and what is gone by then is not shown."""
    monkeypatch.setattr(lists, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(lists, "LOOKED_AT", 1)
    master, readings = api.master, [0]
    read = master.read

    async def counted(view: Callable[[Reading], Any], at_least: int = 0) -> Any:
        readings[0] += 1
        if readings[0] == 5:
            await asyncio.sleep(0)
            del master.cell.jobs["ann/sum"]
        return await read(view, at_least)

    monkeypatch.setattr(master, "read", counted)
    shown = names(admin, "tasks", sort="trouble")
    assert shown == ["ann/web/1", "ann/web/2", "ann/web/3", "ann/web/0", "bob/db/0"]
    assert readings[0] > len(shown)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("", ()),
        ("app=web", ("app == web",)),
        ("app==web , tier!=db", ("app == web", "tier != db")),
        ("gpu,!old", ("present(gpu)", "not present(old)")),
        ("rack in (r1, r2),mem>=5", ("rack in (r1, r2)", "mem >= 5")),
        ("a.b/c-d=1", ("a.b/c-d == 1",)),
    ],
)
def test_a_selector_is_read(text: str, conditions: tuple[str, ...]) -> None:
    assert tuple(map(str, parse_selector(text))) == conditions


@pytest.mark.parametrize("what", sorted(SHAPES))
def test_each_page_says_of_which_position_it_is(api: RunningApi, admin: Client, what: str) -> None:
    cell = api.master.cell
    first = admin.get(f"/v1/{what}", {"limit": 1}, SHAPES[what])
    assert first.page.position == cell.position
    api.do(lambda: setattr(cell, "position", cell.position + 1))
    rest = admin.get(f"/v1/{what}", {"after": first.page.next}, SHAPES[what])
    assert (rest.page.next, rest.page.position) == ("", first.page.position + 1)


def test_pages_of_one_position_are_those_of_a_moment(api: RunningApi, admin: Client) -> None:
    """What the cell has become meanwhile is on none of them."""
    query: dict[str, str | int] = {"limit": 2, "at": PAST.position}
    first = admin.get("/v1/tasks", query, TaskList)
    assert [task.name for task in first.items] == ["ann/sum/0", "ann/sum/1"]
    rest = admin.get("/v1/tasks", {"at": PAST.position, "after": first.page.next}, TaskList)
    assert len(rest.items) == 5
    assert {first.as_of, rest.as_of} == {PAST}
