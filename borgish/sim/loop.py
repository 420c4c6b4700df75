"""A virtual-time event loop: an idle loop jumps to its next timer, so an hour costs what happens in it.

Processes of many hosts share the one loop, as in FoundationDB's simulator. What a process has begun carries
its ``Process`` in its context: one that is killed runs no further line, not even a ``finally``, and one that
is stopped does nothing until it is continued. What is offloaded to threads takes effect at a seeded instant
between the call and its completion, so that a commit may be on the disk of a master that never heard of it.
Nothing here depends on real time, addresses of objects or hash seeds. What such a loop cannot show, as a
store that hangs in its thread, is tested with processes.
"""

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

import msgspec

from borgish.clock import Now

WALL_AT_START = 1_750_000_000.0
OFFLOADED_SECONDS = 0.002
_ROUNDED_SECONDS = 1e-5  # seconds since 1970 are no more exact than that

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_process: ContextVar["Process"] = ContextVar("process")


class _Handle(msgspec.Struct):
    """Something that is to be called in a process."""

    process: "Process"
    context: Context
    call: Callable[..., object]
    values: tuple[Any, ...]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Process:
    """One process on some host, as its kernel sees it. It is the process's clock, too.

    ``rate`` is how fast its monotonic clock goes. ``offloaded_seconds`` tells how long the next work in a
    thread of its own takes.
    """

    def __init__(self, loop: "VirtualLoop", name: str, rate: float = 1.0) -> None:
        self.name = name
        self.is_alive = True
        self.stopped_until = 0.0
        self.rate = rate
        self.offloaded_seconds: Callable[[], float] = lambda: OFFLOADED_SECONDS
        self.tasks: list[asyncio.Task[Any]] = []  # those that were not over when they were last gone through
        self._tasks_max = 64
        self.busy_until: dict[Executor, float] = {}
        self.context = Context()
        self.context.run(_process.set, self)
        self._loop = loop
        loop.processes.append(self)

    def now(self) -> Now:
        """Return this moment on the clocks that the process reads."""
        return self._loop.now_for(self)

    def spawn(self, work: Coroutine[Any, Any, T], name: str = "") -> "asyncio.Task[T]":
        """Begin a task in this process."""
        return self._loop.create_task(work, name=name or None, context=self.context.copy())

    def call(self, call: Callable[[Unpack[Ts]], object], *values: *Ts) -> None:
        """Have something called in this process, soon."""
        self._loop.call_soon(call, *values, context=self.context)

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keep a task of this process until it is over. Going through them now and then is cheaper than
        a callback for each."""
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_max:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._tasks_max = max(64, 2 * len(self.tasks))

    def stop_for(self, seconds: float) -> None:
        """Stop it for a while, as SIGSTOP does; what arrives waits. One that is stopped already goes on no
        sooner."""
        self.stopped_until = max(self.stopped_until, self._loop.now().mono + seconds)

    def kill(self) -> None:
        """End it at once. Its suspended tasks stay as they are: to close them would run their code."""
        self.is_alive = False


class VirtualLoop:
    """The loop, and the clock of the world in which its processes live. It has those methods of
    ``asyncio.AbstractEventLoop`` that are used without sockets, signals and subprocesses."""

    def __init__(self, chance: random.Random | None = None, wall_at_start: float = WALL_AT_START) -> None:
        self.faults: list[str] = []  # exceptions that nobody caught
        self.processes: list[Process] = []  # the dead too, or the collector would close their tasks
        self._chance = chance or random.Random(0)  # noqa: S311 - chance that can be repeated, not secrets
        self._wall_at_start = wall_at_start
        self._stepped_seconds = 0.0  # what the wall clocks were set on, or back, in all
        self._steps = [(0.0, 0.0)]  # since when they are set on by how much in all
        self._mono = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = itertools.count()
        self._is_closed = False
        self._as_asyncio = cast("asyncio.AbstractEventLoop", self)
        self.world = self.current = Process(self, "world")

    # The world's clock

    def now(self) -> Now:
        """Return this moment."""
        return Now(self._wall_at_start + self._stepped_seconds + self._mono, self._mono, self._mono)

    def now_for(self, process: Process) -> Now:
        """Return this moment on the clocks of a process."""
        mono = self._mono * process.rate
        return Now(self._wall_at_start + self._stepped_seconds + self._mono, mono, mono)

    def step_wall(self, seconds: float) -> None:
        """Set all wall clocks on, or back; nothing that is planned moves."""
        self._stepped_seconds += seconds
        self._steps.append((self._mono, self._stepped_seconds))

    def mono_at(self, wall: float) -> float:
        """Return when it last was this time on the wall clocks."""
        until = self._mono
        for since, stepped_seconds in reversed(self._steps):
            mono = wall - self._wall_at_start - stepped_seconds
            if since - _ROUNDED_SECONDS <= mono <= until + _ROUNDED_SECONDS:
                return mono
            until = since
        raise ValueError(f"it never was {wall}")

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Have something happen in the world, ``seconds`` from now."""
        self._plan(self.world, self.world.context, self._mono + max(0.0, seconds), call, ())

    def run_until(self, mono: float) -> None:
        """Let everything happen that is planned up to a moment, and make it that moment."""
        outer, ready, timers = asyncio._get_running_loop(), self._ready, self._timers
        asyncio._set_running_loop(self._as_asyncio)
        try:
            while True:
                while ready:
                    self._run(ready.popleft())
                if not timers or timers[0][0] > mono:
                    break
                at, _, handle = heapq.heappop(timers)
                if not handle.is_cancelled:
                    self._mono = at
                    self._run(handle)
            self._mono = mono
        finally:
            self.current = self.world
            asyncio._set_running_loop(outer)

    def _run(self, handle: _Handle) -> None:
        process = handle.process
        if handle.is_cancelled or not process.is_alive:
            return
        if process.stopped_until > self._mono:
            heapq.heappush(self._timers, (process.stopped_until, next(self._numbers), handle))
            return
        self.current = process
        try:
            handle.context.run(handle.call, *handle.values)
        except Exception as error:
            if process is self.world:
                raise
            # As asyncio does: what one callback raises ends no others. The verdict of a world names it.
            self.call_exception_handler({"message": process.name, "exception": error})

    def _plan(
        self,
        process: Process,
        context: Context,
        at: float,
        call: Callable[..., object],
        values: tuple[Any, ...],
    ) -> _Handle:
        handle = _Handle(process, context, call, values)
        heapq.heappush(self._timers, (at, next(self._numbers), handle))
        return handle

    # What asyncio wants of a loop

    def time(self) -> float:
        return self._mono * self.current.rate

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> _Handle:
        process = self.current if context is None else context.get(_process, self.world)
        handle = _Handle(process, process.context if context is None else context, callback, args)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> _Handle:
        process = self.current if context is None else context.get(_process, self.world)
        at = self._mono + (delay / process.rate if delay > 0 else 0.0)
        return self._plan(process, process.context if context is None else context, at, callback, args)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> _Handle:
        process = self.current if context is None else context.get(_process, self.world)
        at = max(self._mono, when / process.rate)
        return self._plan(process, process.context if context is None else context, at, callback, args)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._as_asyncio)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        process = self.current if context is None else context.get(_process, self.world)
        if self._is_closed:
            coro.close()
            return cast("asyncio.Task[T]", self.create_future())
        task = asyncio.Task(
            coro, loop=self._as_asyncio, name=name or "task", context=context or process.context.copy()
        )
        process.keep(task)
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        """Do work as in a thread: at some instant before it is complete. An executor does one at a time."""
        process, future = self.current, self.create_future()
        begin = self._mono if executor is None else max(self._mono, process.busy_until.get(executor, 0.0))
        seconds = process.offloaded_seconds()
        if executor is not None:
            process.busy_until[executor] = begin + seconds
        outcome: list[tuple[T | None, BaseException | None]] = []

        def work() -> None:
            try:
                outcome.append((func(*args), None))
            except Exception as error:  # carried to whoever awaits it, whatever it is
                outcome.append((None, error))

        def complete() -> None:
            result, error = outcome[0]
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._plan(process, process.context, begin + seconds * self._chance.random(), work, ())
        self._plan(process, process.context, begin + seconds, complete, ())
        return cast("asyncio.Future[T]", future)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._is_closed:
            self.faults.append(f"{context.get('message')}: {type(error).__name__}: {error}")

    get_debug = staticmethod(bool)  # False, and fast: each future asks

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Let nothing happen any more, and let go of what is suspended; its ``finally`` does nothing here."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self._as_asyncio)
        try:
            for process in self.processes:
                process.is_alive = False
                while process.tasks:
                    _close(process.tasks.pop().get_coro())
        finally:
            asyncio._set_running_loop(outer)
        self.processes.clear()


def process_here() -> Process:
    """Return the process whose code runs now."""
    return _process.get()


def _close(suspended: Any) -> None:
    """Close a coroutine; one whose ``finally`` awaits something needs it again for each."""
    is_closed = False
    while not is_closed:
        try:
            suspended.close()
            is_closed = True
        except Exception as error:  # what a ``finally`` raises in a world that is over is nobody's concern
            is_closed = "ignored GeneratorExit" not in str(error)
