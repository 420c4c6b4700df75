"""Ends everything that runs on this machine: ``borglet --stop-all``, while no borglet serves.

Each program gets its own signal and grace, all at the same time, and is then forgotten, so that the next
borglet begins with an empty machine. The master is not asked: it finds out from the next report.
"""

import asyncio
import logging

from borgish.borglet.attempts.entry import Entry
from borgish.borglet.ledger import Ledger
from borgish.borglet.opening import NEED_CELL, OPEN_SECONDS_MAX, Factories
from borgish.borglet.runtimes.base import RunState, TaskRuntime
from borgish.errors import BorgishError
from borgish.spec.job import Stop
from borgish.vocabulary import Runtime

log = logging.getLogger("borglet.stop_all")

KILL_SECONDS_MAX = 10.0


async def stop_all(ledger: Ledger, factories: Factories, cell: str) -> int:
    """End and forget all runs of all runtimes; return how many programs were still running.

    Raises BorgishError when a runtime that the ledger names does not answer, or a program does not end.
    """
    ended = 0
    for kind, make in factories.items():
        if not cell and kind in NEED_CELL:
            continue  # it never started anything
        try:
            runtime, news = make(cell), asyncio.Event()
            runs = await _open(runtime, news)
        except (BorgishError, OSError, ImportError, TimeoutError) as error:
            if _names(ledger, kind):
                raise BorgishError(
                    f"runtime {kind} does not answer: {error}", "Start it, then try again"
                ) from None
            continue
        try:
            ended += await _stop_runs(runtime, runs, ledger, news)
        finally:
            await runtime.close()
    ledger.append(dict.fromkeys(list(ledger.entries)), None)  # those that had not started
    return ended


async def _open(runtime: TaskRuntime, news: asyncio.Event) -> list[RunState]:
    """Open a runtime and return what runs in it; ``news`` is set whenever something there ended."""
    async with asyncio.timeout(OPEN_SECONDS_MAX):
        return await runtime.open(lambda _key: news.set())


def _names(ledger: Ledger, kind: Runtime) -> bool:
    return any(entry.spec is not None and entry.spec.runtime is kind for entry in ledger.entries.values())


async def _stop_runs(runtime: TaskRuntime, runs: list[RunState], ledger: Ledger, news: asyncio.Event) -> int:
    """End all runs of one runtime at the same time; return how many were running."""
    stops = (_stop(runtime, state, ledger.entries.get(state.key), news) for state in runs)
    await asyncio.gather(*stops)
    ledger.append(dict.fromkeys(state.key for state in runs), None)
    return sum(state.exit is None for state in runs)


async def _stop(runtime: TaskRuntime, state: RunState, entry: Entry | None, news: asyncio.Event) -> None:
    spec = entry.spec if entry else None
    how = spec.stop if spec else Stop()
    if state.exit is None:
        await runtime.signal(state.key, how.signal)
        if not await _ends(runtime, state.key, how.grace_seconds, news):
            log.info("%s did not end within %g s and is killed", state.key, how.grace_seconds)
            await runtime.kill(state.key)
            if not await _ends(runtime, state.key, KILL_SECONDS_MAX, news):
                raise BorgishError(f"{state.key} (pid {state.pid}) cannot be killed", "See what holds it")
    await runtime.forget(state.key, spec.keep_output_seconds if spec else 0.0)


async def _ends(runtime: TaskRuntime, key: str, seconds_max: float, news: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds_max):
            while _runs(runtime.look(key)):
                news.clear()
                await news.wait()
    except TimeoutError:
        return not _runs(runtime.look(key))
    return True


def _runs(state: RunState | None) -> bool:
    return state is not None and state.exit is None
