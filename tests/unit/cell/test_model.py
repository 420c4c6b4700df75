"""What records say of themselves."""

from typing import Any

import msgspec
import pytest

from borgish.cell.crons.model import Cron
from borgish.cell.limits.budgets import Budget, Freeze
from borgish.cell.limits.quotas import Quota, quota_key, split_quota_key
from borgish.cell.model import (
    Answer,
    App,
    AppVersion,
    Cell,
    Handover,
    Handovers,
    Job,
    Leases,
    Rollout,
    Rules,
    Snapshot,
    Task,
    TaskLease,
    Version,
    exit_text,
)
from borgish.cell.touched import Touched
from borgish.resources import Resources
from borgish.spec.app import AppSpec
from borgish.spec.job import Constraint
from borgish.spec.shares import Share
from borgish.vocabulary import Band, HandoverCause, State
from tests.unit.cell.crons import cron
from tests.unit.cell.lived import machine, spec
from tests.unit.cell.test_decide import Desk

OLD, PRESENT = spec(run=("old",)), spec(run=("present",))
LAGGING = Rollout(
    {0: 10, 1: 11, 2: 12, 5: 15},
    tasks=3,
    records={1: Task(1)},
    hurried=False,
    reason="rolled back",
    paused="it crashes",
)


@pytest.mark.parametrize(
    ("code", "signal", "text"), [(None, None, ""), (0, None, "exit code 0"), (1, 9, "signal 9")]
)
def test_how_a_program_ended(code: int | None, signal: int | None, text: str) -> None:
    assert exit_text(code, signal) == text


def test_the_name_of_a_quota() -> None:
    assert split_quota_key(quota_key("ann", Band.BATCH)) == ("ann", "batch")


def test_which_tasks_a_rollback_ends() -> None:
    assert [index for index in range(5) if LAGGING.ends(index)] == [1, 3, 4]


def test_an_attempt_runs_the_version_that_it_was_placed_with() -> None:
    tasks = [Task(0, State.RUNNING, version=1), Task(1, State.RUNNING, version=2), Task(2, version=1)]
    job = Job(
        "ann/web", 1, PRESENT, 5.0, "ann", tasks=tasks, version=2, earlier={1: Version(OLD, 4.0, "bob")}
    )
    assert [job.spec_of(task) for task in tasks] == [OLD, PRESENT, PRESENT]
    assert job.spec_of_last(tasks[2]) is OLD
    assert job.present == Version(PRESENT, 5.0, "ann")


def test_indexes_follow_from_the_records_of_a_checkpoint() -> None:
    desk = Desk()
    desk.submit_and_place(spec(tasks=2))
    again = Cell(desk.cell.snapshot())
    assert again.placed == {"m1": {("ann/web", 0), ("ann/web", 1)}}
    task = again.jobs["ann/web"].tasks[0]
    task.state, task.promised = State.PENDING, "m1"
    again.machines["m2"] = machine("m2")
    again.reindex()
    assert again.placed == {"m1": {("ann/web", 1)}, "m2": set()}
    assert (again.waiting, again.promised) == ({"ann/web": {0}}, {"m1": {("ann/web", 0)}})


def test_an_attempt_is_unknown_where_its_history_is_lost_or_not_written_yet() -> None:
    cell = Cell(Snapshot("c", position=20, lost=((5, 7), (11, 11))))
    assert [attempt for attempt in range(23) if cell.is_unknown(attempt)] == [5, 6, 7, 11, 21, 22]


def test_a_snapshot_has_all_that_its_cell_was_made_of() -> None:
    quota, answer = Quota("ann", Band.BATCH, Resources(1)), Answer("digest", 3, "ann/web", "submitted")
    parts = ("test", 9, 2, 4, {"ann/web": Job("ann/web", 1, OLD, 5.0, "ann")}, {"m1": machine()})
    leases: Leases = {"ann/web": {0: (TaskLease(8, "m1"),)}}
    more = ({quota.key: quota}, {"r1": answer}, Rules(quota_required=True), ((3, 5),), (7.0,), leases)
    budget = Budget("web", (Constraint("app", "==", ("web",)),), Share())
    handovers: Handovers = {"ann/web": {0: Handover(HandoverCause.DRAIN, "m1 is to be empty", 5.0)}}
    app = App("ann/shop", 7, AppVersion(AppSpec("shop", "ann"), (), 5.0, "ann"))
    kept = Snapshot(
        *parts,
        *more,
        {"web": budget},
        Freeze("ann", 5.0),
        handovers,
        {app.key: app},
        {"ann/nightly": Cron(cron(), 5.0, "ann")},
    )
    assert all(msgspec.structs.astuple(kept)), "a field that is left out would not be missed"
    assert Cell(kept).snapshot() == kept


def test_what_is_touched_later_is_added_whatever_it_is() -> None:
    samples: dict[str, Any] = {
        "tasks": {"ann/web": {1}},
        "leases": {"ann/web": {1}},
        "handovers": {"ann/web": {1}},
        "tasks_gone": {"ann/web": 1},
    }
    for name in Touched.__struct_fields__:
        first, later = Touched(), Touched(**{name: samples.get(name, {"ann/web"})})
        first.add(later)
        assert getattr(first, name) == samples.get(name, {"ann/web"})
