"""Somebody changes a job again while a change of it is under way, or takes the cell back."""

import pytest

from borgish.vocabulary import Hold
from tests.scenario.bad_days.conftest import Days
from tests.scenario.bad_days.day import CHANGED, MOST, SETTLE_SECONDS, TASKS, WEB, Day, web

BESIDE = "ann/beside"


def beside(release: int) -> str:
    """Return a job file of another job."""
    return f'name: beside\nrun: [serve]\nenv: {{RELEASE: "{release}"}}\nresources: {{cpu: 1, ram: 1GiB}}'


def begun(day: Day, tenths: int = 70) -> None:
    """Let an update have been under way for a while."""
    day.submit(web(1))
    day.wait(15.0)
    day.submit(web(2))
    day.wait(tenths / 10.0)


def until_back(day: Day) -> None:
    """Let a rollback come to its end, and all be up."""
    day.until(lambda: not day.core.cell.rolling)
    day.wait(SETTLE_SECONDS)


def untouched_where_not(reached: list[bool], day: Day) -> bool:
    """Return whether only tasks that had been reached were stopped: once to get there, and once back, unless
    they had not been started yet."""
    pairs = zip(day.stops(), reached, strict=True)
    return all(stops in (1, 2) if is_reached else stops == 0 for stops, is_reached in pairs)


# An update of an update


def test_a_newer_submission_replaces_the_update_that_is_under_way(days: Days) -> None:
    day = days(CHANGED)
    begun(day)
    day.status()
    reached = day.versions().count(2)
    day.submit(web(3))
    day.wait(1.0)
    assert "`borgctl job update undo ann/web` goes back to version 1" in day.status()
    day.until(day.is_over)
    assert day.releases() == ["3"] * TASKS
    assert (
        sorted(day.stops()) == [1] * (TASKS - reached) + [2] * reached
    )  # who was not reached skips version 2
    day.status()
    day.history()
    day.end("update-of-an-update")


@pytest.mark.parametrize("tenths", range(0, 210, 9))
def test_replaced_at_any_moment(days: Days, tenths: int) -> None:
    day = days(CHANGED)
    begun(day, tenths)
    day.submit(web(3))
    day.until(day.is_over)
    assert day.releases() == ["3"] * TASKS
    assert max(day.stops()) <= 2
    day.end()


def test_replaced_again_and_again(days: Days) -> None:
    day = days(CHANGED)
    begun(day, 5)
    for release in range(3, 20):
        day.submit(web(release))
        day.wait(1.1)
    day.until(day.is_over)
    assert day.releases() == ["19"] * TASKS
    day.end()


def test_a_mended_version_replaces_one_that_crashes(days: Days) -> None:
    day = days(CHANGED)
    day.submit(web(1))
    day.wait(15.0)
    day.submit(web(2, "crash"))
    day.until(lambda: day.rollout().hold is Hold.FAILED)
    day.wait(20.0)
    day.status()
    assert "borgctl job submit FILE" in day.offered
    day.submit(web(3))
    day.wait(1.0)
    day.status()
    day.until(day.is_over)
    assert day.releases() == ["3"] * TASKS
    assert day.stops()[MOST:] == [1] * (TASKS - MOST)  # none of them ever crashed
    day.status()
    day.history()
    day.end("mended")


@pytest.mark.parametrize("tenths", range(0, 210, 19))
def test_undone_at_any_moment(days: Days, tenths: int) -> None:
    day = days(CHANGED)
    begun(day, tenths)
    reached = [version == 2 for version in day.versions()]
    if not day.is_over():
        day.types("borgctl job update undo ann/web")
        day.until(day.is_over)
        assert day.releases() == ["1"] * TASKS
        assert untouched_where_not(reached, day)
    day.end()


# The cell is rolled back


def test_the_cell_is_rolled_back_during_an_update(days: Days) -> None:
    day = days(CHANGED)
    day.submit(beside(1))
    day.submit(web(1))
    day.wait(15.0)
    good = day.position
    day.submit(beside(2))
    day.submit(web(2))
    day.wait(7.0)
    day.status()
    reached = [version == 2 for version in day.versions()]
    day.types(f"borgctl rollback {good}")
    day.wait(1.0)
    day.status()
    until_back(day)
    assert day.releases() == ["1"] * TASKS
    assert day.releases(BESIDE) == ["1"]
    assert day.stops() == [2 * is_reached for is_reached in reached]  # the others were never touched
    day.why()
    day.history()
    day.end("rolled-back")


@pytest.mark.parametrize("only", ["", f" --only {WEB}"], ids=["cell", "job"])
@pytest.mark.parametrize("tenths", range(0, 240, 19))
def test_rolled_back_at_any_moment_of_an_update(days: Days, tenths: int, only: str) -> None:
    day = days(CHANGED)
    day.submit(web(1))
    day.wait(15.0)
    good = day.position
    day.submit(web(2))
    day.wait(tenths / 10.0)
    reached = [version == 2 for version in day.versions()]
    day.types(f"borgctl rollback {good}{only}")
    until_back(day)
    assert day.releases() == ["1"] * TASKS
    assert untouched_where_not(reached, day)
    day.end()


def test_an_update_that_was_rolled_back_can_be_gone_on_with(days: Days) -> None:
    """A rollback of the rollback leads back into the update, which goes on."""
    day = days(CHANGED)
    day.submit(web(1))
    day.wait(15.0)
    good = day.position
    day.submit(web(2))
    day.wait(7.0)
    middle = day.position
    day.types(f"borgctl rollback {good}")
    day.wait(3.0)
    day.types(f"borgctl rollback {middle}")
    until_back(day)
    assert day.releases() == ["2"] * TASKS
    day.end()
