"""The journal read backwards, in every store."""

import pytest

from borgish.errors import StoreDamaged, Unreachable
from tests.contract.store.places import Place
from tests.contract.store.samples import Life


def test_entries_before_go_back_from_a_position(place: Place) -> None:
    life = Life(place.open())
    life.story()
    forwards = list(life.store.entries(0))
    assert len(forwards) == 6
    assert list(life.store.entries_before(2**63 - 1, 100)) == forwards[::-1]
    assert list(life.store.entries_before(5, 2)) == [forwards[3], forwards[2]]
    assert list(life.store.entries_before(2, 10)) == [forwards[0]]
    assert list(life.store.entries_before(1, 10)) == []


def test_a_new_store_has_nothing_before(place: Place) -> None:
    store = place.open()
    store.load()
    assert list(store.entries_before(2**63 - 1, 10)) == []


def test_pages_backwards_miss_nothing_and_give_nothing_twice(place: Place) -> None:
    life = Life(place.open())
    for _ in range(10):
        life.do()
    below, seen = 2**63 - 1, []
    while page := list(life.store.entries_before(below, 4)):
        seen += [entry.position for entry in page]
        below = page[-1].position
    assert seen == list(range(11, 0, -1))


def test_a_page_once_read_does_not_change_with_what_follows(place: Place) -> None:
    life = Life(place.open())
    page = life.store.entries_before(2**63 - 1, 10)
    life.do()
    assert [entry.position for entry in page] == [1]


def test_a_damaged_entry_is_named_when_it_is_taken(place: Place) -> None:
    life = Life(place.open())
    life.story()
    place.garble_entry(3)
    page = iter(life.store.entries_before(2**63 - 1, 10))
    assert [next(page).position for _ in range(3)] == [6, 5, 4]
    with pytest.raises(StoreDamaged, match="cannot be read"):
        next(page)


def test_a_closed_store_gives_nothing(place: Place) -> None:
    store = place.open()
    store.load()
    store.close()
    with pytest.raises(Unreachable):
        store.entries_before(10, 1)
