"""Stands by while another master leads: keeps a warm copy of the cell, and leads when that one is gone
(failover).

Looks a few times a second who leads and what they wrote. To take over, only the end of the journal is left
to be applied.
"""

import asyncio
import logging
from typing import Generic, TypeVar

import borgish
from borgish.cell.model import Cell
from borgish.clock import Clock
from borgish.errors import BorgishError
from borgish.master.health import STANDBY
from borgish.store.base import Store
from borgish.store.election import Candidate
from borgish.store.leadership import Leadership
from borgish.store.replay import WarmReplica
from borgish.text import instant
from borgish.wire.api import HealthView

LOOK_SECONDS = 0.2
FIRST_LOOK_SECONDS = 0.05
S = TypeVar("S", bound=Store)

log = logging.getLogger("borgmaster")


class Standby(Generic[S]):
    """One who waits. ``address`` is where this master is found; it is known when it listens."""

    def __init__(self, cell: str, candidate: Candidate[S], clock: Clock) -> None:
        self.address = ""
        self.copy = WarmReplica()
        self._cell = cell
        self._candidate = candidate
        self._clock = clock
        self._led: Leadership | None = None
        self._followed: float | None = None  # on the monotonic clock
        self._trouble = ""
        self._logged = ""
        self._started = clock.now()
        self._won = False

    async def at_once(self, stopping: "asyncio.Future[None]", *, may_wait: bool) -> S | None:
        """Return the store if nobody leads it; None for one who ``may_wait``.

        Others wait until it is certain that the leader lives, as one that was killed a moment ago may not
        seem to be gone. Raises InUse then, and whatever else is wrong.
        """
        while True:
            store = await asyncio.to_thread(self._candidate.try_lead)
            if store is not None or may_wait or stopping.done():
                return store
            if error := await asyncio.to_thread(self._candidate.in_use_error):
                raise error
            await asyncio.wait({stopping}, timeout=FIRST_LOOK_SECONDS)

    async def until_won(self, stopping: "asyncio.Future[None]") -> S | None:
        """Follow until the store is ours; None when we are to stop before."""
        while not stopping.done():
            if store := await asyncio.to_thread(self.look):
                return store
            await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
        return None

    def look(self) -> S | None:
        """Take the store, or follow who has it. What is wrong is logged once, to be tried again."""
        try:
            if store := self._candidate.try_lead():
                self._won = True
                return store
            led, reader = self._candidate.leadership(), self._candidate.reader()
            if reader is not None:
                self.follow(reader)
            self._see(led, "" if reader else "the database has the schema of another version")
        except BorgishError as error:
            self._see(self._led, error.message)
        return None

    def follow(self, store: Store) -> Cell:
        """Bring the copy to where a store's journal is, and return it. Raises what ``Store.load`` does."""
        loads = self.copy.loads
        cell = self.copy.catch_up(store)
        self._followed = self._clock.now().mono
        if self.copy.loads != loads:
            for warning in store.warnings:
                log.warning("%s", warning)
        if self.copy.loads > loads >= 1:
            log.warning("the journal does not go on from what was followed; the cell was read anew")
        return cell

    def _see(self, led: Leadership | None, trouble: str) -> None:
        self._led, self._trouble = led, trouble
        where = f" at {led.address}" if led and led.address else ""
        who = f"standby: {led.holder}{where} leads" if led and led.holder else "standby: nobody leads yet"
        status = f"standby: cannot follow: {trouble}" if trouble else who
        if status != self._logged:
            self._logged = status
            log.log(logging.WARNING if trouble else logging.INFO, "%s", status)

    def health(self) -> HealthView:
        """Return how this one is. May be called while it looks."""
        cell, led, now = self.copy.cell, self._led, self._clock.now()
        leader = "" if self._won or led is None or led.address == self.address else led.address
        return HealthView(
            cell=self._cell,
            version=borgish.__version__,
            role=STANDBY,
            address=self.address,
            leader=leader,
            holder=led.holder if leader and led else "",
            timeline=cell.timeline if cell else 0,
            epoch=cell.epoch if cell else 0,
            position=cell.position if cell else 0,
            warm=cell is not None,
            behind_seconds=None if self._followed is None else round(now.mono - self._followed, 3),
            trouble=self._trouble,
            started_at=instant(self._started.wall),
        )
