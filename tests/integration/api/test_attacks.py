"""What strangers and careless callers send, over real sockets: refused in words, and nothing grows."""

import asyncio
import json
import re
import select
import socket
import struct
import time
import tracemalloc

import pytest

from borgish.api.rate_limits import LONG_BODIES_OF_USER_MAX
from borgish.api.routes import jobs
from borgish.bands import Bands
from borgish.cell.commands import SubmitJob
from borgish.cli.changes import Deadline
from borgish.client import Client
from borgish.errors import BorgishError, Invalid
from borgish.spec.file.read import read_job
from borgish.spec.job import JobSpec
from borgish.wire import bounded_http
from borgish.wire.bounded_http import HEAD_BYTES_MAX
from tests.integration.api.fakes import PATIENCE_SECONDS, RunningApi, until

TOKEN = b"Host: 127.0.0.1\r\nAuthorization: Bearer bgt_admin\r\n"
AS_MACHINE = b"Host: 127.0.0.1\r\nAuthorization: Bearer bgt_join\r\n"
MACHINE = {
    "machine": "m9",
    "host": "127.0.0.1",
    "port": 1234,
    "boot_id": "boot",
    "instance": "run",
    "facts": {"capacity": {}, "attributes": {}, "runtimes": [], "ports_low": 20000, "ports_high": 20999},
}


def send(api: RunningApi, *pieces: bytes) -> bytes:
    """Return all that is answered until the connection closes, or rests after an answer."""
    with socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE_SECONDS) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except OSError:
            pass  # cut off, as it should be; the answer says why
        return _answer(connection)


def _answer(connection: socket.socket) -> bytes:
    answer = b""
    try:
        while piece := connection.recv(65536):
            answer += piece
            head, end, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if end and length and len(body) >= int(length[1]):
                break
    except ConnectionError:
        pass
    return answer


def ask(
    api: RunningApi, target: str, body: bytes | None = None, headers: bytes = b""
) -> tuple[int, dict[str, str]]:
    method = b"GET" if body is None else b"POST"
    token = AS_MACHINE if target == "/v1/machines" else TOKEN
    head = method + b" " + target.encode() + b" HTTP/1.1\r\n" + token + headers
    length = b"Content-Length: %d\r\n" % len(body) if body is not None else b""
    return problem(send(api, head + length + b"\r\n" + (body or b"")))


def problem(answer: bytes) -> tuple[int, dict[str, str]]:
    """Return status and fields of an answer, which must be problem details unless it is a good one."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    if status >= 400:
        assert b"content-type: application/problem+json" in head
        assert not re.search(rb"Traceback|/site-packages|\.py|SELECT|INSERT", body)
    return status, json.loads(body) if status >= 400 else {}


def _send_for_ever(connection: socket.socket, line: bytes) -> None:
    for _ in range(512):  # 32 MiB: far beyond what sockets buffer
        connection.sendall(line * 64)


@pytest.mark.parametrize("auth", [TOKEN, b"Host: 127.0.0.1\r\n"])
def test_trailers_without_end_are_cut_off(api: RunningApi, auth: bytes) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\n" + auth + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    with socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head)
        with pytest.raises(OSError, match=r"reset|pipe"):
            _send_for_ever(connection, b"x: " + b"a" * 1000 + b"\r\n")


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nX: y\r\n"])
def test_heads_without_end_are_cut_off(api: RunningApi, begin: bytes) -> None:
    status, said = problem(send(api, begin, b"a" * (HEAD_BYTES_MAX + 1)))
    assert (status, bool(said["hint"])) in ((431, True), (400, True))


@pytest.mark.parametrize("text", [b"\x16\x03\x01\x02\x00\x01", b"BREW / HTTP/1.1\r\n\r\n", b"\0\r\n\r\n"])
def test_what_is_no_http_is_told_so(api: RunningApi, text: bytes) -> None:
    assert problem(send(api, text))[0] == 400


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTT", b"POST /v1/jobs HTTP/1.1\r\n" + TOKEN + b"Content-Length: 9\r\n\r\nx"],
)
def test_who_never_finishes_asking_is_let_go(
    api: RunningApi, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_SECONDS_MAX", 0.05)
    monkeypatch.setattr(bounded_http, "BODY_SECONDS_MAX", 0.05)
    with socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(begun)
        closed = _answer(connection)
    assert not closed or problem(closed)[0] == 408


def connected(api: RunningApi) -> Client:
    """Return a client that has asked something in time, which on a busy machine not each one does."""
    deadline = Deadline(PATIENCE_SECONDS)
    while True:
        client = api.client()
        try:
            client.raw("GET", "/v1/status")
            return client
        except BorgishError:  # it was let go, as who is too slow to ask
            if not deadline.left:
                raise


def test_a_connection_that_rests_between_requests_is_kept(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_SECONDS_MAX", 0.2)
    client = connected(api)
    before = client._kept
    api.call(asyncio.sleep(0.5))
    client.raw("GET", "/v1/status")
    assert client._kept is before
    client.close()


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("/v1/tasks?limti=5", "Did you mean limit?"),
        ("/v1/tasks?machines=m1", "Did you mean machine?"),
        ("/v1/tasks?in_state=dead", "Did you mean state?"),
        ("/v1/tasks?request=1", "Its parameters are"),
        ("/v1/whoami?x=1", "It takes no parameters"),
        ("/v1/watch?kinds=event&kinds=tasks", "Keep one of them"),
        ("/v1/tasks?limit=1&limit=2", "Keep one of them"),
        ("/v1/tasks?after=%ff", "Encode it as UTF-8"),
        ("/v1/tasks?" + "job=a&" * 30, "Send fewer"),
        ("/v1/tasks?limit=0", "openapi"),
        ("/v1/tasks/ann/web/0/logs?tail=100001", "openapi"),
        ("/v1/nothing/{path}/{0}", "openapi"),
    ],
)
def test_questions_that_are_none(api: RunningApi, target: str, hint: str) -> None:
    status, said = ask(api, target)
    assert status == (404 if "nothing" in target else 400)
    assert hint in said["hint"]


def test_a_wrong_parameter_has_the_name_it_is_written_with(api: RunningApi) -> None:
    assert ask(api, "/v1/tasks?state=bogus")[1]["detail"].startswith("state: ")


def test_an_error_repeats_only_the_beginning_of_a_path(api: RunningApi) -> None:
    assert len(ask(api, "/" + "a" * 10_000)[1]["detail"]) < 300


@pytest.mark.parametrize(
    ("target", "body", "said"),
    [
        ("/v1/jobs/ann/web/scale", b'{"tasks": 3, "tasks": 2}', "'tasks' is given twice"),
        ("/v1/tasks/ann/web/0/exec", b'{"run": ["a\\u0000b"]}', "NUL"),
        ("/v1/tasks/ann/web/0/exec", b'{"run": [""]}', "must name a program"),
        ("/v1/jobs/ann/web/scale", b'{"tasks": ' + b"[" * 60_000, ""),
        ("/v1/machines", b'{"x": ' + b"[" * 100_000, ""),
        ("/v1/machines", b'{"x": "\xff"}', ""),
        ("/v1/machines/m1/cordon", b'{"reason": "a\\u0000"}', "NUL"),
        ("/v1/machines/m1/taint", b'{"key": ""}', "invalid taint key"),
        ("/v1/machines/m1/taint", b'{"key": "a b"}', "invalid taint key"),
        ("/v1/machines/m1/taint", b'{"key": "a", "value": "\\u001b"}', "invalid taint value"),
        ("/v1/machines/m1/taint", b'{"key": "a", "effect": "explode"}', "invalid body"),
        ("/v1/machines/m1/untaint", b'{"key": "../x\\n"}', "invalid taint key"),
    ],
)
def test_bodies_that_are_refused(api: RunningApi, target: str, body: bytes, said: str) -> None:
    status, answer = ask(api, target, body)
    assert status == 400
    assert said in answer["detail"]
    assert api.master.asked == []


@pytest.mark.parametrize(
    ("field", "value"), [("machine", "../x"), ("host", "evil.example"), ("port", 10**30), ("boot_id", "")]
)
def test_machines_that_cannot_join(api: RunningApi, field: str, value: object) -> None:
    assert ask(api, "/v1/machines", json.dumps(MACHINE).encode())[0] == 200
    status, said = ask(api, "/v1/machines", json.dumps(MACHINE | {field: value}).encode())
    assert (status, f"invalid join request: {field}: " in said["detail"]) == (400, True)


def test_a_long_job_file_is_read_by_another_process(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of the loop for one file would be half a second in which no machine is polled."""

    def read(_text: bytes, _user: str, _bands: Bands) -> JobSpec:
        raise Invalid("read by this process")

    monkeypatch.setattr(jobs, "read_job_or_cron", read)
    assert ask(api, "/v1/jobs", b"# a line\n")[1]["detail"] == "read by this process"
    status, said = ask(api, "/v1/jobs", b"# a line\n" * 5000 + b"nmae: web\n")
    assert (status, said["detail"]) == (
        400,
        "the job file has 3 mistakes; line 5001: 'nmae' is not a field of the job",
    )
    assert ask(api, "/v1/jobs", b"# a line\n" * 5000 + b"name: web\nrun: [sleep]\n")[0] == 201
    assert api.master.asked[0].command == SubmitJob(read_job(b"name: web\nrun: [sleep]\n", "root"))


def test_a_name_that_nobody_has_is_cheap_to_refuse(api: RunningApi) -> None:
    """Names may be chosen so that to compare them closely takes milliseconds for each."""
    cell = api.master.cell
    job = cell.jobs["ann/web"]
    cell.jobs.update({f"ann/{'a' * 50}{number}": job for number in range(2000)})
    began = api.do(time.thread_time)
    assert ask(api, f"/v1/jobs/ann/{'a' * 60}")[0] == 404
    assert api.do(time.thread_time) - began < 0.5


def test_long_bodies_that_never_end_are_few_of_each_user(api: RunningApi) -> None:
    """Else hundreds of them, a MiB each, would be held for as long as a body may take."""

    stdin = b"/v1/tasks/ann/web/0/exec/stdin?session=s"

    def refused(token: bytes, target: bytes = stdin) -> bool:
        """Whether a request is answered without its body. Its connection stays open when it is not."""
        opened.append(socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE_SECONDS))
        head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n" % (target, token)
        opened[-1].sendall(head + b"Content-Length: 1000000\r\n\r\n#")
        asked = api.client(token.decode()).raw("GET", "/v1/status")
        assert asked, "the loop has been around since"
        return bool(select.select([opened[-1]], [], [], 0)[0])

    opened: list[socket.socket] = []
    try:
        assert not [n for n in range(LONG_BODIES_OF_USER_MAX) if refused(b"bgt_ann")]
        until(lambda: refused(b"bgt_ann"))
        status, said = problem(_answer(opened[-1]))
        assert (status, said["hint"]) == (429, "Send a few at a time")
        assert not refused(b"bgt_bob", b"/v1/jobs")
    finally:
        for connection in opened:
            connection.close()
    long = b"#" * 70_000
    until(lambda: ask(api, "/v1/jobs/ann/web/scale", long)[0] == 413)


def asked(api: RunningApi, *pieces: bytes) -> tuple[socket.socket, int]:
    """Return a connection that stays open, and the status of what it was answered."""
    connection = socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE_SECONDS)
    for piece in pieces:
        connection.sendall(piece)
    return connection, int(_answer(connection).split(b" ")[1])


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        (b"/v1/plan", b"name: web\nrun: [sleep]\n", 200),
        (b"/v1/jobs", b"name: web\nrun: [sleep]\n", 201),
        (b"/v1/jobs", b"name: web\n", 400),
        (b"/v1/apply", b"", 400),
    ],
)
def test_a_long_body_is_let_go_when_it_is_answered(
    api: RunningApi, target: bytes, body: bytes, status: int, *, broken: bool
) -> None:
    """While the connection stays open, and when it is broken off."""
    body += b"#" * 1_000_000
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (target, TOKEN, len(body))
    opened = [asked(api, head, body)]  # what is kept of the first is kept once
    tracemalloc.start()
    try:
        opened += [asked(api, head, body) for _ in range(3)]
        if broken:
            for connection, _ in opened:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
        until(lambda: tracemalloc.get_traced_memory()[0] < len(body))
    finally:
        tracemalloc.stop()
        for connection, _ in opened:
            connection.close()
    assert {answered for _, answered in opened} == {status}


def test_a_request_may_begin_before_the_one_before_is_answered(api: RunningApi) -> None:
    asking = b"GET /v1/status HTTP/1.1\r\n"
    connection, status = asked(api, asking + TOKEN + b"\r\n" + asking)
    with connection:
        connection.sendall(TOKEN + b"\r\n")
        assert (status, problem(_answer(connection))[0]) == (200, 200)


def test_a_long_body_counts_until_its_answer_is_out(api: RunningApi) -> None:
    """Who reads no answers has requests wait with their bodies to be answered."""
    target = b"/v1/tasks/ann/web/0/exec/stdin?session=s"
    unread = b"GET /v1/openapi.json HTTP/1.1\r\n" + TOKEN + b"\r\n"
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: 70000\r\n\r\n" % (target, TOKEN)
    listener = api.serving._server.socket
    api.do(lambda: listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096))
    opened = []
    try:
        for _ in range(2 * LONG_BODIES_OF_USER_MAX):  # while the loop below asks, some are refused
            opened.append(socket.socket())
            opened[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened[-1].connect(("127.0.0.1", api.serving.port))
            opened[-1].sendall(unread + head + b"#" * 70_000)
        until(lambda: ask(api, target.decode(), b"#" * 70_000)[1].get("hint") == "Send a few at a time")
    finally:
        for connection in opened:
            connection.close()
    until(lambda: ask(api, target.decode(), b"#" * 70_000)[0] == 200)


def closed(connections: list[socket.socket]) -> int:
    """Return how many of them the other side has closed, or said something on."""
    return len(select.select(connections, [], [], 0)[0])


def idle(api: RunningApi, count: int) -> list[socket.socket]:
    address = ("127.0.0.1", api.serving.port)
    return [socket.create_connection(address, timeout=PATIENCE_SECONDS) for _ in range(count)]


def test_of_those_that_do_not_say_who_they_are_few_may_take_their_time(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HURRIED_SECONDS_MAX", 0.3)
    known = [connected(api) for _ in range(5)]
    api.serving._server._strangers.of_address = 2
    kept, strangers = [client._kept for client in known], idle(api, 5)
    wrong = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n\r\n"
    strangers.append(asked(api, wrong)[0])
    until(lambda: closed(strangers) == 4)
    api.call(asyncio.sleep(0.5))
    assert closed(strangers) == 4
    for client, before in zip(known, kept, strict=True):
        client.raw("GET", "/v1/status")
        assert client._kept is before
        client.close()
    for stranger in strangers:
        stranger.close()


def test_strangers_without_end_keep_nobody_out(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "_HURRIED", 1)
    api.serving._server._strangers.of_address = 3
    strangers = idle(api, 3)
    until(lambda: api.do(lambda: len(api.serving._server._strangers._all)) == 3)
    assert not closed(strangers)
    strangers += idle(api, 40)
    until(lambda: closed(strangers) == 40)
    client = api.client()
    client.raw("GET", "/v1/status")
    assert closed(strangers) == 41
    client.close()
    for stranger in strangers:
        stranger.close()
    until(lambda: not api.do(lambda: api.serving._server._strangers._by_source))


def test_a_file_of_90_000_keys_costs_the_loop_little_of_what_it_takes_to_read(api: RunningApi) -> None:
    """Others are answered meanwhile, and machines polled. What is counted is cpu of one thread each."""
    keys = b"name: web\nrun: [sleep]\nenv:\n" + b"".join(b" K%d: v\n" % n for n in range(90_000))
    began = time.thread_time()
    with pytest.raises(Invalid, match="more than 50000 values"):
        read_job(keys, "ann")
    here, began = time.thread_time() - began, api.do(time.thread_time)
    status, said = ask(api, "/v1/jobs", keys)
    assert (status, said["hint"]) == (400, "split it into several jobs")
    assert api.do(time.thread_time) - began < here / 4
