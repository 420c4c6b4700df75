"""Between reading a cell and leading it, the one who led may have written once more: that is not missed."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.events import Elected, Entry, MachineUp
from borgish.store.base import records_of
from borgish.store.replay import replay
from tests.contract.store.places import InDatabase, InMemory, Place
from tests.contract.store.samples import Life, body_of


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def shared(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A store that two masters may have open at once, which SQLite's lock does not let them."""
    in_memory = request.param == "memory"
    with closing(InMemory() if in_memory else InDatabase(request.getfixturevalue("migrated_url"))) as made:
        yield made


def test_what_the_one_before_wrote_last_is_taken_in(shared: Place) -> None:
    former = Life(shared.open())
    former.story()
    successor = shared.open()
    cell = successor.load()
    former.do(MachineUp("m1"))

    epoch = successor.lead("successor", "here")
    replay(cell, successor.entries(cell.position))

    assert body_of(cell) == former.body()
    elected = Entry(cell.position + 1, 1.0, 1, epoch, "election", "lead", (Elected(epoch, 1, "successor"),))
    apply_entry(cell, elected)
    successor.append([elected], records_of(cell, cell.take_touched()))
    assert shared.open().load().position == elected.position
    successor.close()
