"""Samples of usage: kept beside the cell, handed out in order and in pages, let go of by age."""

from typing import Any

import pytest

from borgish.errors import Fenced, StoreDamaged
from borgish.store.base import Store
from borgish.store.usage import UsageBlock, UsageSample, UsageSum, decode_usage, encode_usage, sum_usage
from tests.contract.store.places import Place
from tests.contract.store.samples import Life

BEGIN = (0.0, -1)
USED = {
    "m1": {("ann/web/0", 7): (250, 2**20), ("ann/web/10", 7): (0, 0), ("bob/db/2", 9): (4000, 2**40)},
    "m2": {("ann/web/1", 2**40): (3, 4096)},
}


def block(at: float, part: int = 0) -> UsageBlock:
    return encode_usage(at, part, USED.items())


@pytest.fixture
def store(place: Place) -> Store:
    return Life(place.open()).store


def test_a_block_has_what_was_put_into_it() -> None:
    made = block(5.5)
    assert made.samples == 4
    assert list(decode_usage(made)) == [
        UsageSample("m1", "ann/web/0", 7, 250, 2**20),
        UsageSample("m2", "ann/web/1", 2**40, 3, 4096),
        UsageSample("m1", "ann/web/10", 7, 0, 0),
        UsageSample("m1", "bob/db/2", 9, 4000, 2**40),
    ]
    assert list(decode_usage(encode_usage(1.0, 0, []))) == []


def test_a_block_that_is_no_good_is_named() -> None:
    made = block(5.0, 3)
    for body in (b"", made.body[:-3], b"rubbish"):
        with pytest.raises(StoreDamaged, match="of 5, part 3"):
            list(decode_usage(UsageBlock(5.0, 3, 4, body)))


def test_they_come_back_in_order_and_in_pages(store: Store) -> None:
    store.save_usage([block(20.25, 1), block(20.25, 0)])
    store.save_usage([block(10.0)])
    store.save_usage([])
    found = store.usage(BEGIN, 100.0, 10)
    assert found == [block(10.0), block(20.25, 0), block(20.25, 1)]
    assert store.usage(BEGIN, 100.0, 2) == found[:2]
    assert store.usage((20.25, 0), 100.0, 2) == found[2:]
    assert store.usage(BEGIN, 10.0, 10) == found[:1]


def test_a_moment_that_comes_twice_counts_once(store: Store) -> None:
    store.save_usage([block(10.0, 0), block(10.0, 1)])
    store.save_usage([encode_usage(10.0, 0, [])])
    assert [(one.part, one.samples) for one in store.usage(BEGIN, 100.0, 10)] == [(0, 0)]


def test_the_oldest_go_a_few_at_a_time(store: Store) -> None:
    store.save_usage([block(float(at), part) for at in (1, 2, 3) for part in (0, 1)])
    assert [store.prune_usage(3.0, 3) for _ in range(3)] == [3, 1, 0]
    assert [one.at for one in store.usage(BEGIN, 100.0, 10)] == [3.0, 3.0]


def test_they_outlive_a_master(place: Place, store: Store) -> None:
    store.save_usage([block(10.0)])
    store.close()
    assert place.open().usage(BEGIN, 100.0, 10) == [block(10.0)]


def test_who_does_not_lead_keeps_none(place: Place, store: Store) -> None:
    place.usurp()
    with pytest.raises(Fenced):
        store.save_usage([block(10.0)])


def test_who_does_not_lead_lets_go_of_none(place: Place, store: Store) -> None:
    store.save_usage([block(10.0)])
    place.usurp()
    with pytest.raises(Fenced):
        store.prune_usage(100.0, 10)


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"job": "ann/web"},
        {"job": "bob/db"},
        {"job": "ann/web", "index": 10},
        {"job": "ann/web", "index": 2},
        {"machine": "m1"},
        {"machine": "m2", "job": "ann/web"},
        {"machine": "m9"},
        {"job": "ann/nobody"},
    ],
)
def test_a_sum_is_that_of_the_samples(wanted: dict[str, Any]) -> None:
    made = block(5.0)
    job, index, machine = wanted.get("job"), wanted.get("index"), wanted.get("machine")
    samples = [
        each
        for each in decode_usage(made)
        if (job is None or each.task.rpartition("/")[0] == job)
        and (index is None or each.task.endswith(f"/{index}"))
        and (machine is None or each.machine == machine)
    ]
    cpu, ram = sum(each.cpu_millis for each in samples), sum(each.ram_bytes for each in samples)
    assert sum_usage(made, **wanted) == UsageSum(cpu, ram, len(samples))
