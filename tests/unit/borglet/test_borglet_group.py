"""Programs beside a main one: they start after it, end after it, and cost it nothing."""

import msgspec

from borgish.borglet.actions import Action, Forget, Kill, Signal, Start
from borgish.borglet.core import Actions, BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.spec.job import Program, Restart
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import AttemptSpec, Exit, StopOrder
from tests.unit.borglet.test_borglet_core import FACTS, KEY, STOP, T0, Bench, make_spec, restarted

PROXY = Program("proxy", ("proxy", "-v"), env={"BORGISH_PROGRAM": "proxy"})
BESIDE = f"{KEY}:proxy"
TO_COMPLETION = Restart(RestartPolicy.ON_FAILURE)


def grouped(*programs: Program, restart: Restart = Restart()) -> AttemptSpec:  # noqa: B008 - frozen
    return msgspec.structs.replace(make_spec(restart=restart), programs=programs or (PROXY,))


class Group(Bench):
    """A core with an attempt of two programs; what is told of the second has its key."""

    def told(self, key: str, run: int = 1, exit_: Exit | None = None) -> Actions:
        self.core.ran(key, RunState(key, run, 40 + run, self.now.wall, exit_), self.now)
        return self.core.step(self.now)

    def up(self) -> "Group":
        self.told(KEY)
        self.told(BESIDE)
        return self

    @property
    def beside(self) -> tuple[Phase, int, int, str]:
        (it,) = self.said.programs
        return it.phase, it.pid, it.restarts, it.reason


def starts(todo: tuple[Action, ...]) -> list[tuple[str, int]]:
    return [(action.key, action.run) for action in todo if isinstance(action, Start)]


def code(number: int) -> Exit:
    return Exit(code=number)


def test_it_starts_once_the_main_program_runs() -> None:
    bench = Group()
    assert starts(bench.assign(grouped()).todo) == [(KEY, 1)]
    assert bench.beside == (Phase.STARTING, 0, 0, "starts with the main program")
    assert [program.name for program in bench.said.programs] == ["proxy"]
    (start,) = bench.told(KEY).todo
    assert isinstance(start, Start)
    assert (start.key, start.spec.run, start.spec.env) == (BESIDE, PROXY.run, PROXY.env)
    assert (start.spec.ports, start.spec.programs, start.spec.resources.ram_bytes) == ({}, (), 2**27)
    bench.told(BESIDE)
    assert bench.beside == (Phase.UP, 41, 0, "")
    assert (bench.said.phase, bench.said.reason, bench.said.restarts) == (Phase.UP, "", 0)


def test_one_that_ends_is_started_again_with_back_off_and_the_task_goes_on() -> None:
    bench = Group(grouped(restart=TO_COMPLETION)).up()
    assert starts(bench.told(BESIDE, 1, code(0)).todo) == [(BESIDE, 2)]
    assert bench.beside[:3] == (Phase.STARTING, 0, 0)
    bench.told(BESIDE, 2)
    assert bench.told(BESIDE, 2, code(1)).todo == ()
    assert bench.beside == (Phase.STARTING, 0, 1, "exit code 1; restarts in 1 s")
    assert (bench.said.ended, bench.said.restarts) == (None, 0)
    assert bench.said.reason == "proxy: exit code 1; restarts in 1 s"
    assert starts(bench.later(1.0).todo) == [(BESIDE, 3)]


def test_one_that_cannot_start_is_tried_for_ever() -> None:
    bench = Group(grouped())
    bench.told(KEY)
    for run in range(10):
        text = f"no command, try {run}"
        bench.core.start_failed(BESIDE, 1, text, bench.now, permanent=True)
        bench.core.step(bench.now)
        assert text in bench.said.reason
        bench.later(300.0)
    assert bench.said.ended is None


def test_when_the_main_program_ends_the_others_do_and_then_all_start_again() -> None:
    bench = Group(grouped()).up()
    assert bench.told(KEY, 1, code(1)).todo == (Signal(BESIDE, "INT"),)  # the main one waits for it
    assert bench.beside[0] is Phase.STOPPING
    assert bench.later(4.9).todo == ()
    assert bench.later(0.2).todo == (Kill(BESIDE),)
    assert starts(bench.told(BESIDE, 1, Exit(signal=9)).todo) == [(KEY, 2)]
    assert bench.beside[3] == "starts with the main program"
    assert starts(bench.told(KEY, 2).todo) == [(BESIDE, 2)]


def test_the_back_off_of_one_is_forgotten_with_a_new_main_program() -> None:
    bench = Group(grouped()).up()
    for run in (1, 2, 3):
        bench.told(BESIDE, run, code(1))
        bench.later(10.0)
        bench.told(BESIDE, run + 1)
    bench.told(BESIDE, 4, code(1))
    assert bench.beside[3] == "exit code 1; restarts in 4 s"
    assert starts(bench.told(KEY, 1, code(1)).todo) == [(KEY, 2)]
    assert starts(bench.told(KEY, 2).todo) == [(BESIDE, 5)]


def test_the_attempt_has_ended_when_all_of_it_has() -> None:
    bench = Group(grouped(restart=TO_COMPLETION)).up()
    assert bench.told(KEY, 1, code(0)).todo == (Signal(BESIDE, "INT"),)
    assert (bench.said.ended, bench.said.phase) == (None, Phase.STOPPING)
    bench.told(BESIDE, 1, Exit(signal=2))
    assert (bench.said.ended, bench.said.last_exit and bench.said.last_exit.code) == (Ending.FINISH, 0)


def test_a_stop_asks_the_main_program_first_and_gives_the_others_what_is_left() -> None:
    bench = Group(grouped()).up()
    assert bench.assign(stop=(STOP,)).todo == (Signal(KEY, "INT"),)
    bench.later(3.0)
    assert bench.told(KEY, 1, code(0)).todo == (Signal(BESIDE, "INT"),)
    assert bench.later(1.9).todo == ()
    assert bench.later(0.2).todo == (Kill(BESIDE),)
    bench.told(BESIDE, 1, Exit(signal=9))
    assert bench.said.ended is Ending.KILL


def test_a_notice_bounds_all_of_them_together() -> None:
    bench = Group(grouped()).up()
    hurried = StopOrder("ann/web/0", 7, "preempted", grace_seconds=2.0)
    assert bench.assign(stop=(hurried,)).todo == (Signal(KEY, "INT"),)
    assert bench.later(2.0).todo == (Kill(KEY),)
    assert bench.told(KEY, 1, Exit(signal=9)).todo == (Signal(BESIDE, "INT"), Kill(BESIDE))


def test_a_notice_that_comes_when_the_main_program_has_ended_bounds_the_rest() -> None:
    bench = Group(grouped(restart=TO_COMPLETION)).up()
    bench.told(KEY, 1, code(0))
    bench.assign(stop=(StopOrder("ann/web/0", 7, "preempted", grace_seconds=1.0),))
    assert bench.later(0.9).todo == ()
    assert bench.later(0.2).todo == (Kill(BESIDE),)
    bench.told(BESIDE, 1, Exit(signal=9))
    assert bench.said.ended is Ending.FINISH


def test_nothing_new_begins_while_the_main_program_is_told_to_end() -> None:
    bench = Group(grouped()).up()
    bench.assign(stop=(STOP,))
    assert bench.told(BESIDE, 1, code(1)).todo == ()
    assert bench.later(3.0).todo == ()
    bench.told(KEY, 1, code(0))
    assert bench.said.ended is Ending.KILL


def test_one_that_begins_when_the_main_program_has_just_ended_is_stopped() -> None:
    bench = Group(grouped())
    bench.told(KEY)  # the start of the other is under way
    assert bench.told(KEY, 1, code(1)).todo == ()
    assert bench.told(BESIDE).todo == (Signal(BESIDE, "INT"),)
    assert starts(bench.told(BESIDE, 1, Exit(signal=2)).todo) == [(KEY, 2)]


def test_a_start_that_fails_when_the_main_program_has_just_ended_holds_up_nothing() -> None:
    bench = Group(grouped())
    bench.told(KEY)
    bench.told(KEY, 1, code(1))
    bench.core.start_failed(BESIDE, 1, "the task's main program does not run", bench.now)
    assert starts(bench.core.step(bench.now).todo) == [(KEY, 2)]
    assert starts(bench.told(KEY, 2).todo) == [(BESIDE, 1)]


def test_all_of_it_is_let_go_of_together() -> None:
    bench = Group(grouped(restart=TO_COMPLETION)).up()
    bench.told(KEY, 1, code(0))
    bench.told(BESIDE, 1, Exit(signal=2))
    bench.assign()
    bench.core.acknowledge(bench.core.report_generation)
    assert bench.core.step(bench.now).todo == (Forget(KEY), Forget(BESIDE))
    bench.core.forgotten(KEY)
    bench.core.forgotten(BESIDE)
    assert bench.core.step(bench.now).records == {KEY: None, BESIDE: None}
    assert bench.core.report() == ()


# -- restart of the borglet ---------------------------------------------------------------------------


def state(key: str, bench: Bench, run: int = 1, exit_: Exit | None = None) -> RunState:
    return RunState(key, run, 40 + run, bench.now.wall, exit_)


def test_all_of_it_is_adopted() -> None:
    bench = Group(grouped()).up()
    restarted(bench, state(KEY, bench), state(BESIDE, bench))
    assert bench.core.step(bench.now).todo == ()
    assert bench.beside == (Phase.UP, 41, 0, "")


def test_what_ended_meanwhile_is_started_again_by_itself() -> None:
    bench = Group(grouped()).up()
    restarted(bench, state(KEY, bench), state(BESIDE, bench, 1, code(3)))
    assert starts(bench.core.step(bench.now).todo) == [(BESIDE, 2)]
    bench = Group(grouped()).up()
    restarted(bench, state(KEY, bench, 1, code(3)), state(BESIDE, bench))
    assert bench.core.step(bench.now).todo == (Signal(BESIDE, "INT"),)


def test_without_the_ledger_all_of_it_waits_for_its_assignment_and_goes_on() -> None:
    bench = Group()
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, now=T0)
    bench.core.adopted(Runtime.FAKE, [state(BESIDE, bench, 4), state(KEY, bench, 3)], T0)
    assert bench.core.step(T0).todo == ()
    assert (bench.said.restarts, bench.beside[:3]) == (2, (Phase.UP, 44, 3))
    assert bench.assign(grouped()).todo == ()
    assert bench.said.phase is Phase.UP


def test_what_is_left_of_an_unknown_attempt_can_be_stopped_and_replaced() -> None:
    for order, wanted in ((grouped(), [(KEY, 1)]), (None, [])):
        bench = Group()
        bench.core = BorgletCore("m1", "boot", "i2", FACTS, now=T0)
        bench.core.adopted(Runtime.FAKE, [state(BESIDE, bench, 4)], T0)
        assert bench.core.step(T0).todo == ()
        assert (bench.said.task, bench.said.attempt) == ("ann/web/0", 7)
        bench.now = Now(T0.wall, T0.mono)
        todo = bench.assign(order).todo if order else bench.assign(stop=(STOP,)).todo
        assert [type(action) for action in todo] == [Signal]
        assert starts(bench.told(BESIDE, 4, Exit(signal=15)).todo) == wanted


def test_programs_that_the_ledger_does_not_have_are_gathered_at_a_restart_without_a_master() -> None:
    """Killed between the records of the main program and of those beside it, and nobody assigns it again."""
    bench = Group(grouped()).up()
    entries = [entry for entry in bench.core.ledger() if entry.key == KEY]
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, ledger=entries, head=bench.core.head, now=bench.now)
    bench.core.adopted(Runtime.FAKE, [state(KEY, bench)], bench.now)
    assert starts(bench.core.step(bench.now).todo) == [(BESIDE, 1)]
    assert bench.beside[0] is Phase.STARTING


def stopped_before_it_began() -> Group:
    """The main program ended while the start of the one beside it was under way."""
    bench = Group(grouped())
    assert starts(bench.told(KEY).todo) == [(BESIDE, 1)]
    assert starts(bench.told(KEY, 1, code(1)).todo) == []
    return bench


def test_a_start_that_failed_as_the_main_program_ended_does_not_end_the_next_one() -> None:
    bench = stopped_before_it_began()
    bench.core.start_failed(BESIDE, 1, "no answer", bench.now)
    assert starts(bench.core.step(bench.now).todo) == [(KEY, 2)]
    assert starts(bench.told(KEY, 2).todo) == [(BESIDE, 1)]
    assert bench.told(BESIDE, 1).todo == ()
    assert bench.beside[0] is Phase.UP


def test_a_start_that_was_not_answered_before_a_restart_is_made_with_the_next_main_program() -> None:
    bench = stopped_before_it_began()
    restarted(bench, state(KEY, bench, 1, code(1)))
    assert starts(bench.core.step(bench.now).todo) == [(KEY, 2)]
    assert starts(bench.told(KEY, 2).todo) == [(BESIDE, 1)]
    assert bench.told(BESIDE, 1).todo == ()
    assert bench.beside[0] is Phase.UP
