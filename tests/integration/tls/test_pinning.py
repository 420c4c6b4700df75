"""The authority is compared with the token before anything secret leaves, whoever stands between."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop

from borgish.api import rate_limits
from borgish.api.middleware import AuthMiddleware
from borgish.api.rate_limits import Limits, LimitSettings
from borgish.api.routes.authority import AuthorityDoor
from borgish.api.serve import Serving, Tls, serve
from borgish.clock import SystemClock
from borgish.errors import Invalid, TooManyRequests, Unreachable
from borgish.tls.bundle import authorities_in
from borgish.tls.contexts import master_listener
from borgish.tls.pinning import fetch_authority
from borgish.wire import bounded_http
from tests.integration.tls.certificates import Signer

SECONDS_MAX = 10.0


class Nobody:
    """Knows no token."""

    def principal(self, token: str) -> None:
        return None


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("a request that only the authority answers")


async def door(cell: Signer, *, bundle: bytes) -> Serving:
    """Serve the authority of a cell, and nothing else without a token."""
    limits = Limits(LimitSettings(), SystemClock())
    app = AuthorityDoor(AuthMiddleware(nothing, Nobody(), None), limits, bundle)
    return await serve(app, "127.0.0.1", 0, Tls(cell.master(), "", cell.ca, is_own=True))


def test_the_authority_with_the_hash_is_taken_and_nothing_beside_it(tmp_path: Path) -> None:
    cell, stranger = Signer(tmp_path), Signer(tmp_path, mark="stranger")

    async def test() -> None:
        serving = await door(cell, bundle=cell.authority.pem + stranger.authority.pem)
        try:
            pem = await asyncio.to_thread(fetch_authority, serving.url, cell.authority.sha256, SECONDS_MAX)
            assert authorities_in(pem) == [cell.authority.pem]
            with pytest.raises(Unreachable, match="is being replaced, and the old one was named"):
                await asyncio.to_thread(fetch_authority, serving.url, stranger.authority.sha256)
            with pytest.raises(Unreachable, match="another authority"):
                await asyncio.to_thread(fetch_authority, serving.url, "0" * 64, SECONDS_MAX)
        finally:
            await serving.stop()

    uvloop.run(test())


def test_strangers_ask_for_the_authority_often_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Signer(tmp_path)
    monkeypatch.setattr(rate_limits, "AUTHORITY_BURST", 2.0)
    monkeypatch.setattr(rate_limits, "AUTHORITY_PER_SECOND", 0.001)

    async def test() -> None:
        serving = await door(cell, bundle=cell.authority.pem)
        try:
            for _ in range(2):
                await asyncio.to_thread(fetch_authority, serving.url, cell.authority.sha256)
            with pytest.raises(TooManyRequests, match="asked too often from here"):
                await asyncio.to_thread(fetch_authority, serving.url, cell.authority.sha256)
        finally:
            await serving.stop()

    uvloop.run(test())


@contextmanager
def between(middle: Signer, bundle: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer with a bundle and a certificate of one's own, and keep all that callers say in clear."""
    heard: list[bytes] = []
    context = master_listener(middle.master(), middle.ca)
    context.verify_mode = ssl.CERT_NONE
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
                heard.append(connection.recv(65536))
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(bundle)}\r\n\r\n"
                connection.sendall(head.encode() + bundle)
                heard.append(connection.recv(65536))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", heard
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def test_who_stands_between_hears_nothing_secret(tmp_path: Path) -> None:
    cell, middle = Signer(tmp_path), Signer(tmp_path, mark="middle")
    with between(middle, middle.authority.pem) as (url, heard), pytest.raises(Unreachable) as refused:
        fetch_authority(url, cell.authority.sha256, SECONDS_MAX)
    assert "the token was not sent" in refused.value.message
    assert "somebody stands between" in refused.value.hint
    head, *rest = heard
    assert head.startswith(b"GET /v1/authority HTTP/1.1\r\n")
    assert b"uthorization" not in head
    assert rest == [b""]


@pytest.mark.parametrize("answer", [b"", b"<html>", b"x" * 100_000])
def test_what_is_no_authority_is_said(tmp_path: Path, answer: bytes) -> None:
    cell = Signer(tmp_path)
    with between(cell, answer) as (url, _), pytest.raises(Unreachable, match="shows no authority"):
        fetch_authority(url, cell.authority.sha256, SECONDS_MAX)


def test_an_address_without_tls_or_without_anybody_is_said(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not https"):
        fetch_authority("http://127.0.0.1:7400", "0" * 64)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unreachable, match="cannot be reached: connection refused"):
        fetch_authority(f"https://127.0.0.1:{port}", "0" * 64)
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer() -> None:
            with plain.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(65536)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(Unreachable, match=r"no TLS 1\.3 there"):
            fetch_authority(f"https://127.0.0.1:{plain.getsockname()[1]}", "0" * 64, SECONDS_MAX)


def test_callers_that_never_speak_hold_up_nobody_and_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Signer(tmp_path)
    monkeypatch.setattr(bounded_http, "HANDSHAKE_SECONDS_MAX", 0.5)

    async def test() -> None:
        serving = await door(cell, bundle=cell.authority.pem)
        silent = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(200)]
        try:
            await asyncio.to_thread(fetch_authority, serving.url, cell.authority.sha256, SECONDS_MAX)
            for reader, _ in silent:
                assert await asyncio.wait_for(reader.read(), SECONDS_MAX) == b"", "it is closed by the master"
        finally:
            for _, writer in silent:
                writer.close()
            await serving.stop()

    uvloop.run(test())


def test_handshakes_take_turns_and_who_says_nothing_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Signer(tmp_path)
    monkeypatch.setattr(bounded_http, "HANDSHAKES_MAX", 1)
    monkeypatch.setattr(bounded_http, "HANDSHAKE_TURN_SECONDS", 0.05)

    async def fetched(url: str) -> None:
        await asyncio.to_thread(fetch_authority, url, cell.authority.sha256, SECONDS_MAX)

    async def test() -> None:
        serving = await door(cell, bundle=cell.authority.pem)
        host, _, port = serving.url.partition("://")[2].partition(":")
        try:
            silent = [socket.create_connection((host, int(port))) for _ in range(4)]
            gone = [socket.create_connection((host, int(port))) for _ in range(4)]
            for each in gone:
                each.close()
            await asyncio.gather(*(fetched(serving.url) for _ in range(5)))
            for each in silent:
                each.close()
            await fetched(serving.url)
        finally:
            await serving.stop()

    uvloop.run(test())
