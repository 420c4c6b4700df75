"""Commands beside a task over the API: answered at their end or while they run, with input or without."""

import msgspec
import pytest

from borgish.client import Client, Params, quoted
from borgish.errors import Invalid, NotFound, Unreachable
from borgish.wire.api import ExecCall
from borgish.wire.link import ExecPiece, ExecReply, StdinReply
from tests.integration.api.fakes import RunningApi


def test_exec_returns_bytes_and_exit_code(admin: Client) -> None:
    reply = admin.post(
        quoted("tasks", "ann", "web", 0, "exec"), ExecCall(("ls", "-l"), 5, "proxy"), ExecReply
    )
    assert (reply.output, reply.exit_code) == (b"ann/web/0 proxy ls -l 5.0\xff", 7)


def test_exec_is_answered_while_it_runs(admin: Client) -> None:
    path = quoted("tasks", "ann", "web", 0, "exec", "stream")
    answer = b"".join(admin.stream(path, {"session": "s1"}, ExecCall(("ls", "-l"), 5, "proxy")))
    first, last = (msgspec.json.decode(line, type=ExecPiece) for line in answer.splitlines())
    assert (first.output, last.exit_code) == (b"ann/web/0 proxy ls -l 5.0\xffs1", 7)
    with pytest.raises(Unreachable, match="m1 does not answer"):
        next(admin.stream(path, {}, ExecCall(("gone",))))
    with pytest.raises(Invalid):
        next(admin.stream(path, {}, ExecCall(())))


def test_a_route_that_a_version_lacks_is_named(admin: Client) -> None:
    path = quoted("tasks", "ann", "web", 0, "exec", "stream2")
    with pytest.raises(NotFound, match=f"there is nothing at {path}"):  # borgctl tells old masters by it
        admin.stream(path, {}, ExecCall(("ls",)))


def test_input_is_passed_on(admin: Client, api: RunningApi) -> None:
    path = quoted("tasks", "ann", "web", 0, "exec", "stdin")
    params: Params = {"session": "s1", "offset": 5, "end": True, "program": "proxy"}
    reply = admin.post(path, b"\x00\xff", StdinReply, params=params, content_type="application/octet-stream")
    assert reply == StdinReply(7, ended=True)
    assert api.master.inputs == [("ann/web/0", "proxy", "s1", 5, b"\x00\xff", True)]
    with pytest.raises(Invalid, match="session"):
        admin.post(path, b"x", StdinReply, content_type="application/octet-stream")


@pytest.mark.parametrize("call", [ExecCall(()), ExecCall(("x",), 0), ExecCall(("x",), 1e9)])
def test_exec_out_of_bounds_is_refused(admin: Client, call: ExecCall) -> None:
    with pytest.raises(Invalid):
        admin.post(quoted("tasks", "ann", "web", 0, "exec"), call, ExecReply)
