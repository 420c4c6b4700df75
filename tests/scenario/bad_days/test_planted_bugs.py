"""The judge of the bad days finds bugs that are planted in the code that holds tasks back."""

from collections.abc import Callable, Sequence

import pytest

from borgish.cell.limits.disruption import Gate
from borgish.cell.model import Job
from tests.scenario.bad_days.conftest import Days
from tests.scenario.bad_days.day import CHANGED, DRAINED, Day, web

Plant = Callable[[pytest.MonkeyPatch], None]


def asks_no_gate(patch: pytest.MonkeyPatch) -> None:
    """An update takes down all that is not up to its time, whatever is down besides."""

    def let_go(_job: Job, _gate: Gate, indexes: Sequence[int]) -> tuple[list[int], str]:
        return list(indexes), ""

    patch.setattr("borgish.cell.updates.rollout.let_go", let_go)
    patch.setattr("borgish.reconcilers.rollout.let_go", let_go)
    patch.setattr("borgish.reconcilers.rollout.max_at_a_time", lambda job: job.tasks_wanted)


def waits_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """An update goes on as soon as the tasks before are up."""
    patch.setattr("borgish.reconcilers.rollout.not_ready", lambda *_: None)


def takes_what_it_has_not_heard_of(patch: pytest.MonkeyPatch) -> None:
    """A new master takes for down what it does not know yet, and down is free to stop."""
    patch.setattr("borgish.cell.limits.disruption.has_reported", lambda *_: True)
    patch.setattr("borgish.reconcilers.rollout.not_ready", lambda *_: None)


@pytest.mark.parametrize("plant", [asks_no_gate, waits_for_nothing])
def test_an_update_beyond_its_budget_would_be_found(
    days: Days, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    plant(monkeypatch)
    day = days(CHANGED)
    _update(day)
    day.until(day.is_over)
    _is_found(day)


def test_a_new_master_that_stops_what_it_does_not_know_would_be_found(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = days(CHANGED)
    _update(day)
    day.wait(3.0)
    day.master.die()
    takes_what_it_has_not_heard_of(monkeypatch)
    day.master.begin()
    day.until(day.is_over)
    _is_found(day)


def test_a_drain_beyond_the_budget_would_be_found(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "refused", lambda *_, **__: "")
    day = days(DRAINED)
    day.submit(web(1))
    day.wait(15.0)
    day.types("borgctl machine drain m1 m2")
    day.wait(10.0)
    _is_found(day)


def _update(day: Day) -> None:
    day.submit(web(1))
    day.wait(15.0)
    day.submit(web(2))


def _is_found(day: Day) -> None:
    with pytest.raises(AssertionError, match="of ann/web are down, or not settled: 2 may be"):
        day.end()
