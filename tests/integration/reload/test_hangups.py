"""SIGHUP to real daemons: they read their files anew, and none of them ever ends of it."""

import signal
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import BorgishError, Forbidden, Unauthenticated, Unreachable
from borgish.join_token import digest_of
from borgish.reload import read_pem
from borgish.wire.api import Accepted, HealthView, MachineView, StatusView
from tests.forked import Forked
from tests.integration.tls.test_tls_cell import SECONDS_MAX, TLS, Authority, daemon
from tests.invited import invite
from tests.ports import free_port

CELL = 'name = "c"\nlisten = "127.0.0.1:{}"\n'
ABOUT = 'machine = "m1"\nmaster = "{}"\njoin_token_file = "tokens/join.token"\nstate = "m1"\n'
ANN = "bgt_of_ann"
CAUGHT = 1 << (signal.SIGHUP - 1)


class Folder:
    """A cell's folder, and the daemons that run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = Authority(path)
        self.authority.sign("cell")
        self.authority.sign("m1")
        self.processes: dict[str, Forked] = {}
        self.ports = {"cell": free_port(), "standby": free_port()}

    def write_cell(self, text: str = "", name: str = "cell") -> None:
        cell = CELL.format(self.ports[name])
        (self.path / f"{name}.toml").write_text(f"{cell}{text}\n{TLS.format('cell')}")

    def write_borglet(self, text: str = "") -> None:
        about = ABOUT.format(self.url())
        invite(self.path, "m1", self.path / "tokens" / "join.token")
        (self.path / "m1.toml").write_text(f"{about}{text}\n{TLS.format('m1')}")

    def url(self, name: str = "cell") -> str:
        return f"https://127.0.0.1:{self.ports[name]}"

    def start(self, name: str, *options: str) -> Forked:
        module = "borgish.borglet.main" if name == "m1" else "borgish.master.main"
        self.processes[name] = daemon(module, self.path / f"{name}.toml", *options)
        return self.processes[name]

    def client(self, token: str, name: str = "cell") -> Client:
        return Client(self.url(name), token, str(self.path / "ca.pem"))

    def admin(self) -> Client:
        return self.client((self.path / "tokens" / "admin.token").read_text().strip())

    def log(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text()

    def hang_up(self, name: str) -> str:
        """Send SIGHUP; return what the daemon logs until and with its last line of it."""
        known = len(self.log(name))
        self.processes[name].send_signal(signal.SIGHUP)
        last = ("reloaded: changes: ", "not reloaded")
        self.until(lambda: any(word in self.log(name)[known:] for word in last), name)
        return self.log(name)[known:]

    def until(self, condition: Callable[[], bool], name: str) -> None:
        deadline = SystemClock().now().mono + SECONDS_MAX
        while not condition():
            assert self.processes[name].poll() is None, self.log(name)
            assert SystemClock().now().mono < deadline, self.log(name)
            time.sleep(0.02)

    def until_answers(self, client: Callable[[], Client], name: str, path: str = "/v1/status") -> None:
        def answers() -> bool:
            try:
                client().raw("GET", path)
            except (BorgishError, OSError):
                return False
            return True

        self.until(answers, name)

    def end(self) -> None:
        codes = {}
        for name, process in reversed(self.processes.items()):
            process.send_signal(signal.SIGTERM)
            codes[name] = process.wait(SECONDS_MAX)
        if "m1" in self.processes:
            self.start("m1", "--stop-all").wait(SECONDS_MAX)
        assert set(codes.values()) == {0}, codes


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.end()


def shown(port: int) -> str:
    """Return the certificate that a listener shows to a new connection."""
    return ssl.get_server_certificate(("127.0.0.1", port))


def catches_hangups(process: Forked) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & CAUGHT)


def add_token(folder: Folder, token: str, name: str, role: str) -> None:
    with (folder.path / "tokens.toml").open("a") as file:
        file.write(f'\n[{digest_of(token)}]\nname = "{name}"\nrole = "{role}"\n')


def test_a_master_that_leads_reads_its_files_anew(folder: Folder) -> None:
    folder.write_cell()
    folder.start("cell")
    folder.until_answers(folder.admin, "cell")
    with pytest.raises(Unauthenticated):
        folder.client(ANN).get("/v1/status", None, StatusView)

    add_token(folder, ANN, "ann", "user")
    folder.authority.sign("cell")
    folder.write_cell(
        "[poll]\ndown_after_seconds = 30.0\n[quota]\nrequired = true\n[limits]\nrefused_burst = 50\n"
        "[disk]\nfree_mib = 0\n"
    )
    said = folder.hang_up("cell")
    assert "reloaded: poll.down_after_seconds: 10.0 -> 30.0\n" in said
    assert "reloaded: quota.required: False -> True; this needs a restart, and stays as it was\n" in said
    assert "reloaded: limits.refused_burst: 100 -> 50\n" in said
    certificate = folder.path / "cell.pem"
    assert f" -> {read_pem(str(certificate)).fingerprint}, for new connections\n" in said
    assert "reloaded: disk.free_mib: 512.0 -> 0.0\n" in said
    assert "reloaded: changes: 5\n" in said
    assert shown(folder.ports["cell"]) == certificate.read_text()
    folder.until_answers(lambda: folder.client(ANN), "cell")
    assert "reloaded: tokens taken over: ann (user)\n" in folder.log("cell")
    assert not (folder.path / "tokens.toml").exists(), "it is in the cell now"
    assert "needs a restart" in folder.hang_up("cell"), "it is said until it is done"

    watching = folder.client(ANN).watch()
    folder.admin().post(f"/v1/tokens/{digest_of(ANN)[:12]}/revoke", None, Accepted)
    with pytest.raises(Unreachable):
        list(watching)
    with pytest.raises(Unauthenticated):
        folder.client(ANN).get("/v1/status", None, StatusView)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("cell.toml", "name = 3", "name: must be a text in quotes"),
        ("tokens.toml", "[abc]", "the tokens in"),
        ("cell.key", "no key", "tls.certificate and tls.key: cannot be used"),
    ],
)
def test_a_broken_file_is_reported_and_nothing_changes(
    folder: Folder, file: str, text: str, said: str
) -> None:
    folder.write_cell()
    folder.start("cell")
    folder.until_answers(folder.admin, "cell")
    before = shown(folder.ports["cell"])
    good = (folder.path / file).read_text() if (folder.path / file).exists() else ""
    if file != "tokens.toml":
        add_token(folder, ANN, "ann", "user")
    (folder.path / file).write_text(text)
    logged = folder.hang_up("cell")
    assert "not reloaded, nothing was changed: " in logged
    assert said in logged
    assert shown(folder.ports["cell"]) == before
    with pytest.raises((Unauthenticated, Forbidden)):
        folder.client(ANN).get("/v1/status", None, StatusView)
    folder.admin().get("/v1/status", None, StatusView)
    (folder.path / file).write_text(good)
    assert "not reloaded" not in folder.hang_up("cell")


def test_a_master_that_starts_or_stands_by_takes_a_hangup(folder: Folder) -> None:
    folder.write_cell()
    starting = folder.start("cell", "--standby")
    folder.until(lambda: catches_hangups(starting), "cell")
    pause_seconds = 0.01
    while "serving c on" not in folder.log("cell"):
        starting.send_signal(signal.SIGHUP)
        folder.until(lambda: True, "cell")
        time.sleep(pause_seconds)
        pause_seconds *= 1.1  # a busy machine must come to something else than hangups
    folder.until_answers(folder.admin, "cell")
    folder.write_cell(name="standby")
    folder.start("standby", "--standby")
    folder.until(lambda: "standing by for c on" in folder.log("standby"), "standby")
    add_token(folder, ANN, "ann", "reader")
    folder.hang_up("standby")
    assert (folder.path / "tokens.toml").exists(), "who leads takes it over"
    folder.hang_up("cell")
    folder.until_answers(lambda: folder.client(ANN, "standby"), "standby", "/v1/health")
    health = folder.client(ANN, "standby").get("/v1/health", None, HealthView)
    assert health.role == "standby"


def test_a_borglet_reads_its_files_anew(folder: Folder) -> None:
    folder.write_cell()
    folder.write_borglet()
    folder.start("cell")
    folder.until_answers(folder.admin, "cell")
    starting = folder.start("m1")
    folder.until(lambda: catches_hangups(starting), "m1")
    starting.send_signal(signal.SIGHUP)
    folder.until_answers(folder.admin, "m1", "/v1/machines/m1")
    port = int(folder.admin().get("/v1/machines/m1", None, MachineView).address.rpartition(":")[2])

    folder.authority.sign("m1")
    (folder.path / "tokens" / "join.token").rename(folder.path / "moved.token")
    folder.write_borglet("[attributes]\nrack = 'r2'\n")
    text = (folder.path / "m1.toml").read_text().replace("tokens/join.token", "moved.token")
    (folder.path / "m1.toml").write_text(text)
    said = folder.hang_up("m1")
    assert "reloaded: join_token_file: 'tokens/join.token' -> 'moved.token'\n" in said
    assert "reloaded: attributes: {} -> {'rack': 'r2'}; this needs a restart, and stays as it was\n" in said
    certificate = folder.path / "m1.pem"
    assert f" -> {read_pem(str(certificate)).fingerprint}, for new connections\n" in said
    assert shown(port) == certificate.read_text()

    (folder.path / "m1.toml").write_text("machine = ")
    assert "not reloaded, nothing was changed: " in folder.hang_up("m1")
    (folder.path / "m1.toml").write_text(text)
    assert folder.admin().get("/v1/machines/m1", None, MachineView).state == "up"
