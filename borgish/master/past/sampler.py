"""Keeps samples of what tasks use (utilisation), for a time: what was merely seen, so beside the journal and
off the turn.

What is there is read between two turns, which takes a moment; it becomes bytes in threads, some hundred
machines at a time, and is written in one transaction on the store's own thread.
"""

import asyncio
import logging
from functools import partial
from itertools import islice

from borgish.cell.free_space import Level
from borgish.clock import Clock
from borgish.errors import BorgishError
from borgish.master.core import Core
from borgish.master.host.settings import UsageSettings
from borgish.master.turn import Turn
from borgish.store.base import Store
from borgish.store.checkpoints import DAY_SECONDS
from borgish.store.usage import UsageBlock, Used, encode_usage

log = logging.getLogger("borgmaster")

MACHINES_AT_ONCE = 500
"""In a block: with 20 tasks each it is 90 KB, and takes 25 ms to make."""
PRUNED_AT_ONCE = 100
"""Blocks; the store is held for them."""
FRESH_SECONDS = 30.0
"""A machine that was not heard for so long uses nobody knows what."""


class Sampler:
    """Takes a sample of a running master's cell each time it is asked, and lets go of the old ones."""

    def __init__(self, core: Core, turn: Turn, store: Store, clock: Clock, settings: UsageSettings) -> None:
        self._core = core
        self._turn = turn
        self._store = store
        self._clock = clock
        self._settings = settings
        self._began = clock.now()

    def change(self, settings: UsageSettings) -> None:
        """Keep samples as long as other settings say."""
        self._settings = settings

    async def sample(self) -> None:
        """Keep what all tasks use now, and let go of what is old. What cannot be kept is logged; nothing is
        where the store has no room to spare."""
        if self._turn.free_space.level is not Level.AMPLE:
            return
        try:
            if self._settings.keep_days:
                await self._keep()
            await self._prune()
        except BorgishError as error:  # one that ends us comes again with the next commit
            log.error("%s", error)

    async def _keep(self) -> None:
        now = self._clock.now()
        machines = iter(
            [
                (name, seen.usage)  # never written to: the next report brings another
                for name, seen in self._core.observed.machines.items()
                if seen.usage and now.mono - seen.heard <= FRESH_SECONDS
            ]
        )
        blocks: list[UsageBlock] = []
        while used := list[tuple[str, Used]](islice(machines, MACHINES_AT_ONCE)):
            blocks.append(await asyncio.to_thread(encode_usage, now.wall, len(blocks), used))
        if blocks:
            await self._turn.in_store(partial(self._store.save_usage, blocks))

    async def _prune(self) -> None:
        wall = self._clock.now().wall_unless_set_on(self._began)
        before = wall - self._settings.keep_days * DAY_SECONDS
        while await self._turn.in_store(partial(self._store.prune_usage, before, PRUNED_AT_ONCE)):
            pass
