"""What is shown of a machine's taints, and of tasks that should not stay where they are."""

import msgspec

from borgish.api.views.machines import machine_view
from borgish.api.views.tally import Tally
from borgish.api.views.tasks import task_view
from borgish.api.views.why import why_task
from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Taint, Task
from borgish.spec.constraints import parse_constraint
from borgish.spec.job import JobSpec, Toleration
from borgish.vocabulary import Phase, Recheck, TaintEffect
from borgish.wire.api import TaintView
from tests.unit.api.cells import NOW, job, running, small_cell, small_observed


def cell_with(recheck: Recheck) -> Cell:
    """Return the small cell with a task on m1 that wants arm64 and tolerates a repair for an hour."""
    cell = small_cell()
    wants = (parse_constraint("arch == arm64"),)
    tolerates = (Toleration("repair", for_seconds=3600.0),)
    picky = JobSpec("picky", "ann", 1, ("p",), constraints=wants, recheck=recheck, tolerations=tolerates)
    cell.jobs["ann/picky"] = job(picky, [running(0, "m1", 15)], uid=15)
    cell.reindex()
    return cell


def text(cell: Cell) -> str:
    return why_task(cell, small_observed(), cell.jobs["ann/picky"], 0, (), (), NOW).text


def test_what_should_not_stay_says_so() -> None:
    cell = cell_with(Recheck.KEEP)
    view = task_view(small_observed(), cell.jobs["ann/picky"], 0, (), cell.machines["m1"])
    assert view.reason == "should not stay: m1 no longer meets arch == arm64"
    assert "It should not stay: m1 no longer meets arch == arm64. It stays" in text(cell)
    assert "It will be moved (recheck: evict)." in text(cell_with(Recheck.EVICT))


def test_a_machine_says_its_taints_and_a_task_until_when_it_may_stay() -> None:
    cell = cell_with(Recheck.KEEP)
    machine = cell.machines["m1"]
    machine.taints = (Taint("repair", "disk", TaintEffect.EVICT, NOW.wall),)
    view = machine_view(cell, small_observed(), Tally(), machine, NOW)
    assert view.taints == (TaintView("repair", TaintEffect.EVICT, "2026-01-01T00:00:00.000Z", "disk"),)
    assert "m1 is tainted repair=disk:evict: it may stay until 2026-01-01T01:00:00.000Z." in text(cell)


def test_what_has_to_leave_and_may_not_yet_says_what_holds_it() -> None:
    cell = cell_with(Recheck.EVICT)
    cell.jobs["ann/picky"].spec = msgspec.structs.replace(cell.jobs["ann/picky"].spec, tasks=2)
    cell.jobs["ann/picky"].tasks.append(Task(1))
    cell.jobs["ann/picky"].pending = 1
    observed = small_observed()
    observed.machines["m1"].put(SeenAttempt("ann/picky/0", 15, Phase.UP))
    found = why_task(cell, observed, cell.jobs["ann/picky"], 0, (), (), NOW).text
    assert found.endswith(
        "It is not taken down yet: of ann/picky at most 1 of 2 tasks may be down (max_unavailable 10%), and "
        "down is task 1 (pending)."
    )
