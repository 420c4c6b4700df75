"""``ETag`` of what is shown, ``If-Match`` of what is changed, and what is said when they differ."""

import http.client
from typing import Any

import msgspec
import pytest

from borgish.api.app import create_routes
from borgish.api.auth import POLICY, Policy
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.cell.crons.model import Cron
from borgish.cell.events import Entry, JobChanged
from borgish.cell.limits.budgets import Budget
from borgish.cell.model import App, AppVersion
from borgish.client import Client
from borgish.errors import Invalid, PreconditionFailed
from borgish.spec.app import AppSpec
from borgish.spec.shares import Share
from borgish.vocabulary import State
from borgish.wire.api import Accepted, BudgetView, JobDetail, MachineView, Problem, QuotaView, ScaleRequest
from borgish.wire.api_apps import AppDetail
from borgish.wire.api_crons import CronDetail
from tests.integration.api.fakes import FakeMaster, RunningApi
from tests.unit.api.cells import NOW
from tests.unit.cell.crons import cron

SHOWN = {
    "/v1/jobs/ann/web": JobDetail,
    "/v1/machines/m1": MachineView,
    "/v1/quotas/ann/batch": QuotaView,
    "/v1/budgets/few": BudgetView,
    "/v1/apps/ann/shop": AppDetail,
    "/v1/crons/ann/nightly": CronDetail,
}
WITHOUT = {
    *("/v1/freeze", "/v1/unfreeze"),
    *("/v1/plan", "/v1/apply/plan", "/v1/machines", "/v1/rollback", "/v1/rollback/plan"),
    *("/v1/checkpoints", "/v1/checkpoints/import", "/v1/checkpoints/{position}/verify"),
    *("/v1/authority/rotate", "/v1/authority/sealed"),
    *("/v1/checkpoints/{position}/delete", "/v1/tasks/{user}/{name}/{index}/exec"),
    *("/v1/tasks/{user}/{name}/{index}/exec/stream", "/v1/tasks/{user}/{name}/{index}/exec/stdin"),
    *(f"/v1/tasks/{{user}}/{{name}}/{{index}}/{it}" for it in ("copy", "forward", "forward/stdin")),
    *("/v1/users/{user}", "/v1/users/{user}/remove", "/v1/users/{user}/grants", "/v1/groups/{group}"),
    *("/v1/groups/{group}/remove", "/v1/groups/{group}/members", "/v1/tokens", "/v1/tokens/{token}/revoke"),
    *("/v1/invitations", "/v1/invitations/{invitation}/revoke", "/v1/machines/{machine}/revoke"),
    *("/v1/secrets/{user}/{name}", "/v1/secrets/{user}/{name}/remove"),
    "/v1/audit/verify",
}
"""What is posted and decides about no one job, machine or quota; a rollback is asked about by its plan. What
is about who may do what adds or takes away by itself, whatever else was changed."""


def ask(
    api: RunningApi, method: str, path: str, tags: tuple[str, ...] = (), body: bytes = b""
) -> tuple[int, str, bytes]:
    """Return status, ETag and body."""
    connection = http.client.HTTPConnection(api.serving.url.removeprefix("http://"), timeout=60)
    try:
        connection.putrequest(method, path)
        connection.putheader("Authorization", "Bearer bgt_admin")
        for tag in tags:
            connection.putheader("If-Match", tag)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.headers.get("etag", ""), response.read()
    finally:
        connection.close()


def problem(body: bytes) -> Problem:
    return msgspec.json.decode(body, type=Problem)


def test_every_change_takes_a_condition_or_is_known_to_have_none() -> None:
    from borgish.api.openapi import _handlers

    tagged: list[str] = []
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for path, method, handler in _handlers(create_routes(FakeMaster().services)):
        if method == "POST":
            found[bool(handler.opt.get(IF_MATCH))].add(path)
            assert handler.opt[POLICY] not in (Policy.READ, Policy.SELF) or not handler.opt.get(IF_MATCH)
        elif handler.opt.get(ETAG):
            tagged.append(path)
    assert found[False] == WITHOUT
    assert len(tagged) == len(SHOWN)
    assert len(found[True]) == 31


@pytest.mark.parametrize("path", SHOWN)
def test_one_thing_is_shown_with_its_generation_as_tag(api: RunningApi, admin: Client, path: str) -> None:
    cell = api.master.cell
    cell.jobs["ann/web"].generation, cell.machines["m1"].generation = 17, 17
    cell.budgets["few"] = Budget("few", (), Share(1), 17)
    present = AppVersion(AppSpec("shop", "ann"), (), 5.0, "ann")
    cell.apps["ann/shop"] = App("ann/shop", 3, present, generation=17)
    cell.crons["ann/nightly"] = Cron(cron(), 5.0, "ann", generation=17)
    cell.reindex()
    status, tag, body = ask(api, "GET", path)
    shown: Any = msgspec.json.decode(body, type=SHOWN[path])
    assert status == 200
    one = getattr(shown, "job", getattr(shown, "app", getattr(shown, "cron", shown)))
    assert tag == f'"{one.generation}"'
    assert ask(api, "GET", path.rpartition("/")[0].rpartition("/ann")[0])[1] == ""


@pytest.mark.parametrize(
    "tags", [("*",), ("12",), ('W/"12"',), ('"12", "13"',), ('"-1"',), ('"012"',), ("",), ('"12"', '"12"')]
)
def test_a_malformed_condition_is_refused(api: RunningApi, tags: tuple[str, ...]) -> None:
    status, _, body = ask(api, "POST", "/v1/jobs/ann/web/scale", tags, b'{"tasks":3}')
    assert (status, problem(body).detail) == (Invalid.status, "invalid If-Match")
    assert api.master.asked == []


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/jobs/ann/web"), ("POST", "/v1/checkpoints")])
def test_a_condition_that_would_not_hold_is_refused(api: RunningApi, method: str, path: str) -> None:
    status, _, body = ask(api, method, path, ('"12"',))
    assert status == Invalid.status
    assert "not supported" in problem(body).detail


def test_the_condition_is_handed_on(api: RunningApi, admin: Client) -> None:
    api.master.cell.jobs["ann/web"].generation = 17
    accepted = admin.post("/v1/jobs/ann/web/scale", ScaleRequest(3), Accepted, expected=17)
    assert accepted.text == "done"
    with pytest.raises(PreconditionFailed):
        admin.post("/v1/jobs/ann/web/scale", ScaleRequest(3), Accepted, expected=16)
    assert len(api.master.asked) == 1


def test_who_is_too_late_is_told_what_was_changed_and_by_whom(api: RunningApi, admin: Client) -> None:
    web = api.master.cell.jobs["ann/web"]
    web.generation = 19
    changed = JobChanged("ann/web", web.spec)

    def entry(position: int, cause: str, actor: str, text: str) -> Entry:
        at = NOW.wall - 120
        return Entry(position, at, 1, 1, actor, cause, (changed,), subject="ann/web", text=text)

    api.master.journal = [
        entry(12, "ScaleJob", "eve", "before"),
        entry(17, "RestartTasks", "bob", "1 task of ann/web restarted\nand a note"),
        entry(18, "PlaceTasks", "scheduler", "by itself"),
        entry(19, "ScaleJob", "bob", "ann/web scaled from 3 to 5 tasks"),
    ]
    with pytest.raises(PreconditionFailed) as caught:
        admin.post("/v1/jobs/ann/web/scale", ScaleRequest(3), Accepted, expected=12)
    assert caught.value.message == (
        "ann/web was changed since you looked (generation 12, now 19): 1 task of ann/web restarted, by bob "
        "2m ago; then ann/web scaled from 3 to 5 tasks, by bob 2m ago"
    )
    assert caught.value.hint == "look again with `borgctl job show ann/web`, and decide anew"
    assert web.state is State.RUNNING
