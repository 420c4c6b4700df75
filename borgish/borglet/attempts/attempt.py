"""One attempt on its machine, as a state machine: inputs are methods, ``advance`` returns what to do.

``transitions`` has the table of its stages, purposes and events; ``fire`` here executes it and is all that
changes a stage. Which event an input is, and what a transition does beside that, is written here. A program
that is stopped gets its signal (SIGTERM unless its job names another), and is killed when the grace period is
over. Where the master's order says so it goes on for a while before its signal, so that its clients can leave
it first. Which attempts there are, and what was reported of them to the master, is the matter of ``core``.
"""

from collections.abc import Callable
from math import inf

import msgspec

from borgish.borglet.actions import Action, Kill, Probe, Signal, Start
from borgish.borglet.attempts import messages
from borgish.borglet.attempts.failures import (
    PERMANENT_FAILURES_MAX,
    Backoff,
    ProbeState,
    first_probe,
    what_follows,
)
from borgish.borglet.attempts.transitions import LIVE, TABLE, TO_STOP, Do, Event, Purpose, Stage
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import Health, Stop
from borgish.vocabulary import Ending, OnExit, Phase, RestartPolicy
from borgish.wire.link import AttemptReport, AttemptSpec, Exit, attempt_key

KILL_AGAIN_SECONDS = 10.0


class Cause(msgspec.Struct, frozen=True):
    """What an event brings along. ``backoff`` and ``permanent_failures`` are the counts after it."""

    text: str = ""  # for people: how it ended, or why it is to end
    backoff: Backoff = Backoff()
    permanent_failures: int = 0
    run: RunState | None = None
    deregister_seconds: float = 0.0  # of an order to stop


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
    stage: Stage = Stage.WAITING  # changed by ``fire`` only
    waits_for_group: bool = False  # whatever is due: a sidecar for its main program, that for old sidecars
    leased_until: float = 0.0  # on the clock ``Now.boot``; counts where its spec wants a lease
    waits_for_lease: bool = False  # whatever is due
    lacks: str = ""  # which secret it waits for, whatever is due
    run: int = 0
    pid: int = 0
    started: Now | None = None  # of the live run
    first_started: Now | None = None  # of the first run
    due: Now | None = None
    end_by: Now | None = None  # whatever its grace, it is killed then; None: nothing bounds it
    asked: Now | None = None  # to stop, while it was up
    deregister_seconds: float = 0.0  # from then on it goes on for so long; 0: it does not, or did
    grace_seconds: float = 0.0  # of the stop under way, once signalled
    signalled: bool = False  # the stopping run was sent its signal
    kills: int = 0  # of the stopping run
    runs_after_end: bool = False  # a program runs although the attempt has ended
    purpose: Purpose = Purpose.NONE  # changed by ``fire`` only
    why: str = ""  # of the purpose
    backoff: Backoff = Backoff()
    permanent_failures: int = 0  # starts in a row that could not work here; a run ends the row
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
    def unkillable(self) -> bool:
        """Whether its program goes on though it was killed long enough ago."""
        return self.stage is Stage.STOPPING and self.kills > 1

    @property
    def held_back(self) -> bool:
        """Whether back-off holds its next start back."""
        is_due = self.spec is None or not self.backoff.delay_seconds(self.spec.restart)
        return self.stage is Stage.WAITING and not is_due

    @property
    def gave_up(self) -> bool:
        """Whether it failed for the last time that its policy and limits allow, rather than as asked."""
        return self.ended is Ending.FAIL and self.purpose is Purpose.NONE

    def fire(self, event: Event, now: Now, cause: Cause = Cause()) -> list[Action]:  # noqa: B008 - frozen
        """Move as the table has it and return what the runtime has to do; without a row nothing changes."""
        row = TABLE.get((self.stage, self.purpose, event))
        if row is None:
            return []
        self.stage, self.purpose = row.stage, row.purpose
        return EFFECTS[row.do](self, now, cause) or []

    # -- inputs: which event is it? -------------------------------------------------------------

    def learn(self, spec: AttemptSpec, now: Now) -> None:
        """Take the spec of an attempt of which only a run was known, or what was changed of it in place."""
        if self.ended:
            return
        if (there := self.spec) is not None:
            new = spec.restart, spec.stop, spec.labels, spec.on_exit
            if (there.restart, there.stop, there.labels, there.on_exit) != new:
                self.spec = msgspec.structs.replace(
                    there, restart=spec.restart, stop=spec.stop, labels=spec.labels, on_exit=spec.on_exit
                )
            return
        self.spec = spec
        if self.stage is Stage.WAITING and self.last_exit is not None:
            rule = what_follows(spec.on_exit, self.last_exit)
            self._judge_exit(self.last_exit, 0.0, now, failed=not self.last_exit.ok, rule=rule)
        else:
            self.fire(Event.ASSIGNED, now)

    def stop(
        self,
        why: str,
        purpose: Purpose,
        now: Now,
        *,
        end_by: Now | None = None,
        deregister_seconds: float = 0.0,
    ) -> None:
        """End it for a purpose: at once when nothing runs, else by its signal and grace.

        ``end_by``: it is killed then, should its grace be longer; of several the soonest counts.
        ``deregister_seconds``: what is up gets its signal only so long after the first order; of several the
        least counts.
        """
        if end_by is not None:
            self._bound(end_by)  # also when it has ended: what runs beside it may have not
        self.deregister_seconds = min(self.deregister_seconds, deregister_seconds)
        self.fire(TO_STOP[purpose], now, Cause(why, deregister_seconds=deregister_seconds))

    def renew(self, stamp: float) -> bool:
        """Take a contact with the master, of then on the clock ``Now.boot``; return whether its lease holds
        longer by it."""
        until = stamp + self.spec.lease_seconds if self.spec else 0.0
        if self.ended or until <= self.leased_until:
            return False
        self.leased_until, self.waits_for_lease = until, False
        return True

    def ran(self, state: RunState, now: Now) -> None:
        """Handle what the runtime reports of a run. What is old news changes nothing."""
        if self.ended:
            self.fire(Event.BEGAN if state.exit is None else Event.EXITED, now)
            return
        if state.run < self.run or (state.run == self.run and self.stage not in LIVE):
            return
        if state.run > self.run:
            self.fire(Event.BEGAN, now, Cause(run=state))
        self.pid, self.note = state.pid, state.note
        if state.exit is not None:
            self._exited(state.exit, now)

    def found(self, state: RunState | None, now: Now) -> None:
        """Handle what the runtime found of it when the borglet started; None when it knows nothing."""
        if state is not None and (state.run >= self.run or self.stage not in LIVE):
            self.ran(state, now)
        elif self.stage in LIVE:
            self._exited(Exit(at=now.wall), now)
        self.fire(Event.NOT_STARTED, now)

    def start_failed(self, run: int, text: str, *, permanent: bool, port: int, now: Now) -> None:
        """Handle a start that did not work. ``port``: one that a foreign program holds."""
        if self.stage is not Stage.STARTING or run != self.run + 1 or self.spec is None:
            return
        self.port_in_use = port
        text = text.rstrip(".")  # more follows it
        self.last_exit = Exit(reason=f"cannot start: {text}", at=now.wall)
        restart, backoff, failures = self.spec.restart, self.backoff, self.permanent_failures
        if not port:
            backoff = backoff.failed(restart, now)
            failures += permanent
        if not port and backoff.exhausted(restart, self.spec.failures):
            event, text = Event.FAILED, messages.exhausted(f"cannot start: {text}", restart)
        elif not port and failures >= PERMANENT_FAILURES_MAX and not self.program:
            event, text = Event.FAILED, f"cannot start: {text}; tried {failures} times"
        else:
            backoff = backoff.ended(0.0)
            event = Event.START_FAILED
            if permanent and not port and not self.program:
                text = messages.cannot_start(text, PERMANENT_FAILURES_MAX - failures)
            else:
                text = messages.tries_again(text, backoff.delay_seconds(restart))
        self.fire(event, now, Cause(text, backoff, failures))

    def probed(self, run: int, text: str, now: Now, *, ok: bool) -> None:
        """Handle a probe's answer; that of another run or of a stopping one is void."""
        if self.stage is not Stage.UP or run != self.run or not self.probe or not self.health:
            return
        if ok:
            self.probe = self.probe.hit(self.health, now)
            self.reason = ""
            return
        self.probe = self.probe.miss(self.health, text, now)
        self.reason = messages.missed_probe(text, self.probe.misses, self.health)
        if self.probe.unhealthy(self.health):
            self.stop(messages.unhealthy(text, self.health), Purpose.RESTART, now)

    # -- time -----------------------------------------------------------------------------------

    def advance(self, now: Now) -> list[Action]:
        """Do what is due and return what the runtime has to do for it."""
        limit = self.runtime_limit()
        if limit is not None and limit <= now.mono and self.spec:
            self.stop(messages.too_long(self.spec.max_runtime_seconds), Purpose.FAIL, now)
        is_due = self.due is not None and self.due.mono <= now.mono
        match self.stage:
            case Stage.WAITING if is_due and self.spec and not self.waits_for_group:
                if self.lacks:
                    self.reason = self.lacks
                    return []
                self.waits_for_lease = self.spec.lease_seconds > 0 and now.boot >= self.leased_until
                if self.waits_for_lease:
                    self.reason = self.reason or messages.NO_LEASE
                    return []
                return self.fire(Event.DUE, now)
            case Stage.UP if self.health and self.probe and not self.probe.asked:
                return self.fire(Event.PROBE_DUE, now) if self.probe.due <= now.mono else []
            case Stage.STOPPING:
                signal_at = self.signal_at()
                is_signal_due = signal_at is not None and signal_at <= now.mono
                todo = self.fire(Event.SIGNAL_DUE, now) if is_signal_due else []  # sets what is due
                is_due = self.due is not None and self.due.mono <= now.mono
                return todo + (self.fire(Event.DUE, now) if is_due else [])
            case Stage.ENDED if self.runs_after_end:
                return self.fire(Event.DUE, now)
        return []

    def wake_at(self) -> float | None:
        """Return when (monotonic) ``advance`` is due next; None when nothing is timed."""
        times = [self.runtime_limit(), self.signal_at()]
        waits = self.waits_for_group or self.waits_for_lease or self.lacks
        is_timed = self.stage is Stage.STOPPING or (self.stage is Stage.WAITING and not waits)
        if is_timed and self.due:
            times.append(self.due.mono)
        if self.stage is Stage.UP and self.probe and not self.probe.asked:
            times.append(self.probe.due)
        return min((t for t in times if t is not None), default=None)

    def runtime_limit(self) -> float | None:
        """Return when it will have run for too long (monotonic); None when it has no such limit."""
        if not self.spec or not self.spec.max_runtime_seconds or not self.first_started:
            return None
        if self.ended or (self.purpose >= Purpose.FAIL and self.deregister_seconds <= 0):
            return None
        return self.first_started.mono + self.spec.max_runtime_seconds

    def signal_at(self) -> float | None:
        """Return when (monotonic) what is stopping gets its signal, which may be long ago; None when it has.

        Of a bound on the whole stop its grace comes first: what it does then nobody else can do for it.
        """
        if self.stage is not Stage.STOPPING or self.signalled:
            return None
        if self.asked is None:
            return -inf
        at = self.asked.mono + self.deregister_seconds
        return at if self.end_by is None else min(at, self.end_by.mono - self.stop_rule.grace_seconds)

    # -- what is reported of it ------------------------------------------------------------------

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
        """Return what is reported to the master."""
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
            unkillable=self.unkillable,
            gave_up=self.gave_up,
            failures=len(self.backoff.failures) + (self.spec.failures if self.spec else 0),
        )

    # -- which event is the end of a program? -----------------------------------------------------

    def _exited(self, exit_: Exit, now: Now) -> None:
        ran_seconds = max(0.0, (exit_.at or now.wall) - self.started.wall) if self.started else 0.0
        reason = exit_.reason
        if self.purpose in (Purpose.RESTART, Purpose.FAIL):
            reason = self.why
        elif not reason and exit_.code is None and exit_.signal is None and not exit_.oom:
            reason = "exit unknown"
        self.last_exit = msgspec.structs.replace(exit_, reason=reason)
        self.pid, self.started, self.probe, self.due, self.kills = 0, None, None, None, 0
        if exit_.lapsed and not self.program:
            # Whatever its policy says: another may have been started elsewhere in its place.
            self.fire(Event.KILL, now, Cause(exit_.reason))
        failed = self.purpose is Purpose.RESTART or not exit_.ok  # unhealthy is failed, however it ends
        # An end that was asked for tells nothing of the program's own.
        rules = self.spec.on_exit if self.spec and self.purpose is Purpose.NONE else ()
        rule = what_follows(rules, exit_)
        self._judge_exit(self.last_exit, ran_seconds, now, failed=failed, rule=rule)

    def _judge_exit(
        self, exit_: Exit, ran_seconds: float, now: Now, *, failed: bool, rule: OnExit | None
    ) -> None:
        """Let it be final, or a reason for another run, by the job's rules, restart policy and limit."""
        text = messages.exit_text(exit_, self.spec)
        if self.spec is None:
            self.fire(Event.EXITED_UNASSIGNED, now, Cause(f"{text}; waits for its assignment"))
            return
        restart, backoff = self.spec.restart, self.backoff
        policy = restart.policy
        if rule is not None:
            text = messages.ruled(text, rule)
        if rule is OnExit.RESTART:
            backoff = backoff.ended(ran_seconds)
            event, text = Event.EXITED, messages.restarts(text, backoff.delay_seconds(restart))
        elif rule is not None:
            event = Event.FAILED if rule is OnExit.FAIL else Event.FINISHED
        elif policy is RestartPolicy.NEVER or (policy is RestartPolicy.ON_FAILURE and not failed):
            event = Event.FAILED if failed else Event.FINISHED
        elif failed and (backoff := backoff.failed(restart, now)).exhausted(restart, self.spec.failures):
            event, text = Event.FAILED, messages.exhausted(text, restart)
        else:
            backoff = backoff.ended(ran_seconds)
            event, text = Event.EXITED, messages.restarts(text, backoff.delay_seconds(restart))
        self.fire(event, now, Cause(text, backoff))  # it has run, so it could start

    # -- effects of transitions, after stage and purpose are what they become ---------------------

    def _start(self, _now: Now, _cause: Cause) -> list[Action]:
        self.due = None
        return [Start(self.spec, self.run + 1)] if self.spec else []

    def _make_due(self, now: Now, _cause: Cause) -> None:
        self.due, self.reason = now, ""

    def _run(self, now: Now, cause: Cause) -> None:
        assert cause.run is not None
        self.run = cause.run.run
        age = now.wall - cause.run.started_at if cause.run.started_at else 0.0
        self.started = now.later(-max(0.0, age))
        self.first_started = self.first_started or self.started
        self.due, self.reason = None, ""
        self.permanent_failures = self.port_in_use = 0
        self.probe = first_probe(now) if self.health else None

    def _stop_run(self, now: Now, cause: Cause) -> None:
        self._run(now, cause)
        self.reason, self.signalled = self.why, False

    def _begin_probing(self, now: Now, _cause: Cause) -> None:
        self.probe = first_probe(now) if self.health else None
        self.reason = ""

    def _probe(self, _now: Now, _cause: Cause) -> list[Action]:
        assert self.health is not None
        assert self.probe is not None
        self.probe = self.probe.ask()
        port = self.spec.ports.get(self.health.port, 0) if self.spec else 0
        return [Probe(self.key, self.run, self.health, port)]

    def _note_purpose(self, _now: Now, cause: Cause) -> None:
        self.why = self.reason = cause.text

    def _stop(self, now: Now, cause: Cause) -> None:
        self._note_purpose(now, cause)
        self.due, self.signalled = None, False
        self.asked, self.deregister_seconds = now, cause.deregister_seconds

    def _signal(self, now: Now, _cause: Cause) -> list[Action]:
        own = self.stop_rule.grace_seconds
        self.grace_seconds = own if self.end_by is None else max(0.0, min(own, self.end_by.mono - now.mono))
        self.signalled, self.deregister_seconds = True, 0.0
        self.due = self.due or now.later(self.grace_seconds)
        if self.purpose > Purpose.RESTART and self.spec and self.spec.programs:
            self.end_by = self.end_by or self.due  # for what runs beside it, too
        return [Signal(self.key, self.stop_rule.signal)]

    def _kill(self, now: Now, _cause: Cause) -> list[Action]:
        self.due = now.later(KILL_AGAIN_SECONDS)
        self.reason = messages.forced(self.why, self.stop_rule.signal, self.grace_seconds)
        self.kills += 1
        if self.unkillable:
            self.reason = messages.unkillable(self.pid)
        return [Kill(self.key)]

    def _wait(self, now: Now, cause: Cause) -> None:
        assert self.spec is not None
        self.why, self.reason, self.signalled = "", cause.text, False
        self.backoff, self.permanent_failures = cause.backoff, cause.permanent_failures
        self.due = now.later(self.backoff.delay_seconds(self.spec.restart))

    def _wait_for_spec(self, _now: Now, cause: Cause) -> None:
        self.why, self.reason = "", cause.text

    def _withdraw(self, _now: Now, _cause: Cause) -> None:
        self.why = ""

    def _finish(self, now: Now, cause: Cause) -> None:
        self._end_by_policy(Ending.FINISH, now, cause)

    def _fail(self, now: Now, cause: Cause) -> None:
        self._end_by_policy(Ending.FAIL, now, cause)

    def _end_by_policy(self, ending: Ending, now: Now, cause: Cause) -> None:
        self.why, self.backoff, self.permanent_failures = "", cause.backoff, cause.permanent_failures
        self._end(ending, cause.text, now)

    def _end_at_once(self, now: Now, cause: Cause) -> None:
        self.why = cause.text
        self._end_as_asked(now, cause)

    def _end_as_asked(self, now: Now, _cause: Cause) -> None:
        ending = Ending.KILL if self.purpose is Purpose.KILL else Ending.FAIL
        self._end(ending, self.reason if self.signalled and self.reason else self.why, now)

    def _end(self, ending: Ending, reason: str, now: Now) -> None:
        self.ended, self.reason = ending, reason
        self.due, self.started, self.pid, self.probe, self.note = None, None, 0, None, ""
        self.port_in_use, self.deregister_seconds = 0, 0.0
        if self.last_exit is None and ending is not Ending.KILL:
            self.last_exit = Exit(reason=reason, at=now.wall)

    def _note_run(self, _now: Now, _cause: Cause) -> None:
        self.runs_after_end = True

    def _note_exit(self, _now: Now, _cause: Cause) -> None:
        self.runs_after_end = False

    def _kill_after_end(self, _now: Now, _cause: Cause) -> list[Action]:
        self.runs_after_end = False
        return [Kill(self.key)]

    def _bound(self, end_by: Now) -> None:
        """Let it be killed by then. Of a stop under way what is left of its grace becomes less."""
        if self.end_by is not None and self.end_by.mono <= end_by.mono:
            return
        self.end_by = end_by
        if self.stage is Stage.STOPPING and self.due is not None and self.due.mono > end_by.mono:
            self.due = end_by


EFFECTS: dict[Do, Callable[[Attempt, Now, Cause], list[Action] | None]] = {
    Do.START: Attempt._start,
    Do.MAKE_DUE: Attempt._make_due,
    Do.RUN: Attempt._run,
    Do.STOP_RUN: Attempt._stop_run,
    Do.BEGIN_PROBING: Attempt._begin_probing,
    Do.PROBE: Attempt._probe,
    Do.STOP: Attempt._stop,
    Do.NOTE_PURPOSE: Attempt._note_purpose,
    Do.SIGNAL: Attempt._signal,
    Do.KILL: Attempt._kill,
    Do.WAIT: Attempt._wait,
    Do.WAIT_FOR_SPEC: Attempt._wait_for_spec,
    Do.WITHDRAW: Attempt._withdraw,
    Do.FINISH: Attempt._finish,
    Do.FAIL: Attempt._fail,
    Do.END_AT_ONCE: Attempt._end_at_once,
    Do.END_AS_ASKED: Attempt._end_as_asked,
    Do.NOTE_RUN: Attempt._note_run,
    Do.NOTE_EXIT: Attempt._note_exit,
    Do.KILL_AFTER_END: Attempt._kill_after_end,
}
