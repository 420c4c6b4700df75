"""Jobs start after those that they name, and end with their parents, whatever dies meanwhile; and the planted
bugs with which they would not."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

from borgish.cell import apply, lifecycle, model
from borgish.cell.apps import order
from borgish.cell.command import Command
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers import RECONCILERS, Reconciler
from borgish.reconcilers import order as reconciler
from borgish.sim import workload
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.job import After
from borgish.vocabulary import Until
from tests.profiles import seeds

WORDS = ("is let go, and", "is placed, and its job", "lives on, and", "waits on, and")
STORM_SECONDS, CALM_SECONDS = 200.0, 100.0
SOME = msgspec.structs.replace(NO_FAULTS, borglet_dies_seconds=60.0, master_dies_seconds=60.0)


def out_of_order(seed: int, faults: Faults = SOME) -> list[str]:
    """Return what started too early, or waits or lives on."""
    world = World(seed, machines=6, faults=faults, pause_seconds=3.0)
    problems = world.run(STORM_SECONDS, CALM_SECONDS).problems
    return [problem for problem in problems if any(words in problem for words in WORDS)]


@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=60))
def test_jobs_keep_their_order(seed: int) -> None:
    assert out_of_order(seed) == []
    assert out_of_order(seed, Faults()) == []


AWAY = msgspec.structs.replace(
    NO_FAULTS,
    machine_boots_seconds=10.0,
    borglet_dies_seconds=20.0,
    master_stalls_seconds=12.0,
    task_lives_seconds=30.0,
    away_seconds=25.0,
)


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most jobs start after one that is up, and are so small that it often is."""
    after = {number: (After("ann/job-0", Until.UP),) for number in (1, 3, 4, 5, 7, 9, 10, 11)}
    after |= {number: (After("ann/job-3", Until.UP),) for number in (2, 6, 8)}
    monkeypatch.setattr(workload, "AFTER", after)
    monkeypatch.setattr(workload, "TASKS_MAX", 2)


def on_old_news(seed: int) -> list[str]:
    """Return who was let go for what had ended, where machines and the master are away now and then."""
    world = World(seed, machines=4, faults=AWAY, pause_seconds=1.5)
    return [problem for problem in world.run(STORM_SECONDS, CALM_SECONDS).problems if WORDS[0] in problem]


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=60))
def test_nobody_is_let_go_on_old_news(seed: int) -> None:
    assert on_old_news(seed) == []


@pytest.mark.usefixtures("ordered")
def test_who_is_let_go_on_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_why_not_heard", lambda *_: "")
    assert any(on_old_news(seed) for seed in range(30))


def lets_go_of_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciler, "is_met", lambda *_: True)


def takes_what_has_failed_for_finished(patch: pytest.MonkeyPatch) -> None:
    is_met = order.is_met

    def careless(cell: model.Cell, observed: Observed, after: After, now: Now) -> bool:
        job = cell.jobs.get(after.job)
        return (job is not None and job.dead == len(job.tasks)) or is_met(cell, observed, after, now)

    patch.setattr(reconciler, "is_met", careless)


def places_what_is_to_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model.Cell, "queue", lambda cell, _job, _index: cell.waiting)
    patch.setattr(lifecycle, "let_wait", lambda *_: None)
    patch.setattr(apply, "let_wait", lambda *_: None)


def lets_go_of_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciler, "is_met", lambda *_: False)


def lets_children_live(patch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> Iterator[Command]:
        return iter(())

    without = tuple(
        Reconciler("parents", nothing, nothing) if each.name == "parents" else each for each in RECONCILERS
    )
    patch.setattr("borgish.master.core.RECONCILERS", without)


PLANTED: list[Callable[[pytest.MonkeyPatch], None]] = [
    lets_go_of_all,
    takes_what_has_failed_for_finished,
    places_what_is_to_wait,
    lets_go_of_nothing,
    lets_children_live,
]


@pytest.mark.parametrize("plant", PLANTED)
def test_each_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    assert any(out_of_order(seed) for seed in range(12))
