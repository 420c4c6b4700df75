"""A stand-in for an engine that hangs: it passes all on to the real one, until it is told to be silent."""

import asyncio
from contextlib import suppress
from pathlib import Path

REAL = "/var/run/docker.sock"


class EngineBetween:
    """Listens on ``path``. While silent it takes every call and answers none, as a hung engine does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def fall_silent(self) -> None:
        self._speaks.clear()

    def speak_again(self) -> None:
        self._speaks.set()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(REAL)
        for source, sink in ((reader, inner_writer), (inner_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await source.read(65536):
                await self._speaks.wait()
                sink.write(part)
                await sink.drain()
            sink.close()
