"""A cell with an authority of its own, as on hosts of their own: made, joined, run, renewed, attacked."""

import http.client
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from borgish.cli.borgctl import run
from borgish.cli.commands import init
from borgish.cli.lookup import every_task
from borgish.client import Client, quoted
from borgish.clock import SystemClock
from borgish.credentials import post_token
from borgish.errors import Unreachable
from borgish.join_token import JoinToken
from borgish.tls.authority import Authority, describe, new_key, request_to_sign
from borgish.tls.contexts import caller, master_listener, stranger
from borgish.tls.folder import read_authority
from borgish.tls.https import MasterConnection
from borgish.tls.names import machine_name
from borgish.wire.api import MachineView
from tests.forked import Forked
from tests.integration.runtimes.machine import PYTHON
from tests.integration.tls.certificates import Signer
from tests.ports import free_port

SECONDS_MAX = 60.0
DAY = 86400.0
CALLS = """
import os, socket, ssl

def call(shown):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown:
        context.load_cert_chain(shown)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", int(os.environ["BORGLET"])))) as borglet:
        asked = ("GET /v1/head HTTP/1.1", "Host: m1", "Authorization: Bearer " + os.environ["TOKEN"], "", "")
        borglet.sendall("\\r\\n".join(asked).encode())
        return borglet.recv(4096).split()[1].decode()

for name in ("STRANGER", "MASTER"):
    with open(name, "w") as file:
        file.write(os.environ[name])
for shown in ("", "STRANGER", "MASTER"):
    try:
        print(shown or "NOTHING", call(shown), flush=True)
    except (OSError, IndexError):
        print(shown or "NOTHING", "refused", flush=True)
"""
JOB = 'name: hello\nrun: [sleep, "600"]\nresources: {cpu: 10m, ram: 16MiB, disk: 1MiB}\nallow_exec: true\n'


def daemon(module: str, arguments: list[object], log: Path) -> Forked:
    with log.open("ab") as out, open(os.devnull, "rb") as nothing:
        return Forked(module, [str(argument) for argument in arguments], (nothing, out, out))


class Place:
    """A cell's folder and one machine's, the daemons of both, and what people do there."""

    def __init__(self, folder: Path) -> None:
        self.cell, self.machine = folder / "cell", folder / "m1"
        self.port, self.machine_port = free_port(), free_port()
        self.cell.mkdir()
        init.make(self.cell, "c1", f"127.0.0.1:{self.port}")
        self.url = f"https://127.0.0.1:{self.port}"
        self.daemons: list[Forked] = []
        self.tokens = [self._token(), self._token()]  # by which machines may join

    @property
    def authority(self) -> Authority:
        return read_authority(self.cell)

    def _token(self) -> JoinToken:
        token = JoinToken(self.authority.sha256, secrets.token_urlsafe(32))
        post_token(self.cell, token.secret, "m1", "join", "m1")
        return token

    def master(self) -> None:
        arguments = ["--config", self.cell / "cell.toml"]
        self.daemons.append(daemon("borgish.master.main", [*arguments], self.cell / "log"))

    def join(self, token: object, *options: object) -> int:
        """Join without starting; return the exit code. What is said is in the log."""
        where = ["--listen", f"127.0.0.1:{self.machine_port}", "--name", "m1", "--dir", self.machine]
        arguments = ["join", self.url, token, *where, "--no-start", *options]
        return daemon("borgish.borglet.main", arguments, self.log).wait(SECONDS_MAX)

    @property
    def log(self) -> Path:
        return self.cell / "m1.log"

    def borglet(self) -> None:
        config = ["--config", self.machine / "borglet.toml"]
        self.daemons.append(daemon("borgish.borglet.main", [*config], self.log))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the master, and end all there is in the end."""
        self.master()
        try:
            until(lambda: self.borgctl("status") == 0, self.cell / "log")
            yield
        finally:
            for process in reversed(self.daemons):
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(SECONDS_MAX) for process in self.daemons]
            if (self.machine / "borglet.toml").exists():
                stop = ["--config", self.machine / "borglet.toml", "--stop-all"]
                daemon("borgish.borglet.main", [*stop], self.log).wait(SECONDS_MAX)
        assert set(codes) == {0}, (self.cell / "log").read_text() + self.log.read_text()

    def borgctl(self, *arguments: object) -> int:
        return run(["--dir", str(self.cell), *map(str, arguments)])

    def hears(self) -> bool:
        """Whether the master has heard the machine."""
        try:
            machine = Client.find(self.cell).get(quoted("machines", "m1"), None, MachineView)
        except Unreachable:
            return False
        return machine.answering and machine.heard_seconds_ago is not None

    def calling(self, certificate: str) -> MasterConnection:
        """Return a connection to the master of who has a certificate."""
        trust = caller(str(self.cell / "authority.pem"), certificate)
        return MasterConnection("127.0.0.1", self.port, SECONDS_MAX, trust)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    with made.running():
        yield made


def until(holds: Callable[[], bool], log: Path) -> None:
    deadline = SystemClock().now().mono + SECONDS_MAX
    while not holds():
        assert SystemClock().now().mono < deadline, log.read_text()
        time.sleep(0.05)


def asking(machine: str) -> dict[str, object]:
    """Return what a machine says when it joins."""
    capacity = {"cpu_millis": 1000, "ram_bytes": 2**30, "disk_bytes": 2**30}
    facts = {"capacity": capacity, "attributes": {}, "runtimes": [], "ports_low": 20000, "ports_high": 20999}
    where = {"host": "127.0.0.1", "port": 1, "boot_id": "b", "instance": "i"}
    return {"machine": machine, **where, "facts": facts}


def signed(place: Place, days_ago: float, machine: str = "m1") -> bytes:
    """Return a certificate of a machine that the cell's authority signed so long ago, with its key."""
    key, then = new_key(), SystemClock().now().wall - days_ago * DAY
    return place.authority.sign_machine("c1", machine, request_to_sign(key, machine), then) + key


def test_a_machine_joins_runs_and_renews(
    place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capfd.readouterr()
    assert place.borgctl("machine", "invite", "m1") == 0
    borglet, join, url, token, *named = capfd.readouterr().out.split()
    assert [borglet, join, url, *named] == ["borglet", "join", place.url, "--name", "m1"]
    assert place.join(token) == 0, place.log.read_text()
    for path in place.machine.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    place.borglet()
    until(place.hears, place.log)
    capfd.readouterr()
    assert place.borgctl("status") == 0
    assert "master for 29d, 1 machine, of which m1 for 29d" in capfd.readouterr().out
    (place.cell / "job.yaml").write_text(JOB)
    assert place.borgctl("job", "submit", "--settle", "0", place.cell / "job.yaml") == 0
    assert place.borgctl("task", "exec", "hello/0", "--", "echo", "over tls") == 0
    assert "over tls" in capfd.readouterr().out
    assert place.borgctl("audit", "--user", "invitation", "-o", "json") == 0
    (let_in,) = json.loads(capfd.readouterr().out)
    assert (let_in["role"], let_in["action"], let_in["object"]) == ("join", "join", "m1")
    assert let_in["source"] == "127.0.0.1"

    file = place.machine / "state" / "machine.pem"
    older = signed(place, days_ago=25)
    file.write_bytes(older)
    until(lambda: file.read_bytes() != older, place.log)
    assert describe(file.read_bytes()).validity.ends > SystemClock().now().wall + 29 * DAY
    assert place.borgctl("task", "exec", "hello/0", "--", "echo", "still") == 0

    elsewhere = ["--url", place.url, "--token-file", str(place.cell / "tokens" / "admin.token"), "status"]
    assert run(elsewhere) == 4
    monkeypatch.setenv("BORGISH_CA", str(place.cell / "authority.pem"))
    assert run(elsewhere) == 0

    ended = place.daemons.pop(0)
    ended.send_signal(signal.SIGTERM)
    assert ended.wait(SECONDS_MAX) == 0
    place.master()
    until(place.hears, place.cell / "log")


def of_a_stranger(cell: str, machine: str = "") -> bytes:
    """Return a certificate of the right name, and its key, that another authority of this name signed."""
    key, now = new_key(), SystemClock().now().wall
    authority = Authority.make(cell, new_key(), now)
    if machine:
        return authority.sign_machine(cell, machine, request_to_sign(key, machine), now) + key
    return authority.sign_master(cell, key, ["localhost", "127.0.0.1"], now) + key


def hang_up(daemon: Forked, log: Path) -> str:
    """Send SIGHUP; return what is logged until and with the last line of it."""
    known, last = len(log.read_text()), ("reloaded: changes: ", "not reloaded")
    daemon.send_signal(signal.SIGHUP)
    until(lambda: any(word in log.read_text()[known:] for word in last), log)
    return log.read_text()[known:]


def test_a_certificate_that_nobody_would_believe_is_not_taken_at_a_hangup(place: Place) -> None:
    file, log = place.cell / "master.pem", place.cell / "log"
    good = file.read_bytes()
    for bad in (of_a_stranger("c1"), signed(place, days_ago=0), signed(place, days_ago=31)):
        file.write_bytes(bad)
        said = hang_up(place.daemons[0], log)
        assert "not reloaded, nothing was changed" in said
        assert f"{file} " in said
        assert place.borgctl("status") == 0, "the one of before is shown"
    file.write_bytes(good)
    assert "reloaded: changes: 0" in hang_up(place.daemons[0], log)


def test_a_machine_says_at_a_hangup_that_nobody_would_believe_its_certificate(place: Place) -> None:
    assert place.join(place.tokens[0]) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
    file = place.machine / "state" / "machine.pem"
    for bad in (of_a_stranger("c1", "m1"), b"no certificate", signed(place, days_ago=0, machine="m2")):
        file.write_bytes(bad)
        said = hang_up(place.daemons[1], place.log)
        assert "not reloaded, nothing was changed" in said
        assert f"{file} " in said
        assert place.hears()
    file.write_bytes(signed(place, days_ago=0))
    assert "reloaded: changes: 0" in hang_up(place.daemons[1], place.log)


def test_a_machine_whose_certificate_was_damaged_goes_on_when_it_is_put_back(place: Place) -> None:
    assert place.join(place.tokens[0]) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
    file = place.machine / "state" / "machine.pem"
    file.write_bytes(b"no certificate")
    until(lambda: "Goes on trying" in place.log.read_text(), place.log)
    assert place.hears()
    older = signed(place, days_ago=25)
    file.write_bytes(older)
    until(lambda: file.read_bytes() != older, place.log)
    until(place.hears, place.log)


def test_a_revoked_machine_is_out_with_what_it_streams_until_it_is_invited(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    assert place.join(place.tokens[0]) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
    (place.cell / "job.yaml").write_text(JOB)
    assert place.borgctl("job", "submit", "--settle", "0", place.cell / "job.yaml") == 0
    with closing(Client.find(place.cell)) as client:
        (name,) = (task.name for task in every_task(client))
        following = client.stream(quoted("tasks", *name.split("/"), "logs"), {"follow": True})
        assert place.borgctl("machine", "revoke", "--yes", "m1") == 0
        with suppress(Unreachable):
            list(following)  # it ends
    before = len(place.log.read_text())
    place.daemons[-1].send_signal(signal.SIGTERM)
    assert place.daemons.pop().wait(SECONDS_MAX) == 0
    place.borglet()
    until(lambda: "m1 was revoked" in place.log.read_text()[before:], place.log)
    assert not place.hears()
    assert place.borgctl("cell", "rotate-authority") == 0, "which a stolen machine is a reason for"
    capfd.readouterr()
    assert place.borgctl("machine", "invite", "m1") == 0
    token = capfd.readouterr().out.split()[3]
    place.daemons[-1].send_signal(signal.SIGTERM)
    assert place.daemons.pop().wait(SECONDS_MAX) == 0
    assert place.join(token) == 0, place.log.read_text()
    before = len(place.log.read_text())
    place.borglet()
    until(lambda: "joined cell" in place.log.read_text()[before:], place.log)
    until(place.hears, place.log)


def test_a_login_sends_the_token_to_the_cell_whose_authority_was_named_alone(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "admin.token"
    assert place.borgctl("token", "create", "--role", "admin", "--user", "eve", "--to", file) == 0
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "borgctl login" in line)
    words = line.partition("borgctl ")[2].split()
    assert words == ["login", place.url, "--authority", place.authority.sha256]
    given = ["--token-file", str(file)]
    assert run(["login", place.url, *given]) == 2
    assert run(["login", place.url, "--authority", "0" * 64, *given]) == 4
    assert "the token was not sent" in capfd.readouterr().err
    assert run([*words, *given]) == 0
    kept = tmp_path / "config" / "borgish" / "cells" / "c1"
    assert {path.name: path.stat().st_mode & 0o777 for path in kept.iterdir()} == dict.fromkeys(
        ("authority.pem", "client.json", "token"), 0o600
    )
    monkeypatch.chdir(tmp_path)
    assert run(["token", "list"]) == 0
    assert "eve" in capfd.readouterr().out
    assert run(["cell", "use", "local"]) == run(["cell", "use", "c1"]) == run(["cell", "logout", "c1"]) == 0
    assert run(["cell", "use", "c1"]) == 1


def test_who_logged_in_follows_when_the_authority_is_replaced(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    token = ["--token-file", str(place.cell / "tokens" / "admin.token")]
    assert run(["login", place.url, "--authority", place.authority.sha256, *token]) == 0
    kept = tmp_path / "config" / "borgish" / "cells" / "c1" / "authority.pem"
    stranger, before = Authority.make("c1", new_key(), SystemClock().now().wall), kept.read_bytes()
    assert place.borgctl("cell", "rotate-authority") == 0
    assert place.authority.pem.strip() != before.strip()
    monkeypatch.chdir(tmp_path)
    kept.write_bytes(stranger.pem)
    assert run(["token", "list"]) == 4, "nobody has signed that one follows on it"
    assert kept.read_bytes() == stranger.pem
    kept.write_bytes(before)
    assert run(["token", "list"]) == 0
    assert kept.read_bytes().strip() == place.authority.pem.strip()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_machine_joins_a_cell_without_an_authority_on_the_same_host(tmp_path: Path) -> None:
    place = Place(tmp_path)
    shutil.rmtree(place.cell)
    place.cell.mkdir(mode=0o700)
    place.url = f"http://127.0.0.1:{place.port}"
    (place.cell / "cell.toml").write_text(f'name = "c1"\nlisten = "127.0.0.1:{place.port}"\n')
    secret = secrets.token_urlsafe(32)
    post_token(place.cell, secret, "m1", "join", "m1")
    with place.running():
        assert place.join(JoinToken("", secret)) == 0, place.log.read_text()
        place.borglet()
        until(place.hears, place.log)


def test_the_authority_is_replaced_and_no_task_is_touched(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    assert place.join(place.tokens.pop()) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
    told = JOB.replace('[sleep, "600"]', '[sh, -c, "echo $$ > pid; exec sleep 600"]')
    (place.cell / "job.yaml").write_text(told)
    assert place.borgctl("job", "submit", "--settle", "0", place.cell / "job.yaml") == 0
    pid = ["task", "exec", "hello/0", "--", "cat", "pid"]
    capfd.readouterr()
    assert place.borgctl(*pid) == 0
    before, old, held = capfd.readouterr().out, place.authority, signed(place, days_ago=0)
    assert place.borgctl("cell", "seal", place.cell.parent / "sealed") == 0
    assert "audit log" not in capfd.readouterr().err
    assert place.borgctl("audit") == 0
    assert "seal secrets" in capfd.readouterr().out
    assert place.borgctl("cell", "rotate-authority") == 0
    said = capfd.readouterr().out
    assert said.splitlines() == [
        "the new authority is trusted, the old one signs",
        "the new authority signs, the old one is trusted",
        "the old authority is trusted no more",
        f"authority: {place.authority.sha256}",
    ]
    assert place.authority.sha256 != old.sha256
    assert place.borgctl(*pid) == 0
    assert capfd.readouterr().out == before
    assert place.borgctl("why", "hello/0") == 0

    stolen = place.cell / "held.pem"
    stolen.write_bytes(held)
    answer = b""
    with closing(place.calling(str(stolen))) as connection, suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v1/machines", json.dumps(asking("m1")))
        answer = connection.getresponse().read()
    assert not answer
    assert place.join(place.tokens.pop()) == 4
    assert "shows another authority" in place.log.read_text()


def test_a_stolen_certificate_opens_nothing_but_its_joining(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with (place.cell / "cell.toml").open(
        "a"
    ) as file:  # each route is judged, however often it refused before
        file.write("\n[limits]\nrefused_per_second = 0\nunauthenticated_per_minute = 0\n")
    with place.running():
        assert place.join(place.tokens.pop()) == 0, place.log.read_text()
        admin = (place.cell / "tokens" / "admin.token").read_text().strip()
        member = json.loads((place.machine / "state" / "membership.json").read_bytes())["poll_token"]
        with closing(place.calling(str(place.machine / "state" / "machine.pem"))) as connection:

            def asked(method: str, path: str, token: str, body: str = "{}") -> tuple[int, bytes]:
                shown = {"Authorization": f"Bearer {token}"} if token else {}
                connection.request(method, re.sub(r"\{[^}]+\}", "1", path), body, shown)
                response = connection.getresponse()
                return response.status, response.read()

            paths = json.loads(asked("GET", "/v1/openapi.json", admin)[1])["paths"]
            del paths["/v1/authority"]["get"]  # which everybody may see
            routes = [(method.upper(), path) for path, methods in paths.items() for method in methods]
            assert len(routes) > 50
            machines = ("POST", "/v1/machines")
            for token, status in (("", 401), (member, 401), (f"bgm_m1.{member}", 403)):
                found = {route: asked(*route, token)[0] for route in routes if route != machines}
                assert found == dict.fromkeys(found, status)
            for token, machine, status in (
                ("", "m1", 401),
                (f"bgm_m1.{member}", "m2", 403),
                (f"bgm_m1.{member}", "m1", 200),
            ):
                body = json.dumps(asking(machine) | {"poll_token": member})
                assert asked(*machines, token, body)[0] == status


def test_a_borglet_admits_the_cells_masters_alone(place: Place) -> None:
    assert place.join(place.tokens.pop()) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
    state = place.machine / "state"
    token = json.loads((state / "membership.json").read_bytes())["poll_token"]
    stolen = place.cell / "stolen.pem"
    stolen.write_bytes(signed(place, days_ago=0, machine="m2"))
    whose = ((state / "machine.pem", b"403"), (stolen, b"403"), (place.cell / "master.pem", b"200"))
    for shown, status in whose:
        trust, where = caller(str(state / "authority.pem"), str(shown)), ("127.0.0.1", place.machine_port)
        with trust.wrap_socket(
            socket.create_connection(where), server_hostname=machine_name("m1", "c1")
        ) as connection:
            head = f"GET /v1/head HTTP/1.1\r\nHost: m1\r\nAuthorization: Bearer {token}\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(4096).split()[1] == status


@contextmanager
def relaying(place: Place, shown: str) -> Iterator[tuple[str, list[str]]]:
    """Stand between with the certificate in a file: pass all on to the master, and keep what callers say."""
    heard: list[str] = []

    class Between(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            heard.append(f"{self.requestline}\n{self.headers}{body.decode()}")
            master = http.client.HTTPSConnection("127.0.0.1", place.port, context=stranger())
            with closing(master):
                master.request(self.command, self.path, body, dict(self.headers))
                answer = master.getresponse()
                said = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    context = master_listener(shown, str(place.cell / "authority.pem"))
    context.verify_mode = ssl.CERT_NONE
    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("whose", ["another cell's master", "a machine"])
def test_who_stands_between_with_the_true_authority_gets_no_invitation(place: Place, whose: str) -> None:
    """What a caller compares is public, so it is no proof of who shows it."""
    shown = place.cell.parent / "shown.pem"
    if whose == "a machine":
        shown.write_bytes(signed(place, days_ago=0, machine="m2"))
    else:
        shown = Path(Signer(place.cell.parent).master())
    token, url = place.tokens.pop(), place.url
    with relaying(place, str(shown)) as (place.url, heard):
        assert place.join(token, "--dir", place.cell.parent / "misled") == 4
    (said,) = heard
    assert said.startswith("GET /v1/authority HTTP/1.1\n")
    assert "uthorization" not in said
    assert not list((place.cell.parent / "misled").rglob("machine.pem"))
    place.url = url
    assert place.join(token) == 0, "its invitation was not used"


def test_a_task_calls_its_borglet_without_a_certificate_of_the_cells_masters_in_vain(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also with the token that it is polled with. With the master's certificate it would be answered."""
    assert place.join(place.tokens.pop()) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
    env = {
        "BORGLET": str(place.machine_port),
        "TOKEN": json.loads((place.machine / "state" / "membership.json").read_bytes())["poll_token"],
        "STRANGER": Path(Signer(place.cell.parent).master()).read_text(),
        "MASTER": (place.cell / "master.pem").read_text(),
    }
    job = {"name": "calls", "run": [PYTHON, "-c", CALLS], "env": env, "restart": {"policy": "never"}}
    (place.cell / "calls.yaml").write_text(json.dumps(job))
    assert place.borgctl("job", "submit", "--settle", "0", place.cell / "calls.yaml") == 0
    said = ""

    def is_over() -> bool:
        nonlocal said
        capfd.readouterr()
        place.borgctl("task", "logs", "calls/0")
        said = capfd.readouterr().out
        return "MASTER" in said

    until(is_over, place.log)
    assert said.splitlines() == ["NOTHING refused", "STRANGER refused", "MASTER 200"]


def test_a_join_that_was_recorded_lets_nobody_in(place: Place) -> None:
    """An invitation is used once, for one key. The very same request is answered the same, for its answer may
    have been lost: a certificate of that key is of no use to who does not have it."""
    token = place.tokens.pop()
    trust = caller(str(place.cell / "authority.pem"))
    headers = {"Authorization": f"Bearer {token.secret}"}

    def joined(key: bytes) -> tuple[int, dict[str, str]]:
        asked = asking("m1") | {"to_sign": request_to_sign(key, "m1").decode()}
        with closing(MasterConnection("127.0.0.1", place.port, SECONDS_MAX, trust)) as connection:
            connection.request("POST", "/v1/machines", json.dumps(asked), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    key = new_key()
    status, said = joined(key)
    assert (status, "BEGIN CERTIFICATE" in said["certificate"]) == (200, True)
    assert joined(key)[0] == 200
    status, said = joined(new_key())
    assert (status, "certificate" in said) == (403, False)
    assert "was used, revoked, or its time is over" in said["detail"]
    assert place.join(token) == 4
    assert not (place.machine / "state" / "machine.pem").exists()


def test_what_is_wrong_with_an_invitation_is_said(place: Place) -> None:
    token = place.tokens.pop()
    assert place.join(JoinToken("0" * 64, token.secret)) == 4
    assert "shows another authority" in place.log.read_text()
    assert not place.machine.exists()
    assert place.join(JoinToken(token.authority, "x" * 43)) == 4
    assert "refused the invitation of machine" in place.log.read_text()
    assert place.join("BG1nonsense") == 2
    assert place.join(token, "--name", "another") == 1
    assert "is machine" in place.log.read_text()
    assert place.join(token) == 0, place.log.read_text()


def test_a_machine_joins_by_whichever_master_answers(place: Place) -> None:
    first = place.url
    place.url = f"https://127.0.0.1:{free_port()},{first}"
    assert place.join(place.tokens.pop()) == 0, place.log.read_text()
    assert f'master = "{place.url}"' in (place.machine / "borglet.toml").read_text()
    place.url = first
    assert place.join(place.tokens.pop()) == 0, "its file has one of these"
    place.borglet()
    until(place.hears, place.log)


def test_a_machine_that_was_away_for_too_long_says_the_way_back(place: Place) -> None:
    assert place.join(place.tokens.pop()) == 0, place.log.read_text()
    (place.machine / "state" / "machine.pem").write_bytes(signed(place, days_ago=31))
    place.borglet()
    until(
        lambda: "is over. Make an invitation by `borgctl machine invite m1`" in place.log.read_text(),
        place.log,
    )
    place.daemons[-1].send_signal(signal.SIGTERM)
    place.daemons[-1].wait(SECONDS_MAX)
    assert place.join(place.tokens.pop()) == 0, place.log.read_text()
    place.borglet()
    until(place.hears, place.log)
