"""The ranking of machines, and ports."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.scheduler.affinity import UNFIT
from borgish.scheduler.fleet.usage import PortRange, free_counts
from borgish.scheduler.placing import ranking
from borgish.scheduler.scoring import Scored


@given(st.lists(st.one_of(st.integers(0, 40).map(float), st.just(UNFIT)), max_size=400), st.integers(1, 500))
def test_the_ranking_holds_the_best(costs: list[float], count: int) -> None:
    ranked = sorted(ranking(Scored(np.array(costs, dtype=np.float64)), count))
    best = sorted((cost, row) for row, cost in enumerate(costs) if cost < UNFIT)
    assert [cost for cost, _ in ranked[:count]] == [cost for cost, _ in best[:count]]
    assert set(ranked) <= set(best)


def test_few_of_many_machines_are_ranked() -> None:
    assert len(ranking(Scored(np.random.default_rng(1).random(10_000)), 20)) < 100


def test_ports_go_round() -> None:
    ports = PortRange(10, 14, 13, {14})
    assert free_counts([ports]) == [4]
    assert ports.take(2) == (13, 10)
    ports.taken.discard(13)
    assert ports.take(2) == (11, 12)  # 13 rests
    assert ports.take(1) == (13,)
    with pytest.raises(LookupError, match="1 ports wanted, 0 free in 10-14"):
        ports.take(1)


def test_a_cursor_outside_begins_at_the_low_end() -> None:
    assert PortRange(10, 14, 0, {99}).take(1) == (10,)
