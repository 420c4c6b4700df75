"""A command beside a task, as it runs: its output is shown while the standard input is passed to it."""

import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec

from borgish.cli.screen import print_err
from borgish.client import Client, Params
from borgish.errors import BorgishError, NotFound, Unreachable
from borgish.ids import new_request_id
from borgish.wire.api import ExecCall
from borgish.wire.link import ExecPiece, ExecReply, StdinReply

PIECE_BYTES_MAX = 256 * 1024
READ_BYTES = 64 * 1024
_STREAM = "/exec/stream"
_ANSWER_SECONDS = 10.0  # beside those that the command may take

Show = Callable[[Iterable[bytes]], None]


def exec_task(client: Client, path: str, call: ExecCall, stdin: int, show: Show) -> int:
    """Run it, and return its exit code. ``stdin`` is the descriptor of what it reads; -1 for nothing."""
    try:
        running = _Running(client, path, call, with_input=stdin >= 0)
    except NotFound as error:
        if _STREAM not in error.message:  # it is the task that is not there, and not the route
            raise
        if stdin >= 0:
            old = "borglet of its machine" if f" /v1{_STREAM}" in error.message else "borgmaster"
            raise BorgishError(
                f"The {old} is too old to pass input to a command",
                "Upgrade it, or use --no-stdin",
            ) from error
        return _exec_without_stream(client, path, call, show)
    if stdin < 0:
        show(running.output())
        return running.exit_code()
    # A terminal or a pipe may be silent for ever, so the end of the command comes through a pipe, too.
    ended, ends = os.pipe()
    showing = threading.Thread(target=running.show_output, args=(show, ends), daemon=True)
    showing.start()
    running.pass_input(stdin, ended)
    showing.join()
    os.close(ended)
    return running.exit_code()


def _exec_without_stream(client: Client, path: str, call: ExecCall, show: Show) -> int:
    """Run it where the borgmaster or the borglet is of a version that answers only when it has ended."""
    client.close()  # the kept connection has the shorter limit
    client.timeout_seconds = max(client.timeout_seconds, call.timeout_seconds + _ANSWER_SECONDS)
    reply = client.post(path, call, ExecReply)
    show([reply.output])
    if reply.cut:
        print_err("the output was longer than 1 MiB and was truncated")
    return reply.exit_code


class _Running:
    """One command under way."""

    def __init__(self, client: Client, path: str, call: ExecCall, *, with_input: bool) -> None:
        self._client, self._path, self._program = client, path, call.program
        self._session = new_request_id() if with_input else ""
        self._lines = client.stream(f"{path}/stream", {"session": self._session}, call)
        self._code: int | None = None
        self._error: BaseException | None = None

    def exit_code(self) -> int:
        """Return it, once all was shown. Raises what kept it from being known."""
        if self._error is not None:
            raise self._error
        if self._code is None:
            raise Unreachable(
                "the connection broke before the command ended", "The command was killed, or is about to be"
            )
        return self._code

    def output(self) -> Iterator[bytes]:
        """Yield the output as it comes, to its end."""
        rest = b""
        for part in self._lines:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                piece = msgspec.json.decode(line, type=ExecPiece)
                if piece.error:
                    raise BorgishError(piece.error)
                if piece.exit_code is not None:
                    self._code = piece.exit_code
                if piece.output:
                    yield piece.output

    def show_output(self, show: Show, ends: int) -> None:
        """Show the output, in a thread of its own; close ``ends`` behind it, and keep what went wrong."""
        try:
            show(self.output())
        except BaseException as error:  # it is raised again by exit_code
            self._error = error
        finally:
            os.close(ends)

    def pass_input(self, stdin: int, ended: int) -> None:
        """Pass on what is read until that ends, the command takes no more, or ``ended`` can be read."""
        offset = 0
        while piece := _read(stdin, ended):
            data = piece.data
            while data or piece.is_last:
                reply = self._put(offset, data, end=piece.is_last)
                if reply is None or reply.closed or reply.ended:
                    return
                data, offset = data[reply.received - offset :], reply.received

    def _put(self, offset: int, data: bytes, *, end: bool) -> StdinReply | None:
        """Send a piece; None when the command has ended meanwhile."""
        params: Params = {"session": self._session, "program": self._program, "offset": offset, "end": end}
        try:
            return self._client.post(
                f"{self._path}/stdin",
                data,
                StdinReply,
                params=params,
                content_type="application/octet-stream",
            )
        except NotFound:
            return None


class _Piece(msgspec.Struct, frozen=True):
    data: bytes
    is_last: bool


def _read(stdin: int, ended: int) -> _Piece | None:
    """Wait for input and return what is there; None when the command ended first."""
    parts: list[bytes] = []
    size = 0
    while size < PIECE_BYTES_MAX:
        readable, _, _ = select.select([stdin, ended], [], [], 0 if parts else None)
        if ended in readable:
            return None
        if stdin not in readable:
            break
        data = os.read(stdin, READ_BYTES)
        if not data:
            return _Piece(b"".join(parts), is_last=True)
        parts.append(data)
        size += len(data)
    return _Piece(b"".join(parts), is_last=False)
