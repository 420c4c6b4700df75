"""Stands by while another master leads: keeps a warm copy of the cell, and leads when that one is gone
(failover).

Looks a few times a second who leads and what they wrote. To take over, only the end of the journal is left
to be applied. Between two looks those may read the copy who ask for no newer one, and at any time the past,
which is restored from the database by a connection of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

import borgish
from borgish.api.moments import Moment
from borgish.api.services import Reading
from borgish.api.views.history import HistoryFilter
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Clock
from borgish.errors import BorgishError, NotLeading, Unreachable
from borgish.master.health import STANDBY
from borgish.master.past.checkpoints import CheckpointReader
from borgish.master.past.history import History
from borgish.master.past.moments import Moments
from borgish.store.base import Store
from borgish.store.election import Candidate
from borgish.store.leadership import Leadership
from borgish.store.replay import WarmReplica
from borgish.text import instant, span
from borgish.wire.api import AsOf, CheckpointView, HealthView
from borgish.wire.api_past import CheckpointDetail, HistoryList, PastWindow

LOOK_SECONDS = 0.2
FIRST_LOOK_SECONDS = 0.05
REACHED_SECONDS_MAX = 5.0
"""How long who reads waits for a look to end, and for the copy to have what they ask for."""
BEHIND_SECONDS_MAX = 2.0
"""One that could not look for longer says so to who reads."""
STALE_SECONDS_MAX = 60.0
"""One that could not look for longer shows nothing: it does not know which tokens were revoked since."""
T = TypeVar("T")
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
        self._is_following = False  # in a thread, which writes to the copy
        self._looked = asyncio.Condition()
        self._store_kind = ""
        self._tally = Tally()
        self.past = StandbyPast(cell, self, candidate, clock, self._daemon)

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
            if store := await self.look():
                return store
            await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
        return None

    async def look(self) -> S | None:
        """Take the store, or follow who has it. What is wrong is logged once, to be tried again."""
        try:
            store = await asyncio.to_thread(self._candidate.try_lead)
            self._won = store is not None
            if self._won:
                self.past.close()
            if store is None:
                led, reader = await asyncio.to_thread(self._read_leadership)
                if reader is not None:
                    self._is_following = True
                    await asyncio.to_thread(self.follow, reader)
                self._see(led, "" if reader else "the database has the schema of another version")
            return store
        except BorgishError as error:
            self._see(self._led, error.message)
            return None
        finally:
            async with self._looked:
                self._is_following = False
                self._looked.notify_all()

    def _read_leadership(self) -> tuple[Leadership | None, S | None]:
        return self._candidate.leadership(), self._candidate.reader()

    def follow(self, store: Store) -> Cell:
        """Bring the copy to where a store's journal is, and return it. Raises what ``Store.load`` does."""
        loads = self.copy.loads
        # Where this is broken off, the copy has entries that no sums know of: they are made anew.
        tally, self._tally = self._tally, Tally()
        cell = self.copy.catch_up(store)
        self._followed, self._store_kind = self._clock.now().mono, store.kind
        if self.copy.touched is not None:
            tally.note(self.copy.touched, {})
            self._tally = tally
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

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        """Call ``view`` with the copy, when it has position ``at_least`` of the journal, and return what it
        returns. What only the leader has seen is null there, as of the past.

        Raises NotLeading when the copy does not come to have it, when it is too old, and when this one is
        about to lead.
        """
        async with self._looked:
            try:
                async with asyncio.timeout(REACHED_SECONDS_MAX):
                    await self._looked.wait_for(lambda: self._won or self._has(at_least))
            except TimeoutError:
                raise NotLeading(f"this borgmaster stands by, {self._where(at_least)}") from None
            if self._won or self.copy.cell is None:
                raise NotLeading("this borgmaster is about to lead")
            return view(self._reading(self.copy.cell))  # without a pause: what follows writes to it

    def _has(self, position: int) -> bool:
        """Whether the copy has a position, and may be read."""
        return not self._is_following and self.copy.cell is not None and self.copy.cell.position >= position

    def _where(self, wanted: int) -> str:
        cell = self.copy.cell
        if cell is None:
            return "without a copy of the cell yet"
        return "and reads the journal" if self._is_following else f"at position {cell.position}, not {wanted}"

    def _reading(self, cell: Cell) -> Reading:
        now, observed, tally = self._clock.now(), Observed(known=False), self._tally
        behind_seconds = now.mono - (now.mono if self._followed is None else self._followed)
        why = self._trouble or "it takes long"
        late = f"this borgmaster last read the journal {span(behind_seconds)} ago: {why}"
        if behind_seconds > STALE_SECONDS_MAX:
            raise NotLeading(late)
        last, warnings = self.copy.last, (late,) if behind_seconds > BEHIND_SECONDS_MAX else ()
        as_of = AsOf(cell.position, instant(last.at) if last else "", cell.timeline, warnings)
        daemon = self._daemon()
        return Reading(
            cell, observed, now, {}, lambda: status_view(cell, observed, tally, daemon, now), tally, as_of
        )

    def _daemon(self) -> Daemon:
        return Daemon(self._started.wall, self._store_kind)

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


class _Opened(msgspec.Struct, frozen=True):
    """What reads the database, by one connection."""

    store: Store
    moments: Moments
    history: History
    checkpoints: CheckpointReader


class StandbyPast(Generic[S]):
    """The past, as one who stands by reads it from the database, up to what its copy has. Raises NotLeading
    where it cannot."""

    def __init__(
        self,
        cell: str,
        standby: Standby[S],
        candidate: Candidate[S],
        clock: Clock,
        daemon: Callable[[], Daemon],
    ) -> None:
        self._cell = cell
        self._standby = standby
        self._candidate = candidate
        self._clock = clock
        self._daemon = daemon
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()
        self._one_at_a_time = asyncio.Lock()

    async def find(self, moment: Moment) -> AsOf:
        """Return which moment is meant; see ``Moments``. Waits a while for a position that is yet to come."""
        await self._reached(moment)
        return await self._asked(lambda it: it.moments.find(moment))

    async def read(self, as_of: AsOf, view: Callable[[Reading], T]) -> T:
        """Return what ``view`` makes of the cell as it was."""
        return await self._asked(lambda it: it.moments.read(as_of, view))

    async def read_both(self, old: AsOf, new: AsOf, view: Callable[[Cell, Cell], T]) -> T:
        """Return what ``view`` makes of the cell as it was at two moments."""
        return await self._asked(lambda it: it.moments.read_both(old, new, view))

    async def window(self, moment: Moment) -> PastWindow:
        """Return the entries of the journal around a moment; see ``Moments``. Waits as ``find`` does."""
        await self._reached(moment)
        return await self._asked(lambda it: it.moments.window(moment))

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList:
        """Return the latest entries of the journal that match; see ``History``."""
        return await self._asked(lambda it: it.history.latest(wanted, before, limit))

    async def checkpoints(self) -> list[CheckpointView]:
        """Return the kept checkpoints, newest first."""
        return await self._asked(lambda it: it.checkpoints.listed())

    async def checkpoint(self, position: int) -> CheckpointDetail:
        """Look into a checkpoint. Raises NotFound."""
        return await self._asked(lambda it: it.checkpoints.detail(position))

    async def _reached(self, moment: Moment) -> None:
        await self._standby.read(lambda _reading: None, moment.position or 0)

    async def _asked(self, ask: "Callable[[_Opened], Awaitable[T]]") -> T:
        opened: _Opened | None = None
        try:
            async with self._opening:
                if self._opened is None:
                    self._opened = await self._open()
                opened = self._opened
            return await ask(opened)
        except Unreachable as error:
            if opened is not None and opened is self._opened:
                self.close()
            why = f"this borgmaster stands by, and cannot read the past: {error.message}"
            raise NotLeading(why) from error

    async def _open(self) -> "_Opened":
        store = await asyncio.to_thread(self._candidate.another_reader)
        if store is None:
            raise NotLeading("this borgmaster stands by, and the database is of another version")
        return _Opened(
            store,
            Moments(self, self, store, self._clock, self._daemon),
            History(self, store, self._clock),
            CheckpointReader(self._cell, store),
        )

    def close(self) -> None:
        """Let go of the connection; another one is made for who asks again. Waits for nobody: what is read
        may hang, and who is about to lead must not."""
        if self._opened is not None:
            asyncio.get_running_loop().run_in_executor(None, self._opened.store.close)
        self._opened = None

    @property
    def cell(self) -> Cell:
        """The copy of the cell."""
        if self._standby.copy.cell is None:
            raise NotLeading("this borgmaster stands by, without a copy of the cell yet")
        return self._standby.copy.cell

    async def durable(self) -> None:
        """Return at once: what the copy has was read from the database."""

    async def in_store(self, work: Callable[[], T]) -> T:
        """Do something with the store, in a thread, one thing at a time."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(work)
