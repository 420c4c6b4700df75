"""A real borglet as a process, and a small master for it."""

import contextlib
import http.client
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec

from borgish.credentials import MEMBER
from borgish.resources import Resources
from borgish.spec.job import Health, Restart, Stop
from borgish.vocabulary import Phase, RestartPolicy, Runtime
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
from tests.forked import Forked

PATIENT_BORGLET = "tests.integration.borglet.patient"
JOIN_TOKEN, POLL_TOKEN = "bgt_join", "bgt_poll"
DEADLINE_SECONDS = 60.0


class Master:
    """Takes joins on a port of its own, and polls."""

    def __init__(self) -> None:
        self.joins: list[JoinRequest] = []
        self.refuse = 0  # a status to answer joins with
        self.leader = ""  # where it sends on to, while it stands by
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
        known = (f"Bearer {JOIN_TOKEN}", f"Bearer {MEMBER}m1.{POLL_TOKEN}")
        if handler.path != "/v1/machines" or handler.headers["Authorization"] not in known:
            status, answer = 401, b'{"title":"","status":401,"detail":"wrong token"}'
        elif self.leader:
            answer = b'{"title":"","status":307,"detail":"another leads"}'
        elif self.refuse:
            status, answer = self.refuse, b'{"title":"","status":409,"detail":"m1 is taken"}'
        else:
            self.joins.append(msgspec.json.decode(body, type=JoinRequest))
        if self.leader:
            status = 307
        handler.send_response(status)
        handler.send_header("Location", self.leader + handler.path)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def address(self) -> tuple[str, int]:
        return self.joins[-1].host, self.joins[-1].port

    def call(self, method: str, path: str, body: bytes = b"", token: str = POLL_TOKEN) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.address(), timeout=2 * DEADLINE_SECONDS)
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
        self.process: Forked | None = None

    def start(self) -> None:
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            streams = (nothing, log, log)
            self.process = Forked(PATIENT_BORGLET, ["--config", self.config], streams, self.folder)

    def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def text(self) -> str:
        return self.log.read_text("utf-8")


def wait_until(fulfilled: Callable[[], Any], what: str) -> None:
    end = time.perf_counter() + DEADLINE_SECONDS
    while not fulfilled():
        assert time.perf_counter() < end, f"not in time: {what}"
        time.sleep(0.01)


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
