"""Every state an attempt can be in x every input it can get: what it becomes, and what it asks for.

An outcome is the stage (``ended:HOW`` when final), then what ``advance`` asks for: ``start2`` run 2,
``TERM`` a signal, ``kill``, ``probe``. The table below is the specification; a cell that is not
in it fails the test. The cells of ``transitions.TABLE`` itself are in ``test_transitions``.
"""

from collections.abc import Callable

import pytest

from borgish.borglet.actions import Action, Kill, Probe, Signal, Start
from borgish.borglet.attempts.attempt import Attempt
from borgish.clock import Now
from tests.matrix.borglet.attempts import INPUTS, STATES

TABLE: dict[str, dict[str, str]] = {
    "waiting": {
        "starting start1": (
            "order_run order_restart alive exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 no_start "
            "never_starts port_taken old_no_start probe_hit probe_miss old_probe grace_over too_long "
            "found_nothing"
        ),
        "ended:kill": "order_stop",
        "ended:fail": "order_fail",
        "up": "began found_alive found_newer",
        "ended:finish": "began_and_ended",
        "waiting": "found_ended",
    },
    "starting": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "up": "began found_alive found_newer",
        "ended:finish": "began_and_ended",
        "starting start1": "found_nothing",
        "waiting": "no_start never_starts port_taken found_ended",
    },
    "starting_to_restart": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "stopping TERM": "began found_alive found_newer",
        "starting start1": "found_nothing",
        "waiting": "began_and_ended no_start never_starts port_taken found_ended",
    },
    "starting_to_fail": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "stopping TERM": "began found_alive found_newer",
        "ended:fail": "began_and_ended no_start never_starts port_taken found_nothing found_ended",
    },
    "starting_to_stop": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "stopping TERM": "began found_alive found_newer",
        "ended:kill": "began_and_ended no_start never_starts port_taken found_nothing found_ended",
    },
    "recalled_to_restart": {
        "waiting": (
            "order_run order_restart began_and_ended alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 no_start never_starts port_taken old_no_start probe_hit probe_miss "
            "old_probe grace_over too_long found_ended"
        ),
        "ended:kill": "order_stop",
        "ended:fail": "order_fail",
        "stopping TERM": "began found_alive found_newer",
        "starting start1": "found_nothing",
    },
    "recalled_to_fail": {
        "waiting": (
            "order_run order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 exit_75 "
            "usr1 no_start never_starts port_taken old_no_start probe_hit probe_miss old_probe "
            "grace_over too_long"
        ),
        "ended:kill": "order_stop",
        "stopping TERM": "began found_alive found_newer",
        "ended:fail": "began_and_ended found_nothing found_ended",
    },
    "recalled_to_stop": {
        "waiting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 no_start never_starts port_taken old_no_start probe_hit probe_miss "
            "old_probe grace_over too_long"
        ),
        "stopping TERM": "began found_alive found_newer",
        "ended:kill": "began_and_ended found_nothing found_ended",
    },
    "last_try": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "up": "began found_alive found_newer",
        "ended:finish": "began_and_ended",
        "ended:fail": "no_start never_starts found_ended",
        "waiting": "port_taken",
        "starting start1": "found_nothing",
    },
    "no_use": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "up": "began found_alive found_newer",
        "ended:finish": "began_and_ended",
        "waiting": "no_start port_taken found_ended",
        "ended:fail": "never_starts",
        "starting start1": "found_nothing",
    },
    "up": {
        "up": (
            "order_run began alive no_start never_starts port_taken old_no_start probe_hit old_probe "
            "found_alive found_newer"
        ),
        "stopping TERM": "order_stop order_fail order_restart probe_miss too_long",
        "ended:finish": "began_and_ended exit_0 exit_3",
        "ended:fail": "exit_44",
        "up probe": "grace_over",
        "waiting": "exit_1 killed exit_75 usr1 found_nothing found_ended",
    },
    "healthy": {
        "up": (
            "order_run began alive no_start never_starts port_taken old_no_start probe_hit old_probe "
            "found_alive found_newer"
        ),
        "stopping TERM": "order_stop order_fail order_restart probe_miss too_long",
        "ended:finish": "began_and_ended exit_0 exit_3",
        "ended:fail": "exit_44",
        "up probe": "grace_over",
        "waiting": "exit_1 killed exit_75 usr1 found_nothing found_ended",
    },
    "restarting": {
        "starting": (
            "order_run order_stop order_fail order_restart alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 old_no_start probe_hit probe_miss old_probe grace_over too_long"
        ),
        "up": "began found_newer",
        "ended:finish": "began_and_ended",
        "waiting": "no_start never_starts port_taken",
        "starting start2": "found_nothing found_alive found_ended",
    },
    "backing_off": {
        "waiting": (
            "order_run order_restart alive exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 no_start "
            "never_starts port_taken old_no_start probe_hit probe_miss old_probe found_nothing "
            "found_alive found_ended"
        ),
        "ended:kill": "order_stop",
        "ended:fail": "order_fail too_long",
        "up": "began found_newer",
        "ended:finish": "began_and_ended",
        "starting start3": "grace_over",
    },
    "stop_restart": {
        "stopping": (
            "order_run order_stop order_fail order_restart alive no_start never_starts port_taken "
            "old_no_start probe_hit probe_miss old_probe"
        ),
        "stopping TERM": "began found_alive found_newer",
        "stopping kill": "grace_over too_long",
        "waiting": (
            "began_and_ended exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 found_nothing found_ended"
        ),
    },
    "stop_fail": {
        "stopping": (
            "order_run order_stop order_fail order_restart alive no_start never_starts port_taken "
            "old_no_start probe_hit probe_miss old_probe"
        ),
        "stopping TERM": "began found_alive found_newer",
        "ended:fail": (
            "began_and_ended exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 found_nothing found_ended"
        ),
        "stopping kill": "grace_over too_long",
    },
    "stop_kill": {
        "stopping": (
            "order_run order_stop order_fail order_restart alive no_start never_starts port_taken "
            "old_no_start probe_hit probe_miss old_probe"
        ),
        "stopping TERM": "began found_alive found_newer",
        "ended:kill": (
            "began_and_ended exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 found_nothing found_ended"
        ),
        "stopping kill": "grace_over too_long",
    },
    "deregistering": {
        "stopping": (
            "order_run began alive no_start never_starts port_taken old_no_start probe_hit probe_miss "
            "old_probe found_alive found_newer"
        ),
        "stopping TERM": "order_stop order_fail order_restart grace_over too_long",
        "ended:kill": (
            "began_and_ended exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 found_nothing found_ended"
        ),
    },
    "ended": {
        "ended:finish": (
            "order_run order_stop order_fail order_restart began_and_ended exit_0 exit_1 killed "
            "exit_3 exit_44 exit_75 usr1 no_start never_starts port_taken old_no_start probe_hit "
            "probe_miss old_probe grace_over too_long found_nothing found_ended"
        ),
        "ended:finish kill": "began alive found_alive found_newer",
    },
    "unassigned_up": {
        "up": (
            "order_run began alive no_start never_starts port_taken old_no_start probe_hit probe_miss "
            "old_probe grace_over too_long found_alive found_newer"
        ),
        "stopping TERM": "order_stop order_fail order_restart",
        "waiting": (
            "began_and_ended exit_0 exit_1 killed exit_3 exit_44 exit_75 usr1 found_nothing found_ended"
        ),
    },
    "unassigned_down": {
        "ended:kill": "order_stop",
        "ended:fail": "order_fail",
        "waiting": (
            "order_run order_restart began_and_ended alive exit_0 exit_1 killed exit_3 exit_44 "
            "exit_75 usr1 no_start never_starts port_taken old_no_start probe_hit probe_miss "
            "old_probe grace_over too_long found_nothing found_alive found_ended"
        ),
        "up": "began found_newer",
    },
}


def outcome(state: str, feed: Callable[[Attempt], Now]) -> str:
    attempt = STATES[state]()
    todo = attempt.advance(feed(attempt))
    assert {action.spec.key if isinstance(action, Start) else action.key for action in todo} <= {attempt.key}
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
