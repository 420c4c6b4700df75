"""How many tasks a pass tries, by how long the last ones took."""

from itertools import pairwise

from borgish.master.turn import PASS_SECONDS, TASKS_AT_START, TASKS_MIN, Pace
from borgish.scheduler.schedule import TASKS_MAX


def settled(task_seconds: float, fixed_seconds: float = 0.0, tasks: int = TASKS_AT_START) -> int:
    """Return what it comes to where each task takes so long."""
    pace = Pace(tasks)
    for _ in range(50):
        pace.took(fixed_seconds + pace.tasks * task_seconds, was_full=True)
    return pace.tasks


def test_a_pass_takes_about_the_time_that_it_may() -> None:
    for task_seconds in (2e-6, 5e-6, 20e-6):
        for start in (TASKS_MIN, TASKS_MAX):
            assert 0.9 * PASS_SECONDS < settled(task_seconds, tasks=start) * task_seconds < 1.1 * PASS_SECONDS


def test_it_stays_within_its_bounds() -> None:
    assert settled(1e-3) == TASKS_MIN
    assert settled(1e-5, fixed_seconds=1.0) == TASKS_MIN
    assert settled(1e-9) == TASKS_MAX


def test_one_slow_pass_is_enough_and_more_is_tried_step_by_step() -> None:
    pace = Pace(TASKS_MAX)
    pace.took(TASKS_MAX * 2e-5, was_full=False)
    assert pace.tasks == int(PASS_SECONDS / 2e-5)
    tasks = []
    for _ in range(10):
        pace.took(1e-6, was_full=True)
        tasks.append(pace.tasks)
    assert all(after <= 2 * before for before, after in pairwise(tasks))
    assert tasks[-1] == TASKS_MAX


def test_a_pass_that_had_little_to_do_says_nothing() -> None:
    pace = Pace()
    pace.took(1e-6, was_full=False)
    assert pace.tasks == TASKS_AT_START


def test_where_the_clock_stands_still_nothing_is_held_back() -> None:
    pace = Pace()
    for _ in range(10):
        pace.took(0.0, was_full=True)
    assert pace.tasks == TASKS_MAX
