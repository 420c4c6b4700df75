"""The audit log in every kind of store: what was written is read back, in order, and holds."""

import msgspec
import pytest

from borgish.audit import AuditChain, AuditEntry, AuditNote, first_wrong
from borgish.store.base import Records, Store
from tests.contract.store.places import Place

SECRET = "s" * 64
NOTE = AuditNote(0.0, "ann", "user", "abcdef", "10.0.0.1", "KillTasks", "ann/web", "killed: 'all' \n of it")


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def write(store: Store, count: int, first: int = 0) -> list[AuditEntry]:
    """Write so many entries, by turns of ann and bob, at the seconds from ``first`` on."""
    chain = AuditChain(SECRET, store.last_audit())
    notes = [
        (msgspec.structs.replace(NOTE, at=float(at), user=("ann", "bob")[at % 2], count=at + 1), at)
        for at in range(first, first + count)
    ]
    entries = chain.add(notes)
    store.append((), Records(audit=entries))
    return entries


def test_it_is_read_back_as_it_was_written(store: Store) -> None:
    assert (store.last_audit(), store.audit(0, 10)) == (None, [])
    store.lead("me", "here")
    written = write(store, 3)
    written += write(store, 2, 3)
    assert store.audit(0, 10) == written
    assert store.audit(2, 2) == written[2:4]
    assert store.last_audit() == written[-1]
    assert first_wrong(SECRET, store.audit(0, 10), None) == ""


def test_the_latest_that_match(store: Store) -> None:
    store.lead("me", "here")
    written = write(store, 6)
    assert store.latest_audit("", 0.0, 0, 2) == written[-2:]
    assert store.latest_audit("ann", 0.0, 0, 10) == written[::2]
    assert store.latest_audit("", 4.0, 0, 10) == written[4:]
    assert store.latest_audit("bob", 0.0, written[3].number, 10) == [written[1]]


def test_the_oldest_go_and_the_rest_holds(store: Store) -> None:
    store.lead("me", "here")
    written = write(store, 5)
    assert store.prune_audit(3.0, 2) == 2
    assert store.prune_audit(3.0, 10) == 1
    assert store.prune_audit(3.0, 10) == 0
    assert store.audit(0, 10) == written[3:]
    assert first_wrong(SECRET, store.audit(0, 10), None) == ""
    assert store.prune_audit(100.0, 10) <= 1
    assert store.last_audit() == written[-1], "the chain goes on from it"
