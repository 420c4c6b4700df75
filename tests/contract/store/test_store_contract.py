"""What every store must do, the one in memory too."""

import pytest

from borgish.cell.events import JobForgotten, JobSubmitted, MachineDown, MachineUp
from borgish.errors import Fenced, StoreDamaged, Unreachable, UnsafeConfiguration
from borgish.store.base import Records
from borgish.store.checkpoints import Retention
from borgish.store.codec import compress, encode_snapshot
from tests.contract.store.places import Place
from tests.contract.store.samples import JOB, Life, body_of, job, machine


def test_a_new_store_has_an_empty_cell(place: Place) -> None:
    cell = place.open().load()

    assert (cell.name, cell.position, cell.jobs, cell.machines) == ("testing", 0, {}, {})


def test_what_was_appended_is_there_after_a_restart(place: Place) -> None:
    life = Life(place.open())
    life.story()
    life.store.close()

    store = place.open()
    cell = store.load()

    assert body_of(cell) == life.body()
    assert cell.jobs[JOB].tasks[2].reason == "no \0 such file"
    assert not cell.touched
    assert [entry.position for entry in store.entries(0)] == [1, 2, 3, 4, 5, 6]


def test_entries_can_be_read_in_part(place: Place) -> None:
    life = Life(place.open())
    written = [life.entry(JobSubmitted(job(f"j{n}", tasks=1))) for n in range(1200)]
    life.write(*written)

    assert [entry.position for entry in life.store.entries(3, limit=2)] == [4, 5]
    assert list(life.store.entries(1)) == written
    assert list(life.store.entries(1, limit=500)) == written[:500]
    assert list(life.store.entries(1201)) == []


def test_each_leader_has_a_higher_epoch(place: Place) -> None:
    epochs = []
    for _ in range(3):
        store = place.open()
        epochs.append(store.lead("me", "here:1"))
        store.close()

    assert epochs == [1, 2, 3]


def test_a_leader_whose_time_is_over_writes_nothing(place: Place) -> None:
    life = Life(place.open())
    life.story()
    before = life.cell.position
    assert life.store.leads()
    place.usurp()
    assert not life.store.leads()

    with pytest.raises(Fenced, match="does not lead cell 'testing'"):
        life.do(JobSubmitted(job("late")))
    with pytest.raises(Fenced):
        life.do(JobSubmitted(job("later")))
    life.store.close()
    assert place.open().load().position == before


def test_a_leader_whose_time_is_over_keeps_no_checkpoint(place: Place) -> None:
    life = Life(place.open())
    place.usurp()

    with pytest.raises(Fenced):
        life.checkpoint()
    life.store.close()
    assert place.open().checkpoints() == []


def test_who_does_not_lead_writes_nothing(place: Place) -> None:
    store = place.open()
    store.load()

    with pytest.raises(Fenced):
        store.append([], Records())


def test_a_gap_is_refused_and_the_store_goes_on(place: Place) -> None:
    life = Life(place.open())
    life.do(JobSubmitted(job()))
    skipped = life.entry(JobSubmitted(job("skipped")))
    after = life.entry(JobSubmitted(job("after")))

    with pytest.raises(StoreDamaged, match="entry 4 does not follow 2"):
        life.store.append([after], Records())
    life.write(skipped, after)

    assert len(list(life.store.entries(0))) == 4


def test_an_entry_cannot_be_written_twice(place: Place) -> None:
    life = Life(place.open())
    entry = life.do(JobSubmitted(job()))

    with pytest.raises(StoreDamaged, match="does not follow"):
        life.store.append([entry], Records())


def test_checkpoint_and_journal_give_what_the_journal_alone_gives(place: Place) -> None:
    life = Life(place.open())
    life.story()
    info = life.checkpoint("on demand")
    life.do(JobSubmitted(job("later")))
    life.do(MachineDown("m1", "silent"))
    life.store.close()

    store = place.open()

    assert store.checkpoints() == [info]
    assert (info.position, info.at, info.reason) == (6, 200.5, "on demand")
    assert body_of(store.load()) == life.body()
    place.damage_checkpoint(info.position)  # now the journal alone
    assert body_of(store.load()) == life.body()


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(place: Place) -> None:
    life = Life(place.open())
    life.story()
    life.checkpoint()
    life.do(MachineDown("m1", "silent"))
    newest = life.checkpoint()
    place.damage_checkpoint(newest.position)
    life.store.close()

    store = place.open()

    assert body_of(store.load()) == life.body()
    [warning] = store.warnings
    assert "checkpoint at 7" in warning
    assert "SHA-256" in warning


def test_without_a_good_checkpoint_a_shortened_journal_is_refused(place: Place) -> None:
    life = Life(place.open())
    life.story()
    position = life.checkpoint().position
    life.do(MachineDown("m1", "silent"))
    place.damage_checkpoint(position)
    place.lose_entry(1)
    life.store.close()

    with pytest.raises(StoreDamaged):
        place.open().load()


@pytest.mark.parametrize("position", [2, 4])
def test_a_lost_entry_is_noticed(place: Place, position: int) -> None:
    life = Life(place.open())
    life.story()
    life.store.close()
    place.lose_entry(position)

    with pytest.raises(StoreDamaged):
        place.open().load()


def test_a_garbled_entry_is_noticed(place: Place) -> None:
    life = Life(place.open())
    life.story()
    life.store.close()
    place.garble_entry(3)

    with pytest.raises(StoreDamaged, match="cannot be read"):
        place.open().load()


def test_only_the_newest_checkpoints_are_kept(place: Place) -> None:
    life = Life(place.open(retention=Retention(2, 0, 0)))
    life.story()
    for _ in range(4):
        life.do(MachineUp("m1"))
        life.checkpoint()
    life.checkpoint("again")

    kept = life.store.checkpoints()
    assert [(info.position, info.reason) for info in kept] == [(10, "again"), (9, "test")]


def test_a_checkpoint_of_what_is_not_yet_written_is_refused(place: Place) -> None:
    life = Life(place.open())
    life.entry(JobSubmitted(job()))

    with pytest.raises(ValueError, match="the journal ends at 1"):
        life.checkpoint()


def test_a_checkpoint_of_another_cell_is_refused(place: Place) -> None:
    life = Life(place.open())
    snapshot = life.cell.snapshot()
    snapshot.name = "other"
    life.store.save_checkpoint(compress(encode_snapshot(snapshot)), life.cell.position, 1.0, "test")

    with pytest.raises(UnsafeConfiguration, match="cell 'other', not of 'testing'"):
        life.store.load()


def test_a_checkpoint_of_another_version_is_refused(place: Place) -> None:
    life = Life(place.open())
    newer = life.body().replace(b"snapshot 1", b"snapshot 2", 1)
    life.store.save_checkpoint(compress(newer), life.cell.position, 1.0, "test")

    with pytest.raises(UnsafeConfiguration, match="format 2"):
        life.store.load()


def test_what_is_written_does_not_change_with_the_cell(place: Place) -> None:
    life = Life(place.open())
    life.story()
    life.cell.machines["m1"].reason = "changed behind the store's back"
    life.cell.jobs.clear()

    cell = life.store.load()

    assert cell.machines["m1"].reason == ""
    assert cell.machines["m1"].capacity == machine().capacity
    assert JOB in cell.jobs


def test_a_job_that_went_and_came_again_in_one_step(place: Place) -> None:
    life = Life(place.open())
    life.do(JobSubmitted(job("gone", tasks=0)))
    life.write(life.entry(JobForgotten("ann/gone")), life.entry(JobSubmitted(job("gone", tasks=2))))
    life.store.close()

    assert len(place.open().load().jobs["ann/gone"].tasks) == 2


def test_closing_twice_is_closing_once(place: Place) -> None:
    store = place.open()
    store.close()
    store.close()

    with pytest.raises(Unreachable, match="closed"):
        store.load()
