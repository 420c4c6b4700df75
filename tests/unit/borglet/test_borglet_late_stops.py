"""Orders to stop that come before a borglet knows what became of its attempts while none ran."""

from borgish.borglet.actions import Signal
from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.spec.job import Restart
from borgish.vocabulary import Ending, RestartPolicy, Runtime
from borgish.wire.link import Assignment, Exit
from tests.unit.borglet.test_borglet_core import FACTS, KEY, STOP, T0, Bench, make_spec


def test_what_ended_while_no_borglet_ran_ended_by_itself_though_its_stop_came_first() -> None:
    batch = make_spec(restart=Restart(RestartPolicy.ON_FAILURE))
    bench = Bench(batch)
    bench.began()
    core = BorgletCore("m1", "boot", "i2", FACTS, ledger=bench.core.ledger(), head=bench.core.head, now=T0)
    core.assign(Assignment(9, (), (STOP,)), 1, 1, T0)  # before its runtime is open
    core.step(T0)
    core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall, Exit(code=0, at=T0.wall))], T0)
    core.step(T0)
    (report,) = core.report()
    assert (report.ended, report.reason) == (Ending.FINISH, "exit code 0")


def test_what_runs_yet_is_stopped_when_its_runtime_is_open() -> None:
    bench = Bench(make_spec())
    bench.began()
    core = BorgletCore("m1", "boot", "i2", FACTS, ledger=bench.core.ledger(), head=bench.core.head, now=T0)
    core.assign(Assignment(9, (), (STOP,)), 1, 1, T0)
    assert core.step(T0).todo == ()
    core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall)], T0)
    assert core.step(T0).todo == (Signal(KEY, "INT"),)
