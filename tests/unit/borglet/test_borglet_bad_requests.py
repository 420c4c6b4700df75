"""The borglet's HTTP and files against what is wrong with them."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from borgish.borglet.agent import Agent
from borgish.borglet.server import BorgletApp, make_server
from borgish.borglet.settings import Tls, load
from borgish.borglet.state_folder import membership_in
from borgish.errors import UnsafeConfiguration
from borgish.wire.bounded_http import HEAD_BYTES_MAX

TOKEN = b"Host: x\r\nAuthorization: Bearer bgt_right\r\n"
FILE = 'machine = "m1"\nmaster = "http://127.0.0.1:7400"\njoin_token_file = "t"\nstate = "s"\n'


class Unasked:
    """An agent that nothing should reach."""

    def end_polls(self) -> None:
        pass

    def logs(self, _key: str, **_: object) -> None:
        raise AssertionError("it was asked")


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    membership = membership_in(tmp_path)
    membership.keep("local", "bgt_right")
    server = make_server(BorgletApp(cast("Agent", Unasked()), membership), None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield int(listener.getsockname()[1])
        server.should_exit = True
        await serving


async def send(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            return head + await reader.readexactly(int(length[1]) if length else 0)
    finally:
        writer.close()


@pytest.mark.parametrize("query", [b"attempt=" + b"9" * 5000, b"task=a&tail=" + b"9" * 5000, b"attempt=-1"])
async def test_numbers_that_are_none(port: int, query: bytes) -> None:
    answer = await send(port, b"GET /v1/logs?" + query + b" HTTP/1.1\r\n" + TOKEN + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize("path", [b"/v1/exec", b"/v1/poll"])
@pytest.mark.parametrize("body", [b'{"task": "\xff"}', b'{"zz": ' + b"[" * 100_000, b"", b"null", b"\0"])
async def test_bodies_that_are_none(port: int, path: bytes, body: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\n" + TOKEN + b"Content-Length: %d\r\n\r\n" % len(body)
    answer = await send(port, head + body)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in answer


async def test_a_stranger_cannot_fill_the_memory(port: int) -> None:
    answer = await send(port, b"GET / HTTP/1.1\r\nX: " + b"a" * 2 * HEAD_BYTES_MAX)
    assert answer.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('listen = "127.evil.example:0"', "listen"),
        ('listen = "127.0.0.1.evil.example:0"', "listen"),
        ('master = "http://127.evil.example:1"', "master"),
        ('master = "http://127.0.0.1:80@evil.example:7400"', "master"),
        ('master = "http://127.0.0.1:99999"', "master"),
        ('master = "http://[::1"', "master"),
        ('master = "https://"', "master"),
        ('state = "a\\u0000b"', "state"),
        ('join_token_file = "a\\u0000b"', "join_token_file"),
        ('[attributes]\na = "\\u001b[2J"', "attributes.a"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, line: str, key: str) -> None:
    name = line.partition(" ")[0]
    kept = [text for text in FILE.splitlines() if not text.startswith(f"{name} ")]
    path = tmp_path / "borglet.toml"
    path.write_text("\n".join([*kept, line]), "utf-8")
    with pytest.raises(UnsafeConfiguration, match=rf"borglet\.toml: {re.escape(key)}\b"):
        load(path)


def test_tls_files_that_cannot_be_used(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nonsense")
    app = BorgletApp(cast("Agent", Unasked()), membership_in(tmp_path))
    with pytest.raises(UnsafeConfiguration, match=r"tls\.certificate"):
        make_server(app, Tls(str(wrong), str(wrong)))
