"""Commands beside a task over the API: answered at their end or while they run, with input or without."""

import msgspec
import pytest

from borgish.client import Client, Params, quoted
from borgish.errors import Forbidden, Invalid, NotFound, Refused, Unreachable
from borgish.wire.api_commands import CopyCall, ExecCall, ForwardCall, TerminalCall
from borgish.wire.link import ExecPiece, ExecReply, StdinReply, Terminal
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


@pytest.mark.parametrize("route", ["exec", "exec/stream"])
@pytest.mark.parametrize(
    ("call", "limit"),
    [
        (ExecCall(("x",) * 1001), "1000 words"),
        (ExecCall(("x" * 2**18,)), "the command is larger than 262144 bytes"),
    ],
)
def test_a_command_that_is_too_long_is_told_the_way_out(
    admin: Client, call: ExecCall, limit: str, route: str
) -> None:
    with pytest.raises(Refused, match=limit) as refused:
        admin.post(f"{quoted('tasks', 'ann', 'web', 0)}/{route}", call, ExecReply)
    assert "task cp" in refused.value.hint


def test_a_terminal_and_a_silence_are_passed_on(admin: Client, api: RunningApi) -> None:
    path = quoted("tasks", "ann", "web", 0, "exec", "stream")
    call = ExecCall(("sh",), terminal=TerminalCall(30, 100, "vt100"), silence_seconds=5.0)
    b"".join(admin.stream(path, {"session": "s1"}, call))
    assert api.master.streams == [(("sh",), Terminal(30, 100, "vt100"), 5.0)]
    path = quoted("tasks", "ann", "web", 0, "exec", "stdin")
    for params in ({"rows": 50, "columns": 120}, {}):
        admin.post(path, b"", StdinReply, params={"session": "s1", **params})
    assert api.master.sizes == [(50, 120), (0, 0)]
    with pytest.raises(Invalid, match="together"):
        admin.post(path, b"", StdinReply, params={"session": "s1", "rows": 50})


@pytest.mark.parametrize(
    ("call", "session"),
    [
        (ExecCall(("sh",), terminal=TerminalCall()), ""),
        (ExecCall(("sh",), terminal=TerminalCall(0)), "s"),
        (ExecCall(("sh",), terminal=TerminalCall(kind="a b")), "s"),
        (ExecCall(("sh",), silence_seconds=5.0), ""),
        (ExecCall(("sh",), silence_seconds=-1.0), "s"),
        (CopyCall("logs", to_task=True), ""),
        (CopyCall(""), ""),
        (CopyCall("a\0b"), ""),
        (CopyCall("a" * 4097), ""),
    ],
)
def test_what_cannot_be_is_refused(admin: Client, call: ExecCall | CopyCall, session: str) -> None:
    where = ("copy",) if isinstance(call, CopyCall) else ("exec", "stream")
    with pytest.raises(Invalid):
        admin.stream(quoted("tasks", "ann", "web", 0, *where), {"session": session}, call)


def test_a_copy_is_a_command_of_tar(admin: Client, api: RunningApi) -> None:
    path = quoted("tasks", "ann", "web", 0, "copy")
    b"".join(admin.stream(path, {}, CopyCall("logs/today")))
    b"".join(admin.stream(path, {"session": "s"}, CopyCall("/srv/new", to_task=True)))
    (out, _, _), (into, _, _) = api.master.streams
    assert (out[:2], out[4:]) == (("sh", "-c"), ("logs", "./today"))
    assert (into[:2], into[4:]) == (("sh", "-c"), ("/srv/new", "/srv"))


def test_a_port_is_joined_without_allow_exec_and_by_its_owner_only(api: RunningApi) -> None:
    path = quoted("tasks", "ann", "sum", 0, "forward")
    lines = list(api.client("bgt_ann").stream(path, {"session": "s"}, ForwardCall("http", 9.0)))
    assert b"".join(lines)
    assert api.master.streams == [(("http",), None, 0.0)]
    params: Params = {"session": "s", "offset": 3, "end": True}
    reply = api.client("bgt_ann").post(f"{path}/stdin", b"x", StdinReply, params=params)
    assert reply == StdinReply(4, ended=True)
    assert api.master.inputs == [("ann/sum/0", "", "s", 3, b"x", True)]
    for route, body in ((path, ForwardCall("http")), (f"{path}/stdin", b"x")):
        with pytest.raises(Forbidden):
            api.client("bgt_bob").post(route, body, StdinReply, params={"session": "s"})
    with pytest.raises(Invalid, match="session"):
        api.client("bgt_ann").stream(path, {}, ForwardCall("http"))


@pytest.mark.parametrize("token", ["bgt_admin", "bgt_ann"])
def test_a_job_that_does_not_allow_it_is_closed_to_everybody(api: RunningApi, token: str) -> None:
    client = api.client(token)
    for where, call in ((("exec",), ExecCall(("ls",))), (("copy",), CopyCall("a"))):
        with pytest.raises(Forbidden, match=r"ann/sum allows no commands.*allow_exec: true"):
            client.post(quoted("tasks", "ann", "sum", 0, *where), call, ExecReply)
    with pytest.raises(Forbidden):
        client.post(
            quoted("tasks", "ann", "sum", 0, "exec", "stdin"), b"x", StdinReply, params={"session": "s"}
        )
    assert api.master.streams == []
    assert api.master.noted == []
