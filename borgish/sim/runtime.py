"""Programs that exist only on a virtual clock, and the runtime by which a borglet has them.

Programs outlive their borglet, as real ones do. What one does its job's labels say: ``sim: service`` runs
until it crashes or is stopped, ``sim: batch`` ends by itself, with the code of ``sim-exit`` if it has that;
``sim: stubborn`` is a service that ignores TERM, ``sim: crashing`` fails soon after each start, ``sim: sick``
fails its health checks some time after each start. One that is well answers on each of its ports as a web
server does. What runs beside a main program is a service in any case.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from errno import ECONNREFUSED

import msgspec

from borgish.borglet.runtimes.base import Input, RunState, StartFailed, Write
from borgish.errors import NotFound
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import VirtualLoop, process_here
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Exit, LogWanted, Terminal, Usage, main_key

START_SECONDS = 0.002
STOP_SECONDS = 0.02
FORGET_SECONDS = 0.005
SICK_AFTER_SECONDS = 5.0
LOOK_SECONDS = 0.4  # after the end of a lease
ANSWER = b"HTTP/1.1 200 OK\r\n\r\n"
KILLED, TERMINATED = 9, 15
FAILED_CODES = (1, 1, 3, 42, 75)
"""With which a program that runs to completion may fail; jobs have rules for some of them (``workload``)."""


class Watcher:
    """Is called with every start and every stop, before it is done."""

    def starting(self, machine: str, spec: AttemptSpec) -> None:
        """A program is about to be started."""

    def stopping(self, machine: str, key: str) -> None:
        """A program is about to be ended."""


class Program(msgspec.Struct):
    """One run, as it truly is."""

    spec: AttemptSpec
    state: RunState
    began: float  # monotonic, as is ``ended``
    ended: float = 0.0
    is_signalled: bool = False  # it was asked to end, or killed
    has_lapsed: bool = False  # its lease was over

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.state.exit is None

    @property
    def has_true_times(self) -> bool:
        """Whether the wall clocks show how long its run was."""
        ended = self.state.exit
        return ended is not None and abs(ended.at - self.state.started_at - (self.ended - self.began)) < 0.1


class Programs:
    """All programs of one machine. ``changed`` is called when a run ended, by its runtime, as
    long as a borglet listens."""

    def __init__(self, loop: VirtualLoop, injector: FaultInjector, machine: str) -> None:
        self.by_key: dict[str, Program] = {}  # the latest run of each attempt
        self.lives: dict[str, list[Program]] = {}  # all runs of each attempt, in order
        self.forgotten: set[str] = set()  # attempts that were let go of, for good
        self.results: dict[tuple[str, int], tuple[float, int]] = {}
        """By (task, attempt): when its main program last ended by itself, unasked, and its exit code."""
        self.changed: dict[Runtime, Callable[[str], None]] = {}
        self.are_lasting = False  # nobody knows when they would end by themselves, so they do not
        self.foreign_ports: frozenset[int] = frozenset()  # on which programs listen that are nobody's tasks
        self.is_hung = False  # whoever asks for a start or a stop gets no answer
        self.leases: dict[str, float] = {}  # by key: until when, on the machine's clock
        self.clock_rate = 1.0  # of that
        self.unkillable: set[str] = set()  # keys of runs that the kernel does not end
        self._loop = loop
        self._injector = injector
        self._machine = machine
        self._pid = 1000

    def start(self, spec: AttemptSpec, run: int) -> RunState:
        """Start a run; the same (key, run) again is the same run."""
        there = self.by_key.get(spec.key)
        if there is not None and there.state.run >= run:
            return there.state
        assert there is None or not there.is_alive, f"{spec.key} runs twice"
        self._pid += 1
        state = RunState(spec.key, run, self._pid, self._loop.now().wall)
        program = self.by_key[spec.key] = Program(spec, state, self._loop.now().mono)
        self.lives.setdefault(spec.key, []).append(program)
        if not self.are_lasting:
            self._plan_end(spec, run)
        if spec.lease_seconds:
            self._watch_lease(spec, run)
        return state

    def has_lease(self, key: str) -> bool:
        """Return whether an attempt may run by its lease."""
        return self._loop.now().mono * self.clock_rate < self.leases.get(key, 0.0)

    def _watch_lease(self, spec: AttemptSpec, run: int) -> None:
        """End a run when its lease is over, as its shim does."""
        program = self.by_key.get(spec.key)
        if program is None or not program.is_alive or program.state.run != run:
            return
        left_seconds = self.leases.get(spec.key, 0.0) / self.clock_rate - self._loop.now().mono
        if left_seconds > 0:
            self._loop.after(left_seconds + LOOK_SECONDS, lambda: self._watch_lease(spec, run))
            return
        program.has_lapsed = True
        self.stop(spec.key, TERMINATED)
        grace_seconds = spec.stop.grace_seconds / self.clock_rate
        self._loop.after(grace_seconds, lambda: self._kill_run(spec.key, run))

    def _kill_run(self, key: str, run: int) -> None:
        program = self.by_key.get(key)
        if program is not None and program.is_alive and program.state.run == run:
            self.stop(key, KILLED)

    def _plan_end(self, spec: AttemptSpec, run: int) -> None:
        chance = self._injector.of(spec.key, run)
        if spec.labels.get("sim") == "batch" and not spec.program:
            lives_seconds = chance.uniform(0.5, 30)
            code = chance.choice(FAILED_CODES) if chance.random() < 0.2 else 0
            code = int(spec.labels.get("sim-exit", code))
        elif self._crashes(spec):
            lives_seconds, code = chance.uniform(0.2, 2), 3
        elif self._injector.faults.task_lives_seconds:
            lives_seconds, code = chance.expovariate(1 / self._injector.faults.task_lives_seconds), 1
        else:
            return
        self._loop.after(lives_seconds, lambda: self._end_by_itself(spec, run, code))

    def _crashes(self, spec: AttemptSpec) -> bool:
        """Whether a program ends soon each time it is started; with ``sim-on``, on one machine only."""
        crashes = spec.labels.get("sim") == "crashing" and not spec.program
        return crashes and spec.labels.get("sim-on", self._machine) == self._machine

    def _end_by_itself(self, spec: AttemptSpec, run: int, code: int) -> None:
        calm = not self._injector.faults.task_lives_seconds
        if not calm or (spec.labels.get("sim") == "batch" and not spec.program) or self._crashes(spec):
            program = self.by_key.get(spec.key)
            unasked = program is not None and program.is_alive and not program.is_signalled
            if unasked and program is not None and program.state.run == run and not spec.program:
                self.results[spec.task, spec.attempt] = self._loop.now().mono, code
            self._end(spec.key, run, Exit(code=code, at=self._loop.now().wall))

    def _end(self, key: str, run: int, exit_: Exit) -> None:
        program = self.by_key.get(key)
        if program is None or not program.is_alive or program.state.run != run:
            return
        exit_ = msgspec.structs.replace(exit_, lapsed=program.has_lapsed)
        program.state = msgspec.structs.replace(program.state, exit=exit_)
        program.ended = self._loop.now().mono
        if program.spec.runtime in self.changed:
            self.changed[program.spec.runtime](key)

    def stop(self, key: str, signal: int) -> None:
        """Ask a run to end, or end it."""
        program = self.by_key.get(key)
        if program is None or (signal != KILLED and program.spec.labels.get("sim") == "stubborn"):
            return
        if key in self.unkillable:
            return
        program.is_signalled = True
        run = program.state.run
        self._loop.after(
            STOP_SECONDS, lambda: self._end(key, run, Exit(signal=signal, at=self._loop.now().wall))
        )

    def forget(self, key: str) -> None:
        """Let go of an ended attempt."""
        program = self.by_key.get(key)
        assert program is None or not program.is_alive, f"{key} is forgotten and runs"
        self.by_key.pop(key, None)
        self.leases.pop(key, None)
        self.forgotten.add(key)

    def vanish(self) -> None:
        """Be gone, all of them, without a word of how they ended."""
        for program in self.by_key.values():
            program.ended = program.ended or self._loop.now().mono
        self.by_key.clear()

    def ran(self, key: str, since: float, until: float) -> bool:
        """Return whether one run of an attempt lasted all of that time, as it truly was."""
        return any(
            life.began <= since and (not life.ended or life.ended > until) for life in self.lives.get(key, ())
        )

    def had_begun(self, key: str, at: float) -> bool:
        """Return whether an attempt had been started by then."""
        return any(life.began <= at for life in self.lives.get(key, ()))

    def is_alive(self, key: str) -> bool:
        """Whether a program runs."""
        program = self.by_key.get(key)
        return program is not None and program.is_alive

    def is_sick(self, key: str) -> bool:
        """Whether a program fails its health checks now."""
        program = self.by_key[key]
        runs_seconds = self._loop.now().wall - program.state.started_at
        return program.spec.labels.get("sim") == "sick" and runs_seconds > SICK_AFTER_SECONDS

    async def connect(
        self, port: int, line_bytes_max: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to what listens on a port (``borglet.ports.Connect``). Raises OSError."""
        listening = (key for key in self.alive() if port in self.by_key[key].spec.ports.values())
        if all(self.is_sick(key) for key in listening):
            raise ConnectionRefusedError(ECONNREFUSED, os.strerror(ECONNREFUSED))
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(line_bytes_max, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        return reader, asyncio.StreamWriter(_Answering(reader), protocol, reader, loop)

    def alive(self) -> list[str]:
        """Return the keys of all runs that are alive."""
        return [key for key, program in self.by_key.items() if program.is_alive]


class _Answering(asyncio.Transport):
    """The way to a program that gives the same answer to whatever is sent, and nothing after that."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
        if not self._is_closing:
            self._reader.feed_data(ANSWER)
            self.close()

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._reader.feed_eof()

    def is_closing(self) -> bool:
        return self._is_closing


class SimRuntime:
    """The programs of a machine as one run of its borglet has them (``TaskRuntime``), those of one kind."""

    def __init__(
        self,
        machine: str,
        programs: Programs,
        injector: FaultInjector,
        watcher: Watcher,
        kind: Runtime = Runtime.FAKE,
    ) -> None:
        self.kind = kind
        self._machine = machine
        self._programs = programs
        self._injector = injector
        self._watcher = watcher

    async def open(self, changed: Callable[[str], None]) -> list[RunState]:
        borglet = process_here()
        self._programs.changed[self.kind] = lambda key: borglet.call(changed, key)
        return [each.state for each in self._programs.by_key.values() if each.spec.runtime is self.kind]

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        await self._answers()
        await asyncio.sleep(START_SECONDS)
        if self._injector.happens(self._injector.faults.start_fails):
            raise StartFailed("the simulator refused it")
        if spec.program and not self._programs.is_alive(main_key(spec.key)):
            raise StartFailed("its main program does not run")
        for port in spec.ports.values():
            if port in self._programs.foreign_ports:
                raise StartFailed(f"port {port} is in use", port=port)
        if spec.lease_seconds and not self._programs.has_lease(spec.key):
            raise StartFailed("its lease is over")
        self._watcher.starting(self._machine, spec)
        return self._programs.start(spec, run)

    async def _answers(self) -> None:
        if self._programs.is_hung:
            await asyncio.Future()

    def renew(self, key: str, until: float) -> None:
        self._programs.leases[key] = until

    def look(self, key: str) -> RunState | None:
        program = self._programs.by_key.get(key)
        return program.state if program and program.spec.runtime is self.kind else None

    async def signal(self, key: str, signal: str) -> None:
        del signal  # all that are not KILL are the same here
        await self._answers()
        self._watcher.stopping(self._machine, key)
        self._programs.stop(key, TERMINATED)

    async def kill(self, key: str) -> None:
        await self._answers()
        self._watcher.stopping(self._machine, key)
        self._programs.stop(key, KILLED)

    async def forget(self, key: str, keep_seconds: float = 0.0) -> None:  # noqa: ARG002 - it has no output
        self._programs.forget(key)
        await asyncio.sleep(FORGET_SECONDS)

    async def sample(self) -> list[Usage]:
        return []

    async def logs(self, key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        del wanted
        if key not in self._programs.by_key:
            raise NotFound(f"nothing is known of {key}")
        yield b""

    def removed(self, key: str) -> str:
        del key
        return ""

    async def exec(
        self,
        key: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        stdin: Input | None = None,
        write: Write | None = None,
        terminal: Terminal | None = None,
    ) -> tuple[bytes, int, bool]:
        del run, timeout_seconds, stdin, write, terminal
        await self._answers()
        return b"", int(self._programs.is_sick(key)), False

    def images(self) -> dict[str, str]:
        return {}

    def measures(self) -> dict[str, str]:
        return {}

    def trouble(self) -> str:
        return ""

    async def close(self) -> None:
        self._programs.changed.pop(self.kind, None)
