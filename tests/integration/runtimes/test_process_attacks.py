"""A program of one user that means harm, beside one of another: what it gets at is what it brought along.

All is tried by one program, once; each test is about one part of what it tells. The borglet has to be root,
as otherwise all programs run as its own user (see ``test_process_unprivileged``).
"""

import asyncio
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from borgish.borglet.runtimes.process.confinement import ConfineRules
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.borglet.runtimes.process.shim.basics import start_ticks
from borgish.borglet.runtimes.processes import is_alive
from borgish.resources import Resources
from borgish.vocabulary import HELD, Runtime
from borgish.wire.link import LogWanted
from tests.contract.runtime.suite import DEADLINE_SECONDS, Watched, attempt_spec, text
from tests.integration.runtimes.machine import PYTHON, end_all

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only a borglet that is root gives each user a uid")

CANARY = "canary-of-bob"
ABSTRACT = f"\0borgish-victim-{os.getpid()}"
VICTIM = """
import os, socket, time
here = socket.socket(socket.AF_UNIX)
here.bind("\\0" + os.environ["NAME"])
here.listen()
open("mine", "w").write(os.environ["SECRET"])
print("up", flush=True)
time.sleep(600)
"""
ATTACK = """
import ctypes, errno, json, os, signal, socket, sys

libc = ctypes.CDLL(None, use_errno=True)
told = json.loads(os.environ["TARGETS"])

def tried(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return errno.errorcode.get(ctypes.get_errno(), "done") if result < 0 else "done"

def connect(address):
    socket.socket(socket.AF_UNIX).connect(address)

def read(path):
    open(path, "rb").read(1)

def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))

status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
found = {
    "status": {name: status[name].split() for name in (
        "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")},
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "kill": tried(os.kill, told["pid"], signal.SIGKILL),
    "ptrace": tried(lambda: libc.ptrace(16, told["pid"], 0, 0) and (_ for _ in ()).throw(
        OSError(ctypes.get_errno(), ""))),
    "connect": {name: tried(connect, told[name]) for name in ("abstract", "engine")},
    "read": {path: tried(read, path) for path in told["read"]},
    "write": {path: tried(write, path) for path in told["write"]},
    "own": [tried(write, path) for path in told["own"]],
    "setuid": tried(os.setuid, 0),
    "hostname": tried(socket.sethostname, "mine"),
    "calls": {name: call(*arguments) for name, *arguments in told["calls"]},
}
print(json.dumps(found), flush=True)
"""
CALLS = {  # on x86_64, by name: the number and what makes a harmful call of it
    "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0),
    "pivot_root": (155, 0, 0),
    "chroot": (161, 0),
    "setns": (308, 0, 0),
    "unshare": (272, 0x10000000),
    "clone": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "keyctl": (250, 0, 0, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "init_module": (175, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0),
    "userfaultfd": (323, 0),
    "io_uring_setup": (425, 1, 0),
    "personality": (135, 0x0040000),
    "quotactl": (179, 0, 0, 0, 0),
    "acct": (163, 0),
    "settimeofday": (164, 0, 0),
    "clock_settime": (227, 0, 0),
    "vsock": (41, 40, 1, 0),
    "x32": (0x40000000 + 39,),
    "clone3": (435, 0, 0),
    "newer than all": (600,),
}
IS_X86 = os.uname().machine == "x86_64"
REFUSED_OTHERWISE = {"clone3": "ENOSYS", "newer than all": "ENOSYS"}


class Scene:
    """What the attacker told, what its measures were, and what became of the victim."""

    def __init__(self, told: dict[str, Any], measures: dict[str, str], victim: int, *, lives: bool) -> None:
        self.told, self.measures, self.victim, self.lives = told, measures, victim, lives


async def _play(state: Path, engine: Path) -> Scene:
    runtime = ProcessRuntime(state / "process", rules=ConfineRules(hide=(str(engine), str(state))))
    watched = await Watched(runtime).open()
    ram = Resources(100, 128 * 1024**2)
    victim = attempt_spec(
        (PYTHON, "-c", VICTIM),
        Runtime.PROCESS,
        task="bob/safe/0",
        env={"SECRET": CANARY, "NAME": ABSTRACT[1:]},
        resources=ram,
    )
    at = await runtime.start(victim, 1)
    await watched.has_said(victim.key, b"up")
    runs, group = state / "process/runs", Path("/sys/fs/cgroup")
    targets = {
        "pid": at.pid,
        "abstract": ABSTRACT,
        "engine": str(engine),
        "read": [
            str(runs / "bob+safe+0@7/work/mine"),
            str(runs / "bob+safe+0@7/run.json"),
            str(runs / "ann+bad+0@7/run.json"),
            str(state / "secret"),
            f"/proc/{at.pid}/environ",
            "/proc/1/environ",
            "/etc/shadow",
            "/proc/kcore",
        ],
        "write": [
            "/mine",
            "/etc/mine",
            "/usr/bin/mine",
            "/var/lib/mine",
            str(runs / "ann+bad+0@7/run.json"),
            str(group / "mine"),
            "/sys/power/state",
            "/proc/sys/kernel/core_pattern",
            "/proc/sysrq-trigger",
        ],
        "own": ["mine", "/tmp/mine", "/dev/shm/mine", "/dev/null", "/dev/stdout"],
        "calls": [(name, *arguments) for name, arguments in CALLS.items()] if IS_X86 else [],
    }
    attack = attempt_spec(
        (PYTHON, "-c", ATTACK),
        Runtime.PROCESS,
        task="ann/bad/0",
        env={"TARGETS": json.dumps(targets)},
        resources=ram,
    )
    await runtime.start(attack, 1)
    await watched.end_of(attack.key)
    said = await text(runtime.logs(attack.key, LogWanted()))
    lives = is_alive(at.pid, start_ticks(at.pid))
    await runtime.kill(victim.key)
    await watched.end_of(victim.key)
    measures = runtime.measures()
    await runtime.close()
    return Scene(json.loads(said.splitlines()[-1]), measures, at.pid, lives=lives)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """One attack. Not below /tmp, where nothing is seen of it anyway."""
    state = Path(tempfile.mkdtemp(prefix="borgish-attack-", dir="/var/lib"))
    (state / "secret").write_text(CANARY)
    engine = state.with_suffix(".sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(engine))
        engine.chmod(0o777)
        listener.listen()
        try:
            yield asyncio.run(_play(state, engine))
        finally:
            end_all(state / "process")
            shutil.rmtree(state)
            engine.unlink()


def needs(scene: Scene, measure: str) -> None:
    """Skip where a measure is not held on this machine."""
    if (why := scene.measures[measure]) != HELD:
        pytest.skip(f"{measure} is not held here: {why}")


def test_it_has_no_right_of_root(scene: Scene) -> None:
    status = scene.told["status"]
    assert len(set(status["Uid"] + status["Gid"])) == 1
    assert int(status["Uid"][0]) > 1000
    assert status["Groups"] == []
    assert {status[name][0] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], scene.told["setuid"]) == (["1"], "EPERM")


def test_it_sees_no_process_but_its_own(scene: Scene) -> None:
    needs(scene, "proc")
    assert len(scene.told["processes"]) == 2  # its init, and itself


def test_it_cannot_touch_the_other_program(scene: Scene) -> None:
    needs(scene, "namespaces")
    assert scene.lives
    assert scene.told["kill"] == "ESRCH"
    assert scene.told["ptrace"] != "done"


def test_it_cannot_talk_to_the_other_programs_socket(scene: Scene) -> None:
    needs(scene, "sockets")
    assert scene.told["connect"]["abstract"] == "EPERM"


def test_it_finds_no_engine_of_containers(scene: Scene) -> None:
    needs(scene, "files")
    assert scene.told["connect"]["engine"] in ("ECONNREFUSED", "ENOENT", "ENOTSOCK")


def test_it_reads_nothing_of_others_nor_of_the_borglet(scene: Scene) -> None:
    told = scene.told["read"]
    assert {path: told[path] for path in told if told[path] not in ("ENOENT", "EACCES", "EPERM")} == {}


def test_it_writes_nowhere_but_at_home(scene: Scene) -> None:
    needs(scene, "read_only")
    assert {path: how for path, how in scene.told["write"].items() if how == "done"} == {}
    assert set(scene.told["own"]) == {"done"}


def test_it_cannot_rename_the_machine(scene: Scene) -> None:
    assert scene.told["hostname"] == "EPERM"


def test_no_call_to_the_kernel_is_let_through(scene: Scene) -> None:
    needs(scene, "syscalls")
    if not IS_X86:
        pytest.skip("the numbers of the calls are those of x86_64")
    assert scene.told["status"]["Seccomp"] == ["2"]
    assert scene.told["calls"] == dict.fromkeys(CALLS, "EPERM") | REFUSED_OTHERWISE


async def test_a_command_beside_a_task_is_confined_as_it_is(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "m1")
    watched = await Watched(runtime).open()
    spec = attempt_spec(("sleep", "600"), Runtime.PROCESS)
    await runtime.start(spec, 1)
    fields = "^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):"
    look = (
        f"cat /proc/self/status /proc/2/status | grep -E '{fields}' | sort | uniq -c;"
        "readlink /proc/self/ns/mnt /proc/2/ns/mnt | uniq | wc -l;"
        "touch here /etc/here; kill -0 2 && echo seen"
    )
    said, code, _ = await runtime.exec(spec.key, ("sh", "-c", look), DEADLINE_SECONDS)
    lines = said.decode().splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["2"] * 5
    assert lines[5].strip() == "1"
    assert any("/etc/here" in line for line in lines[6:])
    assert (lines[-1], code) == ("seen", 0)
    await runtime.kill(spec.key)
    await watched.end_of(spec.key)
    await runtime.close()


FLOODS = {
    "processes": ("sh", "-c", "f() { f | f & }; f; sleep 600"),
    "memory": (PYTHON, "-c", "held = []\nwhile True: held.append(bytearray(b'x') * 2**22)"),
    "output": ("sh", "-c", "exec yes a-line-of-output-like-any-other"),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_leaves_the_neighbour_alone(tmp_path: Path, kind: str) -> None:
    """One of processes, of memory, of output; the neighbour still starts commands meanwhile."""
    runtime = ProcessRuntime(tmp_path / "m1")
    watched = await Watched(runtime).open()
    if runtime.isolation == "weak":
        pytest.skip("without control groups nothing holds a task to its memory and processes at once")
    victim = attempt_spec(("sleep", "600"), Runtime.PROCESS, task="bob/safe/0")
    flood = attempt_spec(FLOODS[kind], Runtime.PROCESS, task="ann/bad/0")
    before = await runtime.start(victim, 1)
    await runtime.start(flood, 1)
    if kind == "output":
        await watched.until((tmp_path / "m1/runs/ann+bad+0@7/log.1").exists)
    said, code, _ = await runtime.exec(victim.key, ("echo", "well"), DEADLINE_SECONDS)
    assert (said, code) == (b"well\n", 0)
    if kind == "memory":
        assert (await watched.end_of(flood.key)).oom
    else:
        await runtime.kill(flood.key)
        await watched.end_of(flood.key)
    assert runtime.look(victim.key) == before
    await runtime.kill(victim.key)
    await watched.end_of(victim.key)
    await runtime.close()
    end_all(tmp_path / "m1")
