"""One attempt on its machine, as a state machine: inputs are methods, ``advance`` says what to do.

    WAITING --start due--> STARTING --began--> UP --told to end--> STOPPING
       ^                       |               |                      |
       +------- failed --------+---- ended, restarts -----------------+      any --final--> ENDED

An attempt never has two runs at once: only WAITING asks for a start, and it is left for WAITING
again only by an answer of the runtime. ENDED is final. Which attempts there are, and what the
master has heard of them, is the matter of ``core``.
"""

import msgspec

from borgish.borglet import words
from borgish.borglet.actions import Action, Kill, Probe, Signal, Start
from borgish.borglet.backoff import HOPELESS_TRIES, Backoff
from borgish.borglet.entry import LIVE, Purpose, Stage
from borgish.borglet.probe import ProbeState, first_probe
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import Health, Stop
from borgish.vocabulary import Ending, Phase, RestartPolicy
from borgish.wire.link import AttemptReport, AttemptSpec, Exit, attempt_key

KILL_AGAIN_SECONDS = 10.0


class Attempt(msgspec.Struct, kw_only=True):
    """One attempt, or one of the programs beside its main one (``program``; see ``group``).

    ``run`` is its latest run that began; a start asks for the one after it. ``due`` is when to start
    (WAITING) or to kill (STOPPING). ``spec`` is None while only a run of it was found: such an attempt
    is watched and can be stopped, and is decided on when its spec comes.
    """

    task: str
    attempt: int
    program: str = ""
    spec: AttemptSpec | None
    stage: Stage = Stage.WAITING
    held: bool = False  # whatever is due: programs of the run before are still there
    run: int = 0
    pid: int = 0
    started: Now | None = None  # of the live run
    first_started: Now | None = None  # of the first run
    due: Now | None = None
    end_by: Now | None = None  # whatever its grace, it is killed then; None: nothing bounds it
    grace_seconds: float = 0.0  # of the stop under way, once signalled
    signalled: bool = False  # the stopping run was sent its signal
    stray: bool = False  # a program runs although the attempt has ended
    purpose: Purpose = Purpose.NONE
    why: str = ""  # of the purpose
    backoff: Backoff = Backoff()
    hopeless: int = 0  # starts that could not work here, since the last run
    port_in_use: int = 0
    probe: ProbeState | None = None
    last_exit: Exit | None = None
    ended: Ending | None = None
    reason: str = ""
    note: str = ""  # the runtime's, of the live run

    @property
    def key(self) -> str:
        return attempt_key(self.task, self.attempt, self.program)

    @property
    def health(self) -> Health | None:
        return self.spec.health if self.spec else None

    @property
    def stop_rule(self) -> Stop:
        return self.spec.stop if self.spec else Stop()

    @property
    def held_back(self) -> bool:
        """Whether back-off holds its next start back."""
        is_due = self.spec is None or not self.backoff.delay_seconds(self.spec.restart)
        return self.stage is Stage.WAITING and not is_due

    # -- inputs ---------------------------------------------------------------------------------

    def learn(self, spec: AttemptSpec, now: Now) -> None:
        """Take the spec of an attempt of which only a run was known."""
        if self.spec is not None or self.ended:
            return
        self.spec = spec
        if self.stage is Stage.UP:
            self.probe = self._first_probe(now)
            self.reason = ""
        elif self.stage is Stage.WAITING and self.last_exit is not None:
            self._after_end(self.last_exit, 0.0, failed=not self.last_exit.ok, now=now)
        elif self.stage is Stage.WAITING:  # only what runs beside it was found
            self.due, self.reason = now, ""

    def order_stop(self, why: str, purpose: Purpose, now: Now, *, end_by: Now | None = None) -> None:
        """End it for a purpose: at once when nothing runs, else by its signal and grace.

        ``end_by``: it is killed then, should its grace be longer; of several the soonest counts.
        """
        if end_by is not None:
            self._bound(end_by)  # also when it has ended: what runs beside it may have not
        if self.ended or purpose <= self.purpose:
            return
        self.purpose, self.why = purpose, why
        if self.stage is Stage.WAITING:
            self._after_stop(now)
            return
        self.reason = why
        if self.stage is Stage.UP:
            self._begin_stopping()

    def ran(self, state: RunState, now: Now) -> None:
        """Take in what the runtime says of a run. What is old news changes nothing."""
        if self.ended:
            self.stray = state.exit is None
            return
        if state.run < self.run or (state.run == self.run and self.stage not in LIVE):
            return
        if state.run > self.run:
            self._began(state, now)
        self.pid, self.note = state.pid, state.note
        if state.exit is not None:
            self._exited(state.exit, now)

    def found(self, state: RunState | None, now: Now) -> None:
        """Take in what the runtime found of it when the borglet started; None when it knows nothing."""
        if state is not None and (state.run >= self.run or self.stage not in LIVE):
            self.ran(state, now)
        elif self.stage in LIVE:
            self._exited(Exit(at=now.wall), now)
        if self.stage is Stage.WAITING and self.purpose:  # its start was not answered, and did not happen
            if self.purpose > Purpose.RESTART:
                self._after_stop(now)
            else:
                self.purpose, self.why = Purpose.NONE, ""

    def start_failed(self, run: int, text: str, *, permanent: bool, port: int, now: Now) -> None:
        """Take in that a start did not work. ``port``: one that a foreign program holds."""
        if self.stage is not Stage.STARTING or run != self.run + 1 or self.spec is None:
            return
        self.stage = Stage.WAITING
        self.port_in_use = port
        text = text.rstrip(".")  # more is said after it
        self.last_exit = Exit(reason=f"cannot start: {text}", at=now.wall)
        if self.purpose > Purpose.RESTART:
            self._after_stop(now)
            return
        self.purpose, self.why = Purpose.NONE, ""
        if port:
            self._wait(words.tries_again(text, self._next_delay(0.0)), now)
        else:
            self._start_failure(text, now, permanent=permanent)

    def probed(self, run: int, text: str, now: Now, *, ok: bool) -> None:
        """Take in a probe's answer; that of another run or of a stopping one is void."""
        if self.stage is not Stage.UP or run != self.run or not self.probe or not self.health:
            return
        if ok:
            self.probe = self.probe.hit(self.health, now)
            self.reason = ""
            return
        self.probe = self.probe.miss(self.health, text, now)
        self.reason = words.missed_probe(text, self.probe.misses, self.health)
        if self.probe.unhealthy(self.health):
            self.order_stop(words.unhealthy(text, self.health), Purpose.RESTART, now)

    # -- time -----------------------------------------------------------------------------------

    def advance(self, now: Now) -> list[Action]:
        """Do what is due and return what the runtime has to do for it."""
        limit = self.runtime_limit()
        if limit is not None and limit <= now.mono and self.spec:
            self.order_stop(words.too_long(self.spec.max_runtime_seconds), Purpose.FAIL, now)
        if self.stage is Stage.WAITING:
            return self._start(now)
        if self.stage is Stage.UP:
            return self._ask_probe(now)
        if self.stage is Stage.STOPPING:
            return self._press(now)
        if self.stray:
            self.stray = False
            return [Kill(self.key)]
        return []

    def wake_at(self) -> float | None:
        """Return when (monotonic) ``advance`` is due next; None when nothing is timed."""
        times = [self.runtime_limit()]
        is_timed = self.stage is Stage.STOPPING or (self.stage is Stage.WAITING and not self.held)
        if is_timed and self.due:
            times.append(self.due.mono)
        if self.stage is Stage.UP and self.probe and not self.probe.asked:
            times.append(self.probe.due)
        return min((t for t in times if t is not None), default=None)

    def runtime_limit(self) -> float | None:
        """Return when it will have run for too long (monotonic); None when it has no such limit."""
        if not self.spec or not self.spec.max_runtime_seconds or not self.first_started:
            return None
        if self.ended or self.purpose >= Purpose.FAIL:
            return None
        return self.first_started.mono + self.spec.max_runtime_seconds

    # -- what is said of it -----------------------------------------------------------------------

    def phase(self) -> Phase:
        """Return what is seen of it."""
        if self.ended or self.purpose >= Purpose.FAIL:
            return Phase.STOPPING
        if self.stage is Stage.STOPPING:
            return Phase.STOPPING if self.program else Phase.UNHEALTHY
        if self.stage is not Stage.UP:
            return Phase.STARTING
        return Phase.HEALTHY if self.probe and self.probe.answered else Phase.UP

    def report(self) -> AttemptReport:
        """Return what the master is told."""
        return AttemptReport(
            task=self.task,
            attempt=self.attempt,
            phase=self.phase(),
            needs=self.spec.resources if self.spec else Resources(),
            ports=self.spec.ports if self.spec else {},
            devices=self.spec.devices if self.spec else (),
            alloc=self.spec.alloc if self.spec else "",
            pid=self.pid if self.stage in LIVE else 0,
            started_at=self.started.wall if self.started and self.stage in LIVE else 0.0,
            restarts=max(0, self.run - 1),
            ended=self.ended,
            last_exit=self.last_exit,
            reason=self.reason or self.note,
            port_in_use=self.port_in_use,
            early_ends=self.backoff.ends,
            held_back=self.held_back,
        )

    # -- steps of the machine ---------------------------------------------------------------------

    def _start(self, now: Now) -> list[Action]:
        if self.spec is None or self.held or self.due is None or self.due.mono > now.mono:
            return []
        self.stage, self.due = Stage.STARTING, None
        return [Start(self.spec, self.run + 1)]

    def _ask_probe(self, now: Now) -> list[Action]:
        if not self.health or not self.probe or self.probe.asked or self.probe.due > now.mono:
            return []
        self.probe = self.probe.ask()
        port = self.spec.ports.get(self.health.port, 0) if self.spec else 0
        return [Probe(self.key, self.run, self.health, port)]

    def _press(self, now: Now) -> list[Action]:
        todo: list[Action] = []
        if not self.signalled:
            self.signalled, self.grace_seconds = True, self._grace_seconds(now)
            self.due = self.due or now.later(self.grace_seconds)
            if self.purpose > Purpose.RESTART and self.spec and self.spec.programs:
                self.end_by = self.end_by or self.due  # for what runs beside it, too
            todo.append(Signal(self.key, self.stop_rule.signal))
        if self.due is not None and self.due.mono <= now.mono:
            self.due = now.later(KILL_AGAIN_SECONDS)
            self.reason = words.forced(self.why, self.stop_rule.signal, self.grace_seconds)
            todo.append(Kill(self.key))
        return todo

    def _grace_seconds(self, now: Now) -> float:
        own = self.stop_rule.grace_seconds
        return own if self.end_by is None else max(0.0, min(own, self.end_by.mono - now.mono))

    def _bound(self, end_by: Now) -> None:
        """Let it be killed by then. Of a stop under way what is left of its grace becomes less."""
        if self.end_by is not None and self.end_by.mono <= end_by.mono:
            return
        self.end_by = end_by
        if self.stage is Stage.STOPPING and self.due is not None and self.due.mono > end_by.mono:
            self.due = end_by

    def _begin_stopping(self) -> None:
        self.stage, self.due, self.signalled = Stage.STOPPING, None, False

    def _began(self, state: RunState, now: Now) -> None:
        age = now.wall - state.started_at if state.started_at else 0.0
        self.run, self.started = state.run, now.later(-max(0.0, age))
        self.first_started = self.first_started or self.started
        self.stage, self.due, self.reason = Stage.UP, None, ""
        self.hopeless = self.port_in_use = 0
        self.probe = self._first_probe(now)
        if self.purpose:
            self.reason = self.why
            self._begin_stopping()

    def _first_probe(self, now: Now) -> ProbeState | None:
        return first_probe(now) if self.health else None

    def _exited(self, exit_: Exit, now: Now) -> None:
        ran_seconds = max(0.0, (exit_.at or now.wall) - self.started.wall) if self.started else 0.0
        unhealthy = self.purpose is Purpose.RESTART
        self.last_exit = msgspec.structs.replace(exit_, reason=self._exit_reason(exit_))
        self.stage, self.pid, self.started, self.probe, self.due = Stage.WAITING, 0, None, None, None
        if self.purpose > Purpose.RESTART:
            self._after_stop(now)
            return
        self.purpose, self.why = Purpose.NONE, ""
        self._after_end(self.last_exit, ran_seconds, failed=unhealthy or not exit_.ok, now=now)

    def _exit_reason(self, exit_: Exit) -> str:
        if self.purpose in (Purpose.RESTART, Purpose.FAIL):
            return self.why
        unknown = exit_.code is None and exit_.signal is None and not exit_.oom
        return exit_.reason or ("exit unknown" if unknown else "")

    def _after_stop(self, now: Now) -> None:
        """Nothing runs any more of what was to be stopped."""
        ending = Ending.KILL if self.purpose is Purpose.KILL else Ending.FAIL
        self._end(ending, self.reason if self.signalled and self.reason else self.why, now)

    def _after_end(self, exit_: Exit, ran_seconds: float, *, failed: bool, now: Now) -> None:
        """Its program ended by itself, or as unhealthy: end, or wait for the next start."""
        text = words.exit_text(exit_, self.spec)
        if self.spec is None:
            self.reason = f"{text}; waits for its assignment"
            return
        policy = self.spec.restart.policy
        if policy is RestartPolicy.NEVER or (policy is RestartPolicy.ON_FAILURE and not failed):
            self._end(Ending.FAIL if failed else Ending.FINISH, text, now)
            return
        if failed:
            self.backoff = self.backoff.failed(self.spec.restart, now)
        if failed and self.backoff.exhausted(self.spec.restart):
            self._end(Ending.FAIL, words.exhausted(text, self.spec.restart), now)
            return
        self._wait(words.restarts(text, self._next_delay(ran_seconds)), now)

    def _start_failure(self, text: str, now: Now, *, permanent: bool) -> None:
        assert self.spec is not None
        self.hopeless += permanent
        self.backoff = self.backoff.failed(self.spec.restart, now)
        if self.backoff.exhausted(self.spec.restart):
            why = words.exhausted(f"cannot start: {text}", self.spec.restart)
            self._end(Ending.FAIL, why, now)
        elif self.hopeless >= HOPELESS_TRIES and not self.program:
            self._end(Ending.FAIL, f"cannot start: {text}; tried {self.hopeless} times", now)
        elif permanent and not self.program:
            self._next_delay(0.0)
            self._wait(words.cannot_start(text, HOPELESS_TRIES - self.hopeless), now)
        else:
            self._wait(words.tries_again(text, self._next_delay(0.0)), now)

    def _next_delay(self, ran_seconds: float) -> float:
        """Count one more end, and return how long to wait after it."""
        assert self.spec is not None
        self.backoff = self.backoff.ended(ran_seconds)
        return self.backoff.delay_seconds(self.spec.restart)

    def _wait(self, reason: str, now: Now) -> None:
        assert self.spec is not None
        self.stage, self.reason, self.signalled = Stage.WAITING, reason, False
        self.due = now.later(self.backoff.delay_seconds(self.spec.restart))

    def _end(self, ending: Ending, reason: str, now: Now) -> None:
        self.stage, self.ended, self.reason = Stage.ENDED, ending, reason
        self.due, self.started, self.pid, self.probe, self.note = None, None, 0, None, ""
        self.port_in_use = 0
        if self.last_exit is None and ending is not Ending.KILL:
            self.last_exit = Exit(reason=reason, at=now.wall)
