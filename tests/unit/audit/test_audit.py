"""The chain of the audit log: whatever was changed in it is seen."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.audit import AuditChain, AuditEntry, AuditNote, first_wrong

SECRET = "s" * 64
NOTE = AuditNote(1.0, "ann", "user", "abcd", "127.0.0.1", "KillTasks", "ann/web", "killed")


def written(count: int, secret: str = SECRET) -> list[AuditEntry]:
    chain = AuditChain(secret, None)
    notes = [(msgspec.structs.replace(NOTE, at=float(number)), number) for number in range(count)]
    return [entry for note in notes for entry in chain.add([note])]


def test_a_chain_holds_also_across_masters_and_without_what_is_no_longer_kept() -> None:
    entries = written(5)
    more = AuditChain(SECRET, entries[-1]).add([(NOTE, 9)])
    assert [entry.number for entry in (*entries, *more)] == [1, 2, 3, 4, 5, 6]
    assert first_wrong(SECRET, [*entries, *more], None) == ""
    assert first_wrong(SECRET, [*entries[3:], *more], None) == ""
    assert first_wrong(SECRET, more, entries[-1]) == ""
    assert first_wrong(SECRET, [], None) == ""


def test_another_cells_key_makes_another_chain() -> None:
    assert first_wrong("t" * 64, written(2), None) == "entry 1 was changed, or one before it was removed"


@given(st.integers(1, 6), st.integers(0, 5), st.data())
def test_whatever_is_changed_is_seen(count: int, which: int, data: st.DataObject) -> None:
    entries = written(count)
    which %= count
    field = data.draw(st.sampled_from(msgspec.structs.fields(AuditNote)))
    other: object = "other" if field.type is str else 99
    changed = msgspec.structs.replace(entries[which].note, **{field.name: other})
    entries[which] = msgspec.structs.replace(entries[which], note=changed)
    assert (
        first_wrong(SECRET, entries, None) == f"entry {which + 1} was changed, or one before it was removed"
    )


@pytest.mark.parametrize("gone", [1, 2])
def test_what_is_removed_is_seen(gone: int) -> None:
    entries = written(4)
    del entries[gone]
    assert first_wrong(SECRET, entries, None) == f"entries {gone + 1} to {gone + 1} are missing"


def test_what_is_numbered_anew_after_a_removal_is_seen() -> None:
    entries = written(4)
    del entries[1]
    renumbered = [msgspec.structs.replace(entry, number=n) for n, entry in enumerate(entries, 1)]
    assert first_wrong(SECRET, renumbered, None) == "entry 2 was changed, or one before it was removed"
