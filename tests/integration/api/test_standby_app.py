"""What a borgmaster answers that stands by, over HTTP: how it is, who leads, and nothing to strangers."""

import http.client
import json
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import pytest

from borgish.api import standby
from borgish.api.app import ROUTES
from borgish.api.middleware import LOOPBACK_HOSTS, AuthMiddleware
from borgish.api.moments import LEADER_ONLY, Moment
from borgish.api.parameters import takes_at_least
from borgish.api.serve import serve
from borgish.api.services import Reading
from borgish.api.standby import StandbyApp
from borgish.api.views.history import HistoryFilter
from borgish.cell.events import Entry, MachineCordoned
from borgish.cell.observed import Observed
from borgish.client import Client, Params
from borgish.errors import Fenced, Invalid, NotFound, NotLeading, Unreachable
from borgish.wire.api import (
    Accepted,
    AsOf,
    CheckpointView,
    EventList,
    HealthView,
    JobDetail,
    JobList,
    MachineList,
    ScaleRequest,
    StatusView,
    SummaryView,
    TaskList,
    WhyView,
)
from borgish.wire.api_past import CheckpointDetail, CheckpointList, DiffView, HistoryList, PastWindow
from tests.integration.api.fakes import CHECKPOINT, PAST, PATIENCE_SECONDS, TOKENS, FakeMoments, RunningApi
from tests.ports import free_port

T = TypeVar("T")
ANY = {"at_least": 0}
VIEW = HealthView("test", "1", "standby", "http://127.0.0.1:9", "", "", 1, 3, 20, True, 0.1, "", "2026-01-01")


class StandingBy:
    """A copy of the cell of another, which is at position 2."""

    def __init__(self, one: "Standby") -> None:
        self._one = one
        self.past = PastOfBoth(one.leader)

    def health(self) -> HealthView:
        return self._one.view

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        if at_least > PAST.position:
            raise NotLeading(f"not at {at_least} yet")
        reading = self._one.leader.master.reading(Observed(known=False), {})
        return view(msgspec.structs.replace(reading, as_of=PAST))


class PastOfBoth(FakeMoments):
    """The past, as the one who leads knows it, while the database ``answers``."""

    def __init__(self, leader: RunningApi) -> None:
        super().__init__(leader.master)
        self.answers = True
        self.found: list[Moment] = []

    async def find(self, moment: Moment) -> AsOf:
        if not self.answers:
            raise NotLeading("cannot read the past")
        self.found.append(moment)
        return await super().find(moment)

    async def checkpoints(self) -> list[CheckpointView]:
        return await self._master.listed()

    async def checkpoint(self, position: int) -> CheckpointDetail:
        return await self._master.detail(position)

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList:
        return await self._master.latest(wanted, before, limit)


class Standby:
    """One that stands by, beside one that leads."""

    def __init__(self, api: RunningApi) -> None:
        self.leader = api
        self.view = VIEW
        self.copy = StandingBy(self)
        app = AuthMiddleware(StandbyApp(self.copy), TOKENS, LOOPBACK_HOSTS)
        self.serving = api.call(serve(app, "127.0.0.1", 0))
        self.url = self.serving.url

    def knows(self, leader: str) -> None:
        self.view = msgspec.structs.replace(VIEW, leader=leader)

    def ask(self, method: str, path: str, token: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.serving.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body or None, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        finally:
            connection.close()


def entry(position: int) -> Entry:
    return Entry(position, 100.0 + position, 1, 1, "ann", "CordonMachine", (MachineCordoned("m1"),))


@pytest.fixture
def one() -> Iterator[Standby]:
    api = RunningApi()
    made = Standby(api)
    yield made
    api.call(made.serving.stop())
    api.stop()


def test_it_says_how_it_is_to_those_who_may_read(one: Standby) -> None:
    assert Client(one.url, "bgt_reader").get("/v1/health", None, HealthView) == VIEW
    assert one.ask("GET", "/v1/health", "bgt_join")[0] == 403
    assert one.ask("GET", "/v1/health", "bgt_unknown")[0] == 401
    one.knows("http://127.0.0.1:1")
    assert one.ask("GET", "/v1/jobs", "bgt_unknown")[0] == 401


def test_it_sends_on_with_path_and_query(one: Standby) -> None:
    one.knows("http://127.0.0.1:1")
    status, headers, body = one.ask("POST", "/v1/jobs?user=a%2Fnn", "bgt_ann", b"x" * 100_000)
    assert (status, headers["location"]) == (307, "http://127.0.0.1:1/v1/jobs?user=a%2Fnn")
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["hint"] == "Ask http://127.0.0.1:1"


def test_a_client_goes_where_it_is_sent_and_stays_there(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    client = Client(one.url, "bgt_ann")
    assert client.get("/v1/status", None, StatusView).cell == "test"
    assert client.url == one.leader.serving.url
    again = Client(one.url, "bgt_ann")
    again.post("/v1/jobs/ann/web/scale", ScaleRequest(2), Accepted, "an-id")
    assert [asked.request_id for asked in one.leader.master.asked] == ["an-id"]
    assert next(Client(one.url, "bgt_ann").watch({"kinds": "summary"})).kind == "summary"


def test_that_nobody_leads_is_said(one: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.masters.LEADERLESS_SECONDS_MAX", 0.1)
    one.view = msgspec.structs.replace(VIEW, trouble="Postgres does not answer")
    status, headers, _ = one.ask("GET", "/v1/jobs", "bgt_ann")
    assert (status, headers["retry-after"]) == (503, str(standby.AGAIN_SECONDS))
    with pytest.raises(Unreachable, match=r"no borgmaster .* leads: .* stands by: Postgres does not answer"):
        Client(one.url, "bgt_ann").get("/v1/status", None, StatusView)


def test_who_is_sent_on_in_vain_is_told_why_it_cannot_follow(
    one: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.masters.LEADERLESS_SECONDS_MAX", 0.1)
    gone = f"http://127.0.0.1:{free_port()}"
    one.view = msgspec.structs.replace(VIEW, leader=gone, trouble="Postgres does not answer")
    said = rf"redirects to {gone} \(.* stands by and cannot follow: Postgres does not answer; .* led last\)"
    with pytest.raises(Unreachable, match=said):
        Client(one.url, "bgt_ann").get("/v1/status", None, StatusView)


def test_one_whose_time_is_over_answers_nothing_else(one: Standby) -> None:
    def over() -> None:
        raise Fenced("The lease could not be renewed")

    door = AuthMiddleware(StandbyApp(one.copy), TOKENS, LOOPBACK_HOSTS, over)
    serving = one.leader.call(serve(door, "127.0.0.1", 0))
    with pytest.raises(Unreachable, match="lease could not be renewed"):
        Client(serving.url, "bgt_ann").get("/v1/health", None, HealthView)
    one.leader.call(serving.stop())


def test_it_shows_its_copy_to_those_who_ask_for_no_newer_one(one: Standby) -> None:
    client = Client(one.url, "bgt_reader")
    assert client.get("/v1/status", ANY, StatusView).as_of == PAST
    assert client.get("/v1/moment", ANY, AsOf) == PAST
    assert client.get("/v1/machines", {"at_least": PAST.position, "limit": 1}, MachineList).as_of == PAST
    jobs = client.get("/v1/jobs", ANY, JobList)
    assert jobs.as_of == PAST
    assert {job.up for job in jobs.items} == {None}, "it has seen nothing of the machines"
    assert client.url == one.url


def test_what_it_does_not_know_the_leader_is_asked_for(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    asked: tuple[tuple[str, Params | None], ...] = (
        ("/v1/jobs", {"at_least": PAST.position + 1}),
        ("/v1/diff", {"at_least": PAST.position + 1, "from": "2"}),
        ("/v1/jobs", {"at": "2"}),
        ("/v1/jobs", None),
    )
    for path, params in asked:
        client = Client(one.url, "bgt_ann")
        client.raw("GET", path, params)
        assert client.url == one.leader.serving.url, (path, params)
    status, headers, body = one.ask("GET", "/v1/jobs?at_least=3&limit=5", "bgt_ann")
    assert (status, headers["location"]) == (307, f"{one.leader.serving.url}/v1/jobs?at_least=3&limit=5")
    assert json.loads(body)["detail"].startswith("not at 3 yet; the one at ")


def test_it_shows_the_past_to_those_who_let_it_answer(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    client = Client(one.url, "bgt_ann")
    then: dict[str, str | int] = {**ANY, "at": "2"}
    assert client.get("/v1/jobs", then, JobList).as_of == PAST
    assert client.get("/v1/moment", then, AsOf) == PAST
    client.raw("GET", "/v1/events", then)
    assert [moment.position for moment in one.copy.past.found] == [2, 2, 2]
    with pytest.raises(Invalid, match="invalid moment"):
        client.get("/v1/jobs", {**ANY, "at": "nonsense!"}, JobList)
    assert client.as_of(2).get("/v1/jobs", ANY, JobList).as_of == PAST
    assert client.url == one.url
    one.copy.past.answers = False
    assert client.get("/v1/jobs", then, JobList).as_of == PAST
    assert client.url == one.leader.serving.url


def test_it_compares_two_moments_and_walks_through_the_past(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    client, asked = Client(one.url, "bgt_ann"), {"at_least": PAST.position}
    found = client.get("/v1/diff", {**asked, "from": "2"}, DiffView)
    assert (found.old, found.new) == (PAST, PAST)
    window = client.get("/v1/window", {**asked, "around": "2"}, PastWindow)
    assert (window.as_of, window.head) == (PAST, PAST.position)
    assert [moment.text for moment in one.leader.master.sought] == ["2", "now", "2"]
    assert client.url == one.url


def test_it_tells_what_happened_up_to_where_its_copy_is(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    one.leader.master.journal = [entry(position) for position in range(1, 5)]
    client = Client(one.url, "bgt_ann")
    for before, told in ((0, [1, 2]), (2, [1]), (4, [1, 2])):
        history = client.get("/v1/history", {**ANY, "before": before}, HistoryList)
        assert ([each.position for each in history.items], history.as_of) == (told, PAST)
    events = client.get("/v1/events", ANY, EventList)
    assert ([each.position for each in events.items], events.as_of) == ([1, 2], PAST)
    assert client.get("/v1/events", {**ANY, "after": 1, "limit": 1}, EventList).items == events.items[1:]
    assert client.get("/v1/summary", ANY, SummaryView).events == events.items
    assert client.url == one.url
    assert one.leader.client("bgt_ann").get("/v1/history", ANY, HistoryList).as_of is None


def test_it_shows_the_checkpoints_and_has_their_bodies_handed_out_by_the_leader(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    client = Client(one.url, "bgt_admin")
    kept = client.get("/v1/checkpoints", ANY, CheckpointList)
    assert (kept.items, kept.as_of) == ((CHECKPOINT,), PAST)
    client.get("/v1/checkpoints/20", ANY, CheckpointDetail)
    with pytest.raises(NotFound):
        client.raw("GET", "/v1/checkpoints/21", ANY)
    assert client.url == one.url
    with pytest.raises(Invalid, match="reading it is noted in the audit log, which only the leader writes"):
        client.raw("GET", "/v1/checkpoints/20/body", ANY)
    client.raw("GET", "/v1/checkpoints/20/body")
    assert client.url == one.leader.serving.url


@pytest.mark.parametrize("noun", ["users", "groups", "tokens", "invitations", "secrets"])
def test_it_lists_who_may_do_what(one: Standby, noun: str) -> None:
    said = json.loads(Client(one.url, "bgt_admin").raw("GET", f"/v1/{noun}", {"at_least": PAST.position}))
    assert said["as_of"]["position"] == PAST.position
    assert one.ask("GET", f"/v1/{noun}?at_least=0", "bgt_join")[0] == 403
    leaders = json.loads(one.leader.client().raw("GET", f"/v1/{noun}"))
    assert (said["items"], "as_of" in leaders) == (leaders["items"], False)


def test_every_read_says_whether_a_standby_answers_it_or_why_not() -> None:
    reads = [route for route in ROUTES if "GET" in route.http_methods]
    assert reads
    for route in reads:
        assert takes_at_least(route) is not bool(route.opt.get(LEADER_ONLY)), route.paths
    assert not [route for route in ROUTES if route not in reads and takes_at_least(route)]


@pytest.mark.parametrize("path", ["/v1/why/ann/web", "/v1/why/ann/web/0", "/v1/apps/ann/shop/why"])
def test_why_something_waits_is_told_by_the_leader_and_that_is_said(one: Standby, path: str) -> None:
    one.knows(one.leader.serving.url)
    status, headers, body = one.ask("GET", f"{path}?at_least=0", "bgt_ann")
    assert (status, headers["location"]) == (307, f"{one.leader.serving.url}{path}?at_least=0")
    problem = json.loads(body)
    assert problem["detail"].startswith("why something waits now is known to the borgmaster that leads, not")
    assert problem["hint"] == f"Ask {one.leader.serving.url}"


def test_why_something_waited_is_told_by_a_standby_as_far_as_it_is_journalled(one: Standby) -> None:
    client = Client(one.url, "bgt_ann")
    assert client.get("/v1/why/ann/web", {**ANY, "at": "2"}, WhyView).as_of == PAST
    assert client.url == one.url


def test_values_that_the_audit_log_has_to_be_told_of_are_shown_by_the_leader(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    for token, url in (("bgt_ann", one.url), ("bgt_reader", one.url), ("bgt_admin", one.leader.serving.url)):
        client = Client(one.url, token)
        client.get("/v1/jobs/ann/web", ANY, JobDetail)
        assert client.url == url, token


def test_bad_queries_are_refused_as_by_a_leader(one: Standby) -> None:
    client = Client(one.url, "bgt_ann")
    for text in ("x", "-1", "", "1.5", "9" * 19, "%C2%B2"):
        assert one.ask("GET", f"/v1/jobs?at_least={text}", "bgt_ann")[0] == 400, text
    with pytest.raises(Invalid, match="'at_least' is not supported here: what was used is sampled, and has"):
        client.raw("GET", "/v1/usage", ANY)
    with pytest.raises(Invalid, match="unknown parameter 'lmit'"):
        client.raw("GET", "/v1/jobs", {**ANY, "lmit": 1})
    assert one.ask("GET", "/v1/nothing?at_least=0", "bgt_ann")[0] == 404
    assert one.ask("GET", "/v1/jobs?at_least=0", "bgt_join")[0] == 403


def test_a_leader_answers_from_a_position_on_that_there_is(one: Standby) -> None:
    client, head = one.leader.client("bgt_ann"), one.leader.master.cell.position
    tasks = client.get("/v1/tasks", {"at_least": head}, TaskList)
    assert tasks.as_of is None
    assert tasks.items
    with pytest.raises(Invalid, match=f"position {head + 1} does not exist yet. The latest is {head}"):
        client.get("/v1/tasks", {"at_least": head + 1}, TaskList)
    for path in ("/v1/events", "/v1/moment"):
        for text in (head + 1, "abc"):
            with pytest.raises(Invalid):
                client.raw("GET", path, {"at_least": text})
    with pytest.raises(Invalid, match="does not exist yet"):
        client.raw("GET", "/v1/tasks", {"at_least": 2**63 - 1})


def test_a_standby_says_of_which_moment_it_is_from_the_position_on_that_is_asked_for(one: Standby) -> None:
    one.knows(one.leader.serving.url)
    client = Client(one.url, "bgt_ann")
    assert client.get("/v1/moment", {"at_least": PAST.position}, AsOf) == PAST
    assert client.url == one.url
    client.get("/v1/moment", {"at_least": PAST.position + 1}, AsOf)
    assert client.url == one.leader.serving.url
