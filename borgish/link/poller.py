"""One machine's poll, over and over: what it should run goes out, what it does run comes back. Each answer is
the machine's heartbeat, and without one it is a missed poll. Borg's link shards do this for many machines
each (section 3.3).

The borglet holds each poll until something changes. A new assignment does not wait for a held poll:
a second poll overtakes it, and the borglet answers the first at once.

Most answers say nothing new. They are taken in where they arrive, and followed by the next poll, without a
turn of the machine's own task: that one is for whatever else happens.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import msgspec

from borgish.cell.commands import Observe
from borgish.cell.model import Cell, Machine
from borgish.cell.observed import Miss, Observed
from borgish.clock import Clock
from borgish.errors import BorgishError, Fenced, NotFollowed, NotListening, StoreFull, Unreachable
from borgish.failpoints import reach
from borgish.link.conversation import Conversation, Reveal, reveal_none
from borgish.link.fencing import FencingMonitor
from borgish.link.holds import RETRY_JITTER, RETRY_SECONDS, SPREAD, PollSettings
from borgish.link.slices import Slices
from borgish.link.transport import Exchange, Peer, Response
from borgish.text import safe
from borgish.wire.api import Problem
from borgish.wire.bounds import mistakes_in_facts
from borgish.wire.link import UNKNOWN, Leader, PollReply, PollRequest

log = logging.getLogger("borgmaster.link")

_REFUSAL_CHARACTERS_MAX = 300
_WORDS_BYTES_MAX = 200  # of an answer that no borglet gives

_encoder = msgspec.json.Encoder()
_reply_decoder = msgspec.json.Decoder(PollReply)


class Inbox(Protocol):
    """Where the link takes its news: the master's inbox."""

    async def observe(self, report: Observe) -> None:
        """Hand in a report; return when what follows from it is durable."""
        ...

    def heard(self, machine: str, mono: float) -> None:
        """Note that a machine gave a valid answer."""
        ...

    def not_polled(self, machines: tuple[str, ...]) -> None:
        """Note which machines were not polled yet."""
        ...

    def missed(self, machine: str, miss: Miss) -> None:
        """Note that a poll of a machine got no valid answer."""
        ...

    def used(self, machine: str, usage: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Hand in the latest samples."""
        ...


class _Answer(NamedTuple):
    """An answer to a poll, and when it came (monotonic): at the latest when the poll's time was over, also
    where this process was held up and read it only later."""

    reply: PollReply
    at: float


class _Poll:
    """A poll under way, or answered."""

    __slots__ = ("answer", "exchange", "failure", "is_taken", "over_at", "request")

    def __init__(self, request: PollRequest, over_at: float, exchange: Exchange) -> None:
        self.request, self.over_at, self.exchange = request, over_at, exchange
        self.answer: _Answer | None = None  # once it was read
        self.failure: Exception | None = None  # why there is none
        self.is_taken = False

    def end(self) -> None:
        """Have no more to do with it."""
        self.exchange.cancel()
        # The failure knows where it was raised, and so this poll. That circle would keep an answer, of up to
        # 16 MiB, until garbage is collected, which goes by the number of objects and is seldom.
        self.failure = None


class Poller:
    """Polls one machine until it is closed. ``trouble`` says why the last poll failed, "" if it did not."""

    def __init__(
        self,
        record: Machine,
        dial: Callable[[Machine], Peer],
        cell: Cell,
        observed: Observed,
        inbox: Inbox,
        clock: Clock,
        answers: Slices,
        settings: PollSettings,
        on_fenced: Callable[[Fenced], None],
        fencing: FencingMonitor,
        generation: int = 0,
        leader: Leader = UNKNOWN,
        reveal: Reveal = reveal_none,
    ) -> None:
        self.machine = machine = record.name
        self.peer = dial(record)
        self._dial = dial
        self._address = _address(record)
        self.trouble = ""
        self.is_opening = True  # the first poll has had neither an answer nor a miss
        self._cell = cell
        self._inbox = inbox
        self._clock = clock
        self._answers = answers
        self._settings = settings
        self._on_fenced = on_fenced
        self._fencing = fencing
        self._conversation = Conversation(cell, observed, machine, generation, leader, reveal)
        self._is_renewed = False  # since the last request was made
        self._held: _Poll | None = None
        self._newer: _Poll | None = None  # the one that overtakes it
        self._fault: Exception | None = None  # of a quiet answer, or of the poll after it
        self._wakeup: asyncio.Future[None] | None = None  # done by all that, and when a poll ends
        self._task: asyncio.Task[None] | None = None

    @cached_property
    def _random(self) -> random.Random:
        # When it is first asked: it is 2.5 KiB, and most cells hold no poll by chance.
        return random.Random(self.machine)  # noqa: S311 - jitter, not a secret

    @property
    def generation(self) -> int:
        """The generation of the last assignment, from which whoever polls the machine next goes on."""
        return self._conversation.generation

    @property
    def authorities(self) -> str:
        """The hash of the authorities that the borglet trusts, as it last said; "" while it has not."""
        return self._conversation.authorities

    @property
    def certificate_ends(self) -> float:
        """When the machine's certificate ends, in seconds since 1970, as it last said; 0: nobody knows."""
        return self._conversation.certificate_ends

    def change(self, settings: PollSettings) -> None:
        """Go by other settings from the next poll on."""
        self._settings = settings

    def start(self) -> None:
        """Begin to poll."""
        self._fencing.note(self.machine)
        self._task = asyncio.create_task(self._run(), name=f"poll {self.machine}")

    async def close(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.peer.close()
        self.peer.cut()  # of a machine that is removed or revoked nothing more is told
        self._fencing.drop(self.machine)

    def move(self, record: Machine) -> None:
        """Poll from now on where a record says: a borglet that was started again may listen elsewhere."""
        if self._address != _address(record):
            self.peer.close()
            self.peer, self._address = self._dial(record), _address(record)
            self._is_renewed = True
            self._wake()

    def renew(self) -> None:
        """Make the assignment anew from what is now durable, and send it."""
        self._conversation.renew(self._clock.now())
        self._is_renewed = True
        self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _wait_for_wake(self) -> None:
        # Much cheaper than asyncio.wait, which would be half of what an idle poll costs here.
        self._wakeup = asyncio.get_running_loop().create_future()
        await self._wakeup

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
                self.trouble, self.is_opening = "", False
            except Fenced as fenced:
                # Who leads is for the store to say; one machine alone cannot depose a master.
                is_news = self.trouble != fenced.message
                self._lose(fenced)
                if is_news:
                    self._on_fenced(fenced)
                await self._pause()
            except (NotFollowed, StoreFull) as error:
                # It was heard and is not missed. Not acknowledged, it reports the whole again until it is.
                if isinstance(error, NotFollowed):
                    log.warning("%s; it is asked for the whole", error.message)
                self.trouble, self.is_opening = "", False
                self._conversation.lose()
                await self._pause()
            except (Unreachable, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._lose(error)
                await self._pause()
            except Exception as error:  # whatever one machine brings about, it must be asked again
                log.exception("polling %s failed in an unforeseen way", self.machine)
                self._lose(error)
                await self._pause()

    def _lose(self, error: Exception) -> None:
        self.trouble = error.message if isinstance(error, BorgishError) else f"answer not understood: {error}"
        if not isinstance(error, Fenced):
            self._fencing.drop(self.machine)
        self._conversation.lose()
        self.is_opening = False
        refused = self._clock.now().mono if isinstance(error, NotListening) else 0.0
        self._inbox.missed(self.machine, Miss(self.trouble, refused))

    async def _pause(self) -> None:
        seconds = RETRY_SECONDS * (1 + RETRY_JITTER * self._random.uniform(-1, 1))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._is_renewed:
                    await self._wait_for_wake()

    async def _round(self) -> None:
        """Poll until an answer brings more than quiet; each assignment that comes while a poll is held
        overtakes it with a poll of its own."""
        self._is_renewed, self._fault = False, None
        self._held = self._ask(self._held_over)
        try:
            while not (held := await self._over()).exchange.is_done:
                self._is_renewed = False
                await self._overtake(held)
            if not held.is_taken:
                await self._take(self._read(held))
        finally:
            if self._held is not None:
                self._held.end()
                self._held = None

    async def _over(self) -> _Poll:
        """Wait until the held poll is over or there is a new assignment; return that poll."""
        while True:
            if self._fault is not None:
                raise self._fault
            held = self._held
            assert held is not None
            if held.exchange.is_done or self._is_renewed:
                return held
            await self._wait_for_wake()

    def _held_over(self) -> None:
        """The held poll is over. Where it was quiet, poll again at once."""
        held, self._fault = self._held, None
        if held is not None and not held.exchange.is_done:
            return  # the one that was over has been taken in meanwhile, and this is the next
        try:
            if held is not None and not (self._is_renewed or self._newer) and self._is_quiet(held):
                self._held = self._ask(self._held_over)
                return
        except Exception as error:  # whatever it is, the task deals with it
            self._fault = error
        self._wake()

    def _is_quiet(self, poll: _Poll) -> bool:
        """Take in an answer that brings no report; return whether it was one."""
        answer = self._read(poll)
        if answer.reply.report is not None:
            return False
        reach("poll.answered")
        self._inbox.heard(self.machine, answer.at)
        self._conversation.observe(answer.reply)
        self._acknowledge(answer.reply)
        self.trouble = ""
        return True

    async def _overtake(self, held: _Poll) -> None:
        """Poll past the held one, whose answer is taken in as well when it comes: the newer poll may get
        lost, and this is the machine's sign of life."""
        newer = self._newer = self._ask(self._wake, hold=False)
        try:
            while not newer.exchange.is_done:
                if not held.exchange.is_done or held.is_taken or not await self._take_if_good(held):
                    await self._wait_for_wake()
            await self._take(self._read(newer))
        except Unreachable:
            # The held poll may have ended while the newer one got lost. Its answer counts, and so does a
            # refused connection: the host is alive, and its tasks are not taken for lost yet.
            if held.exchange.is_done and not held.is_taken and not await self._take_if_good(held):
                assert held.failure is not None
                if isinstance(held.failure, NotListening | Fenced):
                    raise held.failure from None
            raise
        finally:
            self._newer = None
            newer.end()

    async def _take_if_good(self, poll: _Poll) -> bool:
        """Take in the answer of a poll, unless there is none; return whether there was."""
        try:
            answer = self._read(poll)
        except Exception:  # is raised again when it is this poll's turn
            return False
        await self._take(answer)
        poll.is_taken = True
        return True

    def _ask(self, done: Callable[[], None], *, hold: bool = True) -> _Poll:
        hold_seconds = self._hold_seconds() if hold else 0.0
        request = self._conversation.request(hold_seconds, self._settings.authorities)
        reach("poll.ask")
        timeout_seconds = request.wait_seconds + self._settings.timeout_seconds
        over_at = self._clock.now().mono + timeout_seconds
        body = _encoder.encode(request)
        over = partial(self._answers.add, done)
        return _Poll(request, over_at, self.peer.begin("/v1/poll", body, timeout_seconds, over))

    def _hold_seconds(self) -> float:
        settings = self._settings
        seconds = settings.hold_of(len(self._cell.machines))
        is_long = seconds > settings.hold_seconds
        return seconds * (1 - SPREAD * self._random.random()) if is_long else seconds

    def _read(self, poll: _Poll) -> _Answer:
        """Return the answer of a poll that is over. Raises why there is none."""
        if poll.failure is not None:
            raise poll.failure
        if poll.answer is None:
            try:
                poll.answer = self._answer_of(poll)
            except Exception as error:  # whatever it is, for whoever reads this answer again
                poll.failure = error
                raise
        return poll.answer

    def _answer_of(self, poll: _Poll) -> _Answer:
        response = poll.exchange.result
        if response.status == 409 and poll.request.timeline < self._conversation.timeline:
            raise Unreachable(f"{self.machine} heard of the new timeline before it got an older poll")
        return _Answer(self._reply_of(response), min(self._clock.now().mono, poll.over_at))

    async def _take(self, answer: _Answer) -> None:
        reach("poll.answered")
        reply = answer.reply
        self._inbox.heard(self.machine, answer.at)
        report = self._conversation.observe(reply)
        if report is not None:
            await self._inbox.observe(report)
            reach("poll.reported")
        self._acknowledge(reply)

    def _acknowledge(self, reply: PollReply) -> None:
        self._conversation.acknowledge(reply)
        reach("poll.acknowledged")
        if reply.usage:
            usage = {(u.task, u.attempt): (u.cpu_millis, u.ram_bytes) for u in reply.usage}
            self._inbox.used(self.machine, usage)

    def _reply_of(self, response: Response) -> PollReply:
        if response.status == 409:
            detail = _detail(response.body)
            self._fencing.note(self.machine, detail or f"machine {self.machine} obeys it")
            raise Fenced(
                f"{self.machine} obeys another master of this cell" + (f": {detail}" if detail else ""),
                "stop this borgmaster and start it again: it then says who leads the machines, or that its "
                "database is older than what they have seen",
            )
        if response.status != 200:
            said = _detail(response.body) or safe(response.body[:_WORDS_BYTES_MAX].decode(errors="replace"))
            raise Unreachable(f"{self.machine} answered {response.status}" + (f": {said}" if said else ""))
        # A NUL in some reason: Postgres cannot store one, and one machine must not end the master.
        reply = _reply_decoder.decode(response.body.replace(b"\\u0000", b"\\ufffd"))
        if reply.machine != self.machine:
            raise Unreachable(f"{self.machine} is no longer at {self.peer.host}:{self.peer.port}")
        if reply.report and (mistakes := mistakes_in_facts(reply.report.facts)):
            raise Unreachable(
                f"{self.machine} reports invalid facts: {mistakes[0].path}: {mistakes[0].message}"
            )
        self._fencing.note(self.machine)
        return reply


def _address(record: Machine) -> tuple[str, int, bool, int]:
    return record.host, record.port, record.tls, record.admission


def _detail(body: bytes) -> str:
    """Return why a borglet refused a poll, as it says; "" where that is not understood."""
    try:
        detail = msgspec.json.decode(body, type=Problem).detail
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return safe(detail[:_REFUSAL_CHARACTERS_MAX])
