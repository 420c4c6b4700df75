"""Reaches the programs of tasks: their output, and commands beside them, on the machines they run on."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from borgish.cell.model import Task
from borgish.errors import Conflict, NotFound, Unreachable
from borgish.link.link import Link
from borgish.master.core import Core
from borgish.master.turn import Turn
from borgish.vocabulary import JobKind, State, split_task_name
from borgish.wire.link import ExecReply, ExecRequest, LogWanted, StdinReply, Terminal

LOOK_SECONDS = 2.0


class Programs:
    """Finds the machine of a task and asks its borglet."""

    def __init__(self, core: Core, turn: Turn, link: Link) -> None:
        self._core = core
        self._turn = turn
        self._link = link

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
        """Return what is wanted of the output of one of a task's programs; ``incoming``: of its incoming
        attempt. With an ``attempt`` it is that one's, also of the one before, and with ``restarts`` that of
        its run after so many restarts.

        Raises NotFound where there is no such task, attempt or program, or it was not placed yet, and
        Conflict for an alloc, which runs nothing.
        """
        found = await self._task(task, program)
        if attempt:
            machine = self._machine_of(task, found, attempt)
        elif incoming:
            machine, attempt = self._incoming(task)
        elif found.restarts == 0 and wanted.previous and found.previous_attempt and not program:
            machine, attempt = found.previous_machine, found.previous_attempt
            wanted = msgspec.structs.replace(wanted, previous=False)
        else:
            machine, attempt = found.machine, found.attempt
        if not attempt:
            raise NotFound(f"{task} has not been placed yet", f"`borgctl why {task}` says what it waits for")
        run = 0 if restarts is None else restarts + 1
        pieces = self._link.logs(machine, task, attempt, wanted, program, run)
        return self._while_up(machine, pieces) if wanted.follow else pieces

    async def _while_up(self, machine: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield what comes from a machine. Raises Unreachable once it is down: the connection to one that is
        cut off may stand silent for ever."""
        following: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                following = asyncio.ensure_future(_next(pieces))
                while not (await asyncio.wait({following}, timeout=LOOK_SECONDS))[0]:
                    there = self._core.cell.machines.get(machine)
                    if there is None or not there.up:
                        raise Unreachable(f"machine {machine} is down")
                piece = following.result()
                if piece is None:
                    return
                yield piece
        finally:
            if following is not None and not following.done():
                following.cancel()
                await asyncio.wait({following})

    @staticmethod
    def _machine_of(name: str, task: Task, attempt: int) -> str:
        """Return the machine of the present attempt of a task, or of the one before."""
        if attempt == task.attempt:
            return task.machine
        if attempt == task.previous_attempt:
            return task.previous_machine
        raise NotFound(
            f"attempt {attempt} of {name} is neither its last one nor the one before",
            f"`borgctl task show {name}` shows which attempt it has",
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

    async def forward(
        self, task: str, port: str, session: str, silence_seconds: float, timeout_seconds: float
    ) -> AsyncIterator[bytes]:
        """Join a port of a running task, and return what comes from there, as from a command."""
        found = await self._running(task, "")
        ports = self._core.cell.jobs[split_task_name(task)[0]].spec_of(found).ports
        if port not in ports:
            raise NotFound(
                f"{task} has no port '{port}'",
                f"Its ports are {', '.join(ports)}" if ports else "It has none",
            )
        request = ExecRequest(
            task,
            found.attempt,
            (),
            timeout_seconds,
            session=session,
            silence_seconds=silence_seconds,
            port=port,
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


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
