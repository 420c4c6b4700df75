"""What the core says and asks, case by case; see the matrix for every state x input."""

import msgspec
import pytest

from borgish.borglet.actions import Forget, Kill, Probe, Signal, Start
from borgish.borglet.attempts.entry import Entry, Head
from borgish.borglet.core import Actions, BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.spec.job import ExitRule, Health, Program, Restart, Stop
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import (
    Assignment,
    AttemptReport,
    AttemptSpec,
    Condition,
    ConditionKind,
    Exit,
    Facts,
    PollRequest,
    StopOrder,
    Usage,
)

T0 = Now(1_700_000_000.0, 50.0)
FACTS = Facts(Resources(1000, 2**30, 2**30), {}, (Runtime.FAKE,), 20000, 20999)
KEY = "ann/web/0@7"
STOP = StopOrder("ann/web/0", 7, "drain")


def make_spec(
    *,
    restart: Restart = Restart(),  # noqa: B008 - frozen
    health: Health | None = None,
    max_runtime_seconds: float = 0.0,
    attempt: int = 7,
    on_exit: tuple[ExitRule, ...] = (),
) -> AttemptSpec:
    return AttemptSpec(
        task="ann/web/0",
        attempt=attempt,
        run=("serve",),
        env={},
        runtime=Runtime.FAKE,
        resources=Resources(cpu_millis=100, ram_bytes=128 * 2**20),
        restart=restart,
        stop=Stop("INT", 5.0),
        ports={"http": 8080},
        health=health,
        max_runtime_seconds=max_runtime_seconds,
        on_exit=on_exit,
    )


class Bench:
    """A core with a hand on its clock."""

    def __init__(self, *specs: AttemptSpec) -> None:
        self.now = T0
        self.core = BorgletCore("m1", "boot", "i1", FACTS, now=T0)
        self.core.adopted(Runtime.FAKE, [], T0)
        self.generation = 0
        self.assign(*specs)

    def assign(self, *specs: AttemptSpec, stop: tuple[StopOrder, ...] = ()) -> Actions:
        self.generation += 1
        self.core.assign(Assignment(self.generation, specs, stop), 1, 1, self.now)
        return self.core.step(self.now)

    def later(self, seconds: float) -> Actions:
        self.now = self.now.later(seconds)
        return self.core.step(self.now)

    def began(self, run: int = 1) -> Actions:
        self.core.ran(KEY, RunState(KEY, run, 40 + run, self.now.wall), self.now)
        return self.core.step(self.now)

    def ended(self, run: int = 1, *, code: int | None = None, signal: int | None = None) -> Actions:
        exit_ = Exit(code=code, signal=signal, at=self.now.wall)
        self.core.ran(KEY, RunState(KEY, run, 40 + run, self.now.wall, exit_), self.now)
        return self.core.step(self.now)

    def no_start(self, text: str, run: int = 1, *, permanent: bool = False, port: int = 0) -> Actions:
        self.core.start_failed(KEY, run, text, self.now, permanent=permanent, port=port)
        return self.core.step(self.now)

    def probed(self, fault: str = "", run: int = 1) -> Actions:
        self.core.probed(KEY, run, fault, self.now, ok=not fault)
        return self.core.step(self.now)

    @property
    def said(self) -> AttemptReport:
        (report,) = self.core.report()
        return report


def test_an_assignment_starts_what_is_not_there_and_keeps_what_is() -> None:
    bench = Bench()
    assert bench.assign(make_spec()).todo == (Start(make_spec(), 1),)
    assert bench.said.phase is Phase.STARTING
    bench.began()
    assert (bench.said.phase, bench.said.pid, bench.said.restarts) == (Phase.UP, 41, 0)
    assert bench.assign(make_spec()).todo == ()


def test_a_service_that_dies_is_started_at_once_then_after_a_wait() -> None:
    bench = Bench(make_spec())
    bench.began()
    actions = bench.ended(1, signal=9)
    assert actions.todo == (Start(make_spec(), 2),)
    assert actions.news[0].reason == "ended by signal KILL; restarts at once"
    bench.began(2)
    actions = bench.ended(2, code=1)
    assert actions.todo == ()
    assert bench.said.reason == "exit code 1; restarts in 1 s"
    assert actions.wake_at == bench.now.mono + 1.0
    assert bench.later(1.0).todo == (Start(make_spec(), 3),)
    bench.began(3)
    assert (bench.said.restarts, bench.said.reason) == (2, "")


def test_a_run_to_completion_finishes_with_exit_0_only() -> None:
    spec = make_spec(restart=Restart(RestartPolicy.ON_FAILURE))
    bench = Bench(spec)
    bench.began()
    assert bench.ended(1, code=2).todo == ()
    assert bench.later(1.0).todo == (Start(spec, 2),)
    bench.began(2)
    bench.ended(2, code=0)
    assert (bench.said.ended, bench.said.reason) == (Ending.FINISH, "exit code 0")


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.FINISH), (1, Ending.FAIL)])
def test_what_never_restarts_ends_with_its_program(code: int, ending: Ending) -> None:
    bench = Bench(make_spec(restart=Restart(RestartPolicy.NEVER)))
    bench.began()
    assert bench.ended(1, code=code).todo == ()
    assert bench.said.ended is ending
    assert bench.said.last_exit == Exit(code=code, at=bench.now.wall)


def test_too_many_failures_end_it() -> None:
    bench = Bench(make_spec(restart=Restart(attempts=2, within_seconds=600.0)))
    bench.began()
    bench.ended(1, code=1)
    bench.began(2)
    bench.ended(2, code=1)
    assert bench.said.ended is Ending.FAIL
    assert bench.said.reason.startswith("exit code 1; failed 2 times within 10 min")


def test_what_is_said_of_a_failed_start_goes_on_where_its_reason_ends() -> None:
    bench = Bench(make_spec())
    bench.no_start("no image x. Bring it here: `docker pull x`.", permanent=True)
    assert bench.said.reason == "cannot start: no image x. Bring it here: `docker pull x`; 2 tries left"


def test_a_start_that_cannot_work_is_tried_three_times() -> None:
    bench = Bench(make_spec())
    bench.no_start("no command 'nosuch' in PATH", permanent=True)
    assert bench.said.reason == "cannot start: no command 'nosuch' in PATH; 2 tries left"
    bench.no_start("no command 'nosuch' in PATH", permanent=True)
    bench.later(1.0)
    bench.no_start("no command 'nosuch' in PATH", permanent=True)
    assert bench.said.ended is Ending.FAIL
    assert bench.said.reason == "cannot start: no command 'nosuch' in PATH; tried 3 times"


def test_other_failed_starts_are_tried_for_ever() -> None:
    bench = Bench(make_spec())
    for _ in range(20):
        bench.no_start("the engine does not answer")
        bench.later(300.0)
    assert bench.said.ended is None
    assert bench.said.phase is Phase.STARTING


def test_a_port_in_use_is_reported_and_does_not_count_as_a_failure() -> None:
    bench = Bench(make_spec(restart=Restart(attempts=1)))
    bench.no_start("port 8080 is in use", port=8080)
    bench.no_start("port 8080 is in use", port=8080)
    assert (bench.said.ended, bench.said.port_in_use) == (None, 8080)
    bench.later(1.0)
    bench.began()
    assert bench.said.port_in_use == 0


def test_a_stop_is_a_signal_then_a_kill() -> None:
    bench = Bench(make_spec())
    bench.began()
    actions = bench.assign(stop=(STOP,))
    assert actions.todo == (Signal(KEY, "INT"),)
    assert (bench.said.phase, bench.said.reason) == (Phase.STOPPING, "drain")
    assert bench.later(4.9).todo == ()
    assert bench.later(0.2).todo == (Kill(KEY),)
    bench.ended(1, signal=9)
    assert (bench.said.ended, bench.said.last_exit and bench.said.last_exit.signal) == (Ending.KILL, 9)
    assert bench.said.reason == "drain; did not end within 5 s of signal INT, was killed"


def test_what_survives_a_kill_is_killed_again() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.assign(stop=(STOP,))
    assert bench.later(5.0).todo == (Kill(KEY),)
    assert bench.later(10.0).todo == (Kill(KEY),)


def test_a_stop_of_what_is_not_here_is_nothing_even_when_run_names_it_too() -> None:
    bench = Bench()
    assert bench.assign(make_spec(), stop=(STOP,)).todo == ()
    assert bench.core.report() == ()


def test_what_an_assignment_does_not_name_is_left_alone() -> None:
    bench = Bench(make_spec())
    bench.began()
    assert bench.assign().todo == ()
    assert bench.said.phase is Phase.UP


def test_an_older_generation_is_ignored_and_an_older_epoch_refused() -> None:
    bench = Bench(make_spec())
    bench.began()
    assert not bench.core.assign(Assignment(0, (), (STOP,)), 1, 1, bench.now)
    bench.core.hear(2, 1)
    assert bench.core.head == Head("m1", 2, 1)
    for timeline, epoch in ((1, 9), (2, 0)):
        with pytest.raises(Conflict, match="superseded"):
            bench.core.assign(Assignment(9, (), (STOP,)), timeline, epoch, bench.now)
    assert bench.core.step(bench.now).todo == ()
    assert bench.core.generation == 0


def test_an_end_is_forgotten_only_when_the_master_has_it_and_names_it_no_more() -> None:
    bench = Bench(make_spec(restart=Restart(RestartPolicy.NEVER)))
    bench.began()
    before = bench.core.report_generation
    bench.ended(1, code=0)
    bench.core.acknowledge(before)
    assert bench.assign().todo == ()
    bench.core.acknowledge(known := bench.core.report_generation)
    actions = bench.core.step(bench.now)
    assert bench.core.report_generation == known + 1
    assert actions.todo == (Forget(KEY),)
    assert (bench.core.report(), actions.records) == ((), {})
    bench.core.forgotten(KEY)
    assert bench.core.step(bench.now).records == {KEY: None}


def test_an_end_is_kept_while_the_assignment_names_it() -> None:
    bench = Bench(make_spec(restart=Restart(RestartPolicy.NEVER)))
    bench.began()
    bench.ended(1, code=0)
    bench.core.acknowledge(bench.core.report_generation)
    assert bench.core.step(bench.now).todo == ()
    assert bench.assign(make_spec()).todo == ()
    assert bench.said.ended is Ending.FINISH


HEALTH = Health(http="/", port="http", interval_seconds=2.0, failures=2, grace_seconds=5.0)


def test_a_probed_task_becomes_healthy_unhealthy_and_is_restarted() -> None:
    spec = make_spec(health=HEALTH)
    bench = Bench(spec)
    assert bench.began().news[0].phase is Phase.UP
    assert bench.later(0.1).todo == (Probe(KEY, 1, HEALTH, 8080),)
    assert bench.probed().news[0].phase is Phase.HEALTHY
    bench.later(2.0)
    bench.probed("HTTP 500")
    assert (bench.said.phase, bench.said.reason) == (Phase.HEALTHY, "probe failed 1 of 2 times: HTTP 500")
    bench.later(2.0)
    assert bench.probed("HTTP 500").todo == (Signal(KEY, "INT"),)
    assert bench.said.phase is Phase.UNHEALTHY
    assert bench.ended(1, code=0).todo == (Start(spec, 2),)
    assert bench.said.last_exit is not None
    assert bench.said.last_exit.reason == "unhealthy: probe failed 2 times in a row: HTTP 500"


def test_an_answer_for_an_older_run_is_void() -> None:
    bench = Bench(make_spec(health=HEALTH))
    bench.began()
    bench.later(0.1)
    bench.ended(1, code=1)
    bench.began(2)
    bench.probed(run=1)
    assert bench.said.phase is Phase.UP


def test_what_runs_for_too_long_is_stopped_and_fails() -> None:
    bench = Bench(make_spec(max_runtime_seconds=60.0))
    actions = bench.began()
    assert actions.wake_at == T0.mono + 60.0
    assert bench.later(60.0).todo == (Signal(KEY, "INT"),)
    bench.ended(1, signal=2)
    assert (bench.said.ended, bench.said.reason) == (Ending.FAIL, "ran for its max_runtime of 60 s")


def test_memory_over_the_limit_is_said_with_the_limit_and_the_way_out() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.core.ran(KEY, RunState(KEY, 1, 41, T0.wall, Exit(signal=9, oom=True, at=T0.wall)), bench.now)
    bench.core.step(bench.now)
    assert bench.said.reason == (
        "out of memory: it reached its limit of 128MiB; raise resources.ram; restarts at once"
    )


# -- restart of the borglet ---------------------------------------------------------------------------


def restarted(bench: Bench, *runs: RunState, seconds: float = 1.0) -> Bench:
    """The same machine with a new borglet, ``seconds`` later, whose monotonic clock began anew."""
    old = bench.core
    bench.now = Now(bench.now.wall + seconds, 3.0)
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, ledger=old.ledger(), head=old.head, now=bench.now)
    bench.core.adopted(Runtime.FAKE, runs, bench.now)
    return bench


def test_what_runs_is_adopted_and_nothing_restarts() -> None:
    bench = Bench(make_spec())
    bench.began()
    restarted(bench, RunState(KEY, 1, 41, T0.wall))
    assert bench.core.step(bench.now).todo == ()
    assert (bench.said.phase, bench.said.pid, bench.said.started_at) == (Phase.UP, 41, T0.wall)


def test_an_exit_that_happened_meanwhile_is_taken_in() -> None:
    bench = Bench(make_spec(restart=Restart(RestartPolicy.ON_FAILURE)))
    bench.began()
    restarted(bench, RunState(KEY, 1, 41, T0.wall, Exit(code=0, at=T0.wall + 0.5)))
    bench.core.step(bench.now)
    assert (bench.said.ended, bench.said.last_exit) == (Ending.FINISH, Exit(code=0, at=T0.wall + 0.5))


def test_a_run_that_the_runtime_lost_is_a_failure() -> None:
    bench = Bench(make_spec())
    bench.began()
    assert restarted(bench).core.step(bench.now).todo == (Start(make_spec(), 2),)
    assert bench.said.last_exit == Exit(reason="exit unknown", at=bench.now.wall)


def test_run_counts_and_the_back_off_survive() -> None:
    bench = Bench(make_spec())
    for run in (1, 2, 3):
        bench.began(run)
        bench.ended(run, code=1)
        bench.later(5.0)
    bench.began(4)
    bench.ended(4, code=1)  # the next start is due in 4 s
    restarted(bench, RunState(KEY, 4, 44, T0.wall, Exit(code=1)), seconds=1.0)
    actions = bench.core.step(bench.now)
    assert actions.todo == ()
    assert actions.wake_at == pytest.approx(bench.now.mono + 3.0)
    assert bench.said.restarts == 3
    assert bench.later(3.01).todo == (Start(make_spec(), 5),)


def test_a_wall_clock_that_jumped_cannot_hold_up_a_start_for_long() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.ended(1, code=1)
    bench.began(2)
    bench.ended(2, code=1)
    restarted(bench, seconds=-1_000_000.0)
    wake_at = bench.core.step(bench.now).wake_at
    assert wake_at is not None
    assert wake_at <= bench.now.mono + 600.0


def test_a_stop_goes_on_and_unanswered_starts_are_asked_for_again() -> None:
    bench = Bench(make_spec())
    restarted(bench)
    assert bench.core.step(bench.now).todo == (Start(make_spec(), 1),)
    bench.began()
    bench.assign(stop=(STOP,))
    restarted(bench, RunState(KEY, 1, 41, T0.wall))
    assert bench.core.step(bench.now).todo == (Signal(KEY, "INT"),)


def test_without_its_ledger_a_run_is_held_until_its_spec_comes() -> None:
    bench = Bench()
    exit_ = Exit(code=1, at=T0.wall)
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, now=T0)
    bench.core.adopted(Runtime.FAKE, [RunState(KEY, 3, 43, T0.wall, exit_)], T0)
    assert bench.core.step(T0).todo == ()
    assert (bench.said.restarts, bench.said.last_exit) == (2, exit_)
    assert bench.said.reason == "exit code 1; waits for its assignment"
    assert bench.assign(make_spec()).todo == (Start(make_spec(), 4),)


def test_an_unknown_run_can_be_stopped() -> None:
    bench = Bench()
    bench.core.ran(KEY, RunState(KEY, 1, 41, T0.wall), T0)
    bench.core.step(T0)
    assert bench.said.reason == "found running; waits for its assignment"
    assert bench.assign(stop=(STOP,)).todo == (Signal(KEY, "TERM"),)
    assert bench.later(10.0).todo == (Kill(KEY),)


def test_nothing_starts_before_its_runtime_is_open() -> None:
    core = BorgletCore("m1", "boot", "i1", FACTS, now=T0)
    core.assign(Assignment(1, (make_spec(),)), 1, 1, T0)
    actions = core.step(T0)
    assert (actions.todo, actions.wake_at) == ((), None)
    assert core.report()[0].reason == "waits for the fake runtime of this machine"
    core.adopted(Runtime.FAKE, [], T0)
    assert core.step(T0).todo == (Start(make_spec(), 1),)


# -- what the master hears -----------------------------------------------------------------------------


def test_a_master_that_has_seen_all_hears_nothing_new() -> None:
    bench = Bench(make_spec())
    core = bench.core
    first = PollRequest("local", 1, 1, 1)
    assert core.differs(first)
    reply = core.reply(first)
    assert reply.report is not None
    assert (reply.generation, reply.instance, len(reply.report.attempts)) == (1, "i1", 1)
    assert reply.report.facts == FACTS
    seen = PollRequest("local", 1, 1, 1, reply.report_generation, "i1")
    assert not core.differs(seen)
    assert core.reply(seen).report is None
    usage = (Usage("ann/web/0", 7, 50, 2**20),)
    assert core.reply(seen, usage).usage == usage
    assert core.differs(PollRequest("local", 1, 1, 1, reply.report_generation, "i0"))
    assert core.differs(PollRequest("local", 1, 1, 2, reply.report_generation, "i1"))
    bench.began()
    assert core.differs(seen)


def test_one_that_began_anew_lacks_the_assignment_that_was_obeyed_before_it() -> None:
    core = BorgletCore("m1", "boot", "i2", FACTS, head=Head("m1", 1, 1, 5), now=T0)

    def lacks(generation: int) -> bool:
        return core.differs(PollRequest("local", 1, 1, generation, core.report_generation, "i2"))

    assert [lacks(generation) for generation in (0, 4, 5, 6)] == [False, False, True, True]


def test_conditions_and_facts_are_news() -> None:
    bench = Bench()
    before = bench.core.report_generation
    wrong = (Condition(ConditionKind.DISK_PRESSURE, "/", "full"),)
    bench.core.observe(FACTS, wrong)
    bench.core.step(bench.now)
    assert bench.core.report_generation == before + 1
    bench.core.observe(FACTS, wrong)
    bench.core.step(bench.now)
    assert bench.core.report_generation == before + 1
    report = bench.core.reply(PollRequest("local", 1, 1, 1)).report
    assert report is not None
    assert report.conditions == wrong


def test_what_was_touched_and_is_as_before_is_no_news() -> None:
    bench = Bench(make_spec(health=HEALTH))
    bench.began()
    bench.later(0.1)
    assert len(bench.probed().news) == 1
    before = bench.core.report_generation
    bench.later(2.0)
    assert bench.probed().news == ()
    assert bench.core.report_generation == before


def test_several_ends_that_the_master_has_are_forgotten_at_once() -> None:
    never = Restart(RestartPolicy.NEVER)
    specs = [make_spec(restart=never, attempt=attempt) for attempt in (7, 8, 9)]
    bench = Bench(*specs)
    for spec in specs:
        ended = RunState(spec.key, 1, 41, bench.now.wall, Exit(code=0, at=bench.now.wall))
        bench.core.ran(spec.key, ended, bench.now)
    bench.core.step(bench.now)
    bench.core.acknowledge(bench.core.report_generation)
    assert bench.assign().todo == tuple(Forget(spec.key) for spec in specs)


def test_for_how_long_output_is_wanted_is_told_to_who_keeps_it() -> None:
    """Of each program of the attempt, also by a borglet that was started anew, and as it was told first."""
    spec = msgspec.structs.replace(
        make_spec(restart=Restart(RestartPolicy.NEVER)),
        keep_output_seconds=3600.0,
        programs=(Program("proxy", ("proxy",)),),
    )
    before = Bench(spec)
    before.began()
    entries = msgspec.json.decode(msgspec.json.encode(before.core.ledger()), type=tuple[Entry, ...])
    bench = Bench()
    bench.core = BorgletCore("m1", "boot", "i2", FACTS, ledger=entries, now=T0)
    bench.core.adopted(Runtime.FAKE, [], T0)  # all has ended meanwhile
    bench.assign(msgspec.structs.replace(spec, keep_output_seconds=0.0))
    bench.core.acknowledge(bench.core.report_generation)
    assert bench.assign().todo == (Forget(KEY, 3600.0), Forget(f"{KEY}:proxy", 3600.0))


def test_what_was_only_found_is_kept_as_any_other() -> None:
    bench = Bench()
    bench.core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall)], T0)
    bench.ended(code=0)
    bench.assign(stop=(STOP,))
    bench.core.acknowledge(bench.core.report_generation)
    assert bench.assign().todo == (Forget(KEY),)


def test_what_happens_beside_one_that_is_forgotten_is_kept() -> None:
    over, other = make_spec(restart=Restart(RestartPolicy.NEVER)), make_spec(attempt=8)
    bench = Bench(over, other)
    bench.began()
    bench.ended(code=0)
    bench.assign(other)
    bench.core.acknowledge(bench.core.report_generation)
    bench.core.ran(other.key, RunState(other.key, 1, 41, bench.now.wall), bench.now)
    step = bench.core.step(bench.now)
    assert step.todo == (Forget(over.key),)
    assert set(step.records) == {other.key}  # the other one goes when its runtime has let go of it


def test_a_stop_without_a_reason_has_one() -> None:
    bench = Bench(make_spec())
    bench.began()
    bench.assign(stop=(StopOrder("ann/web/0", 7, ""),))
    assert bench.said.reason == "stopped as asked"


def test_a_runtime_that_opens_says_nothing_of_what_runs_in_another() -> None:
    bench = Bench(make_spec())
    bench.began()
    core = BorgletCore("m1", "boot", "i2", FACTS, ledger=bench.core.ledger(), now=bench.now)
    core.adopted(Runtime.DOCKER, [], bench.now)
    assert core.step(bench.now).todo == ()
    (report,) = core.report()
    assert (report.phase, report.restarts, report.ended) == (Phase.UP, 0, None)


def test_an_unknown_run_is_the_same_one_when_its_runtime_opens_again() -> None:
    bench = Bench()
    bench.core.ran(KEY, RunState(KEY, 1, 41, T0.wall), T0)
    bench.core.step(T0)
    bench.core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall, Exit(code=3, at=T0.wall))], T0)
    bench.core.step(T0)
    assert bench.said.reason == "exit code 3; waits for its assignment"
    assert bench.said.last_exit == Exit(code=3, at=T0.wall)


def test_a_start_fails_for_now_unless_it_is_said_to_be_hopeless() -> None:
    bench = Bench(make_spec())
    for _ in range(4):
        bench.core.start_failed(KEY, 1, "the engine does not answer", bench.now)
        bench.core.step(bench.now)
        bench.later(300.0)
    assert bench.said.ended is None


def test_a_term_is_written_down_once() -> None:
    bench = Bench(make_spec())
    assert bench.core.step(bench.now).head is None
    bench.core.hear(1, 2)
    assert bench.core.step(bench.now).head == Head("m1", 1, 2)
    assert bench.core.step(bench.now).head is None
