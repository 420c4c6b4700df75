"""When a store counts as older than what machines have seen, and what is said then."""

import logging

import pytest

from borgish.cell.commands import Seen
from borgish.cell.model import Cell, Snapshot
from borgish.errors import StoreOlder
from borgish.master.host.preflight import OLDER_STORE_FLAG, seen_beyond
from borgish.wire.link import HeadReply

CELL = Cell(Snapshot("c", position=300, timeline=1, epoch=3))
OLD, NEW = HeadReply("m1", 1, 3, 290), HeadReply("m2", 1, 7, 412)


@pytest.mark.parametrize("heads", [(), (OLD,), (OLD, HeadReply("m3", 0, 0)), (OLD, OLD, NEW)])
def test_a_store_that_is_as_new(heads: tuple[HeadReply, ...]) -> None:
    for take_over in (False, True):
        assert seen_beyond(CELL, heads, take_over=take_over) is None


@pytest.mark.parametrize(
    "heads", [(NEW,), (OLD, NEW), (OLD, NEW, NEW), (HeadReply("m1", 1, 3, 301),), (HeadReply("m1", 2, 1),)]
)
def test_an_older_store_is_refused_with_what_to_do(heads: tuple[HeadReply, ...]) -> None:
    with pytest.raises(StoreOlder) as caught:
        seen_beyond(CELL, heads, take_over=False)
    assert caught.value.exit_code == 73
    assert "ends at position 300 of timeline 1, epoch 3" in caught.value.message
    assert OLDER_STORE_FLAG in caught.value.hint


def test_it_says_what_was_seen_where() -> None:
    with pytest.raises(StoreOlder, match="m2: it obeys timeline 1, epoch 7, and knows attempt 412"):
        seen_beyond(CELL, (OLD, NEW), take_over=False)


def test_taken_over_it_is_known_what_was_seen(caplog: pytest.LogCaptureFixture) -> None:
    heads = (NEW, HeadReply("m3", 2, 1, 350), HeadReply("m4", 1, 8, 900))
    assert seen_beyond(CELL, heads, take_over=True) == Seen(2, 1, 900)
    assert "taken over as asked for" in caplog.text


def test_one_machine_of_several_is_only_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "borgmaster"):
        assert seen_beyond(CELL, (OLD, OLD, NEW), take_over=False) is None
    assert "m2 has seen more than the store" in caplog.text
