"""A real borglet with real programs, over HTTP, with this test as its master."""

import base64
import contextlib
import http.client
import json
import os
import signal
import threading
from pathlib import Path

import msgspec
import psutil
import pytest

from borgish.borglet.core import HOLD_SECONDS_MAX
from borgish.clock import SystemClock
from borgish.spec.job import Health
from borgish.vocabulary import Ending, Phase, RestartPolicy
from borgish.wire.link import HeadReply, Leader, PollReply, PollRequest
from tests.forked import call
from tests.integration.borglet.harness import (
    DEADLINE_SECONDS,
    JOIN_TOKEN,
    POLL_TOKEN,
    Borglet,
    Master,
    ended,
    make_spec,
    up,
    wait_until,
)


def test_a_program_runs_dies_is_replaced_and_is_stopped(borglet: Borglet, master: Master) -> None:
    key = master.place(make_spec("echo $GREETING; exec sleep 600"))
    first = master.until(key, up)
    os.kill(first.pid, signal.SIGKILL)
    second = master.until(key, lambda r: up(r) and r.pid != first.pid)
    assert second.restarts == 1
    assert second.last_exit is not None
    assert second.last_exit.signal == signal.SIGKILL
    logs = "/v1/logs?task=ann/web/0&attempt=7&tail=5"
    wait_until(lambda: master.call("GET", logs) == (200, b"hello\n"), "its output")
    master.kill(key)
    assert master.until(key, ended).ended is Ending.KILL
    master.poll()  # tells that the end was seen
    master.generation += 1
    master.stop.clear()
    wait_until(lambda: master.poll(0.2) and not master.reports, "forgotten")
    assert "joined cell test" in borglet.text()


def test_a_held_poll_is_answered_by_news_and_by_a_newer_poll(borglet: Borglet, master: Master) -> None:
    key = master.place(make_spec("exec sleep 600"))
    report = master.until(key, up)
    quiet_since = SystemClock().now().mono
    answers: list[PollReply] = []
    request = PollRequest("test", 1, 1, master.generation, 0, "", HOLD_SECONDS_MAX)

    def hold() -> None:
        asked = msgspec.structs.replace(request, seen=master.seen, seen_instance=master.instance)
        _, body = master.call("POST", "/v1/poll", msgspec.json.encode(asked))
        answers.append(msgspec.json.decode(body, type=PollReply))

    thread = threading.Thread(target=hold)
    thread.start()
    wait_until(lambda: master.poll() and not thread.is_alive(), "superseded")
    assert len(answers) == 1
    thread = threading.Thread(target=hold)
    thread.start()
    os.kill(report.pid, signal.SIGKILL)
    thread.join(DEADLINE_SECONDS)
    assert len(answers) == 2
    assert answers[1].report is not None
    assert SystemClock().now().mono - quiet_since < HOLD_SECONDS_MAX


def test_it_tells_whether_its_master_lives_and_whose_polls_it_obeys(borglet: Borglet, master: Master) -> None:
    def head() -> HeadReply:
        status, body = master.call("GET", "/v1/head")
        assert status == 200
        return msgspec.json.decode(body, type=HeadReply)

    leader = Leader("http://127.0.0.1:1", "nonce")
    poll = PollRequest("test", 1, 1, 0, wait_seconds=HOLD_SECONDS_MAX, leader=leader)
    kept = http.client.HTTPConnection(*master.address(), timeout=DEADLINE_SECONDS)
    known = head().polls or 0
    for more in (1, 2):
        kept.request("POST", "/v1/poll", msgspec.json.encode(poll), {"Authorization": f"Bearer {POLL_TOKEN}"})
        assert kept.getresponse().read()
        assert (head().leader, head().polls, head().polled) == (leader, known + more, True)
    rival = msgspec.structs.replace(poll, leader=Leader("http://127.0.0.1:2", "another"))
    status, body = master.call("POST", "/v1/poll", msgspec.json.encode(rival))
    assert status == 409
    assert "of the borgmaster at http://127.0.0.1:1; timeline 1, epoch 1 is another's" in body.decode()
    assert head().polls == known + 2
    kept.close()
    wait_until(lambda: not head().polled, "the end of the connection is seen")


def test_kill_9_of_the_borglet_keeps_pids_and_exit_codes(borglet: Borglet, master: Master) -> None:
    lasting = master.place(make_spec("exec sleep 600"))
    flag = borglet.folder / "state/process/runs/ann+job+0@7/work/go"
    waits = "while [ ! -e go ]; do sleep 0.02; done; exit 7"
    short = master.place(make_spec(waits, "ann/job/0", policy=RestartPolicy.NEVER))
    before = master.until(lasting, up)
    master.until(short, up)
    borglet.end(signal.SIGKILL)
    flag.touch()
    joins = len(master.joins)
    borglet.start()
    wait_until(lambda: len(master.joins) > joins, "joined again")
    assert master.joins[-1].poll_token == POLL_TOKEN
    done = master.until(short, ended)
    assert (done.ended, done.last_exit and done.last_exit.code) == (Ending.FAIL, 7)
    after = master.until(lasting, up)
    assert (after.pid, after.restarts) == (before.pid, 0)
    assert after.started_at == pytest.approx(before.started_at, abs=0.01)


def test_sigterm_ends_it_in_order_with_polls_and_streams_open(borglet: Borglet, master: Master) -> None:
    key = master.place(make_spec("echo one; exec sleep 600"))
    before = master.until(key, up)
    connection = http.client.HTTPConnection(*master.address(), timeout=DEADLINE_SECONDS)
    token = {"Authorization": f"Bearer {POLL_TOKEN}"}
    connection.request("GET", "/v1/logs?task=ann/web/0&attempt=7&follow=1", headers=token)
    stream = connection.getresponse()
    assert stream.read(4) == b"one\n"
    request = PollRequest("test", 1, 1, master.generation, master.seen, master.instance, 30.0)
    held = threading.Thread(
        target=master.call, args=("POST", "/v1/poll", msgspec.json.encode(request)), daemon=True
    )
    held.start()
    assert borglet.end(signal.SIGTERM) == 0
    held.join(DEADLINE_SECONDS)
    assert not held.is_alive()
    connection.close()
    os.kill(before.pid, 0)
    joins = len(master.joins)
    borglet.start()
    wait_until(lambda: len(master.joins) > joins, "joined again")
    assert master.until(key, up).pid == before.pid


def test_what_cannot_start_says_why_and_probes_decide_on_health(borglet: Borglet, master: Master) -> None:
    missing = master.place(make_spec("", "ann/bad/0", argv=("nosuchcommand",)))
    health = Health(command=("sh", "-c", "test -e well"), interval_seconds=0.2, grace_seconds=60.0)
    probed = master.place(make_spec("sleep 0.3; touch well; exec sleep 600", "ann/ok/0", health=health))
    failed = master.until(missing, ended)
    assert failed.ended is Ending.FAIL
    assert "nosuchcommand" in failed.reason
    assert master.until(probed, lambda r: r.phase is Phase.HEALTHY).restarts == 0


def test_a_command_ends_when_nothing_is_heard_of_who_began_it(borglet: Borglet, master: Master) -> None:
    key = master.place(make_spec("exec sleep 600"))
    master.until(key, up)
    asked = {"task": "ann/web/0", "attempt": 7, "run": ["cat"], "session": "s", "silence_seconds": 0.3}
    status, body = master.call("POST", "/v1/exec/stream", json.dumps(asked).encode())
    assert status == 200
    assert "nothing was heard" in json.loads(body.splitlines()[-1])["error"]
    wrong = asked | {"terminal": {"rows": 0}}
    assert master.call("POST", "/v1/exec/stream", json.dumps(wrong).encode())[0] == 400


def test_a_command_ends_with_its_borglet(borglet: Borglet, master: Master) -> None:
    """Also when that is killed, and the programs of tasks go on."""
    key = master.place(make_spec("exec sleep 600"))
    master.until(key, up)
    mark = str(40_000_000 + os.getpid())
    script = f"sleep {mark} & sleep {mark}"
    asked = {"task": "ann/web/0", "attempt": 7, "run": ["sh", "-c", script], "session": "s"}

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            master.call("POST", "/v1/exec/stream", json.dumps(asked).encode())

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: len(_marked(mark)) >= 3, "its processes")
    borglet.end(signal.SIGKILL)
    asking.join()
    wait_until(lambda: not _marked(mark), "their end")


def _marked(mark: str) -> list[int]:
    found = psutil.process_iter(["pid", "cmdline"])
    return [it.info["pid"] for it in found if any(mark in word for word in it.info["cmdline"] or [])]


def test_exec_and_refusals_over_http(borglet: Borglet, master: Master) -> None:
    key = master.place(make_spec("exec sleep 600"))
    master.until(key, up)
    asked = {"task": "ann/web/0", "attempt": 7, "run": ["sh", "-c", "echo $GREETING; exit 3"]}
    status, body = master.call("POST", "/v1/exec", json.dumps(asked).encode())
    whole = json.loads(body)
    assert (status, whole["exit_code"]) == (200, 3)
    assert master.call("POST", "/v1/exec", json.dumps({**asked, "attempt": 8}).encode())[0] == 404
    status, body = master.call("POST", "/v1/exec/stream", json.dumps(asked).encode())
    lines = [json.loads(line) for line in body.splitlines()]
    assert (status, lines[-1]) == (200, {"exit_code": 3})
    output = b"".join(base64.b64decode(line.get("output", "")) for line in lines)
    assert output == base64.b64decode(whole["output"]) != b""
    assert master.call("POST", "/v1/exec/stream", json.dumps({**asked, "attempt": 8}).encode())[0] == 404
    where = "/v1/exec/stdin?task=ann/web/0&attempt=7"
    assert master.call("POST", f"{where}&session=ended", b"x")[0] == 404
    assert master.call("POST", f"{where}&session=ended&offset=-1", b"x")[0] == 404
    assert master.call("GET", "/v1/logs?task=ann/nosuch/0&attempt=1")[0] == 404
    assert master.call("GET", "/v1/logs?task=ann/web/0&attempt=x")[0] == 400
    assert master.call("GET", "/nosuch")[0] == 404
    assert master.call("POST", "/v1/poll", b"{}")[0] == 400
    assert master.call("POST", "/v1/poll", b"{}", token="bgt_wrong")[0] == 401
    assert master.call("POST", "/v1/poll", b"{}", token="")[0] == 401
    master.epoch = 3
    master.poll()
    stale = PollRequest("test", 1, 2, 1)
    status, body = master.call("POST", "/v1/poll", msgspec.json.encode(stale))
    assert (status, json.loads(body)["title"]) == (409, "Conflict")
    other = PollRequest("elsewhere", 9, 9, 1)
    assert master.call("POST", "/v1/poll", msgspec.json.encode(other))[0] == 409


def test_a_second_borglet_in_the_same_folder_is_refused(borglet: Borglet, master: Master) -> None:
    second = call("borgish.borglet.main", ["--config", borglet.config], seconds_max=DEADLINE_SECONDS)
    assert second.code == 74
    assert "in use by another borglet" in second.err


def test_it_goes_on_trying_to_join_and_says_what_is_in_the_way(tmp_path: Path, master: Master) -> None:
    borglet = Borglet(tmp_path, master)
    token = tmp_path / "join.token"
    token.write_text("bgt_wrong", "utf-8")
    borglet.start()
    try:
        wait_until(lambda: "refused what is in" in borglet.text(), "told of the token")
        master.refuse = 409
        token.write_text(JOIN_TOKEN, "utf-8")
        wait_until(lambda: "refused the name 'm1'" in borglet.text(), "told of the name")
        master.refuse = 0
        kept = tmp_path / "state" / "membership.json"
        wait_until(kept.exists, "joined")
        assert kept.stat().st_mode & 0o777 == 0o600
    finally:
        borglet.end(signal.SIGTERM)


def test_of_several_masters_the_one_that_leads_is_joined(tmp_path: Path, master: Master) -> None:
    with contextlib.closing(Master()) as standby:
        borglet = Borglet(tmp_path, standby)
        standby.leader = f"http://127.0.0.1:{master.port}"
        text = borglet.config.read_text()
        borglet.config.write_text(text.replace('master = "', 'master = "http://127.0.0.1:1, '))
        borglet.start()
        try:
            wait_until(lambda: master.joins, "joined")
        finally:
            borglet.end(signal.SIGTERM)
        assert not standby.joins
        assert f"joined cell test at {standby.leader} as machine m1" in borglet.text()
        assert "no answer from the borgmaster at http://127.0.0.1:1:" in borglet.text()
