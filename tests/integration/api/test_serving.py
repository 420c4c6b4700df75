import asyncio
import contextlib
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from borgish.addresses import is_loopback
from borgish.api.app import create_app
from borgish.api.middleware import LOOPBACK_HOSTS, App, AuthMiddleware
from borgish.api.serve import Tls, serve
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import Unreachable, UnsafeConfiguration
from borgish.wire import bounded_http
from borgish.wire.api import StatusView
from borgish.wire.bounded_http import UnauthenticatedConnections
from tests.integration.api.fakes import TOKENS, FakeMaster


def app() -> App:
    return create_app(FakeMaster().services, TOKENS)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
async def test_beyond_loopback_there_is_no_serving_without_tls(host: str) -> None:
    with pytest.raises(UnsafeConfiguration, match="not loopback"):
        await serve(app(), host, 0)


LOOPBACK = {"127.8.8.8": True, "::1": True, "localhost": True, "::": False, "example.org": False}


@pytest.mark.parametrize(("host", "loopback"), LOOPBACK.items())
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


async def test_a_port_that_is_taken_is_named() -> None:
    serving = await serve(app(), "127.0.0.1", 0)
    with pytest.raises(
        UnsafeConfiguration, match=f"127.0.0.1:{serving.port}: address already in use"
    ) as caught:
        await serve(app(), "127.0.0.1", serving.port)
    assert caught.value.exit_code == 74
    assert "another `listen`" in caught.value.hint
    await serving.stop()
    again = await serve(app(), "127.0.0.1", serving.port)
    await again.stop()


async def test_files_for_tls_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnsafeConfiguration, match="tls"):
        await serve(app(), "127.0.0.1", 0, Tls(str(tmp_path / "no.pem"), str(tmp_path / "no.key")))


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    """A certificate for 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "borgish test")])
    begins = datetime.fromtimestamp(SystemClock().now().wall - 3600, UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begins, begins + timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = Tls(str(tmp_path / "cell.pem"), str(tmp_path / "cell.key"))
    Path(files.certificate).write_bytes(certificate.public_bytes(Encoding.PEM))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path(files.key).write_bytes(pem)
    return files


async def test_with_tls_the_client_trusts_only_the_authority_it_was_given(tls: Tls) -> None:
    serving = await serve(app(), "127.0.0.1", 0, tls)
    assert serving.url.startswith("https://")
    client = Client(serving.url, "bgt_admin", ca=tls.certificate)
    status = await asyncio.to_thread(client.get, "/v1/status", None, StatusView)
    assert status.cell == "test"
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await asyncio.to_thread(Client(serving.url, "bgt_admin").raw, "GET", "/v1/status")
    client.close()
    await serving.stop()


async def test_who_does_not_begin_a_handshake_goes_first(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "_HURRIED", 1)
    serving = await serve(app(), "127.0.0.1", 0, tls, UnauthenticatedConnections(2))
    silent = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(2)]
    client = Client(serving.url, "bgt_admin", ca=tls.certificate)
    for _ in range(3):
        await asyncio.to_thread(client.raw, "GET", "/v1/status")
        client.close()
    assert await silent[0][0].read() == b""
    for _, writer in silent:
        writer.close()
    await serving.stop()


async def test_tls_older_than_1_3_is_not_spoken(tls: Tls) -> None:
    serving = await serve(app(), "127.0.0.1", 0, tls)
    context = ssl.create_default_context(cafile=tls.certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError, match=r"^$|alert|reset"):  # told so, or cut off, whichever comes first
        await asyncio.open_connection("127.0.0.1", serving.port, ssl=context)
    await serving.stop()


async def test_who_waits_for_an_answer_at_the_end_is_cut_off_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = asyncio.Event()

    async def waits(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    serving = await serve(AuthMiddleware(waits, TOKENS, LOOPBACK_HOSTS), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer bgt_admin\r\n\r\n")
    await asked.wait()
    await serving.stop()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert caplog.messages == []
