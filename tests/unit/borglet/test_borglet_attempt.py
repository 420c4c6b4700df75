"""What one attempt counts, and what it takes no notice of: restarts, failed starts, old news."""

import msgspec
import pytest

from borgish.borglet.actions import Forget, Kill, Probe, Signal, Start
from borgish.borglet.attempts.attempt import Attempt
from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.spec.job import Health, Restart
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import Assignment, AttemptReport, Exit, StopOrder
from tests.unit.borglet.test_borglet_core import FACTS, HEALTH, KEY, STOP, T0, Bench, make_spec

TO_COMPLETION = Restart(RestartPolicy.ON_FAILURE)


@pytest.mark.parametrize("permanent", [True, False])
def test_starts_that_fail_count_against_the_limit_of_restarts(permanent: bool) -> None:
    bench = Bench(make_spec(restart=Restart(attempts=2, within_seconds=600.0)))
    bench.no_start("the engine does not answer", permanent=permanent)
    assert bench.said.ended is None
    bench.later(1.0)
    bench.no_start("the engine does not answer", permanent=permanent)
    assert bench.said.ended is Ending.FAIL
    assert bench.said.reason == (
        "cannot start: the engine does not answer; failed 2 times within 10 min, the limit of its "
        "restart.attempts"
    )


def test_ends_and_failed_starts_count_together() -> None:
    bench = Bench(make_spec(restart=Restart(attempts=2, within_seconds=600.0)))
    bench.began()
    bench.ended(1, code=1)
    bench.no_start("the engine does not answer", 2)
    assert bench.said.ended is Ending.FAIL


def test_what_failed_to_start_is_the_last_exit() -> None:
    bench = Bench(make_spec())
    bench.no_start("the engine does not answer.")
    assert bench.said.last_exit == Exit(reason="cannot start: the engine does not answer", at=T0.wall)


def test_hopeless_starts_are_counted_anew_after_a_run() -> None:
    bench = Bench(make_spec())
    for _ in range(2):
        bench.no_start("no image x", permanent=True)
        bench.later(10.0)
    bench.began()
    bench.ended(1, code=1)
    bench.later(10.0)
    for tries_left in (2, 1):
        bench.no_start("no image x", 2, permanent=True)
        assert bench.said.ended is None
        assert f"{tries_left} tr" in bench.said.reason
        bench.later(60.0)
    bench.no_start("no image x", 2, permanent=True)
    assert bench.said.ended is Ending.FAIL


def test_hopeless_starts_back_off_too() -> None:
    bench = Bench(make_spec())
    assert bench.no_start("no image x", permanent=True).todo == (Start(make_spec(), 1),)
    actions = bench.no_start("no image x", permanent=True)
    assert actions.todo == ()
    assert actions.wake_at == bench.now.mono + 1.0


def test_a_start_that_failed_is_told_of_one_run_only() -> None:
    bench = Bench(make_spec())
    assert bench.no_start("too late", 7).todo == ()
    assert bench.said.last_exit is None
    bench.began()
    bench.no_start("too late", 1)
    assert bench.said.phase is Phase.UP


def test_the_end_of_an_older_run_is_old_news() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.ended(1, code=1)
    bench.began(2)
    assert bench.ended(1, code=1).todo == ()
    assert (bench.said.phase, bench.said.pid, bench.said.restarts) == (Phase.UP, 42, 1)


def test_a_stop_that_is_ordered_again_keeps_its_reason_and_its_grace() -> None:
    bench = Bench(make_spec())
    bench.began()
    assert bench.assign(stop=(STOP,)).todo == (Signal(KEY, "INT"),)
    bench.now = bench.now.later(3.0)
    assert bench.assign(stop=(StopOrder("ann/web/0", 7, "another reason"),)).todo == ()
    assert bench.said.reason == "drain"
    assert bench.later(2.0).todo == (Kill(KEY),)


def test_the_longest_runtime_is_of_all_runs_together() -> None:
    bench = Bench(make_spec(max_runtime_seconds=60.0))
    bench.began()
    bench.later(50.0)
    bench.ended(1, code=1)
    bench.began(2)
    assert bench.later(10.0).todo == (Signal(KEY, "INT"),)


def test_what_runs_too_long_and_is_told_to_end_wakes_for_its_grace_only() -> None:
    bench = Bench(make_spec(max_runtime_seconds=60.0))
    bench.began()
    actions = bench.later(60.0)
    assert actions.wake_at == bench.now.mono + 5.0


def test_what_ran_too_long_is_reported_as_stopping() -> None:
    bench = Bench(make_spec(max_runtime_seconds=60.0))
    bench.began()
    bench.later(60.0)
    assert (bench.said.phase, bench.said.reason) == (Phase.STOPPING, "ran for its max_runtime of 60 s")


def test_a_start_that_fails_has_its_reason_and_when_it_is_tried_again() -> None:
    bench = Bench(make_spec())
    bench.no_start("the engine does not answer")
    assert bench.said.reason == "cannot start: the engine does not answer; tries again at once"
    bench.no_start("the engine does not answer")
    assert bench.said.reason == "cannot start: the engine does not answer; tries again in 1 s"


def test_an_unhealthy_program_that_ends_well_has_failed_all_the_same() -> None:
    health = Health(tcp=True, port="http", interval_seconds=2.0, failures=1, grace_seconds=0.0)
    bench = Bench(make_spec(health=health, restart=TO_COMPLETION))
    bench.began()
    bench.later(0.1)
    assert bench.probed("no answer").todo == (Signal(KEY, "INT"),)
    assert bench.ended(1, code=0).todo == ()
    assert bench.said.ended is None
    assert bench.later(1.0).todo == (Start(make_spec(health=health, restart=TO_COMPLETION), 2),)


def test_a_probe_that_succeeds_takes_the_reason_away() -> None:
    bench = Bench(make_spec(health=HEALTH))
    bench.began()
    bench.later(6.0)
    bench.probed("HTTP 500")
    assert bench.said.reason
    bench.later(2.0)
    bench.probed()
    assert (bench.said.phase, bench.said.reason) == (Phase.HEALTHY, "")


def test_an_answer_for_the_run_before_says_nothing_of_this_one() -> None:
    bench = Bench(make_spec(health=HEALTH))
    bench.began()
    bench.later(0.1)
    bench.ended(1, code=1)
    bench.began(2)
    assert bench.later(0.1).todo == (Probe(KEY, 2, HEALTH, 8080),)
    phases = []
    for run in (1, 2):
        bench.probed(run=run)
        phases.append(bench.said.phase)
    assert phases == [Phase.UP, Phase.HEALTHY]


def test_nobody_is_woken_for_a_probe_that_was_asked_already() -> None:
    bench = Bench(make_spec(health=HEALTH))
    bench.began()
    actions = bench.later(0.1)
    assert actions.todo == (Probe(KEY, 1, HEALTH, 8080),)
    assert actions.wake_at is None


def test_what_was_acknowledged_is_let_go_of_at_once_and_what_was_not_is_kept() -> None:
    bench = Bench(make_spec(restart=Restart(RestartPolicy.NEVER)))
    bench.began()
    bench.ended(1, code=0)
    told = bench.core.report_generation
    bench.assign()  # and nobody wants it any more
    bench.core.acknowledge(told - 1)
    assert bench.core.step(bench.now).todo == ()
    bench.core.acknowledge(told)
    assert bench.core.step(bench.now).todo == (Forget(KEY),)


def test_a_new_term_has_seen_nothing_until_it_says_so() -> None:
    bench = Bench(make_spec(restart=Restart(RestartPolicy.NEVER)))
    bench.began()
    bench.core.acknowledge(1000)
    bench.core.hear(1, 2)
    bench.ended(1, code=0)
    bench.core.assign(Assignment(1, (), ()), 1, 2, bench.now)
    assert bench.core.step(bench.now).todo == ()


def test_an_end_that_the_master_has_is_let_go_of_when_an_assignment_no_longer_names_it() -> None:
    spec = make_spec(restart=Restart(RestartPolicy.NEVER))
    bench = Bench(spec)
    bench.began()
    bench.ended(1, code=0)
    bench.core.acknowledge(bench.core.report_generation)
    assert bench.core.step(bench.now).todo == ()
    assert bench.assign().todo == (Forget(KEY),)


def test_an_assignment_that_came_before_the_runtime_was_open_is_obeyed_then() -> None:
    core = BorgletCore("m1", "boot", "i1", FACTS, now=T0)
    stop = StopOrder("ann/web/0", 7, "drain")
    core.assign(Assignment(1, (), (stop,)), 1, 1, T0)
    assert core.step(T0).todo == ()
    core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall)], T0)
    assert core.step(T0).todo == (Signal(KEY, "TERM"),)


def test_a_report_has_all_of_what_runs_and_of_what_has_ended() -> None:
    spec = msgspec.structs.replace(make_spec(), devices=("gpu:0",), alloc="ann/room/0")
    bench = Bench(spec)
    waits = AttemptReport(
        "ann/web/0", 7, Phase.STARTING, spec.resources, {"http": 8080}, ("gpu:0",), "ann/room/0"
    )
    assert bench.said == waits
    bench.began()
    assert bench.said == msgspec.structs.replace(waits, phase=Phase.UP, pid=41, started_at=T0.wall)
    bench.assign(stop=(STOP,))
    bench.ended(1, code=0)
    assert bench.said == msgspec.structs.replace(
        waits,
        phase=Phase.STOPPING,
        ended=Ending.KILL,
        last_exit=Exit(code=0, at=T0.wall),
        reason="drain",
    )


def test_of_a_run_without_a_specification_only_the_run_is_reported() -> None:
    bench = Bench()
    bench.core.ran(KEY, RunState(KEY, 1, 41, T0.wall), T0)
    bench.core.step(T0)
    waits = "found running; waits for its assignment"
    assert bench.said == AttemptReport("ann/web/0", 7, Phase.UP, pid=41, started_at=T0.wall, reason=waits)


def test_a_port_that_was_taken_is_nobodys_trouble_after_the_end() -> None:
    bench = Bench(make_spec())
    bench.no_start("port 8080 is taken", port=8080)
    assert bench.said.port_in_use == 8080
    bench.assign(stop=(STOP,))
    bench.no_start("port 8080 is taken", port=8080)
    assert (bench.said.ended, bench.said.port_in_use) == (Ending.KILL, 0)


def test_a_run_whose_begin_is_unknown_began_now() -> None:
    bench = Bench(make_spec(max_runtime_seconds=10.0))
    bench.core.ran(KEY, RunState(KEY, 1, 41, 0.0), bench.now)
    assert bench.core.step(bench.now).wake_at == bench.now.mono + 10.0
    assert bench.said.started_at == bench.now.wall


def test_nobody_is_woken_for_what_is_not_probed() -> None:
    bench = Bench(make_spec())
    assert bench.began().wake_at is None


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.FINISH), (1, Ending.FAIL)])
def test_a_run_found_ended_is_judged_when_its_specification_comes(code: int, ending: Ending) -> None:
    attempt = Attempt(task="ann/web/0", attempt=7, spec=None)
    attempt.found(RunState(KEY, 1, 41, T0.wall, Exit(code=code, at=T0.wall)), T0)
    assert attempt.ended is None
    attempt.learn(make_spec(restart=Restart(RestartPolicy.NEVER)), T0)
    assert attempt.ended is ending
