"""Does what the core asks of the runtimes, and tells what came of it.

Things for one attempt happen in the order they were asked for, so that a late kill can never hit
the run after the one it was meant for. Different attempts go side by side, as many as each
runtime takes well.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from borgish.borglet import health
from borgish.borglet.actions import Forget, Kill, Probe, Signal, Start
from borgish.borglet.ports import Connect
from borgish.borglet.runtimes.base import RunState, StartFailed, TaskRuntime
from borgish.errors import BorgishError
from borgish.vocabulary import Runtime

log = logging.getLogger("borglet.runner")

SLOTS = {Runtime.DOCKER: 8, Runtime.PROCESS: 64, Runtime.FAKE: 64}
"""How many starts and stops go on at once. An engine was seen to hang with dozens."""

PROBES_AT_ONCE = 64


class Listener(Protocol):
    """Who hears what came of an action; from the event loop."""

    def ran(self, key: str, state: RunState) -> None: ...

    def start_failed(self, key: str, run: int, error: StartFailed) -> None: ...

    def probed(self, key: str, run: int, fault: str) -> None: ...

    def forgotten(self, key: str) -> None: ...


class Runner:
    """Actions under way. ``stop`` lets those that are quick end, and leaves the rest."""

    def __init__(self, listener: Listener, connect: Connect) -> None:
        self._listener, self._connect = listener, connect
        self._slots = {kind: asyncio.Semaphore(slots) for kind, slots in SLOTS.items()}
        self._probes = asyncio.Semaphore(PROBES_AT_ONCE)
        self._last: dict[str, asyncio.Task[None]] = {}  # the latest action of each attempt
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, action: Start | Signal | Kill | Probe | Forget, runtime: TaskRuntime) -> None:
        """Begin an action."""
        if isinstance(action, Probe):
            self._begin(self._probe(action, runtime))
            return
        key = action.key
        task = self._begin(self._in_order(action, runtime, self._last.get(key)))
        self._last[key] = task
        task.add_done_callback(lambda done: self._last.pop(key) if self._last.get(key) is done else None)

    async def stop(self, seconds: float) -> None:
        """Wait a moment for what is under way, then cancel it; runs go on."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_order(
        self,
        action: Start | Signal | Kill | Forget,
        runtime: TaskRuntime,
        before: "asyncio.Task[None] | None",
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        async with self._slots[runtime.kind]:
            if isinstance(action, Start):
                await self._start(action, runtime)
            else:
                await self._stop_or_forget(action, runtime)

    async def _start(self, action: Start, runtime: TaskRuntime) -> None:
        try:
            state = await runtime.start(action.spec, action.run)
        except StartFailed as error:
            self._listener.start_failed(action.key, action.run, error)
        except (BorgishError, OSError) as error:
            self._listener.start_failed(action.key, action.run, StartFailed(str(error)))
        except Exception as error:  # a fault of the runtime's code costs one task a try, not the machine
            log.exception("starting %s failed in an unforeseen way", action.key)
            text = f"{type(error).__name__}: {error}"
            self._listener.start_failed(action.key, action.run, StartFailed(text))
        else:
            latest = runtime.look(action.key)
            self._listener.ran(action.key, latest if latest and latest.run == action.run else state)

    async def _stop_or_forget(self, action: Signal | Kill | Forget, runtime: TaskRuntime) -> None:
        try:
            if isinstance(action, Signal):
                await runtime.signal(action.key, action.signal)
            elif isinstance(action, Kill):
                await runtime.kill(action.key)
            else:
                await runtime.forget(action.key, action.keep_seconds)
                self._listener.forgotten(action.key)
        except Exception:  # whatever it was: the core kills again, and the next start finds leftovers
            log.exception("%s of %s failed", type(action).__name__.lower(), action.key)

    async def _probe(self, action: Probe, runtime: TaskRuntime) -> None:
        async with self._probes:
            try:
                fault = await health.ask(action, runtime, self._connect)
            except Exception as error:  # an answer must come, or the task would never be probed again
                log.exception("probing %s failed in an unforeseen way", action.key)
                fault = f"the probe itself failed: {type(error).__name__}"
        self._listener.probed(action.key, action.run, fault)
