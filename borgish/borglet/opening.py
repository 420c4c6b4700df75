"""Which runtimes this machine has: each is opened at start, and tried again while it does not answer."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from borgish.borglet.runtimes.base import RunState, TaskRuntime
from borgish.errors import BorgishError
from borgish.vocabulary import Runtime

log = logging.getLogger("borglet.runtimes")

AGAIN_SECONDS = 30.0
OPEN_SECONDS_MAX = 60.0
FIRST_SECONDS_MAX = 3.0
"""How long the start of the borglet waits for its runtimes. One that is slow is taken in later."""

Factories = Mapping[Runtime, Callable[[str], TaskRuntime]]
"""How each runtime is made, given the cell's name."""

NEED_CELL = frozenset({Runtime.DOCKER})
"""Those that mark what they start with the cell, so that they wait until it is known."""


class Opened(Protocol):
    """Who hears of it."""

    def runtime_opened(self, runtime: TaskRuntime, runs: list[RunState]) -> None: ...

    def runtime_changed(self, runtime: TaskRuntime, key: str) -> None: ...


class Opener:
    """Opens runtimes, each in a task of its own."""

    def __init__(self, factories: Factories, listener: Opened) -> None:
        self._factories, self._listener = factories, listener
        self._cell = ""
        self._tasks: dict[Runtime, asyncio.Task[None]] = {}

    async def begin(self, cell: str) -> None:
        """Begin to open all that can be; return when each has been tried once, or was too slow.

        ``cell`` is "" on a machine that has not joined one yet; see ``joined``.
        """
        tried = self._begin(cell)
        try:
            async with asyncio.timeout(FIRST_SECONDS_MAX):
                for event in tried:
                    await event.wait()
        except TimeoutError:
            log.warning("a runtime is slow to answer; starting without it")

    def joined(self, cell: str) -> None:
        """Begin to open what had to wait for the cell's name."""
        self._begin(cell)

    def _begin(self, cell: str) -> list[asyncio.Event]:
        self._cell = cell
        ready = [k for k in self._factories if k not in self._tasks and (cell or k not in NEED_CELL)]
        tried = {kind: asyncio.Event() for kind in ready}
        for kind, event in tried.items():
            self._tasks[kind] = asyncio.create_task(self._until_open(kind, event))
        return list(tried.values())

    def stop(self) -> None:
        """Give up on those that do not answer."""
        for task in self._tasks.values():
            task.cancel()

    async def _until_open(self, kind: Runtime, tried: asyncio.Event) -> None:
        reported = ""
        while fault := await self._open(kind):
            if fault != reported:
                log.warning("runtime %s: %s. Tried again each %.0f s", kind, fault, AGAIN_SECONDS)
            reported = fault
            tried.set()
            await asyncio.sleep(AGAIN_SECONDS)
        tried.set()

    async def _open(self, kind: Runtime) -> str:
        """Return what is in the way, "" when it is open."""
        try:
            runtime = self._factories[kind](self._cell)
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                runs = await runtime.open(lambda key: self._listener.runtime_changed(runtime, key))
        except TimeoutError:
            return f"no answer within {OPEN_SECONDS_MAX:.0f} s"
        except (BorgishError, OSError, ImportError) as error:
            return str(error).rstrip(".")
        except Exception as error:  # a fault of one runtime's code must not go unsaid, nor end the others
            log.exception("opening the runtime %s failed in an unforeseen way", kind)
            return f"{type(error).__name__}: {error}"
        log.info("runtime %s works; %d attempts found", kind, len(runs))
        self._listener.runtime_opened(runtime, runs)
        return ""
