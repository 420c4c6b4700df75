"""Checkpoints that people look after: read as stored, named, deleted, and never the last good one."""

import pytest

from borgish.cell.events import MachineUp
from borgish.errors import Conflict, Fenced, NotFound, StoreDamaged
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import Retention, is_good, verified_snapshot
from borgish.store.codec import sha256_of
from tests.contract.store.places import Place
from tests.contract.store.samples import CELL, Life


def begun(place: Place, retention: Retention | None = None) -> Life:
    life = Life(place.open(retention))
    life.story()
    return life


def next_checkpoint(life: Life, name: str = "") -> int:
    """Let something happen, keep the cell, and return its position."""
    life.do(MachineUp("m1"))
    return life.store.save_checkpoint(life.stored(), life.cell.position, 200.5, "test", name).position


def positions(life: Life) -> list[int]:
    return [info.position for info in life.store.checkpoints()]


def test_a_body_is_read_as_it_is_stored(place: Place) -> None:
    life = begun(place)
    info = life.checkpoint()
    next_checkpoint(life)

    found, stored = life.store.checkpoint_body(info.position)

    assert found == info
    assert (sha256_of(stored), len(stored)) == (info.sha256, info.bytes)
    assert verified_snapshot(CELL, info, stored).jobs == life.cell.jobs


def test_a_damaged_body_is_read_and_known_as_such(place: Place) -> None:
    life = begun(place)
    position = life.checkpoint().position
    place.damage_checkpoint(position)

    info, stored = life.store.checkpoint_body(position)

    assert not is_good(CELL, info, stored)
    with pytest.raises(StoreDamaged, match="SHA-256"):
        verified_snapshot(CELL, info, stored)


@pytest.mark.parametrize("position", [0, 5, 2**70])
def test_what_is_not_kept_is_not_found(place: Place, position: int) -> None:
    life = begun(place)
    life.checkpoint()

    with pytest.raises(NotFound, match=f"kept at position {position}"):
        life.store.checkpoint_body(position)
    with pytest.raises(NotFound):
        life.store.delete_checkpoint(position)
    assert positions(life) == [6]


def test_a_deleted_checkpoint_is_gone(place: Place) -> None:
    life = begun(place)
    first, second = next_checkpoint(life), next_checkpoint(life)

    assert life.store.delete_checkpoint(first).position == first

    assert positions(life) == [second]
    life.store.close()
    store = place.open()
    assert [info.position for info in store.checkpoints()] == [second]
    assert store.load().position == second


def test_the_last_good_checkpoint_is_not_deleted(place: Place) -> None:
    life = begun(place)
    only = next_checkpoint(life)
    with pytest.raises(Conflict, match="last good one"):
        life.store.delete_checkpoint(only)

    damaged = next_checkpoint(life)
    place.damage_checkpoint(damaged)
    with pytest.raises(Conflict) as caught:
        life.store.delete_checkpoint(only)

    assert "another one first" in caught.value.hint
    assert positions(life) == [damaged, only]
    life.store.delete_checkpoint(damaged)
    assert positions(life) == [only]


def test_a_damaged_one_may_go_although_no_other_is_good(place: Place) -> None:
    life = begun(place)
    damaged = next_checkpoint(life)
    place.damage_checkpoint(damaged)

    life.store.delete_checkpoint(damaged)

    assert positions(life) == []


def test_two_who_delete_at_once_leave_a_good_one(place: Place) -> None:
    life = begun(place)
    first, second = next_checkpoint(life), next_checkpoint(life)

    def other_is_faster(_info: CheckpointInfo, _stored: bytes) -> bool:
        life.store.delete_checkpoint(second)
        return True

    with pytest.raises(Conflict, match="came or went meanwhile"):
        life.store.delete_checkpoint(first, other_is_faster)

    assert positions(life) == [first]


def test_who_does_not_lead_deletes_nothing(place: Place) -> None:
    life = begun(place)
    first, second = next_checkpoint(life), next_checkpoint(life)
    place.usurp()

    with pytest.raises(Fenced):
        life.store.delete_checkpoint(first)
    life.store.close()
    assert [info.position for info in place.open().checkpoints()] == [second, first]


def test_named_checkpoints_stay_whatever_comes_after(place: Place) -> None:
    life = begun(place, retention=Retention(2, 0, 0))
    named = next_checkpoint(life, "before-upgrade")
    later = [next_checkpoint(life) for _ in range(4)]

    assert positions(life) == [later[3], later[2], named]
    assert [info.name for info in life.store.checkpoints()] == ["", "", "before-upgrade"]


def test_a_name_is_taken_once(place: Place) -> None:
    life = begun(place)
    named = next_checkpoint(life, "noon")

    with pytest.raises(Conflict, match=f"that of the checkpoint at {named}"):
        next_checkpoint(life, "noon")

    assert positions(life) == [named]
    last = next_checkpoint(life, "evening")
    life.store.delete_checkpoint(named)
    assert next_checkpoint(life, "noon") == last + 1


def test_the_same_moment_keeps_its_name(place: Place) -> None:
    life = begun(place)
    named = next_checkpoint(life, "noon")

    assert life.checkpoint("shutdown").name == "noon"
    again = life.store.save_checkpoint(life.stored(), named, 300.5, "again", "noon")
    with pytest.raises(Conflict, match="is named 'noon' already"):
        life.store.save_checkpoint(life.stored(), named, 300.5, "test", "evening")

    assert life.store.checkpoints() == [again]


def test_an_unnamed_one_can_be_named_later(place: Place) -> None:
    life = begun(place, retention=Retention(1, 0, 0))
    position = next_checkpoint(life)
    life.store.save_checkpoint(life.stored(), position, 300.5, "test", "noon")
    last = next_checkpoint(life)

    assert [(info.position, info.name) for info in life.store.checkpoints()] == [
        (last, ""),
        (position, "noon"),
    ]
