"""The shims that carry this borglet's runs, one run each at a time; one whose run is over waits for the next.

To fork a shim costs more than all that it does for a short program. Those that wait are as many as were
needed at once within the last second, and end with their connection: when this borglet does, at the latest.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from borgish.borglet.runtimes.process.zygote import CHUNK_BYTES, Zygote, memory_file

IDLE_MAX = 16


class Carried:
    """A run that a shim was asked to carry: the answer, and when it is over."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self.is_answered = self.is_over = False
        self._over: Callable[[], None] | None = None

    def when_over(self, call: Callable[[], None] | None) -> None:
        """Have something called when its shim carries it no more, at once if that is so; None: nothing."""
        self._over = call
        if call and self.is_over:
            call()

    def take(self, answer: dict[str, Any] | None) -> None:
        """Take the first that its shim says of it; None: it is gone."""
        self.is_answered = True
        if not self.answer.done():  # whoever asked may have given up
            self.answer.set_result(answer)

    def end(self) -> None:
        """Take in that its shim carries it no more."""
        self.is_over = True
        if not self.is_answered:
            self.take(None)
        if self._over:
            self._over()


class _Shim:
    """One shim, at its connection."""

    def __init__(self, connection: socket.socket, pool: "Shims") -> None:
        self.carried = Carried()
        self._connection, self._pool = connection, pool
        self._buffer = b""
        asyncio.get_running_loop().add_reader(connection, self._read)

    def ask(self, request: int) -> Carried:
        """Send the descriptor of a request. Raises OSError."""
        socket.send_fds(self._connection, [b"."], [request])
        self.carried = Carried()
        return self.carried

    def close(self) -> None:
        """Let it end as soon as it carries nothing."""
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()

    def _read(self) -> None:
        try:
            data = self._connection.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if not data:
            self._pool.lost(self)
            if not self.carried.is_over:
                self.carried.end()

    def _take(self, said: dict[str, Any]) -> None:
        if not self.carried.is_answered:
            self.carried.take(said)
        elif "ended" in said:
            self._pool.free(self, is_good=said["free"])
            self.carried.end()


class Shims:
    """All of them. What the zygote forks for other requests is not among them."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._all: set[_Shim] = set()
        self._idle: list[_Shim] = []  # the last one is the first to be asked again
        self._unused = 0  # so many were idle all the time since the last look

    async def ask(self, request: dict[str, Any]) -> Carried:
        """Have a shim carry a run. Raises OSError when none can be had."""
        content = memory_file(json.dumps(request).encode())
        try:
            while self._idle:
                shim = self._idle.pop()
                self._unused = min(self._unused, len(self._idle))
                try:
                    return shim.ask(content)
                except OSError:  # it was killed
                    self.lost(shim)
            return (await self._fork(content)).carried
        finally:
            os.close(content)

    async def _fork(self, content: int) -> _Shim:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                await self._zygote.send(content, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        shim = _Shim(ours, self)
        self._all.add(shim)
        return shim

    def free(self, shim: _Shim, *, is_good: bool) -> None:
        """Take in that a shim carries nothing more; it can carry another run if it is good."""
        if is_good and len(self._idle) < IDLE_MAX:
            self._idle.append(shim)
        else:
            self.lost(shim)

    def lost(self, shim: _Shim) -> None:
        """Forget a shim: it is gone, or is to go."""
        if shim in self._all:
            self._all.remove(shim)
            shim.close()
        if shim in self._idle:
            self._idle.remove(shim)

    def look(self) -> None:
        """Let go of those that nobody needed since the last look."""
        for shim in self._idle[: self._unused]:
            self.lost(shim)
        self._unused = len(self._idle)

    def close(self) -> None:
        """Let all of them end when they carry nothing. What they carry goes on."""
        for shim in list(self._all):
            self.lost(shim)
