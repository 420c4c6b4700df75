"""A store that has lost history: its attempts keep their meaning, and machines obey again."""

from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    JoinMachine,
    Observe,
    Seen,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.decide_cell import POSITIONS_MORE, is_older
from borgish.cell.events import Elected, EntriesLost, Entry, follows
from borgish.cell.invariants import violations
from borgish.vocabulary import Phase, State
from tests.unit.cell.lived import Lived, machine, spec

SEEN = Seen(timeline=3, epoch=9, attempt=500)


def taken_over(seen: Seen = SEEN) -> Lived:
    """A cell whose store ends early, and whose next master takes it over."""
    lived = Lived(("m1",))
    lived.do(SubmitJob(spec(tasks=2)))
    lived.entries += lived.core.begin(2, "me", lived.now, seen=seen).entries
    assert violations(lived.cell) == []
    return lived


def test_the_timeline_is_above_all_that_machines_have_obeyed() -> None:
    lived = taken_over()
    assert (lived.cell.timeline, lived.cell.epoch, lived.entries[-1].timeline) == (4, 2, 4)
    assert (lived.cell.timeline, lived.cell.epoch) > (SEEN.timeline, SEEN.epoch)


def test_attempts_are_above_all_that_the_lost_history_gave() -> None:
    lived = taken_over()
    before = lived.attempts()
    lived.do(SubmitJob(spec("late", 1)))
    assert lived.attempts() == before
    assert lived.attempts("ann/late")[0] > SEEN.attempt + POSITIONS_MORE
    again = lived.then(lived.position)
    assert again.jobs["ann/late"].tasks == lived.cell.jobs["ann/late"].tasks
    assert again.lost == lived.cell.lost == ((5, SEEN.attempt + POSITIONS_MORE),)


def test_what_the_lost_history_placed_stays_unheard_of_when_the_journal_grows() -> None:
    lived = taken_over()
    lost = SEEN.attempt
    for port in range(7000, 7010):
        lived.do(JoinMachine(machine("m1", port=port), "m1", known=True))
    assert lived.cell.is_unknown(lost)
    assert not lived.cell.is_unknown(lived.attempts()[0])
    seen = SeenAttempt("ann/web/0", lost, Phase.UP)
    lived.do(Observe("m1", "b1", "i", (seen,)))
    assert set(lived.core.observed.machines["m1"].orphans) == {("ann/web/0", lost)}
    assert lived.states() == [State.RUNNING] * 2


def test_it_can_happen_again() -> None:
    lived = taken_over()
    first = lived.position
    lived.entries += lived.core.begin(3, "me", lived.now, seen=Seen(9, 1, first + 70)).entries
    lived.do(SubmitJob(spec("late", 1)))
    assert lived.cell.timeline == 10
    assert lived.attempts("ann/late")[0] > first + 70 + POSITIONS_MORE
    assert lived.cell.is_unknown(first + 70)


def test_a_rollback_does_not_give_ids_again() -> None:
    lived = taken_over()
    lived.do(SubmitJob(spec("late", 1)))
    given = lived.attempts("ann/late")[0]
    lived.roll_back(3)
    lived.settle()
    lived.do(SubmitJob(spec("late", 1)))
    assert lived.attempts("ann/late")[0] > given


def test_who_has_seen_more_is_known_by_term_or_by_attempt() -> None:
    lived = Lived(("m1",))
    cell, head = lived.cell, lived.position
    assert not is_older(cell, Seen(1, 1, head))
    assert not is_older(cell, Seen())
    assert is_older(cell, Seen(1, 2, 0))
    assert is_older(cell, Seen(2, 0, 0))
    assert is_older(cell, Seen(1, 1, head + 1))


def test_an_election_without_loss_loses_nothing() -> None:
    lived = Lived(("m1",))
    (entry,) = lived.core.begin(2, "me", lived.now).entries
    assert (lived.cell.lost, lived.cell.timeline) == ((), 1)
    copy = lived.then(lived.position - 1)
    apply_entry(copy, entry)
    assert copy.epoch == 2


def test_an_entry_follows_at_the_next_position_or_names_what_is_lost_between() -> None:
    elected, lost = Elected(1, 1, "me"), EntriesLost(6, 9, 2, "restored")

    def at(position: int, *events: Elected | EntriesLost) -> Entry:
        return Entry(position, 1.0, 1, 1, "me", "BeginEpoch", events)

    assert follows(at(6), 5)
    assert follows(at(6, elected), 5)
    assert follows(at(10, lost, elected), 5)
    gaps = (at(7), at(7, elected), at(11, lost), at(10, elected, lost), at(5), at(10))
    assert not any(follows(entry, 5) for entry in gaps)
    assert not follows(at(10, lost), 4)
