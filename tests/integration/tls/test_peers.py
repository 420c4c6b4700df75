"""Who is let in by its certificate, and who is refused, on real sockets."""

import asyncio
import http.client
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from borgish.api.serve import Tls, serve
from borgish.errors import UnsafeConfiguration
from borgish.tls.contexts import borglet_listener, caller, master_listener, master_of
from borgish.tls.https import MasterConnection
from borgish.tls.names import PEER, Peer, machine_name, master_name
from tests.integration.tls.certificates import Signer

SECONDS_MAX = 10.0


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("c1"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Another cell, that has the same name."""
    return Signer(tmp_path_factory.mktemp("other"))


async def handshake(listener: ssl.SSLContext, calling: ssl.SSLContext, name: str) -> str:
    """Return what the listener says over a connection, "" when it hangs up. Raises OSError when it does so
    earlier, and ssl.SSLError, which is one, when the caller does."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=listener)
    try:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=calling, server_hostname=name)
        try:
            return (await asyncio.wait_for(reader.read(), SECONDS_MAX)).decode()
        finally:
            writer.close()
    finally:
        server.close()


async def test_a_master_calls_a_machine_by_its_name(cell: Signer) -> None:
    listener = borglet_listener(cell.machine("m1"), cell.ca)
    assert (await handshake(listener, caller(cell.ca, cell.master()), machine_name("m1", "c1"))) == "welcome"


@pytest.mark.parametrize("shown", ["m2", "master", "another cell's", "expired", "not yet"])
async def test_a_master_hangs_up_on_who_is_not_the_machine(cell: Signer, other: Signer, shown: str) -> None:
    files: dict[str, Callable[[], str]] = {
        "m2": lambda: cell.machine("m2"),
        "master": cell.master,
        "another cell's": lambda: other.machine("m1"),
        "expired": lambda: cell.machine("m1", days_ago=31),
        "not yet": lambda: cell.machine("m1", days_ago=-1),
    }
    file = files[shown]()
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(
            borglet_listener(file, cell.ca), caller(cell.ca, cell.master()), machine_name("m1", "c1")
        )


@pytest.mark.parametrize("shown", ["nothing", "another cell's", "expired"])
async def test_a_borglet_hangs_up_on_strangers(cell: Signer, other: Signer, shown: str) -> None:
    files: dict[str, Callable[[], str]] = {
        "nothing": lambda: "",
        "another cell's": other.master,
        "expired": lambda: cell.master(days_ago=31),
    }
    file = files[shown]()
    said = ""
    with suppress(OSError):
        said = await handshake(
            borglet_listener(cell.machine("m1"), cell.ca), caller(cell.ca, file), machine_name("m1", "c1")
        )
    assert not said


@pytest.mark.parametrize("shown", ["a machine's", "another cell's", "expired"])
async def test_a_caller_hangs_up_on_who_is_not_the_master(cell: Signer, other: Signer, shown: str) -> None:
    files: dict[str, Callable[[], str]] = {
        "a machine's": lambda: cell.machine("m1"),
        "another cell's": other.master,
        "expired": lambda: cell.master(days_ago=31),
    }
    file = files[shown]()
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(master_listener(file, cell.ca), caller(cell.ca), master_name("c1"))


async def test_older_versions_of_tls_are_refused(cell: Signer) -> None:
    old = caller(cell.ca)
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):  # noqa: PT011 - how it fails is up to the moment
        await handshake(master_listener(cell.master(), cell.ca), old, master_name("c1"))


def test_who_trusts_one_cell_knows_its_masters_name(cell: Signer, tmp_path: Path) -> None:
    assert master_of(caller(cell.ca)) == "master.c1.borgish"
    both = tmp_path / "both.pem"
    both.write_bytes(cell.authority.pem + Signer(tmp_path, "c2").authority.pem)
    assert master_of(caller(str(both))) == ""
    assert master_of(ssl.create_default_context()) == ""


def test_files_that_cannot_be_used_are_named(cell: Signer, tmp_path: Path) -> None:
    (tmp_path / "damaged.pem").write_text("damaged")
    for file in ("damaged.pem", "missing.pem"):
        with pytest.raises(UnsafeConfiguration, match=file):
            caller(str(tmp_path / file))
        with pytest.raises(UnsafeConfiguration, match=file):
            master_listener(str(tmp_path / file), cell.ca)


@asynccontextmanager
async def served(cell: Signer) -> AsyncIterator[int]:
    """Serve who each caller is, as a master does; gives the port."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        peer = scope["state"].get(PEER)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(peer)})

    serving = await serve(app, "127.0.0.1", 0, Tls(cell.master(), "", cell.ca, is_own=True))
    try:
        yield serving.port
    finally:
        await serving.stop()


def asked(port: int, authority: str, certificate: str = "", times: int = 1) -> Peer | None:
    connection = MasterConnection("127.0.0.1", port, SECONDS_MAX, caller(authority, certificate))
    try:
        for _ in range(times):
            connection.request("GET", "/")
            body = connection.getresponse().read()
        return msgspec.json.decode(body, type=Peer | None)
    finally:
        connection.close()


def test_a_master_sees_who_calls(cell: Signer, other: Signer) -> None:
    async def test() -> None:
        async with served(cell) as port:
            assert await asyncio.to_thread(asked, port, cell.ca) is None
            machine = await asyncio.to_thread(asked, port, cell.ca, cell.machine("m1"), 2)
            assert machine
            assert (machine.cell, machine.machine, machine.is_master) == ("c1", "m1", False)
            assert len(machine.serial) > 30
            master = await asyncio.to_thread(asked, port, cell.ca, cell.master())
            assert master
            assert master.is_master
            with pytest.raises((OSError, http.client.HTTPException)):
                await asyncio.to_thread(asked, port, cell.ca, other.machine("m1"))

    uvloop.run(test())
