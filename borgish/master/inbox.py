"""The inbox: what has arrived and waits for the next turn, and whose turn it is when not all can be taken.

Three queues go on side by side: commands of users, reports of machines, and commands that ask for more. So a
kill does not wait for a thousand submissions, nor for the reports of a thousand machines. Of those that ask
for more each user has a queue, and users take turns, as their tasks do in the scheduler (section 3.2 of the
Borg paper): one who submits a thousand jobs holds up nobody's first. Who has waited for too long gets no
further ones in, and is told when to ask again.
"""

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from borgish.audit import AuditNote
from borgish.cell.access.model import Asker
from borgish.cell.command import Command
from borgish.cell.commands import JoinMachine, Observe, SubmitJob
from borgish.cell.free_space import ASKS_FOR_MORE
from borgish.cell.observed import Miss
from borgish.cell.updates.rollback import RollbackTarget
from borgish.errors import Refused, TooManyRequests
from borgish.master.step import (
    CommandRequest,
    Input,
    Noted,
    NotPolled,
    PollsAnswered,
    PollsMissed,
    UsageSeen,
)
from borgish.wire.api import Accepted

WAIT_SECONDS_MAX = 2.0
"""Of a user whose oldest submission has waited for so long no further one is taken in: clients wait for an
answer for some seconds only, and one who does not know whether it was done is worse off than one who is
told to ask again."""
SUBMITTED_TASKS_MAX = 2_000
"""Tasks of jobs that are submitted: to write so many takes as long as a turn may."""
RETRY_SECONDS_MAX = 5.0
"""After which to ask again at the latest; until then, after as long as the others have waited."""


class _Waiting(NamedTuple):
    """A command that asks for more, and since when it waits, by the loop's clock."""

    asked: CommandRequest
    since: float


class Submissions:
    """Commands that ask for more: a queue for each user, who take turns."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()  # whose turn it is, first

    def __bool__(self) -> bool:
        return bool(self._queues)

    def append(self, asked: CommandRequest, now: float) -> None:
        """Add one. Raises TooManyRequests where those of its user wait for too long already."""
        queue = self._queues.get(asked.actor)
        if queue is None:
            queue = self._queues[asked.actor] = deque()
        elif (waited := now - queue[0].since) > WAIT_SECONDS_MAX:
            raise TooManyRequests(
                f"this cell is busy: what {asked.actor} has asked for waits for {waited:.0f} s, "
                f"and {len(queue) - 1:,} more after it",
                "Nothing was done. Ask again, and for less at a time",
                min(waited, RETRY_SECONDS_MAX),
            )
        queue.append(_Waiting(asked, now))

    def popleft(self) -> CommandRequest:
        """Return the one whose turn it is. There must be one."""
        actor, queue = self._queues.popitem(last=False)
        asked = queue.popleft().asked
        if queue:
            self._queues[actor] = queue
        return asked

    def busy(self, now: float) -> tuple[str, ...]:
        """Return who gets no further ones in, and why, a sentence for each."""
        return tuple(
            f"no more work of {actor} is taken in: {len(queue):,} commands wait, the first for {waited:.0f} s"
            for actor, queue in sorted(self._queues.items())
            if (waited := now - queue[0].since) > WAIT_SECONDS_MAX
        )


class Inbox:
    """Collects inputs until turns take them. Used from the event loop only.

    Commands and reports wake the turn; that machines were heard, and what they use, waits for the next.
    """

    def __init__(self) -> None:
        self._commands: deque[CommandRequest | Noted] = deque()
        self._reports: deque[CommandRequest] = deque()  # and what else parts of borgish itself ask for
        self._submissions = Submissions()
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
        target: RollbackTarget | None = None,
        expected: int | None = None,
        asker: Asker | None = None,
    ) -> Accepted:
        """Hand in a command; return its answer once that is durable. Raises what it was refused with.

        ``target``: see ``decide``; the rest: see ``CommandRequest``.
        """
        handle = next(self._handles)
        asked = CommandRequest(handle, command, actor, request_id, digest, target, expected, asker)
        if isinstance(command, ASKS_FOR_MORE):
            self._submissions.append(asked, asyncio.get_running_loop().time())
        elif asker is None or isinstance(command, JoinMachine):
            self._reports.append(asked)
        else:
            self._commands.append(asked)
        return await self._answer(handle)

    async def note(self, note: AuditNote) -> None:
        """Hand in what belongs into the audit log; return when it is durable. Raises StoreFull."""
        handle = next(self._handles)
        self._commands.append(Noted(handle, note))
        await self._answer(handle)

    async def _answer(self, handle: int) -> Accepted:
        answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting[handle] = answer
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

    def busy(self) -> tuple[str, ...]:
        """Return of whom nothing more is taken in that asks for more, and why, a sentence for each."""
        return self._submissions.busy(asyncio.get_running_loop().time())

    def take(self, has_time: Callable[[], bool]) -> Iterator[Input]:
        """Yield what arrived: news, then of each queue one after the other, while there is time; of
        submissions no more than have about ``SUBMITTED_TASKS_MAX`` tasks, which all have to be written."""
        if self._heard:
            yield PollsAnswered(self._heard)
        if self._not_polled:
            yield NotPolled(self._not_polled)
        if self._missed:
            yield PollsMissed(self._missed)
        for machine, usage in self._usage.items():
            yield UsageSeen(machine, usage)
        self._heard, self._missed, self._usage, self._not_polled = {}, {}, {}, ()
        self._arrived.clear()
        tasks_left = SUBMITTED_TASKS_MAX
        while self._commands or self._reports or (self._submissions and tasks_left > 0):
            if self._commands:
                yield self._commands.popleft()
            if self._reports:
                yield self._reports.popleft()
            if self._submissions and tasks_left > 0:
                asked = self._submissions.popleft()
                tasks_left -= asked.command.spec.tasks if isinstance(asked.command, SubmitJob) else 0
                yield asked
            if not has_time():
                break
        if self._commands or self._reports or self._submissions:
            self._arrived.set()

    def reply(self, handle: int, reply: Accepted | Refused) -> None:
        """Give an answer to whoever waits for it; nobody may be any more."""
        future: asyncio.Future[Any] | None = self._waiting.get(handle)
        if future is None or future.done():
            return
        if isinstance(reply, Accepted):
            future.set_result(reply)
        else:
            future.set_exception(reply)
