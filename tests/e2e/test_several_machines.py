"""A master and three machines, each in a network of its own, told by the commands of the documentation."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cells import ROOT, wait_until
from tests.documents import page
from tests.forked import plain_environment

pytestmark = pytest.mark.networks

PAGE = "how-to/three-machines"
HOSTS = {"master": "10.77.0.1", "m1": "10.77.0.2", "m2": "10.77.0.3", "m3": "10.77.0.4"}
SECONDS_MAX = 60.0
WEB = (
    "name: web\nuser: ann\ntasks: 3\nrun: [sh, -c, 'echo of ann; exec sleep 100000']\n"
    "resources: {cpu: 10m, ram: 8MiB, disk: 1MiB}\nspread: [{over: machine, max: 2}]\n"
)


def commands() -> list[tuple[str, str, bool]]:
    """Return host, command, and whether it is refused, of each line of the documentation."""
    found = re.findall(r"^(\w+)\$ (.+?)(\s+# refused)?$", page(PAGE), re.MULTILINE)
    return [(host, command, bool(refused)) for host, command, refused in found]


class Hosts:
    """A network namespace a host, all on one bridge, and a folder that commands are typed in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._mark = folder, f"bg{os.getpid() % 100_000}"
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = plain_environment()
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def open(self) -> None:
        self._ip("netns", "add", self._name("bridge"))
        self._ip("-n", self._name("bridge"), "link", "add", "bridge", "up", "type", "bridge")
        for host, address in HOSTS.items():
            name = self._name(host)
            self._ip("netns", "add", name)
            peer = ("peer", "name", host, "netns", self._name("bridge"))
            self._ip("-n", name, "link", "add", "eth0", "type", "veth", *peer)
            self._ip("-n", self._name("bridge"), "link", "set", "dev", host, "up", "master", "bridge")
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            self._ip("-n", name, "link", "set", "lo", "up")
            self._ip("-n", name, "link", "set", "eth0", "up")
            (self.folder / host).mkdir()

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            daemon.wait(SECONDS_MAX)
        for host in HOSTS:
            if (self.folder / host / "borglet" / "borglet.toml").exists():
                self.run(host, "borglet --config borglet/borglet.toml --stop-all")
        for host in ("bridge", *HOSTS):
            if Path("/run/netns", self._name(host)).exists():
                self._ip("netns", "del", self._name(host))

    def run(self, host: str, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._words(host, command),
            cwd=self.folder / host,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=5 * SECONDS_MAX,
            check=False,
        )

    def type(self, host: str, command: str) -> "subprocess.CompletedProcess[str] | None":
        """Do what a shell on that host would; None for what goes on in the background."""
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = str(self.folder / host / value)
        elif command.endswith(" &"):
            with (self.folder / host / "log").open("ab") as log:
                words = self._words(host, command.removesuffix(" &"))
                where = self.folder / host
                self._daemons.append(
                    subprocess.Popen(words, cwd=where, env=self._environment, stdout=log, stderr=log)
                )
        else:
            return self.run(host, command)
        return None

    def logs(self) -> str:
        return "\n".join(f"--- {log}\n{log.read_text()}" for log in self.folder.glob("*/log"))

    def _words(self, host: str, command: str) -> list[str]:
        return ["ip", "netns", "exec", self._name(host), *shlex.split(command)]

    def _name(self, host: str) -> str:
        return f"{self._mark}-{host}"

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    try:
        made.open()
        yield made
    finally:
        made.close()


def test_what_the_documentation_says_of_several_machines(hosts: Hosts) -> None:
    (hosts.folder / "master" / "web.yaml").write_text(WEB)
    shutil.copy(ROOT / "configs" / "doctor-accepted.toml", hosts.folder / "master" / "accepted.toml")
    token, asked = "", commands()
    assert len(asked) > 15

    def three_up() -> bool:
        return hosts.run("master", "borgctl machine list").stdout.count(" up ") == 3

    for host, command, refused in asked:
        if command == "borgctl machine list":
            wait_until(three_up, SECONDS_MAX)
        done = hosts.type(host, command.replace("BG1...", token))
        if command.startswith("export"):
            wait_until(lambda: hosts.run("master", "borgctl status").returncode == 0, SECONDS_MAX)
        if done is None:
            continue
        assert (done.returncode != 0) == refused, f"{command}: {done}\n{hosts.logs()}"
        if refused:
            assert "may not act on the jobs of ann" in done.stderr
        if command.startswith("borgctl machine invite"):
            line = done.stdout.split()
            token = line[3]
            assert line[:3] == ["borglet", "join", f"https://{HOSTS['master']}:7400"]
        if "task logs" in command and not refused:
            assert "of ann" in done.stdout
    shown = hosts.run("master", "borgctl machine list").stdout
    assert shown.count(" up ") == 2, shown
    assert "revoked" in shown
    tasks = hosts.run("master", "borgctl task list -o json").stdout
    assert '"m3"' not in tasks, tasks
