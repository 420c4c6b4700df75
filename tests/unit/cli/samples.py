"""Views as a master would answer them, and a small master that answers them over HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec

from borgish.resources import Resources
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import Band, Phase, RestartPolicy, State
from borgish.wire.api import (
    BandUse,
    CheckpointView,
    EventView,
    JobDetail,
    JobView,
    MachineView,
    Problem,
    RefusalView,
    StatusView,
    TaskView,
    UsageView,
)
from borgish.wire.api_apps import AppView

NOW = "2026-01-02T03:04:05Z"
AMOUNTS = Resources(cpu_millis=500, ram_bytes=256 * 1024**2)
_JOB = JobView(
    name="ann/web",
    user="ann",
    state=State.RUNNING,
    tasks=3,
    pending=0,
    running=3,
    up=3,
    dead=0,
    finished=0,
    failed=0,
    priority=200,
    band=Band.PRODUCTION,
    appclass="latency_sensitive",
    service=True,
    generation=1,
    submitted_at=NOW,
    submitted_by="ann",
    reason="",
)
_TASK = TaskView(
    name="ann/web/0",
    job="ann/web",
    user="ann",
    index=0,
    state=State.RUNNING,
    phase=Phase.HEALTHY,
    machine="m1",
    attempt=17,
    pid=4242,
    ports={"http": 20001},
    started_at=NOW,
    restarts=0,
    reason="",
    exit_code=None,
    signal=None,
    since=NOW,
    priority=200,
    resources=AMOUNTS,
    usage=UsageView(12, 20 * 1024**2),
)


APP = AppView(
    name="ann/shop",
    user="ann",
    state=State.PENDING,
    version=1,
    jobs=1,
    tasks=1,
    up=0,
    pending=1,
    running=0,
    finished=0,
    failed=0,
    killed=0,
    applied_at="2026-11-23T00:00:00Z",
    applied_by="ann",
    generation=7,
)


def job(**changes: object) -> JobView:
    return msgspec.structs.replace(_JOB, **changes)


def task(**changes: object) -> TaskView:
    return msgspec.structs.replace(_TASK, **changes)


def machine(name: str = "m1", **changes: object) -> MachineView:
    view = MachineView(
        name=name,
        state="up",
        address="127.0.0.1:41000",
        capacity=Resources(4000, 8 * 1024**3),
        committed=AMOUNTS,
        usage=UsageView(12, 20 * 1024**2),
        tasks=1,
        attributes={"arch": "x86_64"},
        runtimes=("process",),
        conditions=(),
        heard_seconds_ago=0.5,
        joined_at=NOW,
        reason="",
        orphans=(),
    )
    return msgspec.structs.replace(view, **changes)


def event(position: int, text: str = "was placed on m1", **changes: object) -> EventView:
    view = EventView(position, NOW, "placed", text, "ann/web", (0, 1, 2), "m1")
    return msgspec.structs.replace(view, **changes)


def refusal() -> RefusalView:
    text = "0 of 3 machines fit: 3 have too little ram free"
    return RefusalView("ann/web", 2, "1-2", text, {"too little ram free": 3}, "ask for at most 2GiB", NOW)


def spec(**changes: object) -> JobSpec:
    made = JobSpec(name="web", user="ann", tasks=3, run=("sleep", "60"))
    return msgspec.structs.replace(made, **changes)


def to_completion() -> JobSpec:
    return spec(restart=Restart(policy=RestartPolicy.ON_FAILURE))


def status() -> StatusView:
    return StatusView(
        cell="local",
        version="0.1.0",
        position=42,
        timeline=1,
        epoch=2,
        started_at=NOW,
        now=NOW,
        machines=3,
        machines_up=2,
        jobs=1,
        tasks=3,
        pending=0,
        running=3,
        up=3,
        dead=0,
        capacity=Resources(8000, 16 * 1024**3),
        bands=(BandUse(Band.PRODUCTION, 4000, 4 * 1024**3, 3),),
        store="sqlite",
        last_checkpoint=CheckpointView(40, NOW, "periodic", 2048, "ab" * 32),
    )


class Asked(msgspec.Struct):
    """One request that the small master got."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]


class FakeMaster:
    """Answers what the test puts into ``answers``: by ``METHOD path``, a value or a function of the request.

    A ``Problem`` is answered with its status, bytes as they are, an iterator of them as they come, all
    else as JSON.
    """

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.asked: list[Asked] = []
        self.url = ""
        self.cut_short = ""  # the path whose next answer in bytes breaks off

    def has(self, *jobs: JobView) -> "FakeMaster":
        """Give it these jobs, in the list and each by its name, as services without a probe."""
        self.answers["GET /v1/jobs"] = {"items": jobs}
        for one in jobs:
            self.answers[f"GET /v1/jobs/{one.name}"] = JobDetail(one, spec(tasks=one.tasks), ())
        return self

    @property
    def calls(self) -> list[str]:
        """What was asked of it, in order, but for whose the token is."""
        return [f"{it.method} {it.path}" for it in self.asked if it.path != "/v1/whoami"]

    def answer(self, asked: Asked) -> object:
        self.asked.append(asked)
        found = self.answers.get(f"{asked.method} {asked.path}")
        if callable(found):
            found = found(asked)
        if found is None:
            return Problem("Not Found", 404, f"there is no {asked.path}")
        return found


@contextmanager
def serving(master: FakeMaster) -> Iterator[FakeMaster]:
    """Serve the small master on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"master": master}))
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    master.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield master
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    master: FakeMaster
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = self.master.answer(Asked(method, parts.path, query, body, dict(self.headers)))
        if isinstance(found, Iterator):
            self._send_all(found)
        elif isinstance(found, bytes):
            self._send_bytes(parts.path, found)
        elif isinstance(found, Problem):
            self._send(found.status, "application/problem+json", msgspec.json.encode(found))
        else:
            self._send(200, "application/json", msgspec.json.encode(found))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_all(self, parts: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    def _send_bytes(self, path: str, body: bytes) -> None:
        if path != self.master.cut_short:
            self._send(200, "application/octet-stream", body)
            return
        self.master.cut_short = ""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        pass


def decoded(text: str) -> object:
    return json.loads(text)
