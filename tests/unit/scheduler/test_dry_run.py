"""What the scheduler plans in a dry run, with each policy: it is what follows, and leaves no trace."""

import pickle

import pytest

from borgish.cell.events import JobSubmitted
from borgish.resources import Resources
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from tests.unit.scheduler.cells import (
    GIB,
    NOW,
    carry_out,
    cell_of,
    happen,
    machine,
    observed_of,
    spec,
    touched,
)

CAPACITY = Resources(4000, 8 * GIB, 0, {}, {"gpu": 2000})


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "random"])
def test_what_is_foreseen_is_what_follows(policy: str) -> None:
    cell = cell_of(
        [machine(f"m{n}", capacity=CAPACITY) for n in range(6)],
        [
            spec(f"ann/j{n}", 3, 300 * n, resources=Resources(300 * n, n * GIB, 0, {}, {"gpu": 300}))
            for n in range(1, 5)
        ],
    )
    scheduler, observed = Scheduler(3, SchedulerSettings(policy=policy)), observed_of(cell)
    carry_out(cell, scheduler.schedule(cell, observed, NOW))
    wanted = spec("bob/new", 4, resources=Resources(500, GIB, 0, {}, {"gpu": 300}))
    unread = touched(cell)
    dry_run = scheduler.dry_run(cell, observed, wanted, unread, NOW)
    happen(cell, JobSubmitted(wanted))
    scheduler.refresh(cell, observed, unread)
    followed = scheduler.schedule(cell, observed, NOW)
    assert dry_run.placements
    assert [each for each in followed.placements if each.job == "bob/new"] == list(dry_run.placements)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("relaxed", [False, True])
def test_nothing_of_it_stays(policy: str, relaxed: bool) -> None:
    cell = cell_of([machine(f"m{n}", capacity=CAPACITY) for n in range(6)], [spec("ann/a", 4)])
    settings = SchedulerSettings(policy=policy, relaxed_randomisation=relaxed)
    scheduler, observed = Scheduler(3, settings), observed_of(cell)
    carry_out(cell, scheduler.schedule(cell, observed, NOW))
    wanted = spec("bob/new", 4, resources=Resources(500, GIB, 0, {}, {"gpu": 300}), ports=("http",))
    before = pickle.dumps(scheduler)
    first = scheduler.dry_run(cell, observed, wanted, cell.machines, NOW)
    assert scheduler.dry_run(cell, observed, wanted, cell.machines, NOW) == first
    assert pickle.dumps(scheduler) == before
