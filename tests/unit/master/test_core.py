"""One step of the master at a time: what goes in, what comes out, and that it can be replayed."""

from typing import Any

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.access.commands import AdmitTokens
from borgish.cell.access.model import Role, Token
from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    KillTasks,
    Observe,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.events import Entry
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Machine, Rules, Snapshot
from borgish.cell.observed import Miss
from borgish.clock import Now
from borgish.errors import Conflict, NotFound, PreconditionFailed
from borgish.link.conversation import Outgoing
from borgish.master import core
from borgish.master.core import Core
from borgish.master.step import CommandRequest, Input, NotPolled, PollsAnswered, PollsMissed, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import Constraint, JobSpec
from borgish.store.codec import decode_snapshot, encode_snapshot
from borgish.vocabulary import Ending, Phase, Runtime, State
from borgish.wire.api import Accepted
from borgish.wire.link import Assignment

GIB = 1024**3
YEAR_SECONDS = 365 * 86400.0


def machine(name: str) -> Machine:
    return Machine(
        name=name,
        host="127.0.0.1",
        port=7500,
        tls=False,
        capacity=Resources(4000, 8 * GIB, 100 * GIB),
        attributes={},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20009,
        boot_id="b",
        joined_at=0.0,
        port_next=20000,
    )


class Driver:
    """A core with a clock that moves when told to, and everything it ever entered."""

    def __init__(self, machines: int = 3) -> None:
        self.now = Now(1000.0, 50.0)
        self.core = Core(Cell(Snapshot("test")), ReconcileSettings(), self.now)
        self.entries: list[Entry] = list(self.core.begin(1, "me", self.now).entries)
        for n in range(1, machines + 1):
            self.ask(JoinMachine(machine(f"m{n}"), f"i{n}", known=False))

    def step(self, *inputs: Input) -> Step:
        step = self.core.step(inputs, self.now)
        self.entries.extend(step.entries)
        assert violations(self.core.cell) == []
        return step

    def ask(self, command: Command, request_id: str = "", digest: str = "d") -> Accepted:
        step = self.step(CommandRequest(1, command, "ann", request_id, digest))
        reply = step.replies[0][1]
        if not isinstance(reply, Accepted):
            raise reply
        return reply

    def wait(self, seconds: float, *heard: str) -> Step:
        self.now = self.now.later(seconds)
        return self.step(PollsAnswered(dict.fromkeys(heard, self.now.mono)))

    def report(self, name: str, *attempts: SeenAttempt) -> Step:
        return self.step(CommandRequest(2, Observe(name, "b", name, attempts), name))

    def states(self, name: str = "web") -> list[State]:
        return [task.state for task in self.core.cell.jobs[f"ann/{name}"].tasks]


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_the_scheduler_reads_again_only_what_a_report_makes_room_on(driver: Driver) -> None:
    driver.ask(SubmitJob(JobSpec("web", "ann", 1, ("sleep", "1"))))
    driver.wait(2.0)
    assert driver.core._unread() == set()
    (task,) = driver.core.cell.jobs["ann/web"].tasks
    up = SeenAttempt("ann/web/0", task.attempt, Phase.UP)
    driver.now = driver.now.later(0.1)  # no resync
    driver.report(task.machine, up)
    assert driver.core._unread() == set()
    stray = msgspec.structs.replace(up, attempt=task.attempt - 1)
    driver.report(task.machine, stray)
    assert driver.core._unread() == {task.machine}
    driver.wait(2.0)
    assert driver.core._unread() == set()
    driver.now = driver.now.later(0.1)
    driver.step(
        CommandRequest(2, Observe(task.machine, "b", task.machine, (), (("ann/web/0", stray.attempt),)), "m")
    )
    assert driver.core._unread() == {task.machine}


JOB = JobSpec("web", "ann", 3, ("sleep", "{{task.index}}"), ports=("http",))


def test_while_nothing_changes_no_pass_is_made_between_resyncs(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.ask(SubmitJob(JobSpec("web", "ann", 9, ("serve",), resources=Resources(2000))))
    assert len(driver.core.cell.waiting["ann/web"]) == 3
    passes, schedule = [], Scheduler.schedule

    def counted(self: Scheduler, *arguments: Any) -> Plan:
        passes.append(driver.now.mono)
        return schedule(self, *arguments)

    monkeypatch.setattr(Scheduler, "schedule", counted)
    for _ in range(30):  # three seconds
        driver.now = driver.now.later(0.1)
        driver.step(PollsAnswered(dict.fromkeys(driver.core.cell.machines, driver.now.mono)))
    assert len(passes) == 3
    assert driver.core.refusals["ann/web"]
    driver.ask(JoinMachine(machine("m4"), "i4", known=False))
    assert len(driver.core.cell.waiting["ann/web"]) == 1


def test_a_submission_is_placed_in_the_same_step(driver: Driver) -> None:
    step = driver.step(CommandRequest(7, SubmitJob(JOB), "ann"))
    assert [handle for handle, _ in step.replies] == [7]
    assert [entry.actor for entry in step.entries] == ["ann", "scheduler"]
    assert step.assignments == {"m1", "m2", "m3"}
    assert driver.states() == [State.RUNNING] * 3


def test_assignments_are_complete_and_substituted(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    task = driver.core.cell.jobs["ann/web"].tasks[2]
    assignment = Outgoing(driver.core.cell, task.machine).assignment(driver.core.observed, 1, driver.now)
    (attempt,) = assignment.run
    assert attempt.run == ("sleep", "2")
    assert attempt.env["PORT_HTTP"] == str(task.ports[0])
    assert attempt.attempt == task.attempt


def test_the_same_request_twice_is_answered_the_same(driver: Driver) -> None:
    first = driver.ask(SubmitJob(JOB), "r1")
    position = driver.core.cell.position
    again = driver.ask(SubmitJob(JOB), "r1")
    assert again == msgspec.structs.replace(first, replayed=True)
    assert driver.core.cell.position == position
    with pytest.raises(Conflict, match="already used"):
        driver.ask(KillTasks("ann/web"), "r1", "another body")


def test_doubts_come_with_the_answer_and_again_with_the_same_request(driver: Driver) -> None:
    constraint = Constraint("rakc", "==", ("r1",))
    wanted = msgspec.structs.replace(JOB, constraints=(constraint,))
    first = driver.ask(SubmitJob(wanted), "r1")
    assert (first.text, len(first.notes)) == ("ann/web submitted: 3 tasks", 1)
    assert first.notes[0].startswith("no machine has the attribute 'rakc'")
    assert driver.ask(SubmitJob(wanted), "r1") == msgspec.structs.replace(first, replayed=True)
    assert driver.entries[-1].text == "\n".join((first.text, *first.notes))


def test_a_refused_command_leaves_no_trace(driver: Driver) -> None:
    entries = len(driver.entries)
    with pytest.raises(NotFound):
        driver.ask(KillTasks("ann/none"))
    assert len(driver.entries) == entries


def test_silence_takes_a_machine_down_and_its_tasks_elsewhere(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    for _ in range(9):
        driver.wait(1, "m1", "m2", "m3")
    lost = driver.core.cell.jobs["ann/web"].tasks[0].machine
    others = [name for name in ("m1", "m2", "m3") if name != lost]
    for _ in range(12):
        driver.wait(1, *others)
    assert not driver.core.cell.machines[lost].up
    assert driver.states() == [State.RUNNING] * 3
    assert {task.machine for task in driver.core.cell.jobs["ann/web"].tasks} == set(others)


def test_when_all_fall_silent_nothing_is_moved(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    driver.wait(1, "m1", "m2", "m3")
    before = [task.attempt for task in driver.core.cell.jobs["ann/web"].tasks]
    for _ in range(90):
        driver.wait(1)
    assert not any(m.up for m in driver.core.cell.machines.values())
    assert [task.attempt for task in driver.core.cell.jobs["ann/web"].tasks] == before


def test_a_new_master_evicts_nobody_before_half_have_answered() -> None:
    driver = Driver(3)
    driver.ask(SubmitJob(JOB))
    core = Core(driver.core.cell, ReconcileSettings(), driver.now)
    driver.core = core
    for _ in range(15):
        driver.wait(1, "m1")
    assert driver.states() == [State.RUNNING] * 3
    assert {t.machine for t in core.cell.jobs["ann/web"].tasks} == {"m1", "m2", "m3"}
    for _ in range(60):
        driver.wait(1, "m1")
    assert {t.machine for t in core.cell.jobs["ann/web"].tasks} == {"m1"}


def test_who_was_not_asked_was_not_silent(driver: Driver) -> None:
    driver.wait(1, "m1", "m2", "m3")
    for _ in range(30):
        driver.now = driver.now.later(1)
        driver.step(PollsAnswered({"m1": driver.now.mono}), NotPolled(("m2", "gone")))
    assert {name: machine.up for name, machine in driver.core.cell.machines.items()} == {
        "m1": True,
        "m2": True,
        "m3": False,
    }
    assert "gone" not in driver.core.observed.machines
    for _ in range(12):
        driver.wait(1, "m1")
    assert not driver.core.cell.machines["m2"].up


def test_what_runs_and_should_not_is_ordered_to_stop(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    task = driver.core.cell.jobs["ann/web"].tasks[0]
    old = SeenAttempt("ann/web/0", task.attempt, Phase.UP)
    name = task.machine
    driver.report(name, old)
    step = driver.step(CommandRequest(1, RestartTasks("ann/web", (0,), hurried=True), "ann"))
    assert name in step.assignments
    assignment = Outgoing(driver.core.cell, name).assignment(driver.core.observed, 2, driver.now)
    assert [order.key for order in assignment.stop] == [f"ann/web/0@{old.attempt}"]


def test_orphans_are_left_alone_for_ten_minutes(driver: Driver) -> None:
    orphan = SeenAttempt("bob/db/0", 9999, Phase.UP)
    driver.report("m1", orphan)
    outgoing = Outgoing(driver.core.cell, "m1")
    assert outgoing.assignment(driver.core.observed, 1, driver.now).stop == ()
    step = driver.wait(601, "m1", "m2", "m3")
    assert "m1" in step.assignments
    stop = outgoing.assignment(driver.core.observed, 2, driver.now).stop
    assert [(order.task, order.reason) for order in stop] == [("bob/db/0", "this cell does not know it")]


def test_replaying_the_entries_gives_the_same_cell(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB), "r1")
    for index, task in enumerate(list(driver.core.cell.jobs["ann/web"].tasks)):
        ended = Ending.FINISH if index else Ending.FAIL
        seen = SeenAttempt(f"ann/web/{index}", task.attempt, Phase.UP, ended=ended, exit_code=index)
        driver.report(task.machine, seen)
    copy = Cell(Snapshot("test"))
    for entry in driver.entries:
        apply_entry(copy, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
    assert msgspec.to_builtins(copy.snapshot()) == msgspec.to_builtins(driver.core.cell.snapshot())


@pytest.mark.parametrize("leap_seconds", [3600.0, -3600.0, 10 * YEAR_SECONDS, -10 * YEAR_SECONDS])
def test_a_wall_clock_that_leaps_changes_nothing(driver: Driver, leap_seconds: float) -> None:
    driver.ask(SubmitJob(JOB))
    driver.ask(KillTasks("ann/web"))
    driver.now = Now(driver.now.wall + leap_seconds, driver.now.mono)
    for _ in range(3):
        assert driver.wait(1, "m1", "m2", "m3").entries == ()
    assert "ann/web" in driver.core.cell.jobs
    assert all(machine.up for machine in driver.core.cell.machines.values())


def test_dead_jobs_are_forgotten_in_time(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    driver.ask(KillTasks("ann/web"))
    driver.wait(23 * 3600.0, "m1", "m2", "m3")
    assert driver.core.cell.jobs
    driver.wait(2 * 3600.0, "m1", "m2", "m3")
    assert not driver.core.cell.jobs


def test_a_quiet_step_enters_nothing(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    for _ in range(5):
        step = driver.wait(1, "m1", "m2", "m3")
        assert not step.entries
        assert not step.assignments


def placed(driver: Driver) -> list[tuple[str, int]]:
    return [(task.machine, task.attempt) for task in driver.core.cell.jobs["ann/web"].tasks]


def names(count: int) -> list[str]:
    return [f"m{n}" for n in range(1, count + 1)]


def test_a_master_that_was_held_up_holds_no_silence_against_machines() -> None:
    driver = Driver(7)
    driver.ask(SubmitJob(JOB))
    driver.wait(1, *names(7))
    before = placed(driver)
    driver.wait(30)  # the process was stopped, or a commit took so long
    assert all(m.up for m in driver.core.cell.machines.values())
    for number in range(1, 8):  # they answer one after another
        driver.wait(0.3, *names(number))
    assert placed(driver) == before


def test_machines_that_come_back_one_after_another_lose_nothing() -> None:
    driver = Driver(7)
    driver.ask(SubmitJob(JOB))
    driver.wait(1, *names(7))
    before = placed(driver)
    for _ in range(90):
        driver.wait(1)
    assert not any(m.up for m in driver.core.cell.machines.values())
    busy = {machine for machine, _ in before}
    back: list[str] = []
    for name in sorted(names(7), key=lambda name: name in busy):  # those with tasks come last
        back.append(name)
        driver.wait(0.5, *back)
        driver.report(name)
    assert placed(driver) == before
    assert all(m.up for m in driver.core.cell.machines.values())


def test_what_stays_away_after_a_mass_failure_is_given_up_in_the_end() -> None:
    driver = Driver(7)
    driver.ask(SubmitJob(JOB))
    driver.wait(1, *names(7))
    lost = driver.core.cell.jobs["ann/web"].tasks[0].machine
    others = [name for name in names(7) if name != lost]
    for _ in range(90):
        driver.wait(1)
    for _ in range(15):
        driver.wait(1, *others)
    assert lost not in {machine for machine, _ in placed(driver)}


def test_a_new_master_gives_a_machine_time_that_the_one_before_had_set_down() -> None:
    driver = Driver(7)
    driver.ask(SubmitJob(JOB))
    driver.wait(1, *names(7))
    before = placed(driver)
    lost = before[0][0]
    driver.core.cell.machines[lost].up = False  # frozen, or the master ended before it evicted
    driver.core = Core(driver.core.cell, ReconcileSettings(), driver.now)
    others = [name for name in names(7) if name != lost]
    driver.wait(1, *others)
    assert placed(driver) == before
    for _ in range(11):
        driver.wait(1, *others)
    assert lost not in {machine for machine, _ in placed(driver)}


def test_a_machine_that_joins_after_silence_is_not_called_silent_again(driver: Driver) -> None:
    driver.wait(1, "m1", "m2", "m3")
    for _ in range(20):
        driver.wait(1, "m2", "m3")
    assert not driver.core.cell.machines["m1"].up
    driver.ask(JoinMachine(msgspec.structs.replace(machine("m1"), port=7501), "again", known=True))
    for _ in range(5):
        driver.wait(1, "m2", "m3")
    assert driver.core.cell.machines["m1"].up


def test_a_machine_that_is_heard_again_is_up_though_it_has_nothing_new_to_say(driver: Driver) -> None:
    driver.wait(1, "m1", "m2", "m3")
    for _ in range(20):
        driver.wait(1, "m2", "m3")
    assert not driver.core.cell.machines["m1"].up
    driver.wait(1, "m1", "m2", "m3")
    assert driver.core.cell.machines["m1"].up


def refuse(driver: Driver, name: str) -> None:
    driver.step(PollsMissed({name: Miss("127.0.0.1:7500: connection refused", refused=driver.now.mono)}))


def test_a_host_that_refuses_connections_keeps_its_tasks_for_a_minute() -> None:
    driver = Driver(7)
    driver.ask(SubmitJob(JOB))
    driver.wait(1, *names(7))
    before = placed(driver)
    others = [name for name in names(7) if name != before[0][0]]
    for _ in range(59):
        refuse(driver, before[0][0])
        driver.wait(1, *others)
    assert placed(driver) == before
    for _ in range(3):
        refuse(driver, before[0][0])
        driver.wait(1, *others)
    assert before[0][0] not in {machine for machine, _ in placed(driver)}


def test_a_machine_that_missed_two_polls_gets_no_new_tasks_until_it_answers() -> None:
    driver = Driver(1)
    driver.wait(1, "m1")
    driver.step(PollsMissed({"m1": Miss("lost")}))
    driver.step(PollsMissed({"m1": Miss("lost")}))
    driver.ask(SubmitJob(JOB))
    (refusal,) = driver.core.refusals["ann/web"]
    assert refusal.text == "0 of 1 machine fits: 1 is not answering"
    assert refusal.hint == "would fit 1 machine that is not answering"
    assert not refusal.impossible
    driver.wait(1, "m1")
    assert len(placed(driver)) == JOB.tasks


def test_one_missed_poll_is_no_reason_to_place_nothing() -> None:
    driver = Driver(1)
    for _ in range(3):
        driver.wait(1, "m1")
        driver.step(PollsMissed({"m1": Miss("lost")}))
    driver.ask(SubmitJob(JOB))
    assert len(placed(driver)) == JOB.tasks


def test_an_orphan_stays_one_when_the_journal_grows_past_it(driver: Driver) -> None:
    orphan = SeenAttempt("bob/db/0", driver.core.cell.position + 2, Phase.UP)
    driver.report("m1", orphan)
    for n in range(4):
        driver.ask(SubmitJob(msgspec.structs.replace(JOB, name=f"other-{n}", tasks=1)))
    driver.report("m1", msgspec.structs.replace(orphan, pid=7))
    assert Outgoing(driver.core.cell, "m1").assignment(driver.core.observed, 1, driver.now).stop == ()


def test_tasks_that_a_machine_no_longer_reports_look_different_now(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    task = driver.core.cell.jobs["ann/web"].tasks[0]
    driver.report(task.machine, SeenAttempt("ann/web/0", task.attempt, Phase.UP))
    whole = Observe(task.machine, "b", task.machine, (), whole=True)
    assert driver.step(CommandRequest(2, whole, task.machine)).seen == {"ann/web": {0}}


def test_a_name_whose_machine_may_still_answer_is_not_given_to_another(driver: Driver) -> None:
    driver.core = Core(driver.core.cell, ReconcileSettings(), driver.now)  # has heard nobody yet
    elsewhere = msgspec.structs.replace(machine("m1"), port=7999)
    with pytest.raises(Conflict, match="is in this cell"):
        driver.ask(JoinMachine(elsewhere, "stranger", known=False))
    with pytest.raises(Conflict, match="is in this cell"):
        driver.ask(JoinMachine(machine("m1"), "a stranger at the same address", known=False))


def test_a_machine_that_is_down_says_why_it_gave_no_answer(driver: Driver) -> None:
    driver.wait(1, "m1", "m2", "m3")
    for _ in range(12):
        driver.step(PollsMissed({"m1": Miss("127.0.0.1:7500: no route to host")}))
        driver.wait(1, "m2", "m3")
    assert "no route to host" in driver.core.cell.machines["m1"].reason
    driver.wait(1, "m1", "m2", "m3")
    assert driver.core.cell.machines["m1"].up
    assert driver.core.observed.machines["m1"].trouble == ""


def test_of_a_thousand_requests_with_one_id_one_is_done(driver: Driver) -> None:
    asks = [CommandRequest(n, SubmitJob(JOB), "ann", "r1", "d") for n in range(1000)]
    step = driver.step(*asks, CommandRequest(1000, SubmitJob(JOB), "ann", "r1", "another body"))
    replies = [reply for _, reply in sorted(step.replies, key=lambda each: each[0])]
    assert len([entry for entry in driver.entries if entry.request_id == "r1"]) == 1
    assert isinstance(replies[0], Accepted)
    assert not replies[0].replayed
    assert replies[1:1000] == [msgspec.structs.replace(replies[0], replayed=True)] * 999
    assert isinstance(replies[1000], Conflict)


def test_a_machine_that_shrinks_keeps_what_runs_and_gets_nothing_new(driver: Driver) -> None:
    driver.ask(SubmitJob(JOB))
    (task, *_) = driver.core.cell.jobs["ann/web"].tasks
    before = placed(driver)
    none = msgspec.structs.replace(machine(task.machine).capacity, cpu_millis=1)
    driver.now = driver.now.later(1)
    driver.core.step(
        [CommandRequest(2, Observe(task.machine, "b", task.machine, (), capacity=none), "-")], driver.now
    )
    assert driver.core.cell.machines[task.machine].capacity.cpu_millis == 1
    driver.core.step([CommandRequest(3, ScaleJob("ann/web", 12), "ann")], driver.now.later(1))
    after = placed(driver)
    assert after[:3] == before
    assert task.machine not in {name for name, _ in after[3:]}
    assert len([name for name, _ in after if name]) > 3


def test_what_the_host_lets_in_at_the_start_is_in_the_audit_log() -> None:
    core = Core(Cell(Snapshot("test")), ReconcileSettings(), Now(1000.0, 50.0))
    admin = Token("a" * 64, "root", Role.ADMIN)
    step = core.begin(1, "me", Now(1000.0, 50.0), admitted=AdmitTokens((admin,), ()))
    ((note, position),) = step.audit
    assert (note.user, note.action, note.at, position) == ("host", "AdmitTokens", 1000.0, 2)
    assert "root (admin)" in note.outcome


@pytest.mark.parametrize("position", [2**31 - 5, 2**53 - 5, 2**63 - 10**6])
def test_a_cell_of_many_years(position: int) -> None:
    """Each attempt is named by a position, and each term by an epoch."""
    driver = Driver(0)

    def begun() -> Cell:
        return Cell(Snapshot("test", position=position, epoch=2**31 - 1, timeline=2**31))

    driver.core = Core(begun(), ReconcileSettings(), driver.now)
    driver.entries = list(driver.core.begin(2**31, "me", driver.now).entries)
    for name in ("m1", "m2"):
        driver.ask(JoinMachine(machine(name), name, known=False))
    driver.ask(SubmitJob(JOB))
    (task, *_) = driver.core.cell.jobs["ann/web"].tasks
    assert position < task.attempt <= driver.core.cell.position
    ended = SeenAttempt("ann/web/0", task.attempt, Phase.UP, ended=Ending.FAIL, exit_code=1)
    driver.report(task.machine, ended)
    assert driver.states()[0] is State.DEAD
    assignment = Outgoing(driver.core.cell, task.machine).assignment(driver.core.observed, 1, driver.now)
    assert msgspec.json.decode(msgspec.json.encode(assignment), type=Assignment) == assignment
    copy = begun()
    for entry in driver.entries:
        apply_entry(copy, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
    assert msgspec.to_builtins(copy.snapshot()) == msgspec.to_builtins(driver.core.cell.snapshot())


def test_of_many_who_saw_the_same_one_changes_it_and_the_others_are_told(driver: Driver) -> None:
    """F103: twenty clients at once, in one step."""
    seen = driver.ask(SubmitJob(JobSpec("web", "ann", 2, ("x",)))).position
    asks = [
        CommandRequest(n, ScaleJob("ann/web", n + 3), "ann", f"r{n}", f"d{n}", expected=seen)
        for n in range(20)
    ]
    replies = [reply for _, reply in driver.step(*asks).replies]
    assert isinstance(replies[0], Accepted)
    assert all(isinstance(reply, PreconditionFailed) for reply in replies[1:])
    job = driver.core.cell.jobs["ann/web"]
    assert (job.spec.tasks, job.generation) == (3, replies[0].position)


def test_who_asks_again_gets_the_answer_whatever_changed_since(driver: Driver) -> None:
    """After a lost answer the retry expects what its own change has replaced."""
    seen = driver.ask(SubmitJob(JobSpec("web", "ann", 2, ("x",)))).position
    ask = CommandRequest(1, ScaleJob("ann/web", 3), "ann", "r1", "d1", expected=seen)
    ((_, first),) = driver.step(ask).replies
    driver.ask(ScaleJob("ann/web", 7))
    ((_, again),) = driver.step(ask).replies
    assert isinstance(first, Accepted)
    assert again == msgspec.structs.replace(first, replayed=True)


def test_a_leader_reads_a_large_cell_in_slices_before_it_places(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Driver(30)
    before.ask(SubmitJob(JobSpec("web", "ann", 60, ("sleep", "1"))))
    before.ask(SubmitJob(JobSpec("huge", "ann", 3, ("sleep", "1"), resources=Resources(3000, GIB))))
    cell = encode_snapshot(before.core.cell.snapshot())

    def led(read_max: int) -> tuple[Driver, list[bool]]:
        monkeypatch.setattr(core, "READ_MAX", read_max)
        driver = Driver(0)
        driver.core = Core(Cell(decode_snapshot(cell, "test")), ReconcileSettings(), driver.now)
        driver.core.begin(2, "me", driver.now)
        driver.now = driver.now.later(2.0)
        heard = PollsAnswered(dict.fromkeys(driver.core.cell.machines, driver.now.mono))
        job = SubmitJob(JobSpec("late", "ann", 20, ("sleep", "1"), resources=Resources(2500, GIB)))
        more = [driver.step(heard, CommandRequest(1, job, "ann")).more]
        while more[-1]:
            assert len(driver.core.cell.waiting["ann/late"]) == 20
            more.append(driver.step().more)
        return driver, more

    at_once, once = led(1000)
    sliced, steps = led(20)
    assert once == [False]
    assert steps == [True] * (len(steps) - 1) + [False]
    assert len(steps) >= 93 // 20
    assert [entry.events for entry in sliced.entries] == [entry.events for entry in at_once.entries]


def test_machines_read_in_slices_are_read_by_the_rules_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "READ_MAX", 5)
    driver = Driver(0)
    driver.core = Core(Driver(10).core.cell, ReconcileSettings(), driver.now)
    driver.core.begin(2, "me", driver.now, Rules(Bands(production=150)))
    driver.now = driver.now.later(2.0)
    heard = PollsAnswered(dict.fromkeys(driver.core.cell.machines, driver.now.mono))
    resources = Resources(3500, GIB)
    full = JobSpec("full", "ann", 10, ("sleep",), priority=160, resources=resources)
    step = driver.step(heard, CommandRequest(1, SubmitJob(full), "ann"))
    while step.more:
        assert step.reads
        step = driver.step()
    assert driver.states("full") == [State.RUNNING] * 10
    driver.ask(SubmitJob(JobSpec("late", "ann", 2, ("sleep",), priority=250, resources=resources)))
    (refusal,) = driver.core.refusals["ann/late"]
    assert refusal.reasons == {"cpu": 10}  # nobody leaves: both are production
