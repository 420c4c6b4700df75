"""A borglet that is not root confines what it may, by user namespaces, and says what does not hold.

Where the tests are root's, a process of nobody plays the borglet. Its interpreter has to be one that nobody
may run, as the zygote is another.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from borgish.vocabulary import HELD
from tests.integration.runtimes.machine import PYTHON

NOBODY = 65_534
PLAY = """
import asyncio, json, os, socket, sys
from pathlib import Path
import encodings.idna, multiprocessing.util, subprocess, concurrent.futures.thread
from borgish.borglet.runtimes.process.confinement import ConfineRules
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.borglet.runtimes.process.zygote import zygote_program
from borgish.errors import Unreachable
from borgish.vocabulary import Runtime
from borgish.wire.link import LogWanted, Terminal
from tests.contract.runtime.suite import Watched, attempt_spec, text

state, uid, interpreter, forbidden = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if uid:
    zygote_program()  # while its files can be read
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    sys.executable = interpreter

LOOK = "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; ls -d /proc/[0-9]* | wc -l;"
LOOK += " cat ../../../secret 2>&1; touch mine /tmp/mine && echo own; touch /var/tmp/../lib/mine 2>&1"

async def main():
    (state / "secret").write_text("canary")
    runtime = ProcessRuntime(state / "process", rules=ConfineRules(hide=(str(state),)))
    watched = await Watched(runtime).open()
    if forbidden:
        runtime._confinement.measures["namespaces"] = "forbidden"
        for name in ("files", "read_only", "proc", "network"):
            runtime._confinement.measures[name] = "forbidden"
    spec = attempt_spec(("sh", "-c", LOOK + "; sleep 600"), Runtime.PROCESS)
    await runtime.start(spec, 1)
    await watched.has_said(spec.key, b"lib/mine")
    beside, code, _ = await runtime.exec(spec.key, ("sh", "-c", LOOK), 60)
    look = ("sh", "-c", "stty size; tty -s < /dev/tty && echo own")
    assert (await runtime.exec(spec.key, look, 60, terminal=Terminal(30, 100)))[0] == b"30 100\\r\\nown\\r\\n"
    leave = "" if forbidden else "setsid sleep 600 & sleep 0.2;"
    kill = ("sh", "-c", f"{leave} kill -9 $PPID; while :; do :; done")
    try:
        _, killed, _ = await runtime.exec(spec.key, kill, 60)
    except Unreachable as error:
        killed = error.message
    await runtime.kill(spec.key)
    ended = await watched.end_of(spec.key)
    said = await text(runtime.logs(spec.key, LogWanted()))
    await runtime.close()
    lines = said.splitlines(), beside.decode().splitlines()
    print(json.dumps([runtime.measures(), *lines, killed, ended.signal]))

asyncio.run(main())
"""


def play(folder: Path, *, forbidden: bool = False) -> tuple[dict[str, str], list[str], list[str], Any, Any]:
    """Return what holds for a borglet without rights, what a program and a command beside it said, and how a
    command ended that killed who had started it, and the program."""
    uid = NOBODY if os.geteuid() == 0 else 0
    if uid:
        tag = subprocess.run(
            [PYTHON, "-c", "import sys; print(sys.implementation.cache_tag)"], capture_output=True, text=True
        )
        if tag.stdout.strip() != sys.implementation.cache_tag:
            pytest.skip(f"{PYTHON} is another Python than this, and nobody may run this one")
        os.chown(folder, uid, uid)
    words = [str(folder), str(uid), str(Path(PYTHON).resolve()), "forbidden" if forbidden else ""]
    done = subprocess.run(
        [sys.executable, "-c", PLAY, *words], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr
    measures, said, beside, killed, ended = json.loads(done.stdout)
    return measures, said, beside, killed, ended


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="borgish-", dir="/tmp") as name:
        yield Path(name)


def test_what_user_namespaces_allow(folder: Path) -> None:
    measures, said, beside, killed, ended = play(folder)
    if (why := measures["namespaces"]) != HELD:
        pytest.skip(f"no user namespaces here: {why}")
    assert "not root" in measures["uid"]
    assert all(measures[it] == HELD for it in ("files", "syscalls", "capabilities")), measures
    for lines in (said, beside):
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert (status["CapEff"], status["CapBnd"]) == ("0" * 16, "0" * 16)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert "canary" not in "".join(lines)
        assert "own" in lines
        assert "Read-only" in lines[-1] or "denied" in lines[-1]
    assert killed == 128 + 9, "what it left held its output open to the end of its time"
    assert ended == 9


def test_where_they_are_forbidden_programs_run_all_the_same(folder: Path) -> None:
    measures, said, beside, killed, ended = play(folder, forbidden=True)
    for lines in (said, beside):
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["CapEff"] == "0" * 16
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == ("2" if measures["syscalls"] == HELD else "0")
    assert "what watched the command was killed" in killed
    assert ended == 9
