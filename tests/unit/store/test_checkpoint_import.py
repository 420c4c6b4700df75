"""A checkpoint from outside is of this cell's own history, or it is not taken."""

import pytest

from borgish.cell.events import MachineCordoned, MachineUp
from borgish.cell.model import Snapshot
from borgish.errors import Conflict, Invalid
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoint_files import NOT_REPLAYED, check_import
from borgish.store.codec import compress, encode_snapshot, sha256_of
from borgish.store.memory import MemoryStore
from tests.contract.store.samples import CELL, Life

HEAD = 12


@pytest.fixture
def life() -> Life:
    """Twelve entries, with checkpoints at 8 and 10."""
    lived = Life(MemoryStore(CELL))
    lived.story()
    while lived.cell.position < HEAD:
        lived.do(MachineUp("m1"))
        if lived.cell.position in (8, 10):
            lived.checkpoint()
    return lived


def exported(position: int, body: bytes | bytearray) -> tuple[CheckpointInfo, bytes]:
    stored = compress(body)
    return CheckpointInfo(position, 1.0, "test", sha256_of(stored), len(stored), "noon"), stored


def of_this(life: Life, position: int) -> tuple[CheckpointInfo, bytes]:
    """Return what this cell would have exported at a position."""
    other = Life(MemoryStore(CELL))
    other.story()
    while other.cell.position < position:
        other.do(MachineUp("m1"))
    assert other.cell.position == position
    return exported(position, other.body())


def of_another(position: int) -> tuple[CheckpointInfo, bytes]:
    """Return one of this cell's name that went another way after the sixth entry."""
    other = Life(MemoryStore(CELL))
    other.story()
    while other.cell.position < position:
        other.do(MachineCordoned("m1", "elsewhere"))
    return exported(position, other.body())


def check(life: Life, found: tuple[CheckpointInfo, bytes]) -> str:
    return check_import(life.store, CELL, *found, life.cell.position)


def damage(life: Life, *positions: int) -> None:
    store = life.store
    assert isinstance(store, MemoryStore)
    for position in positions:
        info, stored = store.disk.checkpoints[position]
        store.disk.checkpoints[position] = (info, stored[:-1])


@pytest.mark.parametrize("position", [6, 7, 9, 11, 12])
def test_one_of_this_history_is_good(life: Life, position: int) -> None:
    assert check(life, of_this(life, position)) == ""


@pytest.mark.parametrize("position", [7, 9, 12])
def test_one_of_another_history_is_not(life: Life, position: int) -> None:
    with pytest.raises(Conflict, match="of another history") as caught:
        check(life, of_another(position))
    assert "fauxmaster" in caught.value.hint


def test_one_from_after_the_end_is_not(life: Life) -> None:
    with pytest.raises(Conflict, match="at position 20, and this journal ends at 12"):
        check(life, of_this(life, 20))


def test_one_from_before_a_pruned_journal_stands_alone(life: Life) -> None:
    life.store.prune_journal(10, 100)
    assert check(life, of_this(life, 7)) == NOT_REPLAYED


def test_one_from_where_the_journal_begins_heals_what_was_damaged(life: Life) -> None:
    life.store.prune_journal(8, 100)
    damage(life, 8)
    assert check(life, of_this(life, 8)) == ""
    with pytest.raises(Conflict, match="of another history"):
        check(life, of_another(8))


def test_without_anything_to_compare_it_is_not_taken(life: Life) -> None:
    life.store.prune_journal(8, 100)
    damage(life, 8, 10)
    with pytest.raises(Conflict, match="Nothing kept here can be compared") as caught:
        check(life, of_this(life, 8))
    assert "checkpoint create" in caught.value.hint
    life.checkpoint()
    assert check(life, of_this(life, 8)) == ""


def test_what_does_not_verify_is_refused(life: Life) -> None:
    info, stored = of_this(life, 7)
    with pytest.raises(Invalid, match="SHA-256"):
        check(life, (info, stored[:-1]))
    with pytest.raises(Invalid, match="It holds position 7"):
        check(life, (CheckpointInfo(9, 1.0, "", info.sha256, info.bytes), stored))
    with pytest.raises(Invalid, match="not a snapshot of a cell"):
        check(life, exported(7, b"something else"))


def test_of_another_cell_or_version_is_refused(life: Life) -> None:
    with pytest.raises(Conflict, match="of cell 'other', not of 'testing'"):
        check(life, exported(7, encode_snapshot(Snapshot("other", 7))))
    body = bytes(encode_snapshot(Snapshot(CELL, 7))).replace(b"snapshot 1\n", b"snapshot 99\n", 1)
    with pytest.raises(Conflict, match="has format 99"):
        check(life, exported(7, body))
