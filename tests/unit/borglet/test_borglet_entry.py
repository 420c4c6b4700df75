"""What a borglet remembers of attempts, and that what is due waits no longer than its rule says, whatever the
wall clock did while the borglet was away."""

import msgspec
import pytest

from borgish.borglet.actions import Signal
from borgish.borglet.attempts.attempt import KILL_AGAIN_SECONDS, Attempt
from borgish.borglet.attempts.entry import Entry, from_entry, to_entry
from borgish.borglet.attempts.failures import Backoff, first_probe
from borgish.borglet.attempts.transitions import Purpose, Stage
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import Health, Restart, Stop
from borgish.vocabulary import Ending, Runtime
from borgish.wire.link import AttemptSpec, Exit

NOW = Now(1_700_000_000.0, 50.0)
YEAR_SECONDS = 365 * 86400.0


def recalled_wait(stage: Stage, due_seconds: float, grace_seconds: float = 5.0, ends: int = 0) -> float:
    """Return how long an attempt waits that was to wait so long, by a clock that was set back since."""
    spec = AttemptSpec(
        task="ann/web/0",
        attempt=7,
        run=("serve",),
        env={},
        runtime=Runtime.FAKE,
        resources=Resources(100),
        restart=Restart(backoff_seconds=2.0),
        stop=Stop("TERM", grace_seconds),
    )
    entry = Entry(
        "ann/web/0", 7, spec, stage, due_at=NOW.wall + due_seconds, purpose=Purpose.KILL, backoff_ends=ends
    )
    due = from_entry(entry, NOW).due
    assert due is not None
    return due.mono - NOW.mono


@pytest.mark.parametrize("leap_seconds", [0.0, 3600.0, 10 * YEAR_SECONDS])
def test_a_stop_ends_within_its_grace(leap_seconds: float) -> None:
    assert recalled_wait(Stage.STOPPING, 3.0 + leap_seconds, grace_seconds=30.0) == min(
        3.0 + leap_seconds, 30.0
    )
    assert recalled_wait(Stage.STOPPING, 3600.0, grace_seconds=1.0) == KILL_AGAIN_SECONDS


def test_a_start_waits_for_its_back_off_at_most() -> None:
    assert recalled_wait(Stage.WAITING, 10 * YEAR_SECONDS, ends=4) == 8.0
    assert recalled_wait(Stage.WAITING, 1.5, ends=4) == 1.5
    assert recalled_wait(Stage.WAITING, 10 * YEAR_SECONDS, ends=1) == 0.0


@pytest.mark.parametrize("leap_seconds", [3600.0, -3600.0, 10 * YEAR_SECONDS, -10 * YEAR_SECONDS])
def test_a_task_grows_no_older_by_a_clock_that_leaps(leap_seconds: float) -> None:
    """Found again after a restart of its borglet, it may still run for what is left of its time."""
    spec = AttemptSpec("ann/web/0", 7, ("serve",), {}, Runtime.FAKE, Resources(100), Restart(), Stop())
    spec = msgspec.structs.replace(spec, max_runtime_seconds=600.0)
    attempt = Attempt(task="ann/web/0", attempt=7, spec=spec, stage=Stage.UP, started=NOW, first_started=NOW)
    later = Now(NOW.wall + 20.0 + leap_seconds, NOW.mono + 20.0)

    recalled = from_entry(to_entry(attempt), later)

    assert recalled.runtime_limit() == NOW.mono + 600.0
    assert recalled.advance(later) == []
    assert recalled.purpose is Purpose.NONE


def test_after_a_boot_the_wall_clock_tells_how_long_it_ran() -> None:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=None, stage=Stage.UP, started=NOW)
    booted = Now(NOW.wall + 100.0, 8.0)

    started = from_entry(to_entry(attempt), booted).started

    assert started == booted.later(-100.0)


SERVE = AttemptSpec("ann/web/0", 7, ("serve",), {}, Runtime.FAKE, Resources(100), Restart(), Stop())
PROBED = msgspec.structs.replace(SERVE, health=Health(tcp=True, port="http"))


def test_an_attempt_comes_back_as_it_was() -> None:
    attempt = Attempt(
        task="ann/web/0",
        attempt=7,
        program="proxy",
        spec=PROBED,
        stage=Stage.STOPPING,
        run=3,
        started=Now(NOW.wall - 500.0, NOW.mono - 10.0),  # the wall clock was set since
        first_started=Now(NOW.wall - 900.0, NOW.mono - 20.0),
        due=NOW.later(5.0),
        end_by=NOW.later(9.0),
        asked=Now(NOW.wall - 400.0, NOW.mono - 3.0),
        deregister_seconds=7.0,
        purpose=Purpose.RESTART,
        why="unhealthy",
        backoff=Backoff(2, (NOW.later(-30.0),)),
        permanent_failures=1,
        port_in_use=80,
        last_exit=Exit(code=3),
        ended=Ending.KILL,
        reason="stops",
    )
    assert from_entry(to_entry(attempt), NOW) == attempt


def test_a_stop_of_which_an_older_borglet_kept_less_gets_its_signal_at_once() -> None:
    text = b'{"task": "ann/web/0", "attempt": 7, "spec": null, "stage": "stopping", "purpose": 3, "run": 1}'
    attempt = from_entry(msgspec.json.decode(text, type=Entry), NOW)
    assert [type(action) for action in attempt.advance(NOW)] == [Signal]


@pytest.mark.parametrize(
    ("spec", "stage", "probed"),
    [
        (PROBED, Stage.UP, True),
        (PROBED, Stage.STOPPING, False),
        (PROBED, Stage.WAITING, False),
        (SERVE, Stage.UP, False),
        (None, Stage.UP, False),
    ],
)
def test_only_what_is_up_is_probed(spec: AttemptSpec | None, stage: Stage, probed: bool) -> None:
    for answered in (False, True):
        probe = first_probe(NOW, answered=answered)
        attempt = Attempt(task="ann/web/0", attempt=7, spec=spec, stage=stage, probe=probe)
        again = from_entry(to_entry(attempt), NOW)
        assert again.probe == (first_probe(NOW, answered=answered) if probed else None)
        assert again.due == (NOW if stage is Stage.WAITING else None)


def test_a_start_that_was_not_answered_waits_to_be_asked_for_again() -> None:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=SERVE, stage=Stage.STARTING, run=2)
    again = from_entry(to_entry(attempt), NOW)
    assert (again.stage, again.run, again.due) == (Stage.WAITING, 2, NOW)
