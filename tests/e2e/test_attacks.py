"""What a program of one user, and a machine that nobody invited, try on a cell with the real daemons.

The same program runs on a machine that confines nothing, where it gets at all of it: what is refused is
there.
"""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from borgish.wire.api import MachineView
from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, asking, becomes, foreground, lives, task_of, watched_cell
from tests.forked import Ended, call
from tests.integration.runtimes.machine import PYTHON
from tests.ports import free_port

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only a borglet that is root gives each user a uid")

CANARY = "canary-of-bob"
CONFINED, OPEN_MACHINE = "confined == yes", "confined == no"
SAYS = {
    "m1": '[attributes]\nconfined = "yes"\n',
    "m2": '[attributes]\nconfined = "no"\n[process]\nconfine = false\n',
}
ENGINES, DOCKER = Path("/run/podman"), "/run/docker.sock"
VICTIM = "echo $SECRET > mine; echo up; exec sleep 100000"
ATTACK = """
import ctypes, errno, json, os, signal, socket

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
SEIZE = 0x4206  # which, unlike attaching, stops nobody

def tried(what, *arguments):
    try:
        return what(*arguments) or "done"
    except OSError as error:
        return errno.errorcode[error.errno]

def read(path):
    open(path, "rb").read(1)

def write(path):
    os.close(os.open(path, os.O_WRONLY))

def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)

def send(pid):
    os.kill(pid, signal.SIGCONT)

def trace(pid):
    if libc.ptrace(SEIZE, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")

tries = {"read": read, "write": write, "connect": connect, "signal": send, "trace": trace}
told = json.loads(os.environ["TARGETS"])
found = {f"{how} {path}": tried(tries[how], path) for how, path in told}
seen = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())]
told_by = [pid for pid in seen if tried(read, f"/proc/{pid}/environ") == "done"
           and os.environ["SOUGHT"] + "=" in open(f"/proc/{pid}/environ").read()]
print(json.dumps(found | {"environments": "done" if told_by else "none"}), flush=True)
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Path]:
    """A socket where an engine of containers has its own, which everybody may write to."""
    was_there = ENGINES.exists()
    ENGINES.mkdir(exist_ok=True)
    path = ENGINES / f"borgish-test-{os.getpid()}.sock"
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o777)
            listener.listen()
            yield path
    finally:
        path.unlink(missing_ok=True)
        if not was_there:
            with suppress(OSError):  # an engine has begun to use it
                ENGINES.rmdir()


@pytest.fixture(scope="module")
def attacked() -> Iterator[RealCell]:
    """A cell that is not below /tmp, of which programs have one of their own. Its second machine confines
    nothing."""
    folder = Path(tempfile.mkdtemp(prefix="borgish-attacked-", dir="/var/lib"))
    folder.chmod(0o755)
    try:
        with watched_cell(folder / "cell", machines=2) as made:
            for name, says in SAYS.items():
                config = made.folder / "machines" / name / "borglet.toml"
                config.write_text(f"{config.read_text()}\n{says}")
                made.kill(name)
            made.ok("up")
            yield made
    finally:
        shutil.rmtree(folder)


def submit(made: RealCell, name: str, user: str, run: list[str], where: str, **more: object) -> str:
    """Submit a job for a machine that is as told, and return the name of its task."""
    job: dict[str, Any] = {"name": name, "user": user, "run": run, "constraints": [where], **more}
    small = {"resources": {"cpu": "10m", "ram": "64MiB", "disk": "2MiB"}}
    made.ok("job", "submit", "--detach", "-", stdin=json.dumps(small | job))
    return f"{user}/{name}/0"


@pytest.fixture(scope="module")
def victim(attacked: RealCell) -> str:
    told = {"SECRET": CANARY}
    name = submit(attacked, "safe", "bob", ["sh", "-c", VICTIM], CONFINED, env=told)
    wait_until(lambda: "up" in attacked.borgctl("task", "logs", name).out, PATIENCE_SECONDS)
    return name


def attack(made: RealCell, victim: str, engine: Path, where: str) -> dict[str, str]:
    """Return what the program came to, for each thing that it tried."""
    pid = task_of(made, victim).pid
    (home,) = made.folder.glob("machines/m1/state/process/runs/bob+safe+0@*")
    member = made.folder / "machines" / "m1" / "state" / "membership.json"
    read = [
        *(made.folder / "secret", made.folder / "tokens" / "admin.token", made.folder / "cell.db", member),
        *(home / "work" / "mine", home / "run.json", f"/proc/{pid}/environ", f"/proc/{pid}/root/etc/shadow"),
    ]
    pids = [pid, made.pid("m1"), made.pid("borgmaster"), os.getpid()]
    targets: list[tuple[str, object]] = [
        *((how, pid) for how in ("signal", "trace") for pid in pids),
        *(("read", str(path)) for path in read),
        *(("write", str(made.folder / name)) for name in ("cell.db", "secret", "cell.toml")),
        *(("connect", str(path)) for path in (engine, DOCKER)),
    ]
    env = {"TARGETS": json.dumps(targets), "SOUGHT": "SECRET"}
    name = "bad" if where == CONFINED else "open"
    task = submit(made, name, "ann", [PYTHON, "-c", ATTACK], where, env=env, restart={"policy": "never"})
    wait_until(lambda: "}\n" in made.borgctl("task", "logs", task).out, PATIENCE_SECONDS)
    found: dict[str, str] = json.loads(made.ok("task", "logs", task))
    return found


def test_a_task_gets_at_nothing_of_the_cell_of_another_task_or_of_the_machine(
    attacked: RealCell, victim: str, engine: Path
) -> None:
    unconfined = attack(attacked, victim, engine, OPEN_MACHINE)
    unconfined[f"connect {DOCKER}"] = "done"  # whether or not an engine runs here
    assert set(unconfined.values()) == {"done"}, unconfined
    confined = attack(attacked, victim, engine, CONFINED)
    assert confined.keys() == unconfined.keys()
    assert {what: how for what, how in confined.items() if how == "done"} == {}


def test_a_task_that_floods_the_disk_ends_with_the_reason(attacked: RealCell, victim: str) -> None:
    before = lives(attacked)[victim]
    flood = ["sh", "-c", "head -c 32M /dev/zero > flood; exec sleep 100000"]
    name = submit(attacked, "flood", "ann", flood, CONFINED, restart={"policy": "never"})
    becomes(lambda: str(task_of(attacked, name).state), "dead")
    reason = task_of(attacked, name).reason
    assert reason.startswith("its disk: ")
    assert "limit 2MiB; raise resources.disk" in reason
    assert lives(attacked)[victim] == before


def test_a_machine_that_was_not_polled_yet_is_taken_over_by_nobody(
    attacked: RealCell, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"

    def joined(folder: str, *invited: str) -> Ended:
        """Join as m9, from where m9 is, with an invitation as told."""
        command = attacked.ok("machine", "invite", *invited).split()
        where = ["--name", "m9", "--listen", at, "--dir", tmp_path / folder, "--no-start"]
        return call("borgish.borglet.main", [*command[1:4], *where])

    assert joined("m9", "m9").code == 0
    refusals = (("any", (), "the name 'm9'"), ("other", ("m8",), "the invitation of machine m9"))
    for folder, invited, what in refusals:
        refused = joined(folder, *invited)
        assert refused.code != 0
        assert f"the borgmaster refused {what}" in refused.err
        assert not list((tmp_path / folder).rglob("membership.json")), "it got no token"
    config = tmp_path / "m9" / "borglet.toml"
    with foreground("borgish.borglet.main", config), asking(attacked) as client:

        def seen() -> MachineView:
            return client.get("/v1/machines/m9", None, MachineView)

        wait_until(lambda: seen().heard_seconds_ago is not None, PATIENCE_SECONDS)
