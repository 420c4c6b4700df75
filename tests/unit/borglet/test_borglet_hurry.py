"""Stops that are bounded by less than the attempt's own grace."""

from borgish.borglet.actions import Kill, Signal
from borgish.borglet.runtimes.base import RunState
from borgish.wire.link import StopOrder
from tests.unit.borglet.test_borglet_core import KEY, STOP, T0, Bench, make_spec, restarted


def hurried(seconds: float) -> StopOrder:
    return StopOrder("ann/web/0", 7, "preempted", grace_seconds=seconds)


def test_a_stop_in_a_hurry_gets_less_than_its_grace() -> None:
    bench = Bench(make_spec())
    bench.began()
    assert bench.assign(stop=(hurried(2.0),)).todo == (Signal(KEY, "INT"),)
    assert bench.later(1.9).todo == ()
    assert bench.later(0.2).todo == (Kill(KEY),)
    assert bench.said.reason == "preempted; did not end within 2 s of signal INT, was killed"


def test_a_hurry_longer_than_the_grace_changes_nothing() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.assign(stop=(hurried(60.0),))
    assert bench.later(4.9).todo == ()
    assert bench.later(0.2).todo == (Kill(KEY),)


def test_without_any_notice_signal_and_kill_come_together() -> None:
    bench = Bench(make_spec())
    bench.began()
    assert bench.assign(stop=(hurried(0.0),)).todo == (Signal(KEY, "INT"), Kill(KEY))


def test_of_several_orders_to_stop_the_soonest_counts() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.assign(stop=(STOP,))
    bench.later(1.0)
    assert bench.assign(stop=(hurried(2.0),)).todo == ()
    bench.later(1.5)
    assert bench.assign(stop=(hurried(2.0),)).todo == ()  # the same order again begins no new notice
    assert bench.later(0.6).todo == (Kill(KEY),)


def test_a_hurry_that_comes_while_it_starts_counts_from_the_order() -> None:
    bench = Bench(make_spec())
    bench.assign(stop=(hurried(2.0),))
    bench.later(1.5)
    assert bench.began().todo == (Signal(KEY, "INT"),)
    assert bench.later(0.6).todo == (Kill(KEY),)


def test_a_hurry_survives_a_restart_of_the_borglet() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.assign(stop=(hurried(3.0),))
    restarted(bench, RunState(KEY, 1, 41, T0.wall), seconds=1.0)
    assert bench.core.step(bench.now).todo == (Signal(KEY, "INT"),)
    assert bench.later(1.9).todo == ()
    assert bench.later(0.2).todo == (Kill(KEY),)
