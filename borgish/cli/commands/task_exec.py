"""A command beside a task, as it runs: its output is shown while the standard input is passed to it."""

import errno
import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Protocol

import msgspec

from borgish.cli.raw_terminal import RawTerminal
from borgish.cli.screen import print_err
from borgish.client import Client, Params, decoder
from borgish.errors import BorgishError, NotFound, Unreachable
from borgish.ids import new_request_id
from borgish.wire.api_commands import CopyCall, ExecCall, ForwardCall
from borgish.wire.link import ExecPiece, ExecReply, StdinReply

PIECE_BYTES_MAX = 256 * 1024
READ_BYTES = 64 * 1024
_STREAM, _STDIN = "/stream", "/stdin"
SILENCE_SECONDS = 45.0  # a command ends when nothing was heard of us for so long
BEAT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0  # beside those that the command may take

Show = Callable[[Iterable[bytes]], None]


def exec_task(client: Client, path: str, call: ExecCall, stdin: int, show: Show) -> int:
    """Run it, and return its exit code. ``stdin`` is the descriptor of what it reads; -1 for nothing."""
    if stdin >= 0:
        call = msgspec.structs.replace(call, silence_seconds=SILENCE_SECONDS)
    try:
        running = Running(client, f"{path}{_STREAM}", f"{path}{_STDIN}", call, with_input=stdin >= 0)
    except NotFound as error:
        if f"/exec{_STREAM}" not in error.message:  # it is the task that is not there, and not the route
            raise
        if stdin >= 0:
            old = "borglet of its machine" if f" /v1/exec{_STREAM}" in error.message else "borgmaster"
            raise BorgishError(
                f"The {old} is too old to pass input to a command",
                "Upgrade it, or use --no-stdin",
            ) from error
        return _exec_without_stream(client, path, call, show)
    if stdin < 0:
        show(running.output())
        return running.exit_code()
    with RawTerminal(stdin) if call.terminal else nullcontext() as window:
        return running.converse(stdin, show, window)


def _exec_without_stream(client: Client, path: str, call: ExecCall, show: Show) -> int:
    """Run it where the borgmaster or the borglet is of a version that answers only when it has ended."""
    client.close()  # the kept connection has the shorter limit
    client.timeout_seconds = max(client.timeout_seconds, call.timeout_seconds + _ANSWER_SECONDS)
    reply = client.post(path, call, ExecReply)
    show([reply.output])
    if reply.cut:
        print_err("the output was longer than 1 MiB and was truncated")
    return reply.exit_code


class Window(Protocol):
    """A terminal whose size may change."""

    changed: int  # can be read when it has

    def size(self) -> tuple[int, int]:
        """Return its rows and columns, and take note that it was asked."""
        ...


class Running:
    """One command under way."""

    def __init__(
        self,
        client: Client,
        stream: str,
        stdin: str,
        call: ExecCall | CopyCall | ForwardCall,
        *,
        with_input: bool,
    ) -> None:
        """``stream`` is the route that runs it, ``stdin`` the one that takes its input."""
        self._client, self._stdin = client, stdin
        self._program = "" if isinstance(call, ForwardCall) else call.program
        self._session = new_request_id() if with_input else ""
        self._wants_terminal = isinstance(call, ExecCall) and call.terminal is not None
        self._lines = client.stream(stream, {"session": self._session}, call)
        self._code: int | None = None
        self._error: BaseException | None = None

    def converse(self, stdin: int, show: Show, window: Window | None = None) -> int:
        """Show its output while it is passed its input, and return its exit code."""
        # A terminal or a pipe may be silent for ever, so the end of the command comes through a pipe, too.
        ended, ends = os.pipe()
        showing = threading.Thread(target=self._show_output, args=(show, ends), daemon=True)
        showing.start()
        self._pass_input(stdin, ended, window)
        showing.join()
        os.close(ended)
        return self.exit_code()

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
        rest, is_first = b"", True
        for part in self._lines:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                piece = decoder(ExecPiece).decode(line)
                if piece.error:
                    raise BorgishError(piece.error)
                if is_first and self._wants_terminal and piece.exit_code is None and not piece.terminal:
                    raise BorgishError("The borglet of its machine is too old for -t", "Upgrade it")
                is_first = False
                if piece.exit_code is not None:
                    self._code = piece.exit_code
                if piece.output:
                    yield piece.output

    def _show_output(self, show: Show, ends: int) -> None:
        """Show the output, in a thread of its own; close ``ends`` behind it, and keep what went wrong."""
        try:
            show(self.output())
        except BaseException as error:  # it is raised again by exit_code
            self._error = error
        finally:
            os.close(ends)

    def _pass_input(self, stdin: int, ended: int, window: Window | None) -> None:
        """Pass on what is read, and say now and then that somebody is here, until ``ended`` can be read."""
        offset, reads = 0, True
        changed = [window.changed] if window else []
        while True:
            watched = [ended, *changed, *([stdin] if reads else [])]
            readable, _, _ = select.select(watched, [], [], BEAT_SECONDS)
            if ended in readable:
                return
            size = window.size() if window and window.changed in readable else (0, 0)
            piece = _read(stdin) if stdin in readable else _Piece(b"", is_last=False)
            data, more = piece.data, True
            while more:
                reply = self._put(offset, data, end=piece.is_last, size=size)
                if reply is None:
                    break
                data, offset, size = data[reply.received - offset :], reply.received, (0, 0)
                reads = reads and not (reply.closed or reply.ended)
                more = reads and bool(data or piece.is_last)

    def _put(self, offset: int, data: bytes, *, end: bool, size: tuple[int, int]) -> StdinReply | None:
        """Send a piece; None when the command has ended."""
        rows, columns = size
        params: Params = {"session": self._session, "program": self._program, "offset": offset, "end": end}
        if rows and columns:
            params = {**params, "rows": rows, "columns": columns}
        try:
            return self._client.post(
                self._stdin,
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


def _read(stdin: int) -> _Piece:
    """Return what is there to be read, at least something."""
    parts: list[bytes] = []
    size = 0
    while size < PIECE_BYTES_MAX and (not parts or select.select([stdin], [], [], 0)[0]):
        data = _read_once(stdin)
        if not data:
            return _Piece(b"".join(parts), is_last=True)
        parts.append(data)
        size += len(data)
    return _Piece(b"".join(parts), is_last=False)


def _read_once(stdin: int) -> bytes:
    """Return some input, b"" at its end, which a terminal that has gone shows as an error."""
    try:
        return os.read(stdin, READ_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""
