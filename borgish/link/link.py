"""All pollers of a cell: one for each machine, kept in step with the cell's machines."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlencode

import msgspec

from borgish.cell.model import Cell, Machine
from borgish.cell.observed import Observed
from borgish.cell.tasks.leases import leased_machines
from borgish.clock import Clock
from borgish.errors import Fenced, NotFound, Refused, Unreachable
from borgish.link.conversation import Reveal, reveal_none
from borgish.link.fencing import FencingMonitor
from borgish.link.holds import PollSettings
from borgish.link.poller import Inbox, Poller
from borgish.link.slices import SLICE_SECONDS, Slices
from borgish.link.transport import Response, Transport
from borgish.wire.api import Problem
from borgish.wire.link import UNKNOWN, ExecReply, ExecRequest, Leader, LogWanted, StdinReply

log = logging.getLogger("borgmaster.link")

RAMP_UP_MACHINES, RAMP_UP_PAUSE_SECONDS = 20, 0.01
OPENING_MAX, OPENING_SECONDS_MAX = 100, 0.5
"""So many machines are polled for the first time at once; one that does not answer soon is not waited for."""
REMINDER_SECONDS = 1.0  # far below any silence that counts
RENEW_AGAIN_SECONDS = 10.0
STDIN_SECONDS_MAX = 20.0  # a borglet answers earlier, also when the command does not read


class Link:
    """The way to the machines. ``drop``, ``sync`` and ``renew`` are called when a step is durable, and
    ``keep_renewed`` runs beside the turns.

    Borg cuts it into shards (section 3.3 of its paper); one asyncio task a machine has been enough for all
    that was measured, up to 10,000 machines.
    """

    def __init__(
        self,
        cell: Cell,
        observed: Observed,
        inbox: Inbox,
        clock: Clock,
        settings: PollSettings,
        transport: Transport,
        on_fenced: Callable[[Fenced], None],
        permit: Callable[[], None] = lambda: None,
        leader: Leader = UNKNOWN,
        reveal: Reveal = reveal_none,
    ) -> None:
        """``permit`` raises Fenced when nothing may be sent to machines any more; ``leader`` is who asks;
        ``reveal`` opens the secrets of tasks for the machines on which these run."""
        self._reveal = reveal
        self.fencing = FencingMonitor()
        self._leader = leader
        self._cell = cell
        self._observed = observed
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self._transport = transport
        self._on_fenced = on_fenced
        self._permit = permit
        self._answers = Slices(clock)
        self._pollers: dict[str, Poller] = {}
        self._outdated: OrderedDict[str, None] = OrderedDict()  # machines whose assignment is to be made anew
        self._is_outdated = asyncio.Event()
        # Of machines that were removed. Who polls one again goes on counting its assignments, since under one
        # epoch a borglet ignores older ones.
        self._generations: dict[str, int] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def change(self, settings: PollSettings) -> None:
        """Poll by other settings from now on."""
        self._settings = settings
        for poller in self._pollers.values():
            poller.change(settings)

    def sync(self, machines: Iterable[str]) -> None:
        """Poll these machines where the cell now says they are, and those that were revoked no more."""
        for name in machines:
            record = self._cell.machines[name]
            poller = self._pollers.get(name)
            if record.revoked_at:
                self.drop([name])
            elif poller is None:
                self._begin(record)
            else:
                poller.move(record)

    async def ramp_up(self, durable: Callable[[], Awaitable[None]]) -> None:
        """Begin to poll the machines of a cell that has a new master, a few at a time; return when every
        machine is polled, or was removed meanwhile. ``durable`` returns when the cell may be read.

        To make what 200,000 tasks need as assignments takes seconds, so turns, questions and the first write
        come between. Polled all together, most of 10,000 machines answered too late to count and were polled
        again: a start took 27 s to the first answer, and 84 s of cpu to know them all. A machine that was not
        polled yet cannot have been silent, which the inbox is reminded of. First are those with leases. More
        are begun as others answer: handshakes of TLS with 10,000 machines take longer than a poll may.
        """
        names = sorted(self._cell.machines, reverse=True)
        names.sort(key=leased_machines(self._cell).__contains__)
        reminded_at = -REMINDER_SECONDS
        opening: list[tuple[float, str]] = []
        while names:
            await durable()
            if self._clock.now().mono >= reminded_at + REMINDER_SECONDS:
                reminded_at = self._clock.now().mono
                self._inbox.not_polled(tuple(names))
            since = self._clock.now().mono - OPENING_SECONDS_MAX
            opening = [(at, name) for at, name in opening if at > since and self._is_opening(name)]
            if len(opening) < OPENING_MAX:
                some = [names.pop() for _ in range(min(RAMP_UP_MACHINES, len(names)))]
                self.sync([name for name in some if name in self._cell.machines])
                opening += [(since + OPENING_SECONDS_MAX, name) for name in some]
            await asyncio.sleep(RAMP_UP_PAUSE_SECONDS)

    def _is_opening(self, machine: str) -> bool:
        poller = self._pollers.get(machine)
        return poller is not None and poller.is_opening

    def drop(self, machines: Iterable[str]) -> None:
        """Poll these machines no more. One that is back already begins anew with the next ``sync``."""
        for name in machines:
            poller = self._pollers.pop(name, None)
            if poller is not None:
                self._generations[name] = poller.generation
                ending = asyncio.create_task(poller.close(), name=f"end polling {name}")
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    def _begin(self, record: Machine) -> None:
        poller = Poller(
            record,
            partial(self._transport.peer, permit=self._permit),
            self._cell,
            self._observed,
            self._inbox,
            self._clock,
            self._answers,
            self._settings,
            self._on_fenced,
            self.fencing,
            self._generations.get(record.name, 0),
            self._leader,
            self._reveal,
        )
        self._pollers[record.name] = poller
        poller.renew()
        poller.start()

    def renew(self, machines: Iterable[str]) -> None:
        """Have the assignments of these machines made and sent anew, after those of earlier calls."""
        self._outdated.update(dict.fromkeys(machines))
        if self._outdated:
            self._is_outdated.set()

    async def keep_renewed(self, durable: Callable[[], Awaitable[None]]) -> None:
        """Make and send assignments as ``renew`` asks for them, for ever; ``durable`` returns when the cell
        may be read.

        A pass may place tasks on all machines, whose assignments would hold up questions and the next turn
        for longer than the pass did. Where turns follow each other, each is followed by some assignments, and
        a machine that several of them have placed tasks on is told once.
        """
        while True:
            await self._is_outdated.wait()
            await durable()
            until = self._clock.now().mono + SLICE_SECONDS
            while self._outdated and self._clock.now().mono <= until:
                name, _ = self._outdated.popitem(last=False)
                self._renew(name)
            if not self._outdated:
                self._is_outdated.clear()
            await asyncio.sleep(0)

    def _renew(self, machine: str) -> None:
        poller = self._pollers.get(machine)
        try:
            if poller is not None:
                poller.renew()
        except Exception:  # one machine must not keep all others from what they are to run
            log.exception("what %s is to run cannot be told; it is tried again", machine)
            asyncio.get_running_loop().call_later(RENEW_AGAIN_SECONDS, self.renew, [machine])

    def not_trusting(self, authorities: str) -> list[str]:
        """Return the machines that have certificates, and have not said that they trust these. One that was
        revoked is asked for nothing any more, and gets the authority by the invitation that lets it in."""
        return [
            name
            for name, record in sorted(self._cell.machines.items())
            if record.tls
            and not record.revoked_at
            and not (name in self._pollers and self._pollers[name].authorities == authorities)
        ]

    def certificate_ends(self) -> dict[str, float]:
        """Return when machines' certificates end, in seconds since 1970, of those that have said it."""
        return {
            name: poller.certificate_ends for name, poller in self._pollers.items() if poller.certificate_ends
        }

    def trouble(self, machine: str) -> str:
        """Return why the last poll of a machine failed, "" when it did not."""
        poller = self._pollers.get(machine)
        return poller.trouble if poller else ""

    async def logs(
        self,
        machine: str,
        task: str,
        attempt: int,
        wanted: LogWanted,
        program: str = "",
        run: int = 0,
    ) -> AsyncIterator[bytes]:
        """Yield what is wanted of the output of a program of an attempt ("": its main one) from its machine;
        of that of a ``run``, counted from 1, where it is not 0."""
        query = urlencode(
            {
                "task": task,
                "attempt": attempt,
                "program": program,
                "previous": int(wanted.previous),
                "follow": int(wanted.follow),
                "tail": wanted.tail,
                "since_millis": int(wanted.since * 1000),
                "timestamps": int(wanted.timestamps),
                "run": run,
            }
        )
        async for part in self._stream(machine, f"/v1/logs?{query}"):
            _check(part)
            yield part.body

    async def exec(self, machine: str, request: ExecRequest) -> ExecReply:
        """Run a command beside an attempt on its machine."""
        body = msgspec.json.encode(request)
        response = await self._post(machine, "/v1/exec", body, request.timeout_seconds + 5)
        _check(response)
        return msgspec.json.decode(response.body, type=ExecReply)

    async def exec_stream(self, machine: str, request: ExecRequest) -> AsyncIterator[bytes]:
        """Run a command beside an attempt on its machine, and yield lines of ``ExecPiece`` while it runs."""
        body = msgspec.json.encode(request)
        async for part in self._stream(machine, "/v1/exec/stream", body):
            _check(part)
            yield part.body

    async def exec_stdin(
        self,
        machine: str,
        request: ExecRequest,
        offset: int,
        data: bytes,
        *,
        end: bool,
        size: tuple[int, int] = (0, 0),
    ) -> StdinReply:
        """Pass a piece of input to the command with the same session, and the size of its terminal, rows and
        columns, where that is another now."""
        query = urlencode(
            {
                "task": request.task,
                "attempt": request.attempt,
                "program": request.program,
                "session": request.session,
                "offset": offset,
                "end": int(end),
                "rows": size[0],
                "columns": size[1],
            }
        )
        path = f"/v1/exec/stdin?{query}"
        response = await self._post(machine, path, data, STDIN_SECONDS_MAX)
        _check(response)
        return msgspec.json.decode(response.body, type=StdinReply)

    async def _post(self, machine: str, path: str, body: bytes, timeout_seconds: float) -> Response:
        peer = self._poller(machine).peer
        with _named(machine):
            return await peer.post(path, body, timeout_seconds)

    async def _stream(self, machine: str, path: str, body: bytes | None = None) -> AsyncIterator[Response]:
        peer = self._poller(machine).peer
        with _named(machine):
            async for part in peer.stream(path, body):
                yield part

    def _poller(self, machine: str) -> Poller:
        poller = self._pollers.get(machine)
        if poller is None:
            raise NotFound(
                f"there is no machine {machine}, or it was revoked",
                "`borgctl machine list` shows those there are",
            )
        return poller

    async def close(self) -> None:
        """Stop polling."""
        await asyncio.gather(*(poller.close() for poller in self._pollers.values()), *self._ending)


@contextmanager
def _named(machine: str) -> Iterator[None]:
    """Name the machine that does not answer: its address alone may be taken for a master's."""
    try:
        yield
    except Unreachable as error:
        raise Unreachable(
            f"machine {machine} does not answer ({error.message})",
            f"Its tasks may run on; `borgctl machine show {machine}` says more",
        ) from error


def _check(response: Response) -> None:
    if response.status == 200:
        return
    try:
        problem = msgspec.json.decode(response.body, type=Problem)
    except msgspec.DecodeError:
        raise Unreachable(f"the machine answered {response.status}") from None
    raise (NotFound if response.status == 404 else Refused)(problem.detail, problem.hint)
