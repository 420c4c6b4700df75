"""Attempts in every state, and every input that they can get; see ``test_attempt_matrix``."""

from collections.abc import Callable

from borgish.borglet.attempts.attempt import Attempt
from borgish.borglet.attempts.entry import from_entry, to_entry
from borgish.borglet.attempts.transitions import Purpose
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import ExitCodes, ExitRule, Health, Restart, Stop
from borgish.vocabulary import OnExit, RestartPolicy, Runtime
from borgish.wire.link import AttemptSpec, Exit

T0 = Now(1_000_000.0, 500.0)
KEY = "ann/web/0@7"
RULES = (
    ExitRule(OnExit.FAIL, (ExitCodes(42, 44),)),
    ExitRule(OnExit.FINISH, (ExitCodes(3, 3),)),
    ExitRule(OnExit.RESTART, (ExitCodes(44, 44), ExitCodes(75, 75)), ("USR1",)),
)


def spec(attempts: int = 0) -> AttemptSpec:
    return AttemptSpec(
        task="ann/web/0",
        attempt=7,
        run=("serve",),
        env={},
        runtime=Runtime.FAKE,
        resources=Resources(cpu_millis=100, ram_bytes=2**27),
        restart=Restart(policy=RestartPolicy.ON_FAILURE, attempts=attempts, backoff_seconds=1.0),
        stop=Stop("TERM", 5.0),
        ports={"http": 8080},
        health=Health(tcp=True, port="http", interval_seconds=2.0, failures=1, grace_seconds=0.0),
        max_runtime_seconds=1000.0,
        on_exit=RULES,
    )


def run(number: int, exit_: Exit | None = None) -> RunState:
    return RunState(KEY, number, 4000 + number, T0.wall, exit_)


# -- states ---------------------------------------------------------------------------------------


def waiting() -> Attempt:
    return Attempt(task="ann/web/0", attempt=7, spec=spec(), due=T0)


def starting() -> Attempt:
    attempt = waiting()
    attempt.advance(T0)
    return attempt


def up() -> Attempt:
    attempt = starting()
    attempt.ran(run(1), T0)
    return attempt


def healthy() -> Attempt:
    attempt = up()
    attempt.advance(T0.later(0.5))
    attempt.probed(1, "", T0, ok=True)
    return attempt


def restarting() -> Attempt:
    attempt = up()
    attempt.ran(run(1, Exit(code=1, at=T0.wall)), T0)
    attempt.advance(T0.later(1.0))
    return attempt


def backing_off() -> Attempt:
    attempt = restarting()
    attempt.ran(run(2), T0)
    attempt.ran(run(2, Exit(code=1, at=T0.wall)), T0)
    return attempt


def starting_to(purpose: Purpose) -> Callable[[], Attempt]:
    def make() -> Attempt:
        attempt = starting()
        attempt.stop("drain", purpose, T0)
        return attempt

    return make


def recalled_to(purpose: Purpose) -> Callable[[], Attempt]:
    """The borglet ended before a start was answered that was to be stopped again."""

    def make() -> Attempt:
        return _again(starting_to(purpose)())

    return make


def last_try() -> Attempt:
    """What fails now has failed as often as its limit of restarts allows."""
    attempt = Attempt(task="ann/web/0", attempt=7, spec=spec(attempts=2), due=T0)
    attempt.advance(T0)
    attempt.start_failed(1, "engine", permanent=False, port=0, now=T0)
    attempt.advance(T0.later(1.0))
    return attempt


def no_use() -> Attempt:
    """A start that cannot work here was tried two times."""
    attempt = starting()
    for _ in range(2):
        attempt.start_failed(1, "no command", permanent=True, port=0, now=T0)
        attempt.advance(T0.later(2.0))
    return attempt


def stopping(purpose: Purpose) -> Callable[[], Attempt]:
    def make() -> Attempt:
        attempt = up()
        attempt.stop("why", purpose, T0)
        attempt.advance(T0)
        return attempt

    return make


def deregistering() -> Attempt:
    """It goes on for a while, and then gets its signal."""
    attempt = up()
    attempt.stop("why", Purpose.KILL, T0, deregister_seconds=5.0)
    attempt.advance(T0)
    return attempt


def ended() -> Attempt:
    attempt = up()
    attempt.ran(run(1, Exit(code=0, at=T0.wall)), T0)
    return attempt


def unassigned_up() -> Attempt:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=None)
    attempt.found(run(1), T0)
    return attempt


def unassigned_down() -> Attempt:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=None)
    attempt.found(run(1, Exit(code=1, at=T0.wall)), T0)
    return attempt


STATES: dict[str, Callable[[], Attempt]] = {
    "waiting": waiting,
    "starting": starting,
    "starting_to_restart": starting_to(Purpose.RESTART),
    "starting_to_fail": starting_to(Purpose.FAIL),
    "starting_to_stop": starting_to(Purpose.KILL),
    "recalled_to_restart": recalled_to(Purpose.RESTART),
    "recalled_to_fail": recalled_to(Purpose.FAIL),
    "recalled_to_stop": recalled_to(Purpose.KILL),
    "last_try": last_try,
    "no_use": no_use,
    "up": up,
    "healthy": healthy,
    "restarting": restarting,
    "backing_off": backing_off,
    "stop_restart": stopping(Purpose.RESTART),
    "stop_fail": stopping(Purpose.FAIL),
    "stop_kill": stopping(Purpose.KILL),
    "deregistering": deregistering,
    "ended": ended,
    "unassigned_up": unassigned_up,
    "unassigned_down": unassigned_down,
}


# -- inputs: each returns the moment of the advance after it ------------------------------------------


def _next(attempt: Attempt) -> int:
    return attempt.run + 1


def order_run(attempt: Attempt) -> Now:
    attempt.learn(spec(), T0)
    return T0


def order_stop(attempt: Attempt) -> Now:
    attempt.stop("drain", Purpose.KILL, T0)
    return T0


def order_fail(attempt: Attempt) -> Now:
    attempt.stop("too long", Purpose.FAIL, T0)
    return T0


def order_restart(attempt: Attempt) -> Now:
    attempt.stop("unhealthy", Purpose.RESTART, T0)
    return T0


def began(attempt: Attempt) -> Now:
    attempt.ran(run(_next(attempt)), T0)
    return T0


def began_and_ended(attempt: Attempt) -> Now:
    attempt.ran(run(_next(attempt), Exit(code=0, at=T0.wall)), T0)
    return T0


def alive(attempt: Attempt) -> Now:
    attempt.ran(run(attempt.run), T0)
    return T0


def exit_0(attempt: Attempt) -> Now:
    attempt.ran(run(attempt.run, Exit(code=0, at=T0.wall)), T0)
    return T0


def exit_1(attempt: Attempt) -> Now:
    attempt.ran(run(attempt.run, Exit(code=1, at=T0.wall)), T0)
    return T0


def killed(attempt: Attempt) -> Now:
    attempt.ran(run(attempt.run, Exit(signal=9, at=T0.wall)), T0)
    return T0


def exit_3(attempt: Attempt) -> Now:
    """A rule counts it as success."""
    attempt.ran(run(attempt.run, Exit(code=3, at=T0.wall)), T0)
    return T0


def exit_44(attempt: Attempt) -> Now:
    """Two rules match: by the first one it has failed."""
    attempt.ran(run(attempt.run, Exit(code=44, at=T0.wall)), T0)
    return T0


def exit_75(attempt: Attempt) -> Now:
    """A rule has it restarted, and not counted."""
    attempt.ran(run(attempt.run, Exit(code=75, at=T0.wall)), T0)
    return T0


def usr1(attempt: Attempt) -> Now:
    """So it is for a signal."""
    attempt.ran(run(attempt.run, Exit(signal=10, at=T0.wall)), T0)
    return T0


def no_start(attempt: Attempt) -> Now:
    attempt.start_failed(_next(attempt), "engine", permanent=False, port=0, now=T0)
    return T0


def never_starts(attempt: Attempt) -> Now:
    attempt.start_failed(_next(attempt), "no command", permanent=True, port=0, now=T0)
    return T0


def port_taken(attempt: Attempt) -> Now:
    attempt.start_failed(_next(attempt), "port 8080", permanent=False, port=8080, now=T0)
    return T0


def old_no_start(attempt: Attempt) -> Now:
    attempt.start_failed(attempt.run, "engine", permanent=True, port=0, now=T0)
    return T0


def probe_hit(attempt: Attempt) -> Now:
    attempt.probed(attempt.run, "", T0, ok=True)
    return T0


def probe_miss(attempt: Attempt) -> Now:
    attempt.probed(attempt.run, "refused", T0, ok=False)
    return T0


def old_probe(attempt: Attempt) -> Now:
    attempt.probed(attempt.run - 1, "refused", T0, ok=False)
    return T0


def grace_over(attempt: Attempt) -> Now:
    return T0.later(6.0)


def too_long(attempt: Attempt) -> Now:
    return T0.later(2000.0)


def found_nothing(attempt: Attempt) -> Now:
    _again(attempt).found(None, T0)
    return T0


def found_alive(attempt: Attempt) -> Now:
    _again(attempt).found(run(max(attempt.run, 1)), T0)
    return T0


def found_ended(attempt: Attempt) -> Now:
    _again(attempt).found(run(max(attempt.run, 1), Exit(code=1, at=T0.wall)), T0)
    return T0


def found_newer(attempt: Attempt) -> Now:
    _again(attempt).found(run(_next(attempt)), T0)
    return T0


def _again(attempt: Attempt) -> Attempt:
    """Put the attempt through the ledger: the borglet was restarted."""
    back = from_entry(to_entry(attempt), T0)
    for name in attempt.__struct_fields__:
        setattr(attempt, name, getattr(back, name))
    return attempt


INPUTS: tuple[Callable[[Attempt], Now], ...] = (
    order_run,
    order_stop,
    order_fail,
    order_restart,
    began,
    began_and_ended,
    alive,
    exit_0,
    exit_1,
    killed,
    exit_3,
    exit_44,
    exit_75,
    usr1,
    no_start,
    never_starts,
    port_taken,
    old_no_start,
    probe_hit,
    probe_miss,
    old_probe,
    grace_over,
    too_long,
    found_nothing,
    found_alive,
    found_ended,
    found_newer,
)
