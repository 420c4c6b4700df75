"""A real borglet with real programs, over HTTP, with this test as its master."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from borgish.clock import SystemClock
from borgish.resources import Resources
from borgish.spec.job import Health, Restart, Stop
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import (
    Assignment,
    AttemptReport,
    AttemptSpec,
    JoinReply,
    JoinRequest,
    PollReply,
    PollRequest,
    StopOrder,
)

JOIN_TOKEN, POLL_TOKEN = "bgt_join", "bgt_poll"
DEADLINE_SECONDS = 20.0


class Master:
    """Takes joins on a port of its own, and polls."""

    def __init__(self) -> None:
        self.joins: list[JoinRequest] = []
        self.refuse = 0  # a status to answer joins with
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.take_join(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.epoch, self.generation, self.seen, self.instance = 1, 0, 0, ""
        self.run: dict[str, AttemptSpec] = {}
        self.stop: dict[str, StopOrder] = {}
        self.reports: dict[str, AttemptReport] = {}

    def take_join(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        status, answer = 201, msgspec.json.encode(JoinReply("test", "m1", POLL_TOKEN))
        if handler.path != "/v1/machines" or handler.headers["Authorization"] != f"Bearer {JOIN_TOKEN}":
            status, answer = 401, b'{"title":"","status":401,"detail":"wrong token"}'
        elif self.refuse:
            status, answer = self.refuse, b'{"title":"","status":409,"detail":"m1 is taken"}'
        else:
            self.joins.append(msgspec.json.decode(body, type=JoinRequest))
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def address(self) -> tuple[str, int]:
        return self.joins[-1].host, self.joins[-1].port

    def call(self, method: str, path: str, body: bytes = b"", token: str = POLL_TOKEN) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.address(), timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            return response.status, response.read()

    def poll(self, wait_seconds: float = 0.0) -> PollReply:
        order = Assignment(self.generation, tuple(self.run.values()), tuple(self.stop.values()))
        request = PollRequest(
            "test", 1, self.epoch, self.generation, self.seen, self.instance, wait_seconds, order
        )
        status, body = self.call("POST", "/v1/poll", msgspec.json.encode(request))
        assert status == 200, body
        reply = msgspec.json.decode(body, type=PollReply)
        self.seen, self.instance = reply.report_generation, reply.instance
        if reply.report:
            self.reports = {r.key: r for r in reply.report.attempts}
        return reply

    def place(self, spec: AttemptSpec) -> str:
        self.run[spec.key] = spec
        self.generation += 1
        return spec.key

    def kill(self, key: str) -> None:
        spec = self.run.pop(key)
        self.stop[key] = StopOrder(spec.task, spec.attempt, "killed")
        self.generation += 1

    def until(self, key: str, fulfilled: Callable[[AttemptReport], bool]) -> AttemptReport:
        """Poll until an attempt's report is as wanted."""
        end = time.perf_counter() + DEADLINE_SECONDS
        while time.perf_counter() < end:
            self.poll(wait_seconds=0.5)
            if key in self.reports and fulfilled(self.reports[key]):
                return self.reports[key]
        raise AssertionError(f"not in time; last: {self.reports.get(key)}")


class Borglet:
    """The daemon as a process."""

    def __init__(self, folder: Path, master: Master) -> None:
        self.folder = folder
        self.config = folder / "borglet.toml"
        self.config.write_text(
            f'machine = "m1"\nmaster = "http://127.0.0.1:{master.port}"\njoin_token_file = "join.token"\n'
            'state = "state"\nruntimes = ["process"]\n',
            "utf-8",
        )
        (folder / "join.token").write_text(JOIN_TOKEN + "\n", "utf-8")
        self.log = folder / "borglet.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        code = "from borgish.borglet.main import main; main()"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "--config", str(self.config)], stderr=log
            )

    def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(10)

    def text(self) -> str:
        return self.log.read_text("utf-8")


def wait_until(fulfilled: Callable[[], Any], what: str) -> None:
    end = time.perf_counter() + DEADLINE_SECONDS
    while not fulfilled():
        assert time.perf_counter() < end, f"not in time: {what}"
        time.sleep(0.01)


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.server.shutdown()
    master.server.server_close()


@pytest.fixture
def borglet(tmp_path: Path, master: Master) -> Iterator[Borglet]:
    borglet = Borglet(tmp_path, master)
    borglet.start()
    try:
        wait_until(lambda: master.joins, "joined")
        wait_until(lambda: reached(master), "the borglet knows the poll token")
        yield borglet
    finally:
        if borglet.process and borglet.process.poll() is not None:
            borglet.start()
        clear(master)
        borglet.end(signal.SIGTERM)


def clear(master: Master) -> None:
    """Stop whatever a test left running."""
    wait_until(lambda: reached(master), "the borglet answers")
    for report in list(master.reports.values()):
        if report.key not in master.stop:
            master.run.pop(report.key, None)
            master.stop[report.key] = StopOrder(report.task, report.attempt)
            master.generation += 1
    wait_until(lambda: master.poll(0.2) and all(r.ended for r in master.reports.values()), "all ended")


def reached(master: Master) -> bool:
    try:
        master.seen = 0
        return bool(master.poll())
    except (OSError, AssertionError):
        return False


def make_spec(
    script: str,
    task: str = "ann/web/0",
    *,
    policy: RestartPolicy = RestartPolicy.ALWAYS,
    health: Health | None = None,
    argv: tuple[str, ...] = (),
) -> AttemptSpec:
    return AttemptSpec(
        task=task,
        attempt=7,
        run=argv or ("sh", "-c", script),
        env={"GREETING": "hello"},
        runtime=Runtime.PROCESS,
        resources=Resources(cpu_millis=100, ram_bytes=64 * 2**20),
        restart=Restart(policy, backoff_seconds=0.1),
        stop=Stop("TERM", 2.0),
        health=health,
    )


def up(report: AttemptReport) -> bool:
    return report.phase in (Phase.UP, Phase.HEALTHY) and report.pid > 0


def ended(report: AttemptReport) -> bool:
    return report.ended is not None


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
    request = PollRequest("test", 1, 1, master.generation, 0, "", 30.0)

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
    thread.join(10)
    assert len(answers) == 2
    assert answers[1].report is not None
    assert SystemClock().now().mono - quiet_since < 15.0


def test_kill_9_of_the_borglet_keeps_pids_and_exit_codes(borglet: Borglet, master: Master) -> None:
    lasting = master.place(make_spec("exec sleep 600"))
    flag = borglet.folder / "go"
    waits = f"while [ ! -e {flag} ]; do sleep 0.02; done; exit 7"
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
    connection = http.client.HTTPConnection(*master.address(), timeout=10)
    token = {"Authorization": f"Bearer {POLL_TOKEN}"}
    connection.request("GET", "/v1/logs?task=ann/web/0&attempt=7&follow=1", headers=token)
    stream = connection.getresponse()
    assert stream.read(4) == b"one\n"
    request = PollRequest("test", 1, 1, master.generation, master.seen, master.instance, 30.0)
    held = threading.Thread(
        target=master.call, args=("POST", "/v1/poll", msgspec.json.encode(request)), daemon=True
    )
    held.start()
    began = time.perf_counter()
    assert borglet.end(signal.SIGTERM) == 0
    assert time.perf_counter() - began < 3.0
    held.join(5)
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


def test_exec_and_refusals_over_http(borglet: Borglet, master: Master) -> None:
    key = master.place(make_spec("exec sleep 600"))
    master.until(key, up)
    asked = {"task": "ann/web/0", "attempt": 7, "run": ["sh", "-c", "echo $GREETING; exit 3"]}
    status, body = master.call("POST", "/v1/exec", json.dumps(asked).encode())
    assert (status, json.loads(body)["exit_code"]) == (200, 3)
    assert master.call("POST", "/v1/exec", json.dumps({**asked, "attempt": 8}).encode())[0] == 404
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
    code = "from borgish.borglet.main import main; main()"
    second = subprocess.run(
        [sys.executable, "-c", code, "--config", str(borglet.config)],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 74
    assert b"in use by another borglet" in second.stderr


def test_it_goes_on_trying_to_join_and_says_what_is_in_the_way(tmp_path: Path, master: Master) -> None:
    borglet = Borglet(tmp_path, master)
    token = tmp_path / "join.token"
    token.write_text("bgt_wrong", "utf-8")
    borglet.start()
    try:
        wait_until(lambda: "refused the join token" in borglet.text(), "told of the token")
        master.refuse = 409
        token.write_text(JOIN_TOKEN, "utf-8")
        wait_until(lambda: "refused the name 'm1'" in borglet.text(), "told of the name")
        master.refuse = 0
        kept = tmp_path / "state" / "membership.json"
        wait_until(kept.exists, "joined")
        assert kept.stat().st_mode & 0o777 == 0o600
    finally:
        borglet.end(signal.SIGTERM)
