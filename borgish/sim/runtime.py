"""Programs that exist only on a virtual clock. They outlive their borglet, as real ones do.

What a program does its job's labels say: ``sim: service`` runs until it crashes or is stopped,
``sim: batch`` ends by itself, ``sim: stubborn`` is a service that ignores TERM, ``sim: crashing`` fails soon
after each start. What runs beside a main program is a service in any case.
"""

from collections.abc import Callable

import msgspec

from borgish.borglet.runtimes.base import RunState
from borgish.sim.clock import VirtualClock
from borgish.sim.faults import Fate
from borgish.wire.link import AttemptSpec, Exit

START_SECONDS = 0.002
STOP_SECONDS = 0.02
KILLED, TERMINATED = 9, 15


class Program(msgspec.Struct):
    """One run, as it truly is."""

    spec: AttemptSpec
    state: RunState
    is_signalled: bool = False  # it was asked to end, or killed

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.state.exit is None


class SimRuntime:
    """All programs of one machine. ``changed`` is who wants to hear that a run ended; None when nobody."""

    def __init__(self, clock: VirtualClock, fate: Fate) -> None:
        self.programs: dict[str, Program] = {}  # the latest run of each attempt
        self.results: dict[tuple[str, int], tuple[float, int]] = {}
        """By (task, attempt): when its main program last ended by itself, unasked, and its exit code."""
        self.changed: Callable[[str], None] | None = None
        self._clock = clock
        self._fate = fate
        self._pid = 1000

    def start(self, spec: AttemptSpec, run: int) -> RunState:
        """Start a run; the same (key, run) again is the same run."""
        there = self.programs.get(spec.key)
        if there is not None and there.state.run >= run:
            return there.state
        assert there is None or not there.is_alive, f"{spec.key} runs twice"
        self._pid += 1
        state = RunState(spec.key, run, self._pid, self._clock.now().wall)
        self.programs[spec.key] = Program(spec, state)
        self._plan_end(spec, run)
        return state

    def _plan_end(self, spec: AttemptSpec, run: int) -> None:
        chance = self._fate.of(spec.key, run)
        if spec.labels.get("sim") == "batch" and not spec.program:
            lives_seconds, code = chance.uniform(0.5, 30), int(chance.random() < 0.2)
        elif spec.labels.get("sim") == "crashing" and not spec.program:
            lives_seconds, code = chance.uniform(0.2, 2), 3
        elif self._fate.faults.task_lives_seconds:
            lives_seconds, code = chance.expovariate(1 / self._fate.faults.task_lives_seconds), 1
        else:
            return
        self._clock.after(lives_seconds, lambda: self._end_by_itself(spec, run, code))

    def _end_by_itself(self, spec: AttemptSpec, run: int, code: int) -> None:
        calm = not self._fate.faults.task_lives_seconds
        if not calm or (spec.labels.get("sim") in ("batch", "crashing") and not spec.program):
            program = self.programs.get(spec.key)
            unasked = program is not None and program.is_alive and not program.is_signalled
            if unasked and program is not None and program.state.run == run and not spec.program:
                self.results[spec.task, spec.attempt] = self._clock.now().mono, code
            self._end(spec.key, run, Exit(code=code, at=self._clock.now().wall))

    def _end(self, key: str, run: int, exit_: Exit) -> None:
        program = self.programs.get(key)
        if program is None or not program.is_alive or program.state.run != run:
            return
        program.state = msgspec.structs.replace(program.state, exit=exit_)
        if self.changed is not None:
            self.changed(key)

    def signal(self, key: str) -> None:
        """Ask the run to end."""
        program = self.programs.get(key)
        if program is not None and program.spec.labels.get("sim") != "stubborn":
            self._plan_stop(program, TERMINATED)

    def kill(self, key: str) -> None:
        """End the run."""
        program = self.programs.get(key)
        if program is not None:
            self._plan_stop(program, KILLED)

    def _plan_stop(self, program: Program, signal: int) -> None:
        key, run = program.state.key, program.state.run
        program.is_signalled = True
        self._clock.after(
            STOP_SECONDS, lambda: self._end(key, run, Exit(signal=signal, at=self._clock.now().wall))
        )

    def forget(self, key: str) -> None:
        """Let go of an ended attempt."""
        program = self.programs.get(key)
        assert program is None or not program.is_alive, f"{key} is forgotten and runs"
        self.programs.pop(key, None)

    def is_alive(self, key: str) -> bool:
        """Whether a program runs."""
        program = self.programs.get(key)
        return program is not None and program.is_alive

    def alive(self) -> list[str]:
        """Return the keys of all runs that are alive."""
        return [key for key, program in self.programs.items() if program.is_alive]
