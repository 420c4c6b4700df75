"""A journal that was pruned: only behind a checkpoint, and what is left is as it was."""

import pytest

from borgish.cell.events import MachineUp
from borgish.errors import Conflict, Fenced, Gone, StoreDamaged
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import Retention
from borgish.store.replay import cell_at, earliest_position, position_at
from tests.contract.store.places import Place
from tests.contract.store.samples import CELL, Life, body_of

BASE = 10


@pytest.fixture
def life(place: Place) -> Life:
    """Fourteen entries, with checkpoints at 6, 10 and 14."""
    lived = Life(place.open(Retention(1, 0, 0)))
    lived.story()
    for name in ("early", "base", "late"):
        lived.store.save_checkpoint(lived.stored(), lived.cell.position, 200.5, "test", name)
        if name != "late":
            for _ in range(4):
                lived.do(MachineUp("m1"))
    assert lived.cell.position == BASE + 4
    return lived


def positions(life: Life) -> list[int]:
    return [entry.position for entry in life.store.entries(0)]


def test_entries_below_a_checkpoint_go(life: Life) -> None:
    assert life.store.prune_journal(BASE, 100) == BASE - 1
    assert positions(life) == list(range(BASE, BASE + 5))
    assert [entry.position for entry in life.store.entries_before(12, 5)] == [11, 10]
    assert list(life.store.entries_before(BASE, 5)) == []
    assert [entry.position for entry in life.store.entries(BASE, 2)] == [11, 12]
    assert life.store.prune_journal(BASE, 100) == 0


def test_they_go_a_few_at_a_time_the_first_first(life: Life) -> None:
    assert [life.store.prune_journal(BASE, 4) for _ in range(4)] == [4, 4, 1, 0]
    assert positions(life)[0] == BASE


def test_it_goes_on_as_if_nothing_were(place: Place, life: Life) -> None:
    life.store.prune_journal(BASE, 100)
    life.do(MachineUp("m1"))
    assert positions(life)[-1] == BASE + 5
    life.store.close()

    again = place.open()
    assert body_of(again.load()) == life.body()
    assert again.lead("next", "") > life.epoch


def test_only_a_checkpoint_holds_what_is_pruned(life: Life) -> None:
    with pytest.raises(Conflict, match="no checkpoint is kept there"):
        life.store.prune_journal(BASE + 1, 100)
    assert positions(life)[0] == 1


def test_who_does_not_lead_prunes_nothing(place: Place, life: Life) -> None:
    place.usurp()
    with pytest.raises(Fenced):
        life.store.prune_journal(BASE, 100)
    life.store.close()
    assert next(iter(place.open().entries(0))).position == 1


def test_what_is_left_is_told_and_what_went_is_not(life: Life) -> None:
    before = {position: body_of(cell_at(life.store, CELL, position).cell) for position in range(15)}
    assert earliest_position(life.store) == 0

    life.store.prune_journal(BASE, 100)

    assert earliest_position(life.store) == BASE
    for position in (6, *range(BASE, BASE + 5)):  # that at 6 is a checkpoint itself
        assert body_of(cell_at(life.store, CELL, position).cell) == before[position]
    for position in (1, 5, 7, BASE - 1):
        with pytest.raises(Gone, match=f"position {position} can no longer be reconstructed") as caught:
            cell_at(life.store, CELL, position)
        assert caught.value.hint == f"The earliest is {BASE}"
    head = life.cell.position
    assert [position_at(life.store, 100.25 + at, head) for at in (1, 9.5, 10, 12.5)] == [0, 0, 10, 12]


def test_the_checkpoint_where_the_journal_begins_stays(place: Place) -> None:
    life = Life(place.open(Retention(1, 0, 0)))
    life.story()
    base = life.checkpoint().position
    life.do(MachineUp("m1"))
    life.store.prune_journal(base, 100)
    for _ in range(3):
        life.do(MachineUp("m1"))
        life.checkpoint()
    assert [info.position for info in life.store.checkpoints()] == [10, base]
    assert cell_at(life.store, CELL, 8).cell.position == 8


def test_without_a_good_checkpoint_before_it_nothing_is_served(place: Place, life: Life) -> None:
    life.store.prune_journal(BASE, 100)
    for info in life.store.checkpoints():
        place.damage_checkpoint(info.position)
    with pytest.raises(Gone, match="passed over"):
        cell_at(life.store, CELL, 12)
    life.store.close()
    with pytest.raises(StoreDamaged, match="no checkpoint before it is good"):
        place.open().load()


def test_a_checkpoint_is_taken_in_as_it_is_stored(place: Place, life: Life) -> None:
    info, stored = life.store.checkpoint_body(BASE)
    life.store.delete_checkpoint(BASE)

    life.store.import_checkpoint(info, stored)

    assert life.store.checkpoint_body(BASE) == (info, stored)
    life.store.close()
    assert place.open().checkpoint_body(BASE) == (info, stored)


def test_nothing_is_overwritten_by_one_that_is_taken_in(place: Place, life: Life) -> None:
    info, stored = life.store.checkpoint_body(BASE)
    there = life.store.checkpoints()
    with pytest.raises(Conflict, match="at 10 is kept already"):
        life.store.import_checkpoint(info, stored)
    other = CheckpointInfo(7, 1.0, "r", info.sha256, info.bytes, "late")
    with pytest.raises(Conflict, match="'late' is that of the checkpoint at 14"):
        life.store.import_checkpoint(other, stored)
    assert life.store.checkpoints() == there
    place.usurp()
    with pytest.raises(Fenced):
        life.store.import_checkpoint(CheckpointInfo(7, 1.0, "r", "", 1, "x"), stored)
