"""A damaged store is brought back: what is good goes on, what is lost is said, and no number comes again."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from borgish.cell.events import EntriesLost, JobSubmitted, MachineUp
from borgish.errors import BorgishError, Fenced, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.master.host.recover import findings, report_lines
from borgish.store import sqlite
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import RestorePoint, is_good
from borgish.store.codec import compress, sha256_of
from borgish.store.recovery import Recovered, Recovery
from borgish.store.salvage import UNKNOWN_SKIPPED
from borgish.store.sql import SqlStore
from borgish.store.tables import differences
from tests.contract.store.places import InDatabase
from tests.contract.store.samples import CELL, Life, job


class Damaged:
    """A store with a past: checkpoints at 3 and 9, and five entries after the last."""

    def __init__(self, place: InDatabase, folder: Path) -> None:
        self.place = place
        self.folder = folder
        life = Life(place.open())
        life.story()  # up to 6
        self.bodies = {}
        for _ in range(8):
            life.do(MachineUp("m1"))
            self.bodies[life.cell.position] = life.body()
            if life.cell.position in (7, 9):
                life.checkpoint()
        self.head = life.cell.position
        self.epoch = life.epoch
        life.store.close()

    def recovery(self) -> Recovery:
        return Recovery(self.place.url, CELL, self.folder, 300.5)

    def recovered(self, given: RestorePoint | None = None, position: int = 0) -> Recovered:
        """Recover, and see that what came of it is sound and goes on."""
        done = self.recovery().recover(given, position)
        assert self.recovery().inspect().is_sound
        store = self.place.open()
        assert isinstance(store, SqlStore)
        cell = store.load()
        assert store.warnings == []
        assert differences(cell, store.table_rows) == []
        assert all(is_good(CELL, *store.checkpoint_body(info.position)) for info in store.checkpoints())
        life = Life(store)
        assert life.epoch > self.epoch
        assert life.do(JobSubmitted(job("later"))).position > self.head
        store.close()
        return done

    def jobs(self) -> set[str]:
        with closing(self.place.open()) as store:
            return set(store.load().jobs)

    def kept(self) -> list[int]:
        with closing(self.place.open()) as store:
            return [info.position for info in store.checkpoints()]


@pytest.fixture
def damaged(database: InDatabase, tmp_path: Path) -> Damaged:
    return Damaged(database, tmp_path)


def test_a_sound_store_is_left_alone(damaged: Damaged) -> None:
    done = damaged.recovery().recover()

    assert done.checkpoint is None
    sound = f"The store is sound, up to position {damaged.head}; nothing was changed"
    assert list(report_lines(done)) == [sound]
    assert (done.aside, done.lost_file) == ([], None)
    with closing(damaged.place.open()) as store:
        assert store.lead("me", "here") == damaged.epoch + 1


def test_what_follows_a_damaged_entry_is_lost_and_said(damaged: Damaged) -> None:
    damaged.place.garble_entry(12)
    with closing(damaged.place.open()) as store, pytest.raises(StoreDamaged):
        store.load()

    saved = damaged.recovery().inspect()
    done = damaged.recovered()

    assert (saved.start, saved.head, saved.top) == (9, 11, 14)
    said = list(findings(saved))
    assert "Journal entry 12 cannot be read" in said[0]
    assert said[1:] == [
        "The checkpoint at 9 is good, and so is the journal up to 11",
        "Lost is what happened after that, up to 14",
    ]
    assert [row[0] for row in done.saved.lost] == [12, 13, 14]
    assert done.lost_file is not None
    kept = [json.loads(line) for line in done.lost_file.read_text().splitlines()]
    assert [(row["position"], row["request_id"]) for row in kept] == [(12, "r12"), (13, "r13"), (14, "r14")]
    assert "  lost: 12  1970-01-01T00:01:52.250Z  tester  test  " in list(report_lines(done))
    with closing(damaged.place.open()) as store:
        [lost] = store.entries(11, limit=1)
        cell = store.load()
    assert (lost.position, lost.timeline, lost.actor) == (15, 2, "recovery")
    assert lost.events == (EntriesLost(12, 14, 2, saved.stop),)
    assert [cell.is_unknown(attempt) for attempt in (11, 12, 14, 15, 999)] == [False, True, True, False, True]


def test_a_hole_in_the_journal_ends_it_there(damaged: Damaged) -> None:
    damaged.place.lose_entry(11)

    done = damaged.recovered()

    assert (done.saved.head, done.saved.top) == (10, 14)
    assert "after 10 comes 12" in done.saved.stop


def test_an_end_that_is_missing_is_seen_by_what_the_tables_tell(damaged: Damaged) -> None:
    store = damaged.place.open()
    life = Life(store)
    life.do(JobSubmitted(job("last")))
    store.close()
    damaged.place.lose_entry(life.cell.position)

    done = damaged.recovered()

    assert (
        done.saved.stop
        == f"The journal ends at {done.saved.head}, but the database refers to position {done.saved.top}"
    )
    assert "ann/last" not in damaged.place.open().load().jobs


def test_the_checkpoint_before_is_used_and_the_bad_one_goes(damaged: Damaged) -> None:
    damaged.place.damage_checkpoint(9)

    done = damaged.recovered()

    assert done.saved.bad == ["The checkpoint at 9 is not good: The checkpoint's SHA-256 does not match"]
    assert (done.saved.start, done.saved.head, done.saved.resumes_at) == (7, damaged.head, 0)
    assert damaged.kept() == [damaged.head, 7]


def test_without_any_good_checkpoint_the_journal_is_enough(damaged: Damaged) -> None:
    damaged.place.damage_checkpoint(9)
    damaged.place.damage_checkpoint(7)

    done = damaged.recovered()

    assert (done.saved.start, done.saved.head) == (0, damaged.head)
    assert f"What is good is the journal up to {damaged.head}" in list(report_lines(done))


def test_tables_are_written_anew(damaged: Damaged) -> None:
    damaged.place.run("UPDATE tasks SET state = 'running'")

    done = damaged.recovered()

    assert len(done.saved.wrong) == 2
    assert done.saved.resumes_at == 0


def test_with_nothing_to_go_on_from_nothing_is_changed(damaged: Damaged) -> None:
    damaged.place.damage_checkpoint(9)
    damaged.place.damage_checkpoint(7)
    damaged.place.lose_entry(1)

    with pytest.raises(StoreDamaged, match="No checkpoint in the database is good") as caught:
        damaged.recovery().recover()

    assert "--recover FILE" in caught.value.hint
    assert damaged.kept() == [9, 7]


def test_a_checkpoint_from_elsewhere_brings_it_back(damaged: Damaged) -> None:
    store = damaged.place.open()
    info, stored = store.checkpoint_body(9)
    store.close()
    damaged.place.damage_checkpoint(9)
    damaged.place.damage_checkpoint(7)
    damaged.place.lose_entry(1)

    done = damaged.recovered(RestorePoint(9, stored, info))

    assert (done.saved.start, done.saved.head, done.saved.resumes_at) == (9, damaged.head, 0)


def test_one_that_is_ahead_of_the_journal_skips_what_nobody_knows(damaged: Damaged) -> None:
    store = damaged.place.open()
    life = Life(store)
    life.do(JobSubmitted(job("ahead")))
    info = life.checkpoint()
    stored = store.checkpoint_body(info.position)[1]
    store.close()
    damaged.place.run(f"DELETE FROM journal WHERE position > {damaged.head - 2}")
    damaged.place.run(f"DELETE FROM checkpoints WHERE position = {info.position}")

    done = damaged.recovered(RestorePoint(info.position, stored, info))

    assert done.saved.head == info.position
    assert done.saved.resumes_at == info.position + 1 + UNKNOWN_SKIPPED
    assert "Lost is whatever may have happened after that" in " ".join(report_lines(done))
    assert "ann/ahead" in damaged.jobs()


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[Damaged]:
    """The same on SQLite, with files beside it at 7, 9 and one beyond its checkpoints."""
    place = InDatabase(f"sqlite:///{tmp_path}/cell.db")
    damaged = Damaged(place, tmp_path)
    store = place.open()
    assert isinstance(store, SqlStore)
    assert store.files is not None
    for position in (7, 9, 12):
        stored = compress(damaged.bodies[position])
        store.files.write(CheckpointInfo(position, 1.0, "test", sha256_of(stored), len(stored)), stored)
    store.close()
    yield damaged
    place.close()


def test_files_that_the_database_leads_beyond_are_not_needed(filed: Damaged) -> None:
    assert filed.recovery().inspect().is_sound
    filed.place.garble_entry(13)
    assert (filed.recovered().saved.start, filed.jobs()) == (9, {"ann/later", "ann/web"})


def test_a_file_bridges_what_is_damaged_before_it(filed: Damaged) -> None:
    filed.place.garble_entry(10)
    saved = filed.recovery().inspect()
    assert (saved.start, saved.head) == (12, filed.head)
    assert f"The checkpoint at 12, in {saved.start_path}, is good" in " ".join(findings(saved))
    assert [row[0] for row in filed.recovered().saved.lost] == [10]  # to history only


def test_a_bad_file_is_passed_over(filed: Damaged) -> None:
    filed.place.garble_entry(8)
    filed.place.damage_checkpoint(9)
    file = filed.folder / "cell.checkpoints" / "12.checkpoint"
    file.write_bytes(file.read_bytes()[:-1])
    assert (filed.recovery().inspect().start, filed.recovered(position=7).saved.start) == (9, 7)


def test_without_any_database_the_newest_file_is_the_cell(filed: Damaged) -> None:
    for path in filed.folder.glob("cell.db*"):
        path.unlink()
    done = filed.recovered()
    assert (done.saved.start, done.saved.head) == (12, 12)
    assert done.saved.resumes_at == 13 + UNKNOWN_SKIPPED
    assert filed.recovery().inspect().is_sound


def test_without_room_for_a_copy_that_is_said(filed: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(BorgishError, match=r"cell\.db\.salvage, .* cannot be made: No space left") as caught:
        filed.recovery().inspect()
    assert "Make room beside the database" in caught.value.hint


def full_in_the_new_database(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sqlite.open_file

    def opened_with_little_room(path: Path) -> Connection:
        connection = opened(path)
        if path.suffix == ".building":
            connection.exec_driver_sql("PRAGMA max_page_count = 10")
            connection.rollback()
        return connection

    monkeypatch.setattr(sqlite, "open_file", opened_with_little_room)


def full_in_the_copy_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = sqlite.copy_database

    def copied_with_little_room(path: Path, to: Path) -> list[Path]:
        copies = copied(path, to)
        if ".damaged" in to.name:
            raise OSError(errno.ENOSPC, "no space left on device")
        return copies

    monkeypatch.setattr(sqlite, "copy_database", copied_with_little_room)


@pytest.mark.parametrize("full", [full_in_the_new_database, full_in_the_copy_of_the_old_one])
def test_without_room_for_what_is_rebuilt_nothing_is_changed_and_that_is_said(
    filed: Damaged, full: Callable[[pytest.MonkeyPatch], None]
) -> None:
    filed.place.garble_entry(12)
    before = {path.name for path in filed.folder.glob("cell.db*")}
    with pytest.MonkeyPatch.context() as patch:
        full(patch)
        with pytest.raises(BorgishError, match=r"cell\.db cannot be rebuilt: .*(full|no space)") as caught:
            filed.recovery().recover()
    assert "Nothing was changed. Make room beside the database" in caught.value.hint
    assert {path.name for path in filed.folder.glob("cell.db*")} <= before
    assert filed.recovered().aside[0].name == "cell.db.damaged-1"


def test_without_room_for_the_list_of_what_is_lost_that_is_said(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    damaged.place.garble_entry(12)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BorgishError, match=r"lost-12\.jsonl cannot be written: No space left on device"):
        damaged.recovery().recover()
    monkeypatch.undo()
    assert damaged.recovered().lost_file is not None


def test_an_older_one_that_is_asked_for_comes_to_the_same(damaged: Damaged) -> None:
    damaged.place.garble_entry(12)

    assert damaged.recovered(position=7).saved.head == 11


def test_a_position_without_a_checkpoint_is_refused(damaged: Damaged) -> None:
    with pytest.raises(NotFound, match="kept at position 8"):
        damaged.recovery().recover(position=8)


def test_the_store_of_another_cell_is_refused(damaged: Damaged) -> None:
    with pytest.raises(UnsafeConfiguration, match="belongs to cell 'testing'"):
        Recovery(damaged.place.url, "other", damaged.folder, 0.0).recover()


def test_who_leads_meanwhile_is_kept_out_or_fenced(damaged: Damaged) -> None:
    life = Life(damaged.place.open())
    if "sqlite" in damaged.place.url:
        with pytest.raises(UnsafeConfiguration, match="in use"):
            damaged.recovery().recover()
        life.do()
    else:
        damaged.place.garble_entry(12)
        damaged.recovery().recover()
        with pytest.raises(Fenced):
            life.do()
    life.store.close()
