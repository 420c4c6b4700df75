"""A listener that limits what each user asks, and ends what a revoked token left open."""

import asyncio
import http.client
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from borgish.api.app import create_app
from borgish.api.middleware import AuthMiddleware, Receive, Scope, Send
from borgish.api.rate_limits import Limits, LimitSettings
from borgish.api.routes.authority import AuthorityDoor
from borgish.api.serve import Serving, serve
from borgish.cell.access.model import Principal, Role
from borgish.clock import SystemClock
from borgish.errors import NotFound, TooManyRequests, Unauthenticated, Unreachable
from borgish.wire.api import StatusView
from borgish.wire.api_commands import ExecCall
from borgish.wire.link import ExecReply
from tests.integration.api.fakes import (
    PATIENCE_SECONDS,
    PRINCIPALS,
    FakeMaster,
    FixedTokens,
    RunningApi,
    until,
)

NEVER = 1e-6  # a second: nothing comes back while a test runs
TIGHT = LimitSettings(
    requests_per_second=NEVER,
    requests_burst=8,
    refused_per_second=NEVER,
    refused_burst=3,
    unauthenticated_per_minute=1,
)


class Limited(RunningApi):
    """The API behind a door with tight limits, and tokens of its own."""

    settings = TIGHT

    async def _start(self) -> tuple[FakeMaster, Serving]:
        master = FakeMaster()
        self.tokens = FixedTokens(PRINCIPALS)
        limits = Limits(self.settings, SystemClock())
        self.door: AuthMiddleware = create_app(master.services, self.tokens, limits=limits)
        return master, await serve(self.door, "127.0.0.1", 0)

    def revoke(self, token: str) -> None:
        """As the daemon does when a token is revoked."""
        self.do(lambda: self.tokens.principals.pop(token))
        self.do(self.door.drop_revoked)


class Open(Limited):
    """The same, and nothing is limited."""

    settings = LimitSettings(0, 1, 0, 1, 0)


@pytest.fixture
def limited() -> Iterator[Limited]:
    running = Limited()
    yield running
    running.stop()


@pytest.fixture
def revocable() -> Iterator[Open]:
    running = Open()
    yield running
    running.stop()


def status(api: RunningApi, token: str) -> tuple[int, str]:
    """Return the status of an answer and when to ask again."""
    connection = http.client.HTTPConnection("127.0.0.1", api.serving.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    assert answer.read()
    connection.close()
    return answer.status, answer.headers.get("retry-after", "")


def test_each_user_has_a_rate_of_their_own(limited: Limited) -> None:
    assert [status(limited, "bgt_ann")[0] for _ in range(9)] == [200] * 8 + [429]
    assert int(status(limited, "bgt_ann")[1]) > 0
    assert status(limited, "bgt_bob")[0] == 200


def test_who_is_refused_too_often_is_not_answered(limited: Limited) -> None:
    client = limited.client("bgt_ann")
    for _ in range(3):
        with pytest.raises(NotFound):
            client.raw("GET", "/v1/jobs/ann/nothing")
    with pytest.raises(TooManyRequests, match="requests of ann were refused") as caught:
        client.get("/v1/status", None, StatusView)
    assert caught.value.hint
    limited.client("bgt_bob").get("/v1/status", None, StatusView)


def test_a_stranger_is_told_so_and_then_to_wait(limited: Limited) -> None:
    assert status(limited, "bgt_wrong") == (401, "")
    assert status(limited, "bgt_wrong") == (429, "60")
    assert status(limited, "bgt_ann")[0] == 200, "others at its address are not"


def test_a_revoked_token_is_none_at_once(revocable: Open) -> None:
    assert status(revocable, "bgt_ann")[0] == 200
    revocable.revoke("bgt_ann")
    assert status(revocable, "bgt_ann")[0] == 401
    assert status(revocable, "bgt_bob")[0] == 200


def test_a_revoked_token_ends_its_streams_and_nobody_elses(
    revocable: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ann, admin = revocable.client("bgt_ann"), revocable.client()
    mine = [ann.watch(), ann.stream("/v1/tasks/ann/web/0/logs", {"follow": True})]
    others = admin.stream("/v1/tasks/ann/web/0/logs", {"follow": True})
    assert next(mine[1])
    assert next(others)
    until(lambda: revocable.master.logs_open == 2)
    revocable.revoke("bgt_ann")
    for stream in mine:
        with pytest.raises(Unreachable):
            list(stream)
    until(lambda: revocable.master.logs_open == 1)
    with pytest.raises(Unauthenticated):
        ann.watch()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_revoked_token_ends_its_commands_beside_tasks(
    revocable: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def never(*_: object) -> ExecReply:
        begun.set()
        try:
            return await asyncio.Future[ExecReply]()
        finally:
            ended.set()

    monkeypatch.setattr(revocable.master, "exec", never)
    with ThreadPoolExecutor() as pool:
        path, call = "/v1/tasks/ann/web/0/exec", ExecCall(("sleep", "3600"))
        asked = pool.submit(revocable.client("bgt_ann").post, path, call, ExecReply)
        assert begun.wait(PATIENCE_SECONDS)
        revocable.revoke("bgt_ann")
        with pytest.raises(Unauthenticated):
            asked.result(PATIENCE_SECONDS)
    assert ended.wait(PATIENCE_SECONDS)


def test_a_token_of_another_role_ends_its_streams_too(revocable: Open) -> None:
    watching = revocable.client("bgt_ann").watch()
    readers = {"bgt_ann": Principal("ann", Role.READER)}
    revocable.do(lambda: revocable.tokens.principals.update(readers))
    revocable.do(revocable.door.drop_revoked)
    with pytest.raises(Unreachable):
        list(watching)
    assert status(revocable, "bgt_ann")[0] == 200


async def _nothing() -> None:
    """Nothing more is sent."""


async def test_many_machines_join_from_one_address_and_only_wrong_invitations_are_slowed() -> None:
    class Invited:
        """Knows one invitation for many."""

        def principal(self, token: str) -> Principal | None:
            return Principal("invitation", Role.JOIN, token="d" * 64) if token == "right" else None

    async def joined(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(method: str, path: str, token: str) -> int:
        statuses: list[int] = []

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": headers,
            "client": ("10.0.0.1", 1),
        }
        await app(scope, _nothing, send)
        return statuses[0]

    limits = Limits(LimitSettings(), SystemClock())
    app = AuthorityDoor(AuthMiddleware(joined, Invited(), None, limits=limits), limits, b"pem")
    for number in range(50):
        assert await ask("GET", "/v1/authority", "") == 200
        assert await ask("POST", "/v1/machines", "right") == 200
        assert await ask("POST", "/v1/machines", "wrong") == (401 if number < 10 else 429)
