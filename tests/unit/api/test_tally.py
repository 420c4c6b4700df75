"""The sums of a cell, brought up to date bit by bit."""

import pytest

from borgish.api.views import tally as module
from borgish.api.views.tally import TASKS_BEHIND_MAX, Tally
from borgish.cell.model import Job, Task
from borgish.cell.observed import Observed
from borgish.cell.touched import Touched
from tests.unit.scheduler.cells import cell_of, machine, spec

TASKS = 5_000
AT_ONCE = 1_000


def test_no_more_tasks_are_looked_at_at_once_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, looked = cell_of([machine("m0")], [spec("ann/web", TASKS), spec("bob/web", TASKS)]), [0]

    def counted(_observed: Observed, _job: Job, _task: Task) -> bool:
        looked[0] += 1
        return True

    monkeypatch.setattr(module, "task_is_up", counted)
    tally, calls = Tally(), 0
    while tally.is_behind:
        tally.fill_some(cell, Observed(), AT_ONCE)
        calls += 1
        assert looked[0] <= calls * AT_ONCE
    assert (looked[0], tally.all_up) == (2 * TASKS, 2 * TASKS)


def test_sums_are_behind_when_much_has_changed() -> None:
    cell, tally = cell_of([machine("m0")], [spec("ann/web", TASKS)]), Tally()
    tally.fill(cell, Observed())
    assert not tally.is_behind
    tally.note(Touched(tasks={"ann/web": set(range(TASKS_BEHIND_MAX))}), {})
    tally.note(Touched(), {"ann/web": range(10)})  # known to be stale already
    assert not tally.is_behind
    tally.note(Touched(), {"ann/web": range(TASKS_BEHIND_MAX, TASKS_BEHIND_MAX + 1)})
    assert tally.is_behind
    tally.fill(cell, Observed())
    assert not tally.is_behind
