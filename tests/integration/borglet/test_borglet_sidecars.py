"""A task of several programs on a real borglet: who dies, who lives on, who comes back."""

import json
import os
import re
import signal
import time
from collections.abc import Callable

import msgspec
import pytest

from borgish.spec.job import Program
from borgish.vocabulary import Ending, Phase, RestartPolicy
from borgish.wire.link import AttemptReport, AttemptSpec, ExecReply, StopOrder
from tests.integration.borglet.harness import Borglet, Master, ended, make_spec, up, wait_until

LOGS = "/v1/logs?task=ann/web/0&attempt=7"


def grouped(
    beside: str, main: str = "exec sleep 600", policy: RestartPolicy = RestartPolicy.ALWAYS
) -> AttemptSpec:
    sidecar = Program("side", ("sh", "-c", beside), env={"BORGISH_PROGRAM": "side"})
    return msgspec.structs.replace(make_spec(main, policy=policy), programs=(sidecar,))


def all_up(report: AttemptReport) -> bool:
    return up(report) and all(each.phase is Phase.UP and each.pid for each in report.programs)


def pids(report: AttemptReport) -> tuple[int, int]:
    return report.pid, report.programs[0].pid


def output(master: Master, program: str = "") -> bytes:
    return master.call("GET", f"{LOGS}&program={program}")[1]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def both_other(before: tuple[int, int]) -> Callable[[AttemptReport], bool]:
    return lambda report: all_up(report) and not set(pids(report)) & set(before)


def test_kill_9_of_a_sidecar_costs_the_main_program_nothing(borglet: Borglet, master: Master) -> None:
    key = master.place(grouped("echo $BORGISH_PROGRAM says $GREETING; exec sleep 600"))
    main, side = pids(master.until(key, all_up))
    wait_until(lambda: output(master, "side") == b"side says hello\n", "its output")
    os.kill(side, signal.SIGKILL)
    after = master.until(key, lambda r: all_up(r) and r.programs[0].pid != side)
    assert (after.pid, after.restarts, after.programs[0].restarts) == (main, 0, 1)
    wait_until(lambda: output(master, "side") == b"side says hello\n", "its output again")
    assert master.call("GET", f"{LOGS}&program=side&previous=1")[1] == b"side says hello\n"
    assert master.call("GET", f"{LOGS}&program=other")[0] == 404
    asked = {"task": "ann/web/0", "attempt": 7, "run": ["sh", "-c", "echo $BORGISH_PROGRAM"]}
    for program, said in (("side", b"side\n"), ("", b"\n")):
        _, body = master.call("POST", "/v1/exec", json.dumps(asked | {"program": program}).encode())
        assert msgspec.json.decode(body, type=ExecReply).output == said


def test_kill_9_of_the_main_program_brings_all_of_them_anew(borglet: Borglet, master: Master) -> None:
    key = master.place(grouped("exec sleep 600"))
    before = pids(master.until(key, all_up))
    os.kill(before[0], signal.SIGKILL)
    after = master.until(key, both_other(before))
    assert (after.restarts, after.programs[0].restarts) == (1, 1)
    assert not any(map(alive, before))


@pytest.mark.parametrize("dies", ["none", "main", "side"])
def test_a_restart_of_the_borglet_keeps_all_that_lives(borglet: Borglet, master: Master, dies: str) -> None:
    key = master.place(grouped("exec sleep 600"))
    before = main, side = pids(master.until(key, all_up))
    borglet.end(signal.SIGKILL)
    if dies != "none":
        os.kill(main if dies == "main" else side, signal.SIGKILL)
    joins = len(master.joins)
    borglet.start()
    wait_until(lambda: len(master.joins) > joins, "joined again")
    if dies == "main":
        assert master.until(key, both_other(before)).restarts == 1
        return
    after = master.until(key, lambda r: all_up(r) and (dies == "none" or r.programs[0].pid != side))
    assert (after.pid, after.restarts) == (main, 0)
    assert after.programs[0].restarts == (dies == "side")


def test_the_task_ends_when_its_main_program_does_and_not_before_its_sidecars(
    borglet: Borglet, master: Master
) -> None:
    work = borglet.folder / "state/process/runs/ann+web+0@7/work"
    stays = "trap 'echo asked; touch told' TERM; echo armed; while :; do sleep 0.02; done"
    spec = grouped(stays, "while ! [ -e go ]; do sleep 0.02; done; exit 3", RestartPolicy.NEVER)
    # Time enough to be seen at it, also on a busy host.
    spec = msgspec.structs.replace(spec, stop=msgspec.structs.replace(spec.stop, grace_seconds=6.0))
    key = master.place(spec)
    report = master.until(key, all_up)
    wait_until(lambda: output(master, "side") == b"armed\n", "it is armed")
    (work / "go").touch()
    wait_until((work / "told").exists, "its sidecar is asked to end")
    master.poll()
    assert master.reports[key].ended is None
    assert master.reports[key].phase is Phase.STOPPING
    done = master.until(key, ended)  # it does not listen, so its grace has to pass
    assert (done.ended, done.last_exit and done.last_exit.code) == (Ending.FAIL, 3)
    assert not alive(report.programs[0].pid)


def test_all_of_them_go_on_until_their_clients_have_left(borglet: Borglet, master: Master) -> None:
    """Also where the borglet is killed meanwhile: the next one goes on with what is left."""
    asked = "trap 'echo asked; exit 0' TERM; echo armed; while :; do sleep 0.02; done"
    key = master.place(grouped(asked, asked))
    before = pids(master.until(key, all_up))
    wait_until(lambda: output(master) == output(master, "side") == b"armed\n", "both are armed")
    master.run.pop(key)
    master.stop[key] = StopOrder("ann/web/0", 7, "drain", deregister_seconds=4.0)
    master.generation += 1
    began = time.perf_counter()
    master.until(key, lambda report: report.phase is Phase.STOPPING)
    borglet.end(signal.SIGKILL)
    joins = len(master.joins)
    borglet.start()
    wait_until(lambda: len(master.joins) > joins, "joined again")
    report = master.until(key, lambda report: report.phase is Phase.STOPPING)
    if time.perf_counter() < began + 3.0:  # else the host was too busy to be seen at it
        assert pids(report) == before
        assert output(master) == output(master, "side") == b"armed\n"
    done = master.until(key, ended)
    assert (done.ended, done.last_exit and done.last_exit.code) == (Ending.KILL, 0)
    assert time.perf_counter() >= began + 4.0
    assert all(b"asked" in output(master, program) for program in ("", "side"))


def test_a_stop_in_a_hurry_is_over_in_time_for_all_of_them(borglet: Borglet, master: Master) -> None:
    stubborn = "trap '' TERM; echo armed; while :; do sleep 0.02; done"
    spec = msgspec.structs.replace(
        grouped(stubborn, stubborn), stop=msgspec.structs.replace(make_spec("").stop, grace_seconds=600.0)
    )
    key = master.place(spec)
    report = master.until(key, all_up)
    wait_until(lambda: output(master) == output(master, "side") == b"armed\n", "both are armed")
    master.run.pop(key)
    master.stop[key] = StopOrder("ann/web/0", 7, "preempted", grace_seconds=0.3)
    master.generation += 1
    done = master.until(key, ended)
    assert done.ended is Ending.KILL
    # Less by what it took to tell the others.
    assert re.search(r"within 0\.[0-3]\d* s of signal TERM", done.reason)
    assert not any(map(alive, pids(report)))
