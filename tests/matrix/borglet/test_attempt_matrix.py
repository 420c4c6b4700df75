"""Every state an attempt can be in x every input it can get: what it becomes, and what it asks for.

An outcome is the stage (``ended:HOW`` when final), then what ``advance`` asks for: ``start2`` run 2,
``TERM`` a signal, ``kill``, ``probe``. The table below is the specification; a cell that is not
in it fails the test.
"""

from collections.abc import Callable

import pytest

from borgish.borglet.actions import Action, Kill, Probe, Signal, Start
from borgish.borglet.attempt import Attempt
from borgish.borglet.entry import Purpose
from borgish.borglet.recall import from_entry, to_entry
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import Health, Restart, Stop
from borgish.vocabulary import RestartPolicy, Runtime
from borgish.wire.link import AttemptSpec, Exit

T0 = Now(1_000_000.0, 500.0)
KEY = "ann/web/0@7"


def spec() -> AttemptSpec:
    return AttemptSpec(
        task="ann/web/0",
        attempt=7,
        run=("serve",),
        env={},
        runtime=Runtime.FAKE,
        resources=Resources(cpu_millis=100, ram_bytes=2**27),
        restart=Restart(policy=RestartPolicy.ON_FAILURE, attempts=0, backoff_seconds=1.0),
        stop=Stop("TERM", 5.0),
        ports={"http": 8080},
        health=Health(tcp=True, port="http", interval_seconds=2.0, failures=1, grace_seconds=0.0),
        max_runtime_seconds=1000.0,
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
    attempt.advance(T0)
    return attempt


def backing_off() -> Attempt:
    attempt = restarting()
    attempt.ran(run(2), T0)
    attempt.ran(run(2, Exit(code=1, at=T0.wall)), T0)
    return attempt


def starting_to_stop() -> Attempt:
    attempt = starting()
    attempt.order_stop("drain", Purpose.KILL, T0)
    return attempt


def stopping(purpose: Purpose) -> Callable[[], Attempt]:
    def make() -> Attempt:
        attempt = up()
        attempt.order_stop("why", purpose, T0)
        attempt.advance(T0)
        return attempt

    return make


def ended() -> Attempt:
    attempt = up()
    attempt.ran(run(1, Exit(code=0, at=T0.wall)), T0)
    return attempt


def held_up() -> Attempt:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=None)
    attempt.found(run(1), T0)
    return attempt


def held_down() -> Attempt:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=None)
    attempt.found(run(1, Exit(code=1, at=T0.wall)), T0)
    return attempt


STATES: dict[str, Callable[[], Attempt]] = {
    "waiting": waiting,
    "starting": starting,
    "starting_to_stop": starting_to_stop,
    "up": up,
    "healthy": healthy,
    "restarting": restarting,
    "backing_off": backing_off,
    "stop_restart": stopping(Purpose.RESTART),
    "stop_fail": stopping(Purpose.FAIL),
    "stop_kill": stopping(Purpose.KILL),
    "ended": ended,
    "held_up": held_up,
    "held_down": held_down,
}


# -- inputs: each returns the moment of the advance after it ------------------------------------------


def _next(attempt: Attempt) -> int:
    return attempt.run + 1


def order_run(attempt: Attempt) -> Now:
    attempt.learn(spec(), T0)
    return T0


def order_stop(attempt: Attempt) -> Now:
    attempt.order_stop("drain", Purpose.KILL, T0)
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


def no_start(attempt: Attempt) -> Now:
    attempt.start_failed(_next(attempt), "engine", permanent=False, port=0, now=T0)
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


def _again(attempt: Attempt) -> Attempt:
    """Put the attempt through the ledger: the borglet was restarted."""
    back = from_entry(to_entry(attempt), T0)
    for name in attempt.__struct_fields__:
        setattr(attempt, name, getattr(back, name))
    return attempt


INPUTS: tuple[Callable[[Attempt], Now], ...] = (
    order_run,
    order_stop,
    began,
    began_and_ended,
    alive,
    exit_0,
    exit_1,
    no_start,
    port_taken,
    old_no_start,
    probe_hit,
    probe_miss,
    old_probe,
    grace_over,
    too_long,
    found_nothing,
    found_alive,
)

TABLE: dict[str, dict[str, str]] = {
    "waiting": {
        "starting start1": (
            "order_run alive exit_0 exit_1 no_start port_taken old_no_start probe_hit probe_miss "
            "old_probe grace_over too_long found_nothing"
        ),
        "ended:kill": "order_stop",
        "up": "began found_alive",
        "ended:finish": "began_and_ended",
    },
    "starting": {
        "starting": (
            "order_run order_stop alive exit_0 exit_1 old_no_start probe_hit probe_miss old_probe "
            "grace_over too_long"
        ),
        "up": "began found_alive",
        "ended:finish": "began_and_ended",
        "starting start1": "no_start port_taken found_nothing",
    },
    "starting_to_stop": {
        "starting": (
            "order_run order_stop alive exit_0 exit_1 old_no_start probe_hit probe_miss old_probe "
            "grace_over too_long"
        ),
        "stopping TERM": "began found_alive",
        "ended:kill": "began_and_ended no_start port_taken found_nothing",
    },
    "up": {
        "up": "order_run began alive no_start port_taken old_no_start probe_hit old_probe found_alive",
        "stopping TERM": "order_stop probe_miss too_long",
        "ended:finish": "began_and_ended exit_0",
        "starting start2": "exit_1 found_nothing",
        "up probe": "grace_over",
    },
    "healthy": {
        "up": "order_run began alive no_start port_taken old_no_start probe_hit old_probe found_alive",
        "stopping TERM": "order_stop probe_miss too_long",
        "ended:finish": "began_and_ended exit_0",
        "starting start2": "exit_1 found_nothing",
        "up probe": "grace_over",
    },
    "restarting": {
        "starting": (
            "order_run order_stop alive exit_0 exit_1 old_no_start probe_hit probe_miss old_probe "
            "grace_over too_long"
        ),
        "up": "began",
        "ended:finish": "began_and_ended",
        "waiting": "no_start port_taken",
        "starting start2": "found_nothing found_alive",
    },
    "backing_off": {
        "waiting": (
            "order_run alive exit_0 exit_1 no_start port_taken old_no_start probe_hit probe_miss "
            "old_probe found_nothing found_alive"
        ),
        "ended:kill": "order_stop",
        "up": "began",
        "ended:finish": "began_and_ended",
        "starting start3": "grace_over",
        "ended:fail": "too_long",
    },
    "stop_restart": {
        "stopping": (
            "order_run order_stop alive no_start port_taken old_no_start probe_hit probe_miss old_probe"
        ),
        "stopping TERM": "began found_alive",
        "starting start3": "began_and_ended",
        "starting start2": "exit_0 exit_1 found_nothing",
        "stopping kill": "grace_over too_long",
    },
    "stop_fail": {
        "stopping": (
            "order_run order_stop alive no_start port_taken old_no_start probe_hit probe_miss old_probe"
        ),
        "stopping TERM": "began found_alive",
        "ended:fail": "began_and_ended exit_0 exit_1 found_nothing",
        "stopping kill": "grace_over too_long",
    },
    "stop_kill": {
        "stopping": (
            "order_run order_stop alive no_start port_taken old_no_start probe_hit probe_miss old_probe"
        ),
        "stopping TERM": "began found_alive",
        "ended:kill": "began_and_ended exit_0 exit_1 found_nothing",
        "stopping kill": "grace_over too_long",
    },
    "ended": {
        "ended:finish": (
            "order_run order_stop began_and_ended exit_0 exit_1 no_start port_taken old_no_start "
            "probe_hit probe_miss old_probe grace_over too_long found_nothing"
        ),
        "ended:finish kill": "began alive found_alive",
    },
    "held_up": {
        "up": (
            "order_run began alive no_start port_taken old_no_start probe_hit probe_miss old_probe "
            "grace_over too_long found_alive"
        ),
        "stopping TERM": "order_stop",
        "waiting": "began_and_ended exit_0 exit_1 found_nothing",
    },
    "held_down": {
        "starting start2": "order_run",
        "ended:kill": "order_stop",
        "up": "began",
        "waiting": (
            "began_and_ended alive exit_0 exit_1 no_start port_taken old_no_start probe_hit "
            "probe_miss old_probe grace_over too_long found_nothing found_alive"
        ),
    },
}


def outcome(state: str, feed: Callable[[Attempt], Now]) -> str:
    attempt = STATES[state]()
    todo = attempt.advance(feed(attempt))
    stage = f"ended:{attempt.ended}" if attempt.ended else str(attempt.stage)
    return " ".join([stage, *map(_name, todo)])


def _name(action: Action) -> str:
    if isinstance(action, Start):
        return f"start{action.run}"
    if isinstance(action, Signal):
        return action.signal
    return "kill" if isinstance(action, Kill) else "probe" if isinstance(action, Probe) else "forget"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("feed", INPUTS)
def test_every_state_meets_every_input_as_the_table_says(state: str, feed: Callable[[Attempt], Now]) -> None:
    said = [result for result, feeds in TABLE[state].items() if feed.__name__ in feeds.split()]
    assert said == [outcome(state, feed)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("feed", INPUTS)
def test_a_second_advance_at_the_same_moment_asks_for_nothing(
    state: str, feed: Callable[[Attempt], Now]
) -> None:
    attempt = STATES[state]()
    now = feed(attempt)
    attempt.advance(now)
    assert attempt.advance(now) == []


def test_the_table_is_whole() -> None:
    feeds = sorted(f.__name__ for f in INPUTS)
    assert TABLE.keys() == STATES.keys()
    assert all(sorted(" ".join(row.values()).split()) == feeds for row in TABLE.values())


def test_no_ended_attempt_ever_changes() -> None:
    assert {result.split()[0] for result in TABLE["ended"]} == {"ended:finish"}
