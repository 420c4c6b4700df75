"""Where bands begin and whether quotas are required: told by the configuration, kept by the journal."""

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    EvictTasks,
    JoinMachine,
    KillTasks,
    Observe,
    PlaceTasks,
    SubmitJob,
)
from borgish.cell.events import Entry, RulesSet
from borgish.cell.model import Cell, Rules, Snapshot
from borgish.clock import Now
from borgish.errors import UnsafeConfiguration
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, Eviction, State
from tests.sentences import check_refusal
from tests.unit.cell.test_decide import Desk, machine

NOW = Now(1000.0, 10.0)
OTHER = Rules(Bands(monitoring=360, production=120, batch=110, names={"prod": Band.PRODUCTION}))


def started(rules: Rules | None, cell: Cell | None = None) -> tuple[Core, list[Entry]]:
    core = Core(cell or Cell(Snapshot("test")), ReconcileSettings(), NOW)
    return core, list(core.begin(1, "me", NOW, rules).entries)


def submitted(core: Core, priority: int) -> None:
    job = JobSpec(f"p{priority}", "ann", 1, ("true",), priority=priority)
    core.step([CommandRequest(1, SubmitJob(job), "ann")], NOW)


def test_the_usual_rules_are_nothing_to_tell() -> None:
    for rules in (None, Rules()):
        core, (entry,) = started(rules)
        assert [type(event).__name__ for event in entry.events] == ["Elected"]
        assert core.cell.rules == Rules()


def test_a_replay_gives_the_rules_of_then_whatever_the_configuration_says() -> None:
    core, entries = started(OTHER)
    assert entries[0].events[1:] == (RulesSet(OTHER),)
    again = Cell(Snapshot("test"))
    for entry in entries:
        apply_entry(again, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
    assert again.rules == core.cell.rules == OTHER
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(core.cell.snapshot()), type=Snapshot)
    assert Cell(kept).rules == OTHER


def test_the_same_rules_are_told_once() -> None:
    core, _ = started(OTHER)
    _, (entry,) = started(OTHER, core.cell)
    assert len(entry.events) == 1


@pytest.mark.parametrize(
    ("priority", "words"), [(150, "from batch to production"), (105, "from batch to free")]
)
def test_no_job_is_moved_to_another_band(priority: int, words: str) -> None:
    core, _ = started(None)
    submitted(core, 10)
    submitted(core, priority)
    position = core.cell.position
    with pytest.raises(
        UnsafeConfiguration, match=rf"ann/p{priority}, of priority {priority}, {words}\. "
    ) as told:
        started(OTHER, core.cell)
    check_refusal(told.value)
    assert "production = 200" in told.value.hint
    assert (core.cell.rules, core.cell.position) == (Rules(), position)


def test_of_several_jobs_that_would_be_moved_one_is_named() -> None:
    core, _ = started(None)
    for priority in (150, 151, 105):
        submitted(core, priority)
    with pytest.raises(UnsafeConfiguration, match=r"ann/p150, .* from batch to production \(and 2 more\)\. "):
        started(OTHER, core.cell)


def test_bands_change_when_no_job_changes_its_band() -> None:
    core, _ = started(None)
    submitted(core, 250)
    submitted(core, 10)
    submitted(core, 150)
    core.step([CommandRequest(1, KillTasks("ann/p150"), "ann")], NOW)
    core.cell.take_touched()
    started(OTHER, core.cell)
    assert core.cell.rules == OTHER
    assert core.cell.demand.totals.keys() == {"ann/production", "ann/free"}
    again, _ = started(Rules(quota_required=True), Cell(core.cell.snapshot()))
    assert again.cell.rules == Rules(quota_required=True)


def test_the_rows_of_jobs_are_written_anew_with_their_bands() -> None:
    core, _ = started(None)
    submitted(core, 250)
    step = Core(core.cell, ReconcileSettings(), NOW).begin(2, "me", NOW, OTHER)
    assert step.touched.jobs == {"ann/p250"}


def test_prod_is_what_the_cell_calls_prod() -> None:
    desk = Desk()
    desk.cell.rules = OTHER
    desk.do(JoinMachine(machine("m2"), "i2", known=False))
    for name, priority in (("mid", 119), ("prod", 120), ("top", 130)):
        desk.submit_and_place(JobSpec(name, "ann", 1, ("true",), priority=priority))
    preempted = {
        name: desk.do(EvictTasks(f"ann/{name}", (0,), Eviction.PREEMPTED, preemptor="ann/top/0"))[1]
        for name in ("mid", "prod")
    }
    assert preempted == {"mid": 1, "prod": 0}
    desk.do(PlaceTasks("ann/mid", (0,), ("m2",)))


@pytest.mark.parametrize(("rules", "state"), [(Rules(), State.PENDING), (OTHER, State.RUNNING)])
def test_the_scheduler_preempts_by_the_bands_of_the_cell(rules: Rules, state: State) -> None:
    core, _ = started(rules)
    core.step(
        [CommandRequest(1, JoinMachine(machine(), "i", known=False), "m1"), PollsAnswered({"m1": NOW.mono})],
        NOW,
    )
    heard = Observe("m1", "b1", "i", (), whole=True)  # before that, nobody is taken down there
    core.step([CommandRequest(1, heard, "m1")], NOW)
    for name, priority in (("low", 120), ("high", 130)):
        job = JobSpec(name, "ann", 1, ("true",), priority=priority, resources=Resources(3000, 2**20))
        core.step([CommandRequest(1, SubmitJob(job), "ann"), PollsAnswered({"m1": NOW.mono})], NOW)
        core.step([CommandRequest(1, Observe("m1", "b1", "i", ()), "m1")], NOW)  # it is heard
    (task,) = core.cell.jobs["ann/low"].tasks
    assert task.state is state
