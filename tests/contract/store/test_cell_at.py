"""The cell as it was at any position: by the nearest good checkpoint and the journal after it."""

import pytest

from borgish.cell.events import MachineUp
from borgish.errors import Invalid, StoreDamaged
from borgish.store import replay
from borgish.store.codec import compress
from borgish.store.replay import cell_at
from tests.contract.store.places import Place
from tests.contract.store.samples import CELL, Life, body_of


def lived(life: Life, entries: int) -> dict[int, bytes]:
    """Let so many things happen; return the cell after each, by position."""
    bodies = {}
    for _ in range(entries):
        life.do(MachineUp("m1"))
        bodies[life.cell.position] = life.body()
    return bodies


def test_each_position_is_told_as_it_was(place: Place) -> None:
    life = Life(place.open())
    life.story()
    bodies = lived(life, 3)
    life.checkpoint()
    bodies |= lived(life, 3)

    for position, body in bodies.items():
        found = cell_at(life.store, CELL, position)
        assert (body_of(found.cell), found.warnings) == (body, [])


def test_before_everything_it_is_empty(place: Place) -> None:
    life = Life(place.open())
    life.story()

    cell = cell_at(life.store, CELL, 0).cell

    assert (cell.position, cell.jobs, cell.machines) == (0, {}, {})


def test_more_than_a_page_is_replayed(place: Place) -> None:
    life = Life(place.open())
    life.story()
    bodies = lived(life, replay.PAGE_ENTRIES * 2 + 3)

    for position in (replay.PAGE_ENTRIES, replay.PAGE_ENTRIES + 1, life.cell.position):
        assert body_of(cell_at(life.store, CELL, position).cell) == bodies[position]


def test_the_cell_returned_is_apart_from_the_living(place: Place) -> None:
    life = Life(place.open())
    life.story()
    life.checkpoint()
    then = cell_at(life.store, CELL, life.cell.position).cell
    before = body_of(then)

    life.do(MachineUp("m1"))

    assert body_of(then) == before


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(place: Place) -> None:
    life = Life(place.open())
    life.story()
    life.checkpoint()
    bodies = lived(life, 2)
    damaged = life.checkpoint().position
    place.damage_checkpoint(damaged)

    found = cell_at(life.store, CELL, damaged)

    assert body_of(found.cell) == bodies[damaged]
    assert [f"checkpoint at {damaged} is passed over" in warning for warning in found.warnings] == [True]


@pytest.mark.parametrize(
    ("change", "words"),
    [((b"snapshot 1\n", b"snapshot 9\n"), "has format 9"), ((b"testing", b"texting"), "of cell 'texting'")],
)
def test_one_of_another_version_or_cell_is_passed_over_too(
    place: Place, change: tuple[bytes, bytes], words: str
) -> None:
    life = Life(place.open())
    life.story()
    life.checkpoint()
    bodies = lived(life, 2)
    head = life.cell.position
    life.store.save_checkpoint(compress(life.body().replace(*change, 1)), head, 200.5, "of another")

    found = cell_at(life.store, CELL, head)

    assert body_of(found.cell) == bodies[head]
    assert [words in warning for warning in found.warnings] == [True]


@pytest.mark.parametrize("position", [-1, 8, 2**70])
def test_what_has_not_happened_is_refused(place: Place, position: int) -> None:
    life = Life(place.open())
    life.story()
    life.checkpoint()

    with pytest.raises(Invalid) as caught:
        cell_at(life.store, CELL, position)

    assert str(position) in caught.value.message
    assert caught.value.hint


def test_a_lost_entry_is_never_told_as_history(database: Place) -> None:
    life = Life(database.open())
    life.story()
    lived(life, 3)
    database.lose_entry(8)

    assert cell_at(life.store, CELL, 7).cell.position == 7
    with pytest.raises(StoreDamaged, match="lost entry 8"):
        cell_at(life.store, CELL, 9)
