"""When another master counts as leading the machines, by what they say of it at one look after the other."""

from collections.abc import Sequence

import msgspec
import pytest

from borgish.cell.commands import (
    BeginEpoch,
    Seen,
)
from borgish.cell.decide import decide
from borgish.cell.events import EntriesLost
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.master.host.preflight import TAKE_OVER_FLAG, RivalSearch, Verdict, refused_for, seen_of_rival
from borgish.wire.link import HeadReply, Leader

WHO = Leader("http://b:7400", "nonce-b")


def head(machine: str = "m1", polls: int | None = 0, *, polled: bool = True) -> HeadReply:
    return HeadReply(machine, 1, 4, 300, WHO, polls, polled)


def found(*looks: Sequence[HeadReply], settled_at: float = 0.0) -> list[Verdict]:
    """Look once a second, from 0 on."""
    search = RivalSearch(settled_at)
    return [search.evaluate(heads, float(at)) for at, heads in enumerate(looks)]


@pytest.mark.parametrize(
    "heads",
    [
        (),
        (head(polled=False), head("m2", polled=False)),
        (head(), *(head(f"m{number}", polled=False) for number in range(2, 6))),
        (head(polls=None, polled=False),),  # a borglet that is a release older
    ],
)
def test_where_nobody_polls_one_look_is_enough(heads: Sequence[HeadReply]) -> None:
    assert found(heads) == [Verdict.NOBODY]


def test_polls_that_go_on_are_a_rivals() -> None:
    assert found([head(polls=7)], [head(polls=8)], [head(polls=9)]) == [
        Verdict.UNSURE,
        Verdict.UNSURE,
        Verdict.RIVAL,
    ]


def test_what_a_dead_master_has_left_behind_ends() -> None:
    """Its connection is still open, and one poll of it was still on its way."""
    looks = [head(polls=7)], [head(polls=8)], [head(polls=8)], [head(polls=8, polled=False)]
    assert found(*looks) == [Verdict.UNSURE] * 3 + [Verdict.NOBODY]


def test_a_quarter_of_the_machines_that_can_tell_decide() -> None:
    def looks(polls: int) -> list[HeadReply]:
        return [head(polls=polls), head("m2", polled=False), head("m3", None, polled=False)]

    assert found(looks(1), looks(3)) == [Verdict.UNSURE, Verdict.RIVAL]
    more = [head(f"m{number}", polled=False) for number in (4, 5)]
    assert found([*looks(1), *more], [*looks(3), *more]) == [Verdict.UNSURE, Verdict.RIVAL]
    more.append(head("m6", polled=False))
    assert found([*looks(1), *more], [*looks(3), *more]) == [Verdict.NOBODY] * 2


def test_a_leader_may_be_held_up_for_a_while() -> None:
    def late(seconds: float, polls: int = 7) -> list[HeadReply]:
        return [msgspec.structs.replace(head(polls=polls), overdue_seconds=seconds)]

    assert found(late(9.0), late(10.0), late(0.0, 9)) == [
        Verdict.UNSURE,
        Verdict.UNSURE,
        Verdict.RIVAL,
    ]
    assert found(late(9.0), late(10.5)) == [Verdict.UNSURE, Verdict.NOBODY]


def test_polls_from_before_it_is_settled_may_be_the_predecessors() -> None:
    looks = [[head(polls=10 * second)] for second in range(6)]
    assert found(*looks, settled_at=4.0) == [Verdict.UNSURE] * 4 + [Verdict.RIVAL] * 2
    assert found(*looks[:4], [head(polls=31)], [head(polls=31, polled=False)], settled_at=4.0) == [
        *[Verdict.UNSURE] * 5,
        Verdict.NOBODY,
    ]


def test_a_borglet_that_started_again_counts_anew() -> None:
    assert found([head(polls=70)], [head(polls=1)], [head(polls=2)], [head(polls=3)]) == [
        *[Verdict.UNSURE] * 3,
        Verdict.RIVAL,
    ]


def test_it_is_named_with_the_way_out() -> None:
    error = refused_for([head(), head("m2"), head("m3", polled=False)])
    assert error.exit_code == 74
    assert "at http://b:7400, leads 2 of 3 machines that answered (timeline 1, epoch 4)" in error.message
    assert TAKE_OVER_FLAG in error.hint
    silent = refused_for([HeadReply("m1", 1, 4, polls=1, polled=True)])
    assert "at an unknown address" in silent.message


def test_taken_over_the_cell_goes_on_on_a_timeline_of_its_own() -> None:
    seen = seen_of_rival([head(), HeadReply("m2", 1, 3, 412)])
    assert seen == Seen(1, 4, 412, seen.reason)
    cell = Cell(Snapshot("c", position=350, timeline=1, epoch=4))
    events = decide(cell, Observed(), BeginEpoch(5, "h", None, seen), "election", Now(0.0, 0.0)).events
    lost = next(event for event in events if isinstance(event, EntriesLost))
    assert (lost.timeline, lost.first, lost.last) == (2, 351, 1_000_412)
    assert lost.reason == "the machines were led by another borgmaster at http://b:7400, on another store"


def test_machines_that_do_not_answer_any_more_do_not_say_that_nobody_leads() -> None:
    looks: list[list[HeadReply]] = [[head(polls=7)], *([[]] * 10), [head(polls=9)]]
    assert found(*looks) == [Verdict.UNSURE] * 11 + [Verdict.RIVAL]
    assert found([head(polls=7)], *([[]] * 11)) == [Verdict.UNSURE] * 11 + [Verdict.NOBODY]
