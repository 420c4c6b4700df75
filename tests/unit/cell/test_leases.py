"""No attempt of an exclusive task is placed while another may run, whatever sent that one away."""

from collections.abc import Callable

import msgspec
import pytest

from borgish.cell.commands import (
    EvictTasks,
    KillTasks,
    PlaceTasks,
    RemoveMachine,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SubmitJob,
    TaintMachine,
)
from borgish.cell.events import EntriesLost
from borgish.cell.model import TaskLease
from borgish.cell.tasks.leases import why_waiting
from borgish.vocabulary import Ending, Eviction, Phase, Runtime, State, TaintEffect
from tests.unit.cell.leased import GRACE_SECONDS, JOB, WAIT_SECONDS, Leased
from tests.unit.cell.lived import machine, spec

TASK = f"{JOB}/0"


def silence(cell: Leased) -> None:
    """The machine of the task falls silent; it has been given up when this returns."""
    cell.silent = {cell.place()[1]}
    while not cell.is_pending():
        cell.step()


def kill_and_submit(cell: Leased) -> None:
    cell.do(KillTasks(JOB))
    cell.do(SubmitJob(spec("db", 1, exclusive=True)))


def kill_and_submit_another(cell: Leased) -> None:
    cell.do(KillTasks(JOB))
    cell.do(SubmitJob(spec("db", 1, exclusive=True, run=("other",))))


def taint(cell: Leased) -> None:
    cell.do(TaintMachine(cell.place()[1], "drain", "x", TaintEffect.EVICT))
    cell.wait(1)


def roll_back(cell: Leased) -> None:
    """The job was not there, and is submitted again."""
    cell.roll_back(cell.before, hurried=True)
    cell.wait(2)
    cell.do(SubmitJob(spec("db", 1, exclusive=True)))


GOES: dict[str, Callable[[Leased], object]] = {
    "evicted": lambda cell: cell.do(EvictTasks(JOB, (0,), Eviction.OUT_OF_RESOURCES)),
    "restarted": lambda cell: cell.do(RestartTasks(JOB)),
    "tainted": taint,
    "killed": lambda cell: (cell.do(KillTasks(JOB)), cell.do(RestartTasks(JOB))),
    "submitted again": kill_and_submit,
    "submitted otherwise": kill_and_submit_another,
    "port in use": lambda cell: cell.report(
        cell.place()[1], SeenAttempt(TASK, cell.place()[2], Phase.STARTING, port_in_use=80)
    ),
    "rolled back": roll_back,
}


@pytest.mark.parametrize("how", GOES)
def test_it_waits_for_word_of_the_end(how: str) -> None:
    cell = Leased()
    cell.submit()
    _, on, attempt = cell.place()
    GOES[how](cell)
    cell.wait(WAIT_SECONDS + 60)  # its machine is heard, and says that it runs
    assert cell.place()[0] is State.PENDING
    assert why_waiting(cell.cell, cell.core.observed, JOB, 0)[0].startswith(
        f"its former attempt on {on} may still run until"
    )
    cell.end(TASK, attempt)
    cell.wait(1)
    assert cell.place()[0] is State.RUNNING


def test_an_index_that_comes_again_waits_for_the_one_that_went() -> None:
    cell = Leased()
    cell.submit(2)
    attempt = cell.place(1)[2]
    cell.do(ScaleJob(JOB, 1))
    cell.do(ScaleJob(JOB, 2))
    cell.wait(5)
    assert cell.place(1)[0] is State.PENDING
    cell.end(f"{JOB}/1", attempt)
    cell.wait(1)
    assert cell.place(1)[0] is State.RUNNING


def test_a_silent_machine_costs_the_time_of_a_lease_and_no_more() -> None:
    cell = Leased()
    cell.submit()
    heard = cell.now.mono
    silence(cell)
    while cell.is_pending():
        cell.step()
        assert cell.now.mono - heard < 60  # the price that is promised
    assert cell.now.mono - heard >= WAIT_SECONDS
    assert cell.place()[1] != next(iter(cell.silent))


def test_what_was_heard_since_counts_from_when_its_messages_named_it_no_more() -> None:
    cell = Leased()
    cell.submit()
    cell.do(EvictTasks(JOB, (0,), Eviction.DRAIN))
    sent = cell.now.mono + 1
    cell.wait(5)
    cell.silent = {cell.place()[1]}
    while cell.is_pending():
        cell.step()
    assert cell.now.mono - sent >= WAIT_SECONDS


def test_a_new_master_counts_from_its_own_beginning() -> None:
    cell = Leased()
    cell.submit()
    silence(cell)
    cell.wait(30)
    cell.succeed()
    began = cell.now.mono
    while cell.is_pending():
        cell.step()
    assert cell.now.mono - began >= WAIT_SECONDS


def test_a_wall_clock_that_is_set_on_shortens_nothing() -> None:
    cell = Leased()
    cell.submit()
    heard = cell.now.mono
    silence(cell)
    cell.now = msgspec.structs.replace(cell.now, wall=cell.now.wall + 86400.0)
    while cell.is_pending():
        cell.step()
    assert cell.now.mono - heard >= WAIT_SECONDS


def test_a_result_is_the_end_of_it() -> None:
    cell = Leased()
    cell.submit()
    cell.end(TASK, cell.place()[2], Ending.FINISH)
    assert cell.cell.leases == {}
    cell.do(RestartTasks(JOB))
    cell.wait(1)
    assert cell.place()[0] is State.RUNNING


def test_that_a_machine_has_nothing_of_it_proves_nothing() -> None:
    """Where a borglet has lost its folder its programs run on, until the end of their leases."""
    cell = Leased()
    cell.submit()
    _, on, _ = cell.place()
    cell.do(RestartTasks(JOB))
    cell.runs.clear()
    cell.report(on, whole=True)
    cell.wait(10)
    assert cell.is_pending()
    cell.wait(WAIT_SECONDS)
    assert not cell.is_pending()


def test_containers_wait_for_the_word_of_their_machine_or_its_removal() -> None:
    cell = Leased(())
    for name in ("m1", "m2", "m3"):
        cell.join(machine(name, runtimes=(Runtime.DOCKER,)))
    cell.submit(runtime=Runtime.DOCKER, image="busybox:1")
    _, on, attempt = cell.place()
    silence(cell)
    cell.wait(600)
    assert cell.is_pending()
    text, hint = why_waiting(cell.cell, cell.core.observed, JOB, 0)
    assert text == f"its former attempt {attempt} on {on} may still run, and only that machine can tell"
    assert f"borgctl machine remove {on}" in hint
    cell.do(RemoveMachine(on))
    cell.wait(1)
    assert not cell.is_pending()


def test_only_machines_that_hold_leases_are_given_any() -> None:
    cell = Leased(())
    cell.join(machine("old"))
    cell.submit()
    assert cell.is_pending()
    (refusal,) = cell.core.refusals[JOB]
    assert "leases == process" in refusal.text
    cell.join(machine("new", attributes={"leases": "process"}))
    cell.wait(1)
    assert cell.place()[1] == "new"


def test_what_nobody_remembers_and_runs_is_waited_for() -> None:
    """As after an attempt was lost with a part of the journal, or a clock went wrong."""
    cell = Leased()
    cell.submit()
    attempt = cell.place()[2]
    cell.do(KillTasks(JOB))
    cell.end(TASK, attempt)
    cell.report("m2", SeenAttempt(TASK, 9999, Phase.UP))
    cell.do(RestartTasks(JOB))
    cell.wait(5)
    assert cell.is_pending()
    cell.report("m2", SeenAttempt(TASK, 9999, Phase.STOPPING, ended=Ending.KILL))
    cell.wait(1)
    assert not cell.is_pending()


def test_after_a_loss_of_entries_every_index_waits_once() -> None:
    cell = Leased()
    cell.submit()
    cell.happen(EntriesLost(cell.position + 1, cell.position, 2))
    assert cell.is_pending()  # its machine would start it again, and the latest attempt may be elsewhere
    cell.end(TASK, cell.place()[2])
    cell.wait(WAIT_SECONDS - 5)
    assert cell.is_pending()
    cell.wait(10)
    assert not cell.is_pending()


def test_what_ran_before_its_job_was_exclusive_is_waited_for() -> None:
    cell = Leased()
    cell.do(SubmitJob(spec("db", 1)))
    cell.wait(2)
    _, _, attempt = cell.place()
    cell.do(KillTasks(JOB))
    cell.do(SubmitJob(spec("db", 1, exclusive=True)))
    cell.wait(WAIT_SECONDS + 10)
    assert cell.is_pending()
    cell.end(TASK, attempt)
    cell.wait(1)
    assert not cell.is_pending()


def test_what_cannot_be_killed_does_not_end_with_its_lease() -> None:
    cell = Leased()
    cell.submit()
    _, on, attempt = cell.place()
    cell.phases[TASK, attempt] = Phase.UNKILLABLE
    cell.wait(1)
    assert cell.is_pending()  # it is not what was asked for any more
    assert cell.cell.leases[JOB][0] == (TaskLease(attempt, on, GRACE_SECONDS, lapses=False),)
    cell.silent = {on}
    cell.wait(120)
    cell.succeed()
    cell.wait(120)
    assert cell.is_pending()
    cell.silent = set()
    cell.end(TASK, attempt)
    cell.wait(1)
    assert not cell.is_pending()


def test_one_of_a_job_that_is_not_exclusive_runs_elsewhere_at_once() -> None:
    cell = Leased()
    cell.do(SubmitJob(spec("db", 1)))
    cell.wait(2)
    _, on, attempt = cell.place()
    cell.phases[TASK, attempt] = Phase.UNKILLABLE
    cell.wait(2)
    state, now_on, _ = cell.place()
    assert state is State.RUNNING
    assert now_on != on  # where something cannot be killed nothing new is placed
    assert cell.core.observed.machines[on].has_unkillable
    cell.end(TASK, attempt)
    assert not cell.core.observed.machines[on].has_unkillable


def test_a_placement_that_is_asked_for_all_the_same_is_dropped() -> None:
    cell = Leased()
    cell.submit()
    cell.do(KillTasks(JOB))
    cell.do(RestartTasks(JOB))
    cell.do(PlaceTasks(JOB, (0,), ("m2",)))
    assert cell.is_pending()
