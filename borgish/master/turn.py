"""The turn: take what has arrived, step once, make it durable in one commit, then let it be known.

Everything arrives in the ``Inbox``: commands with somebody waiting, and news without. A turn takes on what
fits in some milliseconds, and leaves the rest to the next one: who asks meanwhile waits for one turn, however
much there is to do.

Persist, then speak: while a commit is under way nothing is read and no other step is made, so whatever
anybody sees is on disk. A commit that fails ends the turn for good, and the process with 70: what the store
holds is then unknown, and only a new process that reads it again can tell.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from borgish.audit import AuditChain
from borgish.clock import Clock, Now
from borgish.errors import OutcomeUnknown
from borgish.failpoints import reach
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.lease import LeaderGuard
from borgish.master.step import Input, Step
from borgish.scheduler.schedule import TASKS_MAX
from borgish.store.base import Store, records_of

T = TypeVar("T")
TICK_SECONDS = 0.5
"""A turn is taken this often even when nothing arrives, since silence is news too."""
TAKE_SECONDS = 0.0125
"""For what has arrived; the command that is begun within that is decided."""
PASS_SECONDS = 0.0125
TASKS_MIN = 500
"""A pass costs some milliseconds whatever it tries: with less than this, most of it would be that."""
TASKS_AT_START = 1_000
GROWTH_MAX = 2.0


class Pace:
    """How much a pass takes on, so that nobody waits long for it.

    ``tasks`` is how many tasks the next pass is to try, by how long the last ones took.

    The scheduler is not asked to look at a clock: a pass is decided by the cell and by this number, so that
    what a turn does can be done again. Where a clock stands still meanwhile, as in the simulator, the number
    stays what it is.
    """

    def __init__(self, tasks: int = TASKS_AT_START) -> None:
        self.tasks = tasks

    def took(self, seconds: float, *, was_full: bool) -> None:
        """Note how long a pass took; ``was_full``: there was more to try."""
        fit = self.tasks * PASS_SECONDS / seconds if seconds > 0.0 else float(TASKS_MAX)
        if seconds > PASS_SECONDS or was_full:
            self.tasks = int(max(TASKS_MIN, min(TASKS_MAX, fit, self.tasks * GROWTH_MAX)))


class Turn:
    """Runs the core over one store. ``released`` is called with each step once it is durable, and
    ``timed`` with the seconds that a turn with something to commit took."""

    def __init__(
        self,
        core: Core,
        store: Store,
        inbox: Inbox,
        clock: Clock,
        released: Callable[[Step], None],
        timed: Callable[[float], None],
        guard: LeaderGuard | None = None,
        chain: AuditChain | None = None,
    ) -> None:
        """``chain`` adds to the store's audit log; None: there is none, as in a copy of a cell."""
        self._core = core
        self._chain = chain
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._released = released
        self._timed = timed
        self._guard = guard or LeaderGuard(clock)
        self.free_space = store.free_space()  # as it was when the last step was begun
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._durable = asyncio.Event()
        self._durable.set()
        self._pace = Pace()
        self._taken_at = 0.0  # when the last step had all that it took in, monotonic
        self._is_stopping = False

    async def run(self, first: Step) -> None:
        """Commit the first step and go on until ``stop``. Raises OutcomeUnknown or Fenced when the store
        does, and CellBroken when a step does."""
        step, began = first, self._clock.now()
        while True:
            await self._commit(step)
            self._release(step)
            if step.entries:
                self._timed(self._clock.now().mono - began.mono)
            await asyncio.sleep(0)  # those who wait to read go first, also when the next inputs are here
            if not step.more:
                await self._inbox.arrival(TICK_SECONDS)
            if self._is_stopping:
                return
            began = self._clock.now()
            step = self._step(began)

    def _step(self, began: Now) -> Step:
        taken_by = began.mono + TAKE_SECONDS
        inputs = self._noting_end(self._inbox.take(lambda: self._clock.now().mono <= taken_by))
        reach("turn.taken")
        try:
            self.free_space = self._store.free_space()
            step = self._core.step(inputs, began, self.free_space, self._pace.tasks)
            if not step.reads:
                self._pace.took(self._clock.now().mono - self._taken_at, was_full=step.more)
        except BaseException:
            self._durable.clear()  # nobody may see what is in memory now
            raise
        reach("turn.stepped")
        return step

    def _noting_end(self, inputs: Iterator[Input]) -> Iterator[Input]:
        yield from inputs
        self._taken_at = self._clock.now().mono

    def stop(self) -> None:
        """Let ``run`` return when what it has begun is durable and released."""
        self._is_stopping = True
        self._inbox.wake()

    async def _commit(self, step: Step) -> None:
        if not step.entries and not step.audit:
            return
        self._durable.clear()
        await self.in_store(lambda: self._append(step))
        self._durable.set()
        reach("turn.committed")

    def _append(self, step: Step) -> None:
        """Commit. Raises Fenced for one whose time is over, also where its outcome is unknown by that.

        The step names the records that it touched, and they are read here from the live cell: no step is made
        during a commit, so they are still as the step left them. A copy in the step, as raft's ``Ready`` has
        one, would hold up the loop for as long as it takes to copy up to 200,000 tasks.
        """
        self._guard.check()
        try:
            audit = self._chain.add(step.audit) if self._chain is not None else ()
            self._store.append(step.entries, records_of(self._core.cell, step.touched, audit))
        except OutcomeUnknown:
            self._guard.check()
            raise

    def _release(self, step: Step) -> None:
        if step.entries or step.replies:
            self._guard.check()  # what was committed is found by whoever leads; we say no more
        self._released(step)
        for handle, reply in step.replies:
            reach("turn.reply")
            self._inbox.reply(handle, reply)
            reach("turn.replied")
        reach("turn.released")

    async def durable(self) -> None:
        """Return when everything in memory is durable; true until the next ``await``."""
        while not self._durable.is_set():
            await self._durable.wait()

    async def in_store(self, work: Callable[[], T]) -> T:
        """Do something with the store, on its one thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def close(self, *, wait: bool = True) -> None:
        """Let the store's thread end. It may hang in the database; who may not ``wait`` leaves it there."""
        self._writer.shutdown(wait=wait, cancel_futures=not wait)
