"""Reaches the programs of tasks: their output, and commands beside them, on the machines they run on."""

from collections.abc import AsyncIterator

from borgish.cell.model import Task
from borgish.errors import Conflict, NotFound
from borgish.link.link import Link
from borgish.master.core import Core
from borgish.master.turn import Turn
from borgish.vocabulary import JobKind, State, split_task_name
from borgish.wire.link import ExecReply, ExecRequest, StdinReply, Terminal


class Programs:
    """Finds the machine of a task and asks its borglet."""

    def __init__(self, core: Core, turn: Turn, link: Link) -> None:
        self._core = core
        self._turn = turn
        self._link = link

    async def logs(
        self, task: str, *, previous: bool, incoming: bool, follow: bool, tail: int, program: str = ""
    ) -> AsyncIterator[bytes]:
        """Return the output of one of a task's programs; ``incoming``: of its incoming attempt.

        Raises NotFound where there is no such task, attempt or program, or it was not placed yet, and
        Conflict for an alloc, which runs nothing.
        """
        found = await self._task(task, program)
        if incoming:
            machine, attempt = self._incoming(task)
        elif found.restarts == 0 and previous and found.previous_attempt and not program:
            machine, attempt, previous = found.previous_machine, found.previous_attempt, False
        else:
            machine, attempt = found.machine, found.attempt
        if not attempt:
            raise NotFound(f"{task} has not been placed yet", f"`borgctl why {task}` says what it waits for")
        return self._link.logs(
            machine, task, attempt, previous=previous, follow=follow, tail=tail, program=program
        )

    def _incoming(self, task: str) -> tuple[str, int]:
        """Return the machine of a task's incoming attempt, and its id, 0 while it has none."""
        handover = self._core.cell.handover(*split_task_name(task))
        if handover is None:
            raise NotFound(
                f"{task} has no incoming attempt",
                f"`borgctl task logs {task}` shows what runs; `--previous`: what was before, or given up",
            )
        return handover.machine, handover.attempt

    async def exec(
        self, task: str, run: tuple[str, ...], timeout_seconds: float, program: str = ""
    ) -> ExecReply:
        """Run a command beside a running task."""
        found = await self._running(task, program)
        request = ExecRequest(task, found.attempt, run, timeout_seconds, program)
        return await self._link.exec(found.machine, request)

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
        """Run a command beside a running task, and return what is to be told while it runs."""
        found = await self._running(task, program)
        request = ExecRequest(
            task, found.attempt, run, timeout_seconds, program, session, terminal, silence_seconds
        )
        return self._link.exec_stream(found.machine, request)

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
        """Pass a piece of input to a command that was begun with the same session."""
        found = await self._running(task, program)
        request = ExecRequest(task, found.attempt, (), program=program, session=session)
        return await self._link.exec_stdin(found.machine, request, offset, data, end=end, size=size)

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
