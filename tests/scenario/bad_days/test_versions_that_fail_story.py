"""A job is given a version that never becomes healthy, or whose canaries crash: it costs what may be down,
and is paused with what to type, or undone by itself."""

import pytest

from borgish.vocabulary import Hold
from tests.scenario.bad_days.conftest import Days
from tests.scenario.bad_days.day import CHANGED, MOST, TASKS, web

DEADLINE_SECONDS = 60.0
UNTOUCHED = [1] * (TASKS - MOST)
PROBED = "health: {command: [check], interval: 1s}"
PATIENT = "health: {command: [check], interval: 1s, failures: 100}"
"""A program that is not healthy is not started again for long."""


@pytest.fixture(autouse=True)
def _never_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.sim.runtime.SICK_AFTER_SECONDS", 0.0)


def test_a_program_that_never_becomes_healthy_is_paused_with_what_to_type(days: Days) -> None:
    day, update = days(CHANGED), f"deadline: {DEADLINE_SECONDS:g}s"
    day.submit(web(1, update=update, more=PATIENT))
    day.wait(15.0)
    day.submit(web(2, "sick", update=update, more=PATIENT))
    day.wait(DEADLINE_SECONDS - 2.0)
    day.status()
    assert day.rollout().hold is None
    day.wait(4.0)
    said = day.status()
    assert day.rollout().hold is Hold.FAILED
    assert "paused: task 0 runs on m4 and its probe has not answered yet, for more than 60s" in said
    day.why()
    assert day.attempts()[MOST:] == UNTOUCHED
    day.wait(20.0)  # it waits for somebody
    assert day.releases() == ["1"] * (TASKS - MOST) + ["2"] * MOST
    day.takes("borgctl job update undo ann/web")
    day.until(day.is_over)
    assert day.releases() == ["1"] * TASKS
    assert day.attempts()[MOST:] == UNTOUCHED
    day.status()
    day.history()
    day.end("never-healthy-paused")


@pytest.mark.parametrize("probe", [PATIENT, PROBED], ids=["patient", "restarted"])
def test_a_program_that_never_becomes_healthy_is_undone_by_itself(days: Days, probe: str) -> None:
    day, update = days(CHANGED), f"on_failure: undo, deadline: {DEADLINE_SECONDS:g}s"
    day.submit(web(1, update=update, more=probe))
    day.wait(15.0)
    day.submit(web(2, "sick", update=update, more=probe))
    day.until(lambda: day.job().version == 3)
    assert day.rollout().reason.startswith("undone since task 0 ")
    day.until(day.is_over)
    assert day.releases() == ["1"] * TASKS
    assert day.attempts() == [3] * MOST + UNTOUCHED
    day.status()
    day.history()
    day.end("never-healthy-undone" if probe is PATIENT else "unhealthy-undone", restarts_by_probe=True)


# Canaries


def test_canaries_that_crash_are_paused_and_no_other_task_is_touched(days: Days) -> None:
    day, update = days(CHANGED), "canaries: 2"
    day.submit(web(1, update=update))
    day.wait(15.0)
    day.submit(web(2, "crash", update=update))
    day.until(lambda: day.rollout().hold is Hold.FAILED)
    day.wait(1.0)
    assert "paused: task 0 was restarted" in day.status()
    day.wait(300.0)
    day.why()
    assert day.attempts()[2:] == UNTOUCHED
    assert day.rollout().hold is Hold.FAILED
    day.takes("borgctl job update undo ann/web")
    day.until(day.is_over)
    assert day.releases() == ["1"] * TASKS
    assert day.attempts()[2:] == UNTOUCHED
    day.status()
    day.end("canaries-paused")


@pytest.mark.parametrize("canaries", [1, 2])
def test_canaries_that_crash_are_undone_and_no_other_task_is_touched(days: Days, canaries: int) -> None:
    day, update = days(CHANGED), f"canaries: {canaries}, on_failure: undo"
    day.submit(web(1, update=update))
    day.wait(15.0)
    day.submit(web(2, "crash", update=update))
    day.until(lambda: day.job().version == 3)
    day.until(day.is_over)
    assert day.releases() == ["1"] * TASKS
    assert day.attempts() == [3] * canaries + [1] * (TASKS - canaries)
    day.status()
    day.history()
    day.end(f"canaries-undone-{canaries}")


def test_canaries_that_are_well_wait_to_be_promoted(days: Days) -> None:
    day, update = days(CHANGED), "canaries: 2"
    day.submit(web(1, update=update))
    day.wait(15.0)
    day.submit(web(2, update=update))
    day.until(lambda: day.rollout().hold is Hold.CANARY)
    day.wait(300.0)
    assert "waits to be promoted: 2 tasks of the new version up and well" in day.status()
    assert day.stops() == [1] * 2 + [0] * (TASKS - 2)
    day.takes("borgctl job update promote ann/web")
    day.until(day.is_over)
    assert day.releases() == ["2"] * TASKS
    assert day.stops() == [1] * TASKS
    day.status()
    day.end("canaries-promoted")


def test_more_canaries_than_may_be_down_are_not_down_at_once(days: Days) -> None:
    day, update = days(CHANGED), "canaries: 5"
    day.submit(web(1, update=update))
    day.wait(15.0)
    day.submit(web(2, "crash", update=update))
    day.until(lambda: day.rollout().hold is Hold.FAILED)
    day.wait(100.0)
    assert day.attempts()[MOST:] == UNTOUCHED
    day.end(is_at_rest=False)
