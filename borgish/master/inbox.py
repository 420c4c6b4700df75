"""Where everything arrives that a turn takes in: commands with somebody waiting, and news without."""

import asyncio
import itertools
from typing import Any

from borgish.cell.commands import Command, Observe
from borgish.cell.observed import Miss
from borgish.cell.state import Cell
from borgish.errors import Refused
from borgish.master.step import Ask, Heard, Input, Missed, Unasked, UsageSeen
from borgish.wire.api import Accepted


class Inbox:
    """Collects inputs until a turn takes them all. Used from the event loop only.

    Commands and reports wake the turn; that machines were heard, and what they use, waits for the next.
    """

    def __init__(self) -> None:
        self._asks: list[Ask] = []
        self._heard: dict[str, float] = {}
        self._missed: dict[str, Miss] = {}
        self._unasked: tuple[str, ...] = ()
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
    ) -> Accepted:
        """Hand in a command; return its answer once that is durable. Raises what it was refused with.

        ``then``: see ``decide``.
        """
        handle = next(self._handles)
        answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting[handle] = answer
        self._asks.append(Ask(handle, command, actor, request_id, digest, then))
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

    def unasked(self, machines: tuple[str, ...]) -> None:
        """Note which machines were not asked yet."""
        self._unasked = machines

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
        inputs: list[Input] = [Heard(self._heard)] if self._heard else []
        if self._unasked:
            inputs.append(Unasked(self._unasked))
        if self._missed:
            inputs.append(Missed(self._missed))
        inputs.extend(UsageSeen(machine, usage) for machine, usage in self._usage.items())
        inputs.extend(self._asks)
        self._asks, self._heard, self._missed, self._usage, self._unasked = [], {}, {}, {}, ()
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
