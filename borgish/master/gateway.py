"""The master as the API sees it: commands go into the inbox, reads wait until memory is durable."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from borgish.api.gateway import Reading, WatchMessage
from borgish.api.moments import Moment
from borgish.api.views.history import Wanted
from borgish.bands import Bands
from borgish.cell.commands import Command
from borgish.cell.model import Task
from borgish.cell.room import check_ample, check_writable
from borgish.cell.state import Cell
from borgish.errors import Conflict, NotFound
from borgish.master.archive import Archive
from borgish.master.health import leader_health
from borgish.master.leader import Leader
from borgish.master.moments import Moments
from borgish.master.past import Past
from borgish.master.plan_view import plan_view
from borgish.master.reading import Reader
from borgish.master.rollbacks import Rollbacks
from borgish.master.watch import WatchHub
from borgish.spec.job import JobSpec
from borgish.vocabulary import JobKind, State, split_task_name
from borgish.wire.api import Accepted, AsOf, CheckpointView, EventView, HealthView, PlanView
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointVerdict,
    HistoryList,
    Imported,
    RollbackPlan,
    RollbackRequest,
)
from borgish.wire.link import ExecReply, ExecRequest, JoinReply, JoinRequest, StdinReply

T = TypeVar("T")


class MasterGateway:
    """Implements ``api.gateway.Gateway`` over the parts of one daemon."""

    def __init__(
        self,
        leader: Leader,
        hub: WatchHub,
        reader: Reader,
        past: Past,
        moments: Moments,
        rollbacks: Rollbacks,
        archive: Archive,
    ) -> None:
        self._leader = leader
        self._address = leader.address
        self._core = leader.core
        self._turn = leader.turn
        self._link = leader.link
        self._hub = hub
        self._reader = reader
        self._checkpointer = leader.checkpointer
        self._keeper = leader.keeper
        self._clock = leader.clock
        self._past = past
        self._moments = moments
        self._rollbacks = rollbacks
        self._archive = archive

    async def command(self, command: Command, actor: str, request_id: str, digest: str) -> Accepted:
        """Hand in a command; return when it is durable."""
        return await self._leader.command(command, actor, request_id, digest)

    async def health(self) -> HealthView:
        """Return how this borgmaster is, which leads."""
        return await self._reader.read(lambda reading: leader_health(reading.status(), self._address))

    def bands(self) -> Bands:
        """Return where the cell's bands begin."""
        return self._core.cell.rules.bands

    async def plan(self, spec: JobSpec, actor: str) -> PlanView:
        """Say what would follow if a job were submitted, as the cell is when all of it is durable."""
        await self._turn.durable()
        return plan_view(self._core.cell, self._core.foresee(spec, actor, self._clock.now()))

    async def read(self, view: Callable[[Reading], T]) -> T:
        """Call ``view`` when everything in memory is durable."""
        return await self._reader.read(view)

    async def find(self, moment: Moment) -> AsOf:
        """Return which moment of the past is meant."""
        return await self._moments.find(moment)

    async def read_at(self, as_of: AsOf, view: Callable[[Reading], T]) -> T:
        """Call ``view``, in a thread, with the cell as it was."""
        return await self._moments.read(as_of, view)

    async def read_both(self, old: AsOf, new: AsOf, view: Callable[[Cell, Cell], T]) -> T:
        """Call ``view``, in a thread, with the cell as it was at two moments."""
        return await self._moments.read_both(old, new, view)

    async def plan_rollback(self, moment: Moment, asked: RollbackRequest) -> RollbackPlan:
        """Return what a rollback to a moment would do."""
        return await self._rollbacks.plan(moment, asked)

    async def roll_back(
        self, moment: Moment, asked: RollbackRequest, actor: str, request_id: str, digest: str
    ) -> Accepted:
        """Roll the cell back; return when it is durable."""
        self._link.refusals.expect_few()
        return await self._rollbacks.roll_back(moment, asked, actor, request_id, digest)

    async def join(self, request: JoinRequest) -> JoinReply:
        """Take a machine into the cell, or back into it."""
        return await self._leader.join(request)

    def events(self, job: str, after: int, limit: int) -> list[EventView]:
        """Return the latest events, in order."""
        return self._reader.events(job, after, limit)

    async def history(self, wanted: Wanted, before: int, limit: int) -> HistoryList:
        """Return the latest entries of the stored journal that match."""
        return await self._past.latest(wanted, before, limit)

    async def archive(self, since: float | None, until: float | None) -> AsyncIterator[bytes]:
        """Return what happened in a time, as lines of rows."""
        return await self._archive.begin(since, until)

    def watch(self, kinds: frozenset[str], job: str, last_id: str) -> AsyncIterator[WatchMessage]:
        """Yield messages as they come."""
        return self._hub.subscribe(kinds, job, last_id)

    async def logs(
        self, task: str, *, previous: bool, follow: bool, tail: int, program: str = ""
    ) -> AsyncIterator[bytes]:
        """Return the output of one of a task's programs."""
        found = await self._task(task, program)
        if found.restarts == 0 and previous and found.previous_attempt and not program:
            machine, attempt, previous = found.previous_machine, found.previous_attempt, False
        else:
            machine, attempt = found.machine, found.attempt
        if not attempt:
            raise NotFound(f"{task} has not been placed yet", f"`borgctl why {task}` says what it waits for")
        return self._link.logs(
            machine, task, attempt, previous=previous, follow=follow, tail=tail, program=program
        )

    async def exec(
        self, task: str, run: tuple[str, ...], timeout_seconds: float, program: str = ""
    ) -> ExecReply:
        """Run a command beside a running task."""
        found = await self._running(task, program)
        request = ExecRequest(task, found.attempt, run, timeout_seconds, program)
        return await self._link.exec(found.machine, request)

    async def exec_stream(
        self, task: str, run: tuple[str, ...], timeout_seconds: float, program: str, session: str
    ) -> AsyncIterator[bytes]:
        """Run a command beside a running task, and return what is to be told while it runs."""
        found = await self._running(task, program)
        request = ExecRequest(task, found.attempt, run, timeout_seconds, program, session)
        return self._link.exec_stream(found.machine, request)

    async def exec_stdin(
        self, task: str, program: str, session: str, offset: int, data: bytes, *, end: bool
    ) -> StdinReply:
        """Pass a piece of input to a command that was begun with the same session."""
        found = await self._running(task, program)
        request = ExecRequest(task, found.attempt, (), program=program, session=session)
        return await self._link.exec_stdin(found.machine, request, offset, data, end=end)

    async def _running(self, task: str, program: str) -> Task:
        found = await self._task(task, program)
        if found.state is not State.RUNNING:
            raise Conflict(f"{task} is {found.state}", f"`borgctl why {task}` says why")
        return found

    async def _task(self, name: str, program: str) -> Task:
        """Return a task that runs a program, or ran one; ``program``, where it is not its main one."""
        await self._turn.durable()
        cell = self._core.cell
        task = cell.task(name)
        if task is None:
            raise NotFound(f"there is no task {name}", "`borgctl task list` shows those there are")
        spec = cell.jobs[split_task_name(name)[0]].spec
        if spec.kind is JobKind.ALLOC_SET:
            raise Conflict(f"{name} is an alloc: it runs nothing", "name a task that runs in it")
        beside = [each.name for each in spec.group]
        if program and program not in beside:
            known = f"beside its main program it has {', '.join(beside)}" if beside else "it has only one"
            raise NotFound(f"{name} has no program '{program}'", known)
        return task

    async def checkpoint(self, reason: str, name: str = "") -> CheckpointView:
        """Make a checkpoint now."""
        return await self._checkpointer.make(reason, name)

    async def checkpoints(self) -> list[CheckpointView]:
        """Return the kept checkpoints, newest first."""
        return await self._keeper.listed()

    async def checkpoint_detail(self, position: int) -> CheckpointDetail:
        """Look into a checkpoint."""
        return await self._keeper.detail(position)

    async def verify_checkpoint(self, position: int) -> CheckpointVerdict:
        """Say whether a checkpoint is good."""
        return await self._keeper.verify(position)

    async def checkpoint_file(self, position: int, *, journal: bool) -> bytes:
        """Return a checkpoint as it is kept outside of the cell."""
        await self._turn.durable()
        return await self._keeper.file(position, self._core.cell.position if journal else 0)

    async def import_checkpoint(self, file: bytes, name: str, actor: str) -> Imported:
        """Keep a checkpoint that was handed out."""
        check_ample(self._turn.room)
        await self._turn.durable()
        return await self._keeper.take_in(file, name, self._core.cell.position, actor)

    async def delete_checkpoint(self, position: int, actor: str) -> CheckpointView:
        """Let go of a checkpoint, unless it is the last good one."""
        check_writable(self._turn.room)
        return await self._keeper.delete(position, actor)
