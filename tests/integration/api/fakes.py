"""A master that only remembers what it was asked, and the real API in front of it on loopback."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from typing import TypeVar

import msgspec
import uvloop

from borgish.api.app import create_app
from borgish.api.middleware import UNLIMITED
from borgish.api.moments import Moment, not_reached
from borgish.api.routes.authority import AuthorityDoor
from borgish.api.serve import Serving, serve
from borgish.api.services import Reading, Services, UsageOf, WatchBatch
from borgish.api.views.history import HistoryFilter
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.audit import AuditEntry, AuditNote
from borgish.cell.access.authorization import authorize
from borgish.cell.access.model import Asker, Principal, Role, User
from borgish.cell.command import Command
from borgish.cell.events import Entry
from borgish.cell.free_space import AMPLE
from borgish.cell.generations import Thing, check_generation, decides_about
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import Conflict, Gone, NotFound, Unreachable
from borgish.master.health import Metrics, leader_health
from borgish.master.past.history import LOOKED_AT_MAX, Walk
from borgish.master.watch import WatchHub
from borgish.sealing import Sealer
from borgish.spec.job import JobSpec
from borgish.wire.api import Accepted, AsOf, CheckpointView, EventView, RefusalView
from borgish.wire.api_access import AuditVerdict
from borgish.wire.api_certificates import RotationView
from borgish.wire.api_figures import UsagePoint, UsageSeries
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointVerdict,
    HistoryList,
    Imported,
    JobRollback,
    PastWindow,
    RollbackPlan,
    RollbackRequest,
)
from borgish.wire.api_plans import PlannedPlace, PlanView
from borgish.wire.link import (
    ExecPiece,
    ExecReply,
    JoinReply,
    JoinRequest,
    LogWanted,
    StdinReply,
    Terminal,
)
from tests.unit.api.cells import NOW, small_cell, small_observed, small_refusals

CLOCK = SystemClock()
T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""How long anything may take on a busy machine."""
PAST = AsOf(2, "2025-12-31T23:56:40.000Z", 1, ("The checkpoint at 1 is passed over",))
CHECKPOINT = CheckpointView(20, "2026-01-01T00:00:00.000Z", "test", 100, "ab" * 32)


class Asked(msgspec.Struct):
    command: Command
    actor: str
    request_id: str
    digest: str


BUNDLE = b"the authorities of a cell"


class FakeMaster:
    """Most of the services at once; those with methods of equal names are beside it."""

    def __init__(self) -> None:
        self.reset()
        self.usage = FakeUsage()
        self.services = Services(
            authority=lambda: BUNDLE,
            rotate_authority=lambda: RotationView("begun", "0" * 64, moved=True),
            rotation_held_up=lambda: None,
            inbox=self,
            reader=self,
            planner=self,
            moments=FakeMoments(self),
            past=self,
            rollbacks=FakeRollbacks(self),
            usage=self.usage,
            archive=FakeArchive(self),
            audit=FakeAudit(),
            hub=self,
            joining=self,
            programs=self,
            checkpointer=self,
            keeper=self,
            bands=lambda: self.cell.rules.bands,
            free_space=lambda: AMPLE,
            expect_obeyed=lambda: None,
            health=lambda: leader_health(self.cell, self.daemon, "http://here:1"),
            metrics=Metrics().render,
            seal=Sealer("0" * 64).seal,
        )

    daemon = Daemon(NOW.wall - 60, "memory", CHECKPOINT)

    def reset(self) -> None:
        """Be as new; the hub as well, which is what watchers hang on."""
        self.cell = small_cell()
        self.cell.access.users["ann"] = User("ann", grants=("band:production",))
        self.observed = small_observed()
        self.before: Cell | None = None
        self.restored = asyncio.Event()  # moments of the past are told when it is set
        self.restored.set()
        self.imported = b""
        self.archived: tuple[float | None, float | None] | None = None
        self.asked: list[Asked] = []
        self.noted: list[AuditNote] = []
        self.sought: list[Moment] = []
        self.rolled_back: list[RollbackRequest] = []
        self.log_calls: list[tuple[str, str, bool, LogWanted]] = []
        self.log_runs: list[tuple[int, int | None]] = []
        self.happened = [EventView(p, "t", "placed", f"line {p}", "ann/web", (p,)) for p in range(1, 6)]
        self.journal: list[Entry] = []
        self.wanted: HistoryFilter | None = None
        self.planned: list[tuple[JobSpec, str]] = []
        self.answered: dict[str, tuple[str, Accepted]] = {}
        self.failure: Exception | None = None
        self.log_failure: Exception | None = None
        self.log_break: Exception | None = None
        self.log_silence = False
        self.log_ends = False
        self.logs_open = 0
        self.streams: list[tuple[tuple[str, ...], Terminal | None, float]] = []
        self.sizes: list[tuple[int, int]] = []
        self.inputs: list[tuple[str, str, str, int, bytes, bool]] = []
        self.hub = WatchHub(3, self, kept=100)

    def end_streams(self) -> None:
        """End what is watched and followed, as soon as it has said what there is."""
        self.log_ends = True
        self.hub.close()

    async def ask(
        self,
        command: Command,
        actor: str,
        request_id: str,
        digest: str,
        *,
        expected: int | None = None,
        asker: Asker,
    ) -> Accepted:
        if self.failure:
            raise self.failure
        authorize(self.cell, command, asker.principal)
        if request_id in self.answered:
            known, answer = self.answered[request_id]
            if known != digest:
                raise Conflict("this request id was used for something else")
            return msgspec.structs.replace(answer, replayed=True)
        if expected is not None:
            check_generation(self.cell, command, expected)
        job = getattr(command, "job", "ann/web")
        if job not in self.cell.jobs:
            raise NotFound(f"there is no job {job}")
        self.asked.append(Asked(command, actor, request_id, digest))
        accepted = Accepted(20 + len(self.asked), job, "done")
        if request_id:
            self.answered[request_id] = (digest, accepted)
        return accepted

    async def note(self, note: AuditNote) -> None:
        self.noted.append(note)

    async def plan(self, spec: JobSpec, asker: Asker) -> PlanView:
        if spec.key in self.cell.jobs:
            raise Conflict(f"{spec.key} is there")
        self.planned.append((spec, asker.principal.name))
        place = PlannedPlace(0, "m1", victims=("bob/db/0",))
        return PlanView(spec.key, "1 would wait", 20, 1, spec.tasks, "plan-x", (place,))

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        if self.failure:
            raise self.failure
        if at_least > self.cell.position:
            raise not_reached(at_least, self.cell.position)
        return view(self.reading(self.observed, small_refusals()))

    def reading(self, observed: Observed, refusals: dict[str, tuple[RefusalView, ...]]) -> Reading:
        cell, daemon, tally = self.cell, self.daemon, Tally()
        return Reading(
            cell, observed, NOW, refusals, lambda: status_view(cell, observed, tally, daemon, NOW), tally
        )

    async def join(self, request: JoinRequest, invited: Asker | None = None) -> JoinReply:
        return JoinReply("test", request.machine, "bgt_poll")

    def events(self, job: str, after: int, limit: int, index: int | None = None) -> list[EventView]:
        found = [e for e in self.happened if e.position > after and (not job or e.job == job)]
        return [e for e in found if index is None or index in e.indexes][-limit:]

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList:
        self.wanted = wanted
        entries = [entry for entry in reversed(self.journal) if entry.position < (before or 1000)]
        below = entries[0].position + 1 if entries else 1
        walk = Walk(wanted, limit, LOOKED_AT_MAX, begins=1, below=below)
        walk.take(entries, 1)
        return walk.answer(next((each.at for each in self.journal if each.position >= walk.below), 0.0))

    async def decided(self, thing: Thing, after: int, until: int) -> list[Entry]:
        return [each for each in self.journal if each.position > after and decides_about(each, thing)]

    def subscribe(self, kinds: frozenset[str], job: str, last_id: str) -> AsyncGenerator[WatchBatch, None]:
        return self.hub.subscribe(kinds, job, last_id)

    async def logs(
        self,
        task: str,
        wanted: LogWanted,
        *,
        incoming: bool = False,
        program: str = "",
        attempt: int = 0,
        restarts: int | None = None,
    ) -> AsyncIterator[bytes]:
        self.log_calls.append((task, program, incoming, wanted))
        self.log_runs.append((attempt, restarts))
        if self.log_failure:
            raise self.log_failure
        return self._log_lines(follow=wanted.follow)

    async def _log_lines(self, *, follow: bool) -> AsyncIterator[bytes]:
        self.logs_open += 1
        try:
            if self.log_silence:
                await asyncio.Event().wait()
            if isinstance(self.log_break, NotFound):
                raise self.log_break
            yield b"one\n"
            if self.log_break:
                raise self.log_break
            yield b"\x1b[31mtwo\xff\n"
            if follow and not self.log_ends:
                await asyncio.Event().wait()
        finally:
            self.logs_open -= 1

    async def exec(
        self, task: str, run: tuple[str, ...], timeout_seconds: float, program: str = ""
    ) -> ExecReply:
        if run == ("gone",):
            raise Unreachable("m1 does not answer", "`borgctl machine show m1` says more")
        return ExecReply(f"{task} {program} {' '.join(run)} {timeout_seconds}".encode() + b"\xff", 7)

    async def exec_stream(
        self,
        task: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        program: str,
        session: str,
        *,
        terminal: Terminal | None = None,
        silence_seconds: float = 0.0,
    ) -> AsyncIterator[bytes]:
        self.streams.append((run, terminal, silence_seconds))
        told = await self.exec(task, run, timeout_seconds, program)

        async def lines() -> AsyncIterator[bytes]:
            yield msgspec.json.encode(ExecPiece(told.output + session.encode())) + b"\n"
            yield msgspec.json.encode(ExecPiece(exit_code=told.exit_code)) + b"\n"

        return lines()

    async def forward(
        self, task: str, port: str, session: str, silence_seconds: float, timeout_seconds: float
    ) -> AsyncIterator[bytes]:
        return await self.exec_stream(
            task, (port,), timeout_seconds, "", session, silence_seconds=silence_seconds
        )

    async def exec_stdin(
        self,
        task: str,
        program: str,
        session: str,
        offset: int,
        data: bytes,
        *,
        end: bool,
        size: tuple[int, int] = (0, 0),
    ) -> StdinReply:
        self.sizes.append(size)
        self.inputs.append((task, program, session, offset, data, end))
        return StdinReply(offset + len(data), ended=end)

    async def make(self, reason: str, name: str = "") -> CheckpointView:
        return msgspec.structs.replace(CHECKPOINT, reason=reason, name=name)

    async def listed(self) -> list[CheckpointView]:
        return [CHECKPOINT]

    async def detail(self, position: int) -> CheckpointDetail:
        return CheckpointDetail(self._kept(position), None, "it is torn")

    async def verify(self, position: int) -> CheckpointVerdict:
        return CheckpointVerdict(self._kept(position).position, "", good=False, text="it is torn")

    async def file(self, position: int, until: int = 0) -> bytes:
        return b"body of %d\xff" % self._kept(position).position + b"and what followed" * bool(until)

    async def take_in(self, file: bytes, name: str, head: int, actor: str) -> Imported:
        assert head == self.cell.position
        self.imported = file
        return Imported(msgspec.structs.replace(CHECKPOINT, name=name, reason=f"imported by {actor}"))

    async def delete(self, position: int, actor: str) -> CheckpointView:
        raise Conflict(f"{actor} may not delete the last good one at {self._kept(position).position}", "Wait")

    def _kept(self, position: int) -> CheckpointView:
        if position != CHECKPOINT.position:
            raise NotFound(f"no checkpoint is kept at position {position}", "`borgctl checkpoint list`")
        return CHECKPOINT


class FakeMoments:
    def __init__(self, master: FakeMaster) -> None:
        self._master = master

    async def find(self, moment: Moment) -> AsOf:
        self._master.sought.append(moment)
        await self._master.restored.wait()
        if moment.position is not None and moment.position != PAST.position:
            raise Gone(f"position {moment.position} is no longer kept", "The earliest is 2")
        return PAST

    async def read(self, as_of: AsOf, view: Callable[[Reading], T]) -> T:
        assert as_of == PAST
        then = msgspec.structs.replace(self._master.reading(Observed(known=False), {}), as_of=as_of)
        return await asyncio.to_thread(view, then)

    async def window(self, moment: Moment) -> PastWindow:
        self._master.sought.append(moment)
        first = self._master.reading(Observed(known=False), {}).summary(())
        return PastWindow(first, (), PAST.position, 0, PAST.position, PAST)

    async def read_both(self, old: AsOf, new: AsOf, view: Callable[[Cell, Cell], T]) -> T:
        return await asyncio.to_thread(view, self._master.before or self._master.cell, self._master.cell)


class FakeUsage:
    def __init__(self) -> None:
        self.asked: list[tuple[UsageOf, float]] = []

    async def series(self, of: UsageOf, since: float) -> UsageSeries:
        self.asked.append((of, since))
        return UsageSeries((UsagePoint("2026-01-01T00:00:00.000Z", 500, 1024, 2),), 60.0)


class FakeRollbacks:
    def __init__(self, master: FakeMaster) -> None:
        self._master = master

    async def plan(self, moment: Moment, asked: RollbackRequest) -> RollbackPlan:
        self._master.sought.append(moment)
        if self._master.failure:
            raise self._master.failure
        return RollbackPlan(PAST, 1, 2, 3, 0, jobs=(JobRollback("ann/web", "changes"),))

    async def roll_back(
        self, moment: Moment, asked: RollbackRequest, asker: Asker, request_id: str, digest: str
    ) -> Accepted:
        self._master.sought.append(moment)
        self._master.rolled_back.append(asked)
        return Accepted(21, "", f"rolled back by {asker.principal.name}")


class FakeAudit:
    async def latest(self, user: str, since: float, before: int, limit: int) -> list[AuditEntry]:
        return []

    async def verify(self, known: str) -> AuditVerdict:
        return AuditVerdict(0, True, "", "", "")


class FakeArchive:
    def __init__(self, master: FakeMaster) -> None:
        self._master = master

    async def begin(self, since: float | None, until: float | None) -> AsyncIterator[bytes]:
        self._master.archived = (since, until)
        return self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        for line in (b'{"begin":1}\n', b'{"end":2}\n'):
            yield line


PRINCIPALS = {
    "bgt_admin": Principal("root", Role.ADMIN),
    "bgt_ann": Principal("ann", Role.USER),
    "bgt_bob": Principal("bob", Role.USER),
    "bgt_reader": Principal("eve", Role.READER),
    "bgt_operator": Principal("olga", Role.OPERATOR),
    "bgt_member": Principal("ben", Role.USER, frozenset({"ann"})),
    "bgt_join": Principal("join", Role.JOIN),
}


class FixedTokens:
    """Tokens by what they are."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self.principals = dict(principals)

    def principal(self, token: str) -> Principal | None:
        return self.principals.get(token)


TOKENS = FixedTokens(PRINCIPALS)


class RunningApi:
    """The API in a loop of its own, in a thread, as the daemon runs it."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.master, self.serving = self.call(self._start())

    async def _start(self) -> tuple[FakeMaster, Serving]:
        master = FakeMaster()
        app = AuthorityDoor(create_app(master.services, TOKENS), UNLIMITED, BUNDLE)
        return master, await serve(app, "127.0.0.1", 0)

    def call(self, work: Coroutine[None, None, T]) -> T:
        """Run a coroutine in the daemon's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def do(self, action: Callable[[], T]) -> T:
        """Call something in the daemon's loop."""

        async def work() -> T:
            return action()

        return self.call(work())

    def client(self, token: str = "bgt_admin") -> Client:
        return Client(
            self.serving.url, token, timeout_seconds=PATIENCE_SECONDS, token_source="some/file.token"
        )

    def stop(self) -> None:
        self.do(self.master.hub.close)
        self.call(self.serving.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = CLOCK.now().mono + PATIENCE_SECONDS
    while not condition():
        assert CLOCK.now().mono < deadline, f"it did not come about in {PATIENCE_SECONDS:g} s"
        time.sleep(0.005)
