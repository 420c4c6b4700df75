"""The arithmetic of restarts, and the sentences about them."""

import pytest

from borgish.borglet.attempts import messages
from borgish.borglet.attempts.failures import DELAY_SECONDS_MAX, FIRST_PROBE_SECONDS, Backoff, first_probe
from borgish.clock import Now
from borgish.spec.job import Health, Restart
from borgish.vocabulary import RestartPolicy
from borgish.wire.link import Exit
from tests.unit.borglet.test_borglet_core import Bench, make_spec

T0 = Now(1_000_000.0, 100.0)


def test_the_first_restart_is_at_once_then_delays_double_to_the_bound() -> None:
    backoff, restart, delays = Backoff(), Restart(backoff_seconds=2.0), []
    for _ in range(12):
        backoff = backoff.ended(ran_seconds=1.0)
        delays.append(backoff.delay_seconds(restart))
    assert delays[:4] == [0.0, 2.0, 4.0, 8.0]
    assert delays[-1] == DELAY_SECONDS_MAX


def test_what_runs_to_completion_waits_before_its_second_attempt_too() -> None:
    backoff, restart, delays = Backoff(), Restart(RestartPolicy.ON_FAILURE, backoff_seconds=2.0), []
    for _ in range(12):
        backoff = backoff.ended(ran_seconds=1.0)
        delays.append(backoff.delay_seconds(restart))
    assert delays[:4] == [2.0, 4.0, 8.0, 16.0]
    assert delays[-1] == DELAY_SECONDS_MAX


def test_failures_of_attempts_before_count() -> None:
    restart = Restart(RestartPolicy.ON_FAILURE, 3)
    backoff = Backoff().failed(restart, T0)
    assert not backoff.exhausted(restart, 1)
    assert backoff.exhausted(restart, 2)
    assert not backoff.exhausted(Restart(RestartPolicy.ON_FAILURE), 9)


def test_a_very_long_row_of_ends_stays_at_the_bound() -> None:
    assert Backoff(ends=10_000).delay_seconds(Restart(backoff_seconds=0.5)) == DELAY_SECONDS_MAX


@pytest.mark.parametrize(("ran_seconds", "delay"), [(599.0, 8.0), (600.0, 0.0)])
def test_a_good_run_begins_the_row_anew(ran_seconds: float, delay: float) -> None:
    backoff = Backoff(ends=4).ended(ran_seconds)
    assert backoff.delay_seconds(Restart(backoff_seconds=1.0)) == delay


def test_only_failures_inside_the_window_count() -> None:
    restart = Restart(attempts=3, within_seconds=60.0)
    backoff = Backoff()
    for seconds in (0.0, 50.0, 100.0, 120.0):
        backoff = backoff.failed(restart, T0.later(seconds))
    assert not backoff.exhausted(restart)
    backoff = backoff.failed(restart, T0.later(121.0))
    assert backoff.exhausted(restart)


def test_without_a_limit_no_failure_is_kept() -> None:
    assert Backoff().failed(Restart(attempts=0), T0) == Backoff()


HEALTH = Health(tcp=True, port="p", interval_seconds=2.0, failures=2, grace_seconds=5.0)


def test_a_new_run_is_probed_soon_and_then_ever_less_often() -> None:
    probe, now, delays = first_probe(T0), T0, []
    for _ in range(6):
        now = Now(now.wall, probe.due)
        before = now.mono
        probe = probe.ask().miss(HEALTH, "refused", now)
        delays.append(probe.due - before)
    assert (probe.asked, probe.ask().asked) == (False, True)
    assert first_probe(T0).due == T0.mono + FIRST_PROBE_SECONDS
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_misses_do_not_count_in_grace_until_it_has_answered() -> None:
    probe = first_probe(T0).miss(HEALTH, "refused", T0.later(4.9))
    assert (probe.misses, probe.text, probe.asked) == (0, "refused", False)
    assert probe.miss(HEALTH, "refused", T0.later(5.0)).misses == 1
    well = probe.ask().hit(HEALTH, T0.later(1.0))
    assert (well.since, well.due, well.asked, well.text) == (T0.mono, T0.mono + 3.0, False, "")
    assert well.miss(HEALTH, "refused", T0.later(1.5)).misses == 1


def test_only_misses_in_a_row_make_it_unhealthy() -> None:
    probe = first_probe(T0).hit(HEALTH, T0).miss(HEALTH, "refused", T0).hit(HEALTH, T0)
    probe = probe.miss(HEALTH, "refused", T0)
    assert not probe.unhealthy(HEALTH)
    assert probe.miss(HEALTH, "refused", T0).unhealthy(HEALTH)


@pytest.mark.parametrize(
    ("exit_", "text"),
    [
        (Exit(code=1), "exit code 1"),
        (Exit(signal=9), "ended by signal KILL"),
        (Exit(signal=63), "ended by signal 63"),
        (Exit(), "exit unknown"),
        (Exit(reason="machine rebooted"), "machine rebooted"),
        (Exit(code=3, reason="unhealthy"), "unhealthy (exit code 3)"),
        (Exit(signal=9, oom=True), "out of memory: it reached its limit; raise resources.ram"),
    ],
)
def test_exits_in_words(exit_: Exit, text: str) -> None:
    assert messages.exit_text(exit_, None) == text


def test_delays_in_words() -> None:
    assert messages.restarts("exit code 1", 0.0) == "exit code 1; restarts at once"
    assert messages.restarts("exit code 1", 4.0) == "exit code 1; restarts in 4 s"
    assert messages.restarts("exit code 1", 300.0) == "exit code 1; restarts in 5 min"
    assert messages.cannot_start("no x", 1) == "cannot start: no x; 1 try left"


def test_a_report_says_how_often_it_ended_early_and_that_the_next_start_is_held_back() -> None:
    bench = Bench(make_spec())
    reported = []
    for run in (1, 2, 3):
        bench.began(run)
        reported.append((bench.said.held_back, bench.said.early_ends))
        bench.ended(run, code=1)
        reported.append((bench.said.held_back, bench.said.early_ends))
        bench.later(60.0)
    assert reported == [(False, 0), (False, 1), (False, 1), (True, 2), (False, 2), (True, 3)]
    bench.began(4)
    bench.later(601.0)
    bench.ended(4, code=1)
    assert (bench.said.held_back, bench.said.early_ends) == (False, 1)
