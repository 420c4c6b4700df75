"""The client against listeners that misbehave, and the folder it is found by."""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from borgish import masters
from borgish.client import Client, Message, messages_in, quoted
from borgish.errors import BorgishError, Invalid, Mistake, TooManyRequests, Unauthenticated, Unreachable
from borgish.scripting.asynchronous import AsyncClient
from borgish.wire.api import Accepted, Problem

OK = b'{"position": 1, "subject": "a/b", "text": "done"}'


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def whole_request(connection: socket.socket) -> bytes:
    """Read a request with its body, which comes by itself: who closes before has broken the connection."""
    request = connection.recv(65536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    left = int(length[1]) - len(body) if length else 0
    while left > 0 and (more := connection.recv(left)):
        request, left = request + more, left - len(more)
    return request


@contextmanager
def listener(*turns: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """Serve one connection per turn: read a request, answer so many bytes, close. None: close at once."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            for turn in turns:
                connection, _ = server.accept()
                with connection:
                    requests.append(whole_request(connection))
                    if turn is not None:
                        connection.sendall(turn)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        thread.join(60)
        assert not thread.is_alive()


def header(request: bytes, name: bytes) -> bytes:
    lines = request.split(b"\r\n")
    return next(line.split(b": ", 1)[1] for line in lines if line.lower().startswith(name + b":"))


def test_a_broken_connection_is_tried_again_with_the_same_request_id() -> None:
    with listener(None, answer(OK)) as (url, requests):
        accepted = Client(url, "t").post("/v1/jobs", b"name: x", Accepted)
    assert accepted.position == 1
    first, second = (header(request, b"idempotency-key") for request in requests)
    assert first == second
    assert len(first) == 32


def test_a_connection_that_breaks_twice_is_unreachable() -> None:
    with listener(None, None) as (url, requests), pytest.raises(Unreachable) as caught:
        Client(url, "t").raw("GET", "/v1/status")
    assert len(requests) == 2
    assert "Start it" in caught.value.hint


def test_a_kept_connection_that_was_closed_meanwhile_is_made_anew() -> None:
    with listener(answer(OK), answer(OK)) as (url, requests):
        client = Client(url, "t")
        for _ in range(2):
            assert client.get("/v1/x", None, Accepted).position == 1
    assert len(requests) == 2


def test_nobody_there_is_told_at_once_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can be there
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}.*refused") as caught:
            Client(f"http://127.0.0.1:{port}", "t").raw("GET", "/v1/status")
    assert "Start it" in caught.value.hint


@pytest.mark.parametrize(("method", "hint"), [("GET", ""), ("POST", "It may have been carried out")])
def test_no_answer_in_time_says_what_may_have_happened(method: str, hint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreachable, match="in time") as caught:
            Client(url, "t", timeout_seconds=0.05).raw(method, "/v1/jobs")
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "turn",
    [
        answer(b"", "302 Found\r\nlocation: http://127.0.0.1:1/"),
        answer(b"<html>", "502 Bad Gateway", "text/html"),
        answer(b"<html>", "200 OK", "text/html"),
        answer(b'{"position": "one"}'),
    ],
)
def test_what_is_no_borgmaster_is_told_apart(turn: bytes) -> None:
    with listener(turn) as (url, _), pytest.raises(BorgishError, match=r"not a borgmaster|cannot be decoded"):
        Client(url, "t").get("/v1/status", None, Accepted)


def test_problems_become_the_errors_they_were() -> None:
    problem = Problem("Bad", 400, "2 mistakes", hint="look", mistakes=(Mistake("is wrong", 3, 4),))
    turn = answer(msgspec.json.encode(problem), "400 Bad Request", "application/problem+json")
    with listener(turn) as (url, _), pytest.raises(Invalid, match="2 mistakes") as caught:
        Client(url, "t").raw("GET", "/v1/status")
    assert (caught.value.hint, caught.value.mistakes) == ("look", problem.mistakes)


def test_a_damaged_problem_is_still_an_error() -> None:
    turn = answer(b"{", "401 Unauthorized", "application/problem+json")
    with listener(turn) as (url, _), pytest.raises(Unauthenticated):
        Client(url, "t").raw("GET", "/v1/status")


def test_a_stream_that_breaks_is_not_taken_for_its_end() -> None:
    turn = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n8\r\nha"
    with listener(turn) as (url, _):
        pieces = Client(url, "t").stream("/v1/x")
        with pytest.raises(Unreachable):
            list(pieces)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with listener(answer(OK)) as (url, _):
        assert Client(url, "t").get("/v1/x", None, Accepted).position == 1


@pytest.mark.parametrize("url", ["", "ftp://x", "127.0.0.1:7400", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="not the address"):
        Client(url, "t").raw("GET", "/v1/status")


@pytest.mark.parametrize(
    "url", ["http://10.66.0.1:7400", "http://master.example:7400", "http://[fd00::1]:7400"]
)
def test_a_token_is_sent_to_no_other_host_in_clear(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: pytest.fail("it called"))
    client = Client(url, "bgt_secret")
    for ask in (lambda: client.get("/v1/status", None, dict), lambda: next(client.watch())):
        with pytest.raises(Invalid, match="would be sent the token over the network without TLS") as caught:
            ask()
        assert "borgctl login" in caught.value.hint


def test_parameters_left_out_are_not_sent() -> None:
    with listener(answer(OK)) as (url, requests):
        Client(url, "t").get("/v1/x", {"a": True, "b": None, "c": "", "d": 5, "e": "x/y z"}, Accepted)
    assert requests[0].startswith(b"GET /v1/x?a=true&d=5&e=x%2Fy+z HTTP/1.1\r\n")


def test_paths_are_quoted() -> None:
    assert quoted("jobs", "ann", "a?b c", 3) == "/v1/jobs/ann/a%3Fb%20c/3"


@pytest.mark.parametrize("name", ["../x", "a/b", "/", "", ".", "..", "a/" * 100])
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    with pytest.raises(Invalid, match=f"invalid name {name[:63]!r}"):
        quoted("secrets", "ann", name)


def found(folder: Path, client_json: str, token: str | None = "bgt_x\n") -> Client:
    (folder / "client.json").write_text(client_json)
    if token is not None:
        (folder / "tokens").mkdir()
        (folder / "tokens" / "admin.token").write_text(token)
    return Client.find(folder)


GOOD = '{"url": "http://127.0.0.1:7400", "token_file": "tokens/admin.token", "ca": ""}'


def hint_when_nobody_is_there(client: Client) -> str:
    with pytest.raises(Unreachable, match="cannot be reached") as caught:
        client.raw("GET", "/v1/status")
    return caught.value.hint


def test_up_is_named_only_for_a_cell_that_it_made(tmp_path: Path) -> None:
    nobody = GOOD.replace("7400", "1")
    assert "borgctl up" not in hint_when_nobody_is_there(found(tmp_path, nobody))
    (tmp_path / "cell.toml").touch()
    assert "borgctl up" not in hint_when_nobody_is_there(Client.find(tmp_path))
    (tmp_path / "machines").mkdir()
    for client in (made := Client.find(tmp_path)), made.with_token("t", ""), *made.each_master():
        assert "`borgctl up` starts it" in hint_when_nobody_is_there(client)
    assert "borgctl up" not in hint_when_nobody_is_there(Client("http://127.0.0.1:1", "t"))


def test_a_cell_is_found_by_its_folder(tmp_path: Path) -> None:
    client = found(tmp_path, GOOD)
    assert client.url == "http://127.0.0.1:7400"
    assert client._headers("GET") == {"Authorization": "Bearer bgt_x"}


def test_a_folder_without_a_cell_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"no cell in {tmp_path}") as caught:
        Client.find(tmp_path)
    assert "borgctl up" in caught.value.hint


def test_a_folder_without_a_token_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated, match=r"tokens/admin\.token") as caught:
        found(tmp_path, GOOD, token=None)
    assert "`borgctl cell recover`" in caught.value.hint
    (tmp_path / "cell.toml").touch()
    (tmp_path / "machines").mkdir()
    with pytest.raises(Unauthenticated) as caught:
        Client.find(tmp_path)
    assert "`borgctl up`" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{}", '{"url": 3, "token_file": "x"}'])
def test_a_damaged_client_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreachable, match=r"client\.json"):
        found(tmp_path, text)


def in_pieces(size: int, data: bytes) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("cut", [lambda data: iter([data]), lambda data: in_pieces(1, data)])
def test_messages_are_found_however_they_are_cut(cut: Callable[[bytes], Iterator[bytes]]) -> None:
    data = b": hello\n\nid: 3.1\nevent: event\ndata: {}\n\ndata: a\ndata: b\n\nid: 9\n\n"
    assert list(messages_in(cut(data))) == [Message("3.1", "event", b"{}"), Message("", "message", b"a\nb")]


def busy(after: str) -> bytes:
    body = msgspec.json.encode(Problem("Too Many Requests", 429, "too many requests of ann"))
    head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\n"
    return (
        f"{head}retry-after: {after}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        + body
    )


def test_a_master_that_is_asked_too_often_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("borgish.masters.time.sleep", waited.append)
    with listener(busy("2"), busy("1"), answer(OK)) as (url, requests):
        assert Client(url, "t").post("/v1/jobs", b"name: x", Accepted).position == 1
    assert waited == [2.0, 1.0]
    assert len({header(request, b"idempotency-key") for request in requests}) == 1


def test_one_that_is_overloaded_is_asked_later_and_not_taken_for_one_that_stands_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("borgish.masters.time.sleep", waited.append)
    said = busy("2").replace(b"429 Too Many Requests", b"503 Service Unavailable")
    said = said.replace(b'"Too Many Requests"', b'"Overloaded"       ').replace(b"429", b"503")
    with listener(said, answer(OK)) as (url, requests):
        assert Client(url, "t").post("/v1/jobs", b"name: x", Accepted).position == 1
    assert waited == [2.0]
    assert len(requests) == 2


@pytest.mark.parametrize("after", ["3600", "soon"])
def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    waited: list[float] = []
    monkeypatch.setattr("borgish.masters.time.sleep", waited.append)
    times = 1 if after.isdigit() else 11
    with listener(*[busy(after)] * times) as (url, requests):
        with pytest.raises(TooManyRequests, match="too many requests of ann"):
            Client(url, "t").get("/v1/status", None, Accepted)
        assert len(requests) == times
    assert sum(waited) <= masters.BUSY_SECONDS_MAX


class _Leader(BaseHTTPRequestHandler):
    """Answers everything, and keeps connections."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == "/v1/slow":
            threading.Event().wait(3 * masters.SILENT_SECONDS_MAX)
        self.wfile.write(answer(OK))

    do_POST = do_GET  # noqa: N815 - the library calls it

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def silent_and_leader() -> Iterator[tuple[str, str]]:
    """Give the addresses of one that takes connections and never answers, and of one that does."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        ThreadingHTTPServer(("127.0.0.1", 0), _Leader) as leader,
    ):
        threading.Thread(target=leader.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{silent.getsockname()[1]}", f"http://127.0.0.1:{leader.server_port}"
        leader.shutdown()


def test_one_of_several_masters_that_hangs_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "SILENT_SECONDS_MAX", 0.1)
    with silent_and_leader() as (silent, leader):
        for ask in (
            lambda client: client.get("/v1/x", None, Accepted),
            lambda client: client.post("/v1/x", None, Accepted),
            lambda client: b"".join(client.stream("/v1/x")),
            lambda client: b"".join(client.stream("/v1/x", body=Accepted(1, "a", "b"))),
        ):
            client = Client(f"{silent},{leader}", "t")
            assert ask(client)
            assert client.url == leader
            client.close()
        asynchronous = AsyncClient(f"{silent},{leader}", "t")

        async def submitted() -> Accepted:
            async with asynchronous:
                return await asynchronous.submit("name: x")

        assert asyncio.run(submitted()).position == 1


def test_a_change_has_all_the_time_also_over_a_connection_that_was_made_for_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masters, "SILENT_SECONDS_MAX", 0.1)
    with silent_and_leader() as (silent, leader):
        client = Client(f"{leader},{silent}", "t")
        assert client.get("/v1/x", None, Accepted).position == 1
        assert client.post("/v1/slow", None, Accepted).position == 1
        assert client.url == leader
        client.close()


def test_one_that_is_slow_and_leads_is_given_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "SILENT_SECONDS_MAX", 0.1)
    several = masters.Masters("http://127.0.0.1:1,http://127.0.0.1:2")
    search = masters.Search(several)
    assert several.patience(30.0) == 0.1
    search.after(masters.Silent("it did not answer in time"))
    assert (several.url, several.patience(30.0)) == ("http://127.0.0.1:2", 0.1)
    search.after(masters.Redirected(several.url, "http://127.0.0.1:1/v1/x"))
    assert (several.url, several.patience(30.0)) == ("http://127.0.0.1:1", 30.0)
    assert masters.Masters("http://127.0.0.1:1").patience(30.0) == 30.0


def test_one_that_cannot_be_trusted_is_passed_over_and_said_where_there_is_no_other() -> None:
    search = masters.Search(masters.Masters("https://127.0.0.1:1,https://127.0.0.1:2"))
    untrusted = masters.Untrusted("it cannot be trusted", "the authority is in ca")
    search.after(untrusted)
    with pytest.raises(Unreachable, match="it cannot be trusted") as caught:
        search.after(untrusted)
    assert caught.value.hint == "the authority is in ca"
