"""Which position a moment is, in what was opened; and where that cannot be told, why."""

from datetime import datetime
from pathlib import Path

import pytest

from borgish.cell.events import EntriesLost, Entry, MachineCordoned
from borgish.cell.model import Snapshot
from borgish.errors import BorgishError, Gone, Invalid
from borgish.sim.faux.opened import Exported, Opened, opened
from borgish.sim.faux.session import Session, find_position, written
from borgish.store.base import CheckpointInfo
from borgish.store.codec import compress, encode_snapshot, sha256_of
from borgish.store.open import open_store
from tests.scenario.fauxmaster.kept_cell import NAME, KeptCell, job

NOON = datetime(2026, 1, 31, 12, 0).timestamp()  # noqa: DTZ001 - in the zone of who asks, as people type it


def entry(position: int, seconds: float) -> Entry:
    return Entry(position, NOON + seconds, 1, 1, "ann", "CordonMachine", (), text=f"entry {position}")


def told(*entries: Entry, at: int = 5, name: str = "noon") -> Opened:
    """A checkpoint at position 5, and what followed."""
    stored = compress(encode_snapshot(Snapshot(NAME, at)))
    info = CheckpointInfo(at, NOON, "test", sha256_of(stored), len(stored), name)
    head = entries[-1].position if entries else at
    return Opened("a file", "checkpoint", NAME, Exported(info, stored, entries), at, head)


@pytest.fixture
def there() -> Opened:
    return told(entry(6, 60), entry(7, 120), entry(8, 120), entry(9, 3600))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("now", 9),
        ("5", 5),
        ("8", 8),
        ("noon", 5),
        ("2026-01-31T12:00:30", 5),
        ("2026-01-31T12:01", 6),
        ("2026-01-31T12:02", 8),
        ("12:59", 8),
        ("12:00", 5),
        ("30m ago", 8),
        ("2026-01-31T13:00:01", 9),
    ],
)
def test_a_moment_is_a_position(there: Opened, text: str, position: int) -> None:
    assert find_position(there, text) == position
    assert written(there, position) >= NOON


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        ("10", Invalid, "position 10 is not in a file"),
        ("4", Gone, "it begins at 5"),
        ("13:05", Gone, "what was at"),  # the latest such is of the day before
        ("2026-01-31T11:59", Gone, "what was at"),
        ("2026-01-31T14:00", Invalid, "is after the end of a file"),
        ("evening", Invalid, "no checkpoint 'evening'"),
        ("99:99", Invalid, "invalid moment"),
        ("", Invalid, "invalid moment"),  # a script's empty variable is not now
    ],
)
def test_what_is_no_moment_of_it_is_refused(
    there: Opened, text: str, kind: type[BorgishError], error: str
) -> None:
    with pytest.raises(kind, match=error) as caught:
        find_position(there, text)
    assert caught.value.hint


def test_a_lost_part_of_the_timeline_is_named() -> None:
    gap = EntriesLost(7, 9, 2)
    after = Entry(10, NOON + 90, 2, 1, "recovery", "recover", (gap, MachineCordoned("m1")))
    there = told(entry(6, 60), after)
    with pytest.raises(Gone, match="position 8 is on a lost part of the timeline") as caught:
        find_position(there, "8")
    assert "The nearest are 6 and 10" in caught.value.hint
    assert find_position(there, "6") == 6
    assert find_position(there, "10") == 10


def test_a_pruned_journal_begins_later(tmp_path: Path) -> None:
    kept = KeptCell(tmp_path)
    kept.machines(3)
    base = kept.checkpoint().position
    kept.submit(job("web", 2))
    kept.store.prune_journal(base, 1000)
    kept.store.close()
    with opened(str(kept.file)) as there:
        assert there.first == base
        assert Session(there, str(base)).cell.position == base
        with pytest.raises(Gone, match=f"it begins at {base}"):
            Session(there, str(base - 1))
        with pytest.raises(Gone, match="what was at"):
            Session(there, "2001-01-01")


def test_damage_is_told(tmp_path: Path) -> None:
    kept = KeptCell(tmp_path)
    kept.machines(2)
    bad = kept.checkpoint().position
    kept.submit(job("web", 2))
    kept.store.close()
    store = open_store(f"sqlite:///{kept.file}", NAME)
    store._connection.exec_driver_sql("UPDATE checkpoints SET body = x'00'")
    store._connection.commit()
    store.close()
    with opened(str(kept.file)) as there:
        session = Session(there)
        assert session.cell.position > bad
        assert session.warnings == [
            f"The checkpoint at {bad} is passed over: The checkpoint's SHA-256 does not match"
        ]
