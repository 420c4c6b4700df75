"""Stops that give a program's clients time to leave it: it goes on for a while before its signal."""

import msgspec
import pytest

from borgish.borglet.actions import Action, Kill, Signal, Start
from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.spec.job import Restart
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import Assignment, Exit, StopOrder
from tests.unit.borglet.test_borglet_core import FACTS, HEALTH, KEY, T0, Bench, make_spec, restarted
from tests.unit.borglet.test_borglet_group import BESIDE, Group, code, grouped, state

DEREGISTER_SECONDS = 10.0
SIGNAL = Signal(KEY, "INT")


def ordered(seconds: float = DEREGISTER_SECONDS, notice_seconds: float | None = None) -> StopOrder:
    return StopOrder("ann/web/0", 7, "drain", notice_seconds, seconds)


def told_to_stop(order: StopOrder, max_runtime_seconds: float = 0.0) -> Bench:
    """Return a core whose program is up and was just told to stop."""
    bench = Bench(make_spec(max_runtime_seconds=max_runtime_seconds))
    bench.began()
    assert bench.assign(stop=(order,)).todo == ()
    return bench


def times(bench: Bench, seconds_max: float = 60.0) -> dict[Action, float]:
    """Return when the core asks for what from now on, going from one of its moments to the next."""
    since, found = bench.now.mono, dict[Action, float]()
    while True:
        actions = bench.core.step(bench.now)
        found.update(dict.fromkeys(actions.todo, round(bench.now.mono - since, 3)))
        if actions.wake_at is None or actions.wake_at - since > seconds_max or Kill(KEY) in found:
            return found
        assert actions.wake_at > bench.now.mono
        bench.now = bench.now.later(actions.wake_at - bench.now.mono)


def test_the_signal_comes_when_the_time_is_over_and_the_grace_counts_from_it() -> None:
    bench = told_to_stop(ordered())
    assert (bench.said.phase, bench.said.reason, bench.said.pid) == (Phase.STOPPING, "drain", 41)
    assert bench.later(9.9).todo == ()
    assert bench.later(0.1).todo == (SIGNAL,)
    assert bench.later(4.9).todo == ()
    assert bench.later(0.1).todo == (Kill(KEY),)
    assert bench.said.reason == "drain; did not end within 5 s of signal INT, was killed"


def test_it_wakes_for_its_signal_and_its_kill_only() -> None:
    assert times(told_to_stop(ordered())) == {SIGNAL: 10.0, Kill(KEY): 15.0}


def test_an_order_that_says_nothing_of_it_is_carried_out_at_once() -> None:
    bench = Bench(make_spec())
    bench.began()
    order = msgspec.json.decode(b'{"task": "ann/web/0", "attempt": 7}', type=StopOrder)
    assert bench.assign(stop=(order,)).todo == (SIGNAL,)


def test_the_same_order_again_prolongs_nothing() -> None:
    bench = told_to_stop(ordered())
    for _ in range(3):
        bench.now = bench.now.later(2.5)
        assert bench.assign(stop=(ordered(),)).todo == ()
    assert bench.later(2.5).todo == (SIGNAL,)
    bench.now = bench.now.later(1.0)
    assert bench.assign(stop=(ordered(),)).todo == ()  # it has its signal
    assert times(bench) == {Kill(KEY): 4.0}


@pytest.mark.parametrize(("seconds", "signalled"), [(600.0, 10.0), (7.0, 7.0), (3.0, 4.0), (0.0, 4.0)])
def test_of_several_orders_the_least_counts_from_the_first_on(seconds: float, signalled: float) -> None:
    bench = told_to_stop(ordered())
    first = bench.now
    bench.now = first.later(4.0)
    bench.core.assign(Assignment(9, (), (ordered(seconds),)), 1, 1, bench.now)
    assert times(bench)[SIGNAL] + 4.0 == signalled


@pytest.mark.parametrize(
    ("notice_seconds", "signalled", "killed"),
    [(60.0, 10.0, 15.0), (12.0, 7.0, 12.0), (6.0, 1.0, 6.0), (5.0, 0.0, 5.0), (3.0, 0.0, 3.0)],
)
def test_both_together_take_no_longer_than_the_notice(
    notice_seconds: float, signalled: float, killed: float
) -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.core.assign(Assignment(9, (), (ordered(notice_seconds=notice_seconds),)), 1, 1, bench.now)
    assert times(bench) == {SIGNAL: signalled, Kill(KEY): killed}


def test_a_notice_that_comes_later_shortens_what_is_left() -> None:
    bench = told_to_stop(ordered())
    bench.later(1.0)
    assert bench.assign(stop=(ordered(notice_seconds=7.0),)).todo == ()
    bench.later(1.0)
    assert bench.assign(stop=(ordered(notice_seconds=7.0),)).todo == ()  # it began with the first of them
    assert times(bench) == {SIGNAL: 1.0, Kill(KEY): 6.0}


@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize("policy", [RestartPolicy.ALWAYS, RestartPolicy.NEVER])
def test_what_ends_by_itself_meanwhile_has_ended_as_asked(policy: RestartPolicy, exit_code: int) -> None:
    bench = Bench(make_spec(restart=Restart(policy)))
    bench.began()
    bench.assign(stop=(ordered(),))
    bench.now = bench.now.later(3.0)
    actions = bench.ended(code=exit_code)
    assert (actions.todo, actions.wake_at) == ((), None)
    assert (bench.said.ended, bench.said.reason) == (Ending.KILL, "drain")
    assert bench.later(60.0).todo == ()


def test_nothing_is_probed_or_restarted_meanwhile() -> None:
    bench = Bench(make_spec(health=HEALTH))
    bench.began()
    bench.later(6.0)  # a probe is under way
    bench.assign(stop=(ordered(),))
    for _ in range(5):
        assert bench.probed("refused").todo == ()
        assert bench.later(1.0).todo == ()
    assert (bench.said.phase, bench.said.reason) == (Phase.STOPPING, "drain")


def test_what_is_not_up_has_nothing_to_wait_for() -> None:
    waiting = Bench(make_spec())
    waiting.began()
    waiting.ended(1, code=1)
    waiting.began(2)
    waiting.ended(2, code=1)  # backs off
    waiting.assign(stop=(ordered(),))
    assert waiting.said.ended is Ending.KILL

    starting = Bench(make_spec())
    starting.assign(stop=(ordered(),))
    assert starting.began().todo == (SIGNAL,)
    assert starting.assign(stop=(ordered(),)).todo == ()


def test_what_is_stopped_for_another_reason_already_is_not_given_time() -> None:
    bench = Bench(make_spec(max_runtime_seconds=60.0))
    bench.began()
    assert bench.later(60.0).todo == (SIGNAL,)
    assert bench.assign(stop=(ordered(),)).todo == ()
    assert times(bench) == {Kill(KEY): 5.0}


def test_it_runs_no_longer_than_it_may() -> None:
    bench = told_to_stop(ordered(), max_runtime_seconds=4.0)
    assert times(bench) == {SIGNAL: 4.0, Kill(KEY): 9.0}
    assert bench.said.reason.startswith("drain; did not end")
    bench.ended(signal=9)
    assert bench.said.ended is Ending.KILL


def test_a_lease_that_lapses_ends_it_all_the_same() -> None:
    bench = told_to_stop(ordered())
    bench.now = bench.now.later(2.0)
    lapsed = Exit(signal=15, at=bench.now.wall, lapsed=True, reason="its lease was over")
    bench.core.ran(KEY, RunState(KEY, 1, 41, T0.wall, lapsed), bench.now)
    assert bench.core.step(bench.now).todo == ()
    assert bench.said.ended is Ending.KILL


def test_a_found_program_without_a_specification_is_given_time_too() -> None:
    bench = Bench()
    bench.core.ran(KEY, RunState(KEY, 1, 41, T0.wall), T0)
    assert bench.assign(stop=(ordered(),)).todo == ()
    assert bench.later(10.0).todo == (Signal(KEY, "TERM"),)


# -- programs beside it -------------------------------------------------------------------------------


def test_what_runs_beside_it_goes_on_meanwhile_and_ends_after_it() -> None:
    bench = Group(grouped()).up()
    assert bench.assign(stop=(ordered(),)).todo == ()
    assert bench.later(9.9).todo == ()
    assert bench.beside[:2] == (Phase.UP, 41)
    assert bench.later(0.1).todo == (SIGNAL,)
    assert bench.later(3.0).todo == ()
    assert bench.told(KEY, 1, code(0)).todo == (Signal(BESIDE, "INT"),)
    assert bench.later(1.9).todo == ()
    assert bench.later(0.2).todo == (Kill(BESIDE),)  # it had what was left of the grace
    bench.told(BESIDE, 1, Exit(signal=9))
    assert bench.said.ended is Ending.KILL


def test_what_runs_beside_it_is_stopped_when_it_ends_by_itself_meanwhile() -> None:
    bench = Group(grouped()).up()
    bench.assign(stop=(ordered(),))
    bench.later(1.0)
    assert bench.told(KEY, 1, code(0)).todo == (Signal(BESIDE, "INT"),)
    assert bench.said.ended is None
    bench.told(BESIDE, 1, Exit(signal=2))
    assert bench.said.ended is Ending.KILL


def test_a_notice_bounds_what_runs_beside_it_as_well() -> None:
    bench = Group(grouped()).up()
    assert bench.assign(stop=(ordered(notice_seconds=8.0),)).todo == ()
    assert bench.later(3.0).todo == (SIGNAL,)
    assert bench.later(5.0).todo == (Kill(KEY),)
    assert bench.told(KEY, 1, Exit(signal=9)).todo == (Signal(BESIDE, "INT"), Kill(BESIDE))


def test_nothing_new_begins_beside_it_meanwhile() -> None:
    bench = Group(grouped()).up()
    bench.assign(stop=(ordered(),))
    bench.told(BESIDE, 1, code(1))
    assert not any(isinstance(action, Start) for action in bench.later(5.0).todo)


# -- restart of the borglet ---------------------------------------------------------------------------


def test_a_restart_of_the_borglet_begins_no_new_wait() -> None:
    bench = told_to_stop(ordered())
    bench.later(4.0)
    restarted(bench, RunState(KEY, 1, 41, T0.wall), seconds=2.0)
    assert bench.assign(stop=(ordered(),)).todo == ()
    assert bench.said.phase is Phase.STOPPING
    assert times(bench) == {SIGNAL: 4.0, Kill(KEY): 9.0}


def test_a_time_that_was_over_while_no_borglet_ran_is_over() -> None:
    bench = told_to_stop(ordered())
    restarted(bench, RunState(KEY, 1, 41, T0.wall), seconds=30.0)
    assert bench.core.step(bench.now).todo == (SIGNAL,)


@pytest.mark.parametrize("leap_seconds", [3600.0, -3600.0, 1e9, -1e9])
def test_a_clock_that_is_set_meanwhile_changes_nothing(leap_seconds: float) -> None:
    bench = told_to_stop(ordered())
    old, later = bench.core, Now(bench.now.wall + 4.0 + leap_seconds, bench.now.mono + 4.0)
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, ledger=old.ledger(), head=old.head, now=later)
    bench.now = later
    bench.core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall)], later)
    assert times(bench) == {SIGNAL: 6.0, Kill(KEY): 11.0}


def test_what_ended_while_no_borglet_ran_has_ended_as_asked() -> None:
    bench = told_to_stop(ordered())
    restarted(bench, RunState(KEY, 1, 41, T0.wall, Exit(code=1, at=T0.wall + 1.0)))
    assert bench.core.step(bench.now).todo == ()
    assert bench.said.ended is Ending.KILL


def test_a_signal_that_was_sent_is_sent_again_and_its_grace_goes_on() -> None:
    bench = told_to_stop(ordered())
    assert bench.later(10.0).todo == (SIGNAL,)
    restarted(bench, RunState(KEY, 1, 41, T0.wall), seconds=2.0)
    assert times(bench) == {SIGNAL: 0.0, Kill(KEY): 3.0}


def test_a_group_goes_on_waiting_when_its_borglet_restarts() -> None:
    bench = Group(grouped()).up()
    bench.assign(stop=(ordered(),))
    restarted(bench, state(KEY, bench), state(BESIDE, bench), seconds=4.0)
    assert bench.core.step(bench.now).todo == ()
    assert bench.beside[0] is Phase.UP
    assert bench.later(6.0).todo == (SIGNAL,)


def test_a_first_order_from_before_the_runtime_was_open_counts_from_then() -> None:
    bench = Bench(make_spec())
    bench.began()
    old = bench.core
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, ledger=old.ledger(), head=old.head, now=T0)
    bench.core.assign(Assignment(9, (), (ordered(),)), 1, 1, T0)
    bench.core.step(T0)
    bench.now = T0.later(3.0)
    bench.core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall)], bench.now)
    assert times(bench)[SIGNAL] == 10.0
