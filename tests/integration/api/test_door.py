"""Nobody gets an answer without a token, and with one only those the route's policy allows."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from litestar.routes import HTTPRoute

from borgish.api.app import ROUTES, create_app, create_routes
from borgish.api.auth import ALLOWED, POLICY, CellTokens, Policy
from borgish.api.openapi import document
from borgish.api.serve import Serving, serve
from borgish.cell.access.commands import RevokeToken
from borgish.cell.access.model import Invitation, Role, Token
from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.decide import decide
from borgish.cell.events import Entry
from borgish.client import Client
from borgish.credentials import MEMBER, poll_token
from borgish.errors import BorgishError, Forbidden, Unauthenticated
from borgish.join_token import digest_of
from borgish.wire.api import Accepted
from tests.integration.api.fakes import BUNDLE, CLOCK, PATIENCE_SECONDS, PRINCIPALS, FakeMaster, RunningApi


def walk() -> list[tuple[str, str, Policy]]:
    """Return (method, path, policy) of every route the framework serves."""
    found: list[tuple[str, str, Policy]] = []
    for route in create_routes(FakeMaster().services).routes:
        assert isinstance(route, HTTPRoute), f"{route.path} is served by something without a policy"
        for handler in route.route_handlers:
            if handler.http_methods != {"OPTIONS"}:
                assert POLICY in handler.opt, f"{route.path} declares no policy"
                found += [(m, route.path_format, Policy(handler.opt[POLICY])) for m in handler.http_methods]
    return found


@pytest.fixture
def routes() -> list[tuple[str, str, Policy]]:
    return walk()


async def test_every_route_declares_its_policy() -> None:
    routes = walk()
    assert len(routes) >= len(ROUTES)
    changing = {policy for method, _, policy in routes if method not in ("GET", "HEAD")}
    assert Policy.READ not in changing, "what changes the cell is not for readers"
    public = [(method, path) for method, path, policy in routes if policy is Policy.OPEN]
    assert public == [("GET", "/v1/authority")], "all else wants a token"


def filled(path: str, user: str) -> str:
    values = {"{user}": user, "{name}": "web", "{index}": "0", "{machine}": "m1", "{position}": "20"}
    values |= {"{version}": "1", "{group}": "web-team", "{token}": "abcd", "{invitation}": "abcd"}
    for field, value in values.items():
        path = path.replace(field, value)
    return path


def ask(
    api: RunningApi, method: str, path: str, headers: dict[str, str]
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", api.serving.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        answered = {name.lower(): value for name, value in response.getheaders()}
        body = b"" if answered.get("content-type", "").startswith("text/event") else response.read()
        return response.status, answered, body
    finally:
        connection.close()


@contextmanager
def ask_many(api: RunningApi) -> Iterator[Callable[..., int]]:
    """Gives what asks over one connection and returns the status; a stream is not read."""
    connection = http.client.HTTPConnection("127.0.0.1", api.serving.port, timeout=PATIENCE_SECONDS)

    def asked(method: str, path: str, headers: dict[str, str], body: str | None = None) -> int:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        if response.headers["content-type"].startswith("text/event"):
            connection.close()
        else:
            response.read()
        return response.status

    try:
        yield asked
    finally:
        connection.close()


WITHOUT = [{}, {"Authorization": "Bearer bgt_wrong"}, {"Authorization": "Basic bgt_admin"}]


@pytest.mark.parametrize("headers", WITHOUT)
async def test_no_route_answers_without_a_token(api: RunningApi, headers: dict[str, str]) -> None:
    routes = [(method, path, policy) for method, path, policy in walk() if policy is not Policy.OPEN]
    paths = [(method, filled(path, "ann")) for method, path, _ in routes]
    assert ask(api, "GET", "/v1/authority", headers)[::2] == (200, BUNDLE)
    for method, path in [*paths, ("GET", "/"), ("GET", "/nothing"), ("OPTIONS", "/v1/jobs"), ("PUT", "/v1")]:
        status, answered, body = ask(api, method, path, headers)
        assert status == 401, f"{method} {path}"
        assert answered["www-authenticate"] == "Bearer"
        assert answered["content-type"] == "application/problem+json"
        if method != "HEAD":
            assert json.loads(body)["hint"]


@pytest.mark.parametrize("token", PRINCIPALS)
async def test_every_route_keeps_out_the_roles_it_does_not_name(api: RunningApi, token: str) -> None:
    principal = PRINCIPALS[token]
    for method, path, policy in walk():
        status, answered, body = ask(api, method, filled(path, "ann"), {"Authorization": f"Bearer {token}"})
        named = principal.role in ALLOWED[policy]
        owns = principal.role != Role.USER or principal.owns("ann") or policy is not Policy.OWN
        assert (status == 403) == (not (named and owns)), f"{token} {method} {path}: {status} {body!r}"
        if status == 403:
            assert answered["content-type"] == "application/problem+json"


class Revoking(FakeMaster):
    """Revokes tokens, as a master does by the command for it."""

    async def ask(self, command: Command, actor: str, request_id: str, digest: str, **more: Any) -> Accepted:
        accepted = await super().ask(command, actor, request_id, digest, **more)
        if isinstance(command, RevokeToken):
            cell, now = self.cell, CLOCK.now()
            events = decide(cell, self.observed, command, actor, now).events
            entry = Entry(cell.position + 1, now.wall, 1, 1, actor, "RevokeToken", events)
            apply_entry(cell, entry)
        return accepted


class Guarded(RunningApi):
    """The API behind the tokens of a cell, as a master has them."""

    secret, elsewhere = "secret of this cell", "secret of another cell"

    async def _start(self) -> tuple[FakeMaster, Serving]:
        master = Revoking()
        cell, now = master.cell, CLOCK.now().wall
        cell.machines["m2"].admission = 2
        cell.machines["m3"].revoked_at = now - 1
        kept = {
            "bgt_root": Token("", "root", Role.ADMIN),
            "bgt_lost": Token("", "root", Role.ADMIN),
            "bgt_over": Token("", "root", Role.ADMIN, expires_at=now - 1),
            "bgt_eve": Token("", "eve", Role.READER),
        }
        for secret, token in kept.items():
            sha256 = digest_of(secret)
            cell.access.tokens[sha256] = msgspec.structs.replace(token, sha256=sha256)
        spent = Invitation(digest_of("bgt_spent"), expires_at=now - 1)
        cell.access.invitations[spent.sha256] = spent
        tokens = CellTokens(lambda: cell, self.secret, CLOCK)
        return master, await serve(create_app(master.services, tokens), "127.0.0.1", 0)


def member(secret: str, machine: str, admission: int = 0) -> str:
    """Return what a machine of the cell with this secret shows when it joins again."""
    return f"{MEMBER}{machine}.{poll_token(secret, machine, admission)}"


STRANGERS = {
    "of nobody": "bgt_wrong",
    "its digest": digest_of("bgt_root"),
    "expired": "bgt_over",
    "of an invitation that is over": "bgt_spent",
    "of a machine of another cell": member(Guarded.elsewhere, "m1"),
    "of a machine that is not there": member(Guarded.secret, "m77"),
    "of a machine before it was invited anew": member(Guarded.secret, "m2", 1),
    "of another machine": f"{MEMBER}m1.{poll_token(Guarded.secret, 'm2')}",
    "a poll token": poll_token(Guarded.secret, "m1"),
}
"""Tokens that stand for nobody. One of people that was revoked, or is another cell's, is not known at all."""

LESSER = {"bgt_eve", member(Guarded.secret, "m1"), member(Guarded.secret, "m3")}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    running = Guarded()
    yield running
    running.stop()


@pytest.mark.parametrize("shown", STRANGERS)
def test_no_route_takes_a_token_that_stands_for_nobody(guarded: Guarded, shown: str) -> None:
    headers = {"Authorization": f"Bearer {STRANGERS[shown]}"}
    with ask_many(guarded) as asked:
        answered = {(method, path): asked(method, filled(path, "ann"), headers) for method, path, _ in walk()}
    assert set(answered.values()) == {401}


def test_no_route_takes_a_token_from_the_moment_it_was_revoked(guarded: Guarded) -> None:
    root, lost = ({"Authorization": f"Bearer {token}"} for token in ("bgt_root", "bgt_lost"))
    with ask_many(guarded) as asked:
        assert asked("GET", "/v1/status", lost) == 200
        assert asked("POST", f"/v1/tokens/{digest_of('bgt_lost')}/revoke", root) == 200
        answered = [asked(method, filled(path, "ann"), lost) for method, path, _ in walk()]
        assert set(answered) == {401}
        assert asked("GET", "/v1/status", root) == 200


@pytest.mark.parametrize("token", sorted(LESSER))
def test_a_lesser_token_opens_what_its_policy_says_alone(guarded: Guarded, token: str) -> None:
    role = Role.READER if token == "bgt_eve" else Role.JOIN
    headers = {"Authorization": f"Bearer {token}"}
    with ask_many(guarded) as asked:
        for method, path, policy in walk():
            refused = asked(method, filled(path, "ann"), headers) == 403
            assert refused == (role not in ALLOWED[policy]), (method, path)
    commands = {type(each.command) for each in guarded.do(lambda: guarded.master.asked)}
    assert commands <= {RevokeToken}, "its own, which the cell decides"


def test_a_refusal_says_which_role_it_takes(api: RunningApi) -> None:
    with pytest.raises(Forbidden) as caught:
        api.client("bgt_ann").raw("POST", "/v1/checkpoints")
    assert caught.value.hint == "It needs the role admin"


def test_a_wrong_token_is_told_where_it_was_read(api: RunningApi) -> None:
    with pytest.raises(Unauthenticated) as caught:
        Client(api.serving.url, "bgt_old", token_source="d/admin.token").raw("GET", "/v1/status")
    assert "d/admin.token" in caught.value.hint


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7400", "127.0.0.1.evil.example", ""])
def test_a_listener_on_loopback_answers_to_its_own_name_only(api: RunningApi, host: str) -> None:
    headers = {"Authorization": "Bearer bgt_admin", "Host": host}
    assert ask(api, "GET", "/v1/status", headers)[0] == 403


def test_pages_in_a_browser_are_not_answered_and_make_nothing_of_what_is(api: RunningApi) -> None:
    of_admin = {"Authorization": "Bearer bgt_admin", "Host": "localhost"}
    for origin in ("http://localhost", "null"):
        assert ask(api, "GET", "/v1/status", of_admin | {"Origin": origin})[0] == 403
    status, headers, _ = ask(api, "GET", "/v1/status", of_admin)
    assert (status, headers["x-frame-options"], headers["x-content-type-options"]) == (200, "DENY", "nosniff")
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:7400", "[::1]:80", "[::1]"])
def test_a_listener_on_loopback_answers_to_loopback_names(api: RunningApi, host: str) -> None:
    headers = {"Authorization": "Bearer bgt_admin", "Host": host}
    assert ask(api, "GET", "/v1/status", headers)[0] == 200


def test_a_method_that_a_path_does_not_take_is_a_problem(api: RunningApi) -> None:
    status, answered, body = ask(api, "DELETE", "/v1/status", {"Authorization": "Bearer bgt_admin"})
    assert (status, answered["content-type"]) == (405, "application/problem+json")
    assert "/v1/status does not take DELETE" in json.loads(body)["detail"]


def test_what_has_no_policy_is_for_nobody(api: RunningApi) -> None:
    assert ask(api, "OPTIONS", "/v1/jobs", {"Authorization": "Bearer bgt_admin"})[0] == 403


def test_there_is_no_page_of_documentation(api: RunningApi) -> None:
    for path in ("/schema", "/docs", "/v1", "/v1/schema", "/schema/openapi.json"):
        assert ask(api, "GET", path, {"Authorization": "Bearer bgt_admin"})[0] == 404, path


def test_the_api_describes_itself(api: RunningApi, admin: Client) -> None:
    described = json.loads(admin.raw("GET", "/v1/openapi.json"))
    served = {(method, path) for method, path, _ in walk()}
    assert {(m.upper(), path) for path, item in described["paths"].items() for m in item} == served
    scale = described["paths"]["/v1/jobs/{user}/{name}/scale"]["post"]
    assert scale["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ScaleRequest"
    }
    assert described["components"]["schemas"]["ScaleRequest"]["properties"]["tasks"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10_000,
    }


async def test_every_reference_in_the_description_is_there() -> None:
    text = json.dumps(whole := document(create_routes(FakeMaster().services)))
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= whole["components"]["schemas"].keys()


def test_a_head_without_end_is_cut_off(api: RunningApi) -> None:
    with socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 17_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 431")


def test_a_body_in_chunks_is_counted_as_it_comes(api: RunningApi) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", api.serving.port, timeout=PATIENCE_SECONDS)
    chunks = (b"#" * 65536 for _ in range(40))
    headers = {"Authorization": "Bearer bgt_admin"}
    connection.request("POST", "/v1/jobs?user=ann", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_an_unknown_error_status_is_still_an_error(api: RunningApi, admin: Client) -> None:
    with pytest.raises(BorgishError, match="does not take"):
        admin.raw("PUT", "/v1/status")
