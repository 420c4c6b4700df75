"""The journal read backwards, in every store."""

import pytest

from borgish.cell.events import Entry
from borgish.errors import StoreDamaged, Unreachable
from borgish.store.base import Records
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


def test_entries_that_name_something_newest_first(place: Place) -> None:
    life = Life(place.open())
    life.story()  # m1 joins, ann/web is submitted, placed on m1, evicted and ended
    every = [entry.position for entry in life.store.entries(0)]

    def naming(*words: str, first: int = 1, below: int = 100) -> list[int]:
        return [entry.position for entry in life.store.entries_naming(words, first, below)]

    assert naming() == every[::-1]
    assert naming(first=2, below=5) == [4, 3, 2]
    assert naming("ann", "web") == [6, 5, 4, 3]
    assert naming("ann", "web", "m1") == [4]
    assert naming("m1") == [4, 2]
    assert naming("nobody") == []
    assert naming("%") == naming("an_") == []  # words are no patterns
    life.store.append([Entry(7, 1.0, 1, life.epoch, "ann", "x", (), subject="ann/web")], Records())
    assert naming("ann", "web", first=6) == [7, 6]


def test_a_closed_store_gives_nothing(place: Place) -> None:
    store = place.open()
    store.load()
    store.close()
    with pytest.raises(Unreachable):
        store.entries_before(10, 1)
