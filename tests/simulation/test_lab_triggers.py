"""The lab of triggers: what it finds follows from its regimes, and is found again."""

import functools
import logging
from collections.abc import Iterator

import pytest

from borgish.cell.model import Cell, Snapshot
from borgish.master.core import RESYNC_SECONDS
from borgish.sim.lab import triggers
from borgish.sim.lab.plots import svg
from borgish.sim.lab.report import longest, never
from borgish.sim.lab.triggers import Edge, Outcome, Regime, Trouble, in_sight, live
from borgish.sim.pack.packing import waiting_jobs
from borgish.spec.job import JobSpec

WOKEN = [Regime.LEVELS, Regime.BOTH]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@functools.cache
def lived(regime: Regime, trouble: Trouble, share: float = 0.3, resync: float = RESYNC_SECONDS) -> Outcome:
    """Let a cell live once like this: another time it would be the same life."""
    return live(1, regime, trouble, share, resync)


@pytest.mark.parametrize("regime", Regime)
def test_where_nothing_is_wrong_every_regime_converges(regime: Regime) -> None:
    outcome = lived(regime, Trouble.NONE)
    assert len(outcome.seconds) > 15
    assert never(outcome.seconds) == 0
    assert longest(outcome.seconds) < 1.5


def test_edges_converge_where_no_edge_is_lost_and_never_where_all_are() -> None:
    assert never(lived(Regime.EDGES, Trouble.LOST, share=0.0).seconds) == 0
    all_lost = lived(Regime.EDGES, Trouble.LOST, share=1.0)
    assert never(all_lost.seconds) > 0
    assert (all_lost.passes, all_lost.looked_at, all_lost.actions) == (0, 0, 0)


@pytest.mark.parametrize("regime", [Regime.RESYNC, Regime.BOTH, Regime.ONE_STEP])
def test_with_a_resync_all_edges_may_be_lost(regime: Regime) -> None:
    outcome = lived(regime, Trouble.LOST, share=1.0)
    assert never(outcome.seconds) == 0
    assert longest(outcome.seconds) < RESYNC_SECONDS + 0.5


def test_the_period_of_the_resync_bounds_what_lost_edges_cost() -> None:
    short, long = (lived(Regime.RESYNC, Trouble.LOST, resync=each) for each in (1.0, 10.0))
    assert longest(short.seconds) < 1.5 < longest(long.seconds) < 10.5
    assert long.looked_at < short.looked_at


def test_edges_alone_do_not_see_room_that_comes_later_nor_what_only_time_makes_so() -> None:
    assert never(lived(Regime.EDGES, Trouble.OVERLAPPING).seconds) > 0
    assert never(lived(Regime.LEVELS, Trouble.OVERLAPPING).seconds) == 0
    assert never(lived(Regime.EDGES, Trouble.SILENT).seconds) > never(
        lived(Regime.LEVELS, Trouble.SILENT).seconds
    )
    assert never(lived(Regime.BOTH, Trouble.SILENT).seconds) == 0


def test_edges_look_at_less() -> None:
    edges, both = (lived(each, Trouble.NONE) for each in (Regime.EDGES, Regime.BOTH))
    assert edges.looked_at < both.looked_at / 2


def test_only_what_edges_name_is_walked_over_and_all_can_be_looked_up() -> None:
    jobs = waiting_jobs(JobSpec(name, "ann", 1, ("true",)) for name in "ab")
    cell, looked_at = Cell(Snapshot("c", jobs=jobs)), 0

    def note(records: int) -> None:
        nonlocal looked_at
        looked_at += records

    seen = in_sight(cell, {Edge("job", "ann/a")}, note)
    assert (list(seen.jobs), len(seen.jobs), list(seen.waiting)) == (["ann/a"], 2, ["ann/a"])
    assert [*seen.jobs.items()] == [("ann/a", jobs["ann/a"])]
    assert [*seen.jobs.values()] == [jobs["ann/a"]]
    assert looked_at == 3
    assert seen.jobs["ann/b"] is jobs["ann/b"]
    assert seen.jobs.get("ann/c") is None
    assert looked_at == 5
    assert list(in_sight(cell, None, note).waiting) == ["ann/a", "ann/b"]
    assert list(cell.waiting) == ["ann/a", "ann/b"]


@pytest.mark.parametrize(("regime", "trouble"), [(Regime.EDGES, Trouble.LOST), (Regime.BOTH, Trouble.LATE)])
def test_the_same_seed_lives_the_same_life(regime: Regime, trouble: Trouble) -> None:
    assert lived(regime, trouble) == live(1, regime, trouble, 0.3, RESYNC_SECONDS)
    assert lived(regime, trouble).seconds != live(2, regime, trouble, 0.3, 1.0).seconds


def test_the_same_lives_give_the_same_picture_and_the_words_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each regime lives once, and what it came to stands for all troubles.
    lives = {regime: lived(regime, Trouble.LOST) for regime in Regime}
    monkeypatch.setattr(triggers, "live", lambda _seed, regime, *_others: lives[regime])
    one, other = (triggers.run(seed=1, runs=2, share=0.3, resync=1.0) for _ in range(2))
    assert svg(one.figures) == svg(other.figures)
    assert one == other
    edges = lives[Regime.EDGES]
    assert f"{2 * never(edges.seconds)} of {2 * len(edges.seconds)} changes undone" in one.conclusion[1]
    assert f"took {longest(edges.seconds):.1f} s" in one.conclusion[1]
    assert f"look at {2 * edges.looked_at:,} records" in one.conclusion[0]
