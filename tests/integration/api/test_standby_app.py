"""What a borgmaster answers that stands by, over HTTP: how it is, who leads, and nothing to strangers."""

import http.client
import json
from collections.abc import Iterator

import msgspec
import pytest

from borgish.api import standby
from borgish.api.middleware import LOOPBACK_HOSTS, AuthMiddleware
from borgish.api.serve import serve
from borgish.api.standby import StandbyApp
from borgish.client import Client
from borgish.errors import Fenced, Unreachable
from borgish.wire.api import Accepted, HealthView, ScaleRequest, StatusView
from tests.integration.api.fakes import PATIENCE_SECONDS, TOKENS, RunningApi

VIEW = HealthView("test", "1", "standby", "http://127.0.0.1:9", "", "", 1, 3, 20, True, 0.1, "", "2026-01-01")


class Standby:
    """One that stands by, beside one that leads."""

    def __init__(self, api: RunningApi) -> None:
        self.leader = api
        self.view = VIEW
        app = AuthMiddleware(StandbyApp(lambda: self.view), TOKENS, LOOPBACK_HOSTS)
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


def test_one_whose_time_is_over_answers_nothing_else(one: Standby) -> None:
    def over() -> None:
        raise Fenced("The lease could not be renewed")

    door = AuthMiddleware(StandbyApp(lambda: VIEW), TOKENS, LOOPBACK_HOSTS, over)
    serving = one.leader.call(serve(door, "127.0.0.1", 0))
    with pytest.raises(Unreachable, match="lease could not be renewed"):
        Client(serving.url, "bgt_ann").get("/v1/health", None, HealthView)
    one.leader.call(serving.stop())
