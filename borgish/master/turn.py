"""The turn: take all that has arrived, step once, make it durable in one commit, then let it be known.

Everything arrives in the ``Inbox``: commands with somebody waiting, and news without. Persist, then speak:
while a commit is under way nothing is read and no other step is made, so whatever anybody sees is on disk. A
commit that fails ends the turn for good, and the process with 70: what the store holds is then unknown, and
only a new process that reads it again can tell.
"""

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from borgish.audit import AuditChain, AuditNote
from borgish.cell.access import Asker
from borgish.cell.command import Command
from borgish.cell.commands import Observe
from borgish.cell.model import Cell
from borgish.cell.observed import Miss
from borgish.clock import Clock, Now
from borgish.errors import OutcomeUnknown, Refused
from borgish.failpoints import reach
from borgish.master.core import Core
from borgish.master.lease import LeaderGuard
from borgish.master.step import (
    CommandRequest,
    Input,
    Noted,
    NotPolled,
    PollsAnswered,
    PollsMissed,
    Step,
    UsageSeen,
)
from borgish.store.base import Store, records_of
from borgish.wire.api import Accepted

T = TypeVar("T")
TICK_SECONDS = 0.5
"""A turn is taken this often even when nothing arrives, since silence is news too."""


class Inbox:
    """Collects inputs until a turn takes them all. Used from the event loop only.

    Commands and reports wake the turn; that machines were heard, and what they use, waits for the next.
    """

    def __init__(self) -> None:
        self._asks: list[CommandRequest | Noted] = []
        self._heard: dict[str, float] = {}
        self._missed: dict[str, Miss] = {}
        self._not_polled: tuple[str, ...] = ()
        self._usage: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        self._waiting: dict[int, asyncio.Future[Accepted]] = {}
        self._handles = itertools.count(1)
        self._arrived = asyncio.Event()

    async def ask(
        self,
        command: Command,
        actor: str,
        request_id: str = "",
        digest: str = "",
        then: Cell | None = None,
        expected: int | None = None,
        asker: Asker | None = None,
    ) -> Accepted:
        """Hand in a command; return its answer once that is durable. Raises what it was refused with.

        ``then``: see ``decide``; the rest: see ``CommandRequest``.
        """
        handle = next(self._handles)
        asked = CommandRequest(handle, command, actor, request_id, digest, then, expected, asker)
        return await self._answered(handle, asked)

    async def note(self, note: AuditNote) -> None:
        """Hand in what belongs into the audit log; return when it is durable. Raises StoreFull."""
        handle = next(self._handles)
        await self._answered(handle, Noted(handle, note))

    async def _answered(self, handle: int, asked: CommandRequest | Noted) -> Accepted:
        answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting[handle] = answer
        self._asks.append(asked)
        self._arrived.set()
        try:
            return await answer
        finally:
            self._waiting.pop(handle, None)

    async def observe(self, report: Observe) -> None:
        """Hand in a machine's report; return when what follows from it is durable."""
        await self.ask(report, report.machine)

    def heard(self, machine: str, mono: float) -> None:
        """Note that a machine gave a valid answer."""
        self._heard[machine] = mono
        self._missed.pop(machine, None)

    def not_polled(self, machines: tuple[str, ...]) -> None:
        """Note which machines were not asked yet."""
        self._not_polled = machines

    def missed(self, machine: str, miss: Miss) -> None:
        """Note that a poll of a machine got no valid answer."""
        before = self._missed.get(machine)
        self._missed[machine] = before.then(miss) if before else miss

    def used(self, machine: str, usage: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Hand in a machine's latest samples."""
        self._usage[machine] = usage

    def wake(self) -> None:
        """Have a turn taken soon, whatever is here."""
        self._arrived.set()

    async def arrival(self, timeout_seconds: float) -> None:
        """Return when something urgent is here, or when the time is over."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._arrived.wait()
        except TimeoutError:
            return

    def take(self) -> list[Input]:
        """Return all that arrived, commands in their order."""
        inputs: list[Input] = [PollsAnswered(self._heard)] if self._heard else []
        if self._not_polled:
            inputs.append(NotPolled(self._not_polled))
        if self._missed:
            inputs.append(PollsMissed(self._missed))
        inputs.extend(UsageSeen(machine, usage) for machine, usage in self._usage.items())
        inputs.extend(self._asks)
        self._asks, self._heard, self._missed, self._usage, self._not_polled = [], {}, {}, {}, ()
        self._arrived.clear()
        return inputs

    def reply(self, handle: int, reply: Accepted | Refused) -> None:
        """Give an answer to whoever waits for it; nobody may be any more."""
        future: asyncio.Future[Any] | None = self._waiting.get(handle)
        if future is None or future.done():
            return
        if isinstance(reply, Accepted):
            future.set_result(reply)
        else:
            future.set_exception(reply)


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
        self._is_stopping = False

    async def run(self, first: Step) -> None:
        """Commit the first step and go on until ``stop``. Raises OutcomeUnknown or Fenced when the store
        does, and CellBroken when a step does."""
        step, began = first, self._clock.now()
        while True:
            await self._commit(step)
            reach("turn.committed")
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
        inputs = self._inbox.take()
        reach("turn.taken")
        try:
            self.free_space = self._store.free_space()
            step = self._core.step(inputs, began, self.free_space)
        except BaseException:
            self._durable.clear()  # nobody may see what is in memory now
            raise
        reach("turn.stepped")
        return step

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
