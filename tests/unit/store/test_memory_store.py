"""What only the store in memory can: fail on demand, be copied, hash its journal."""

import pytest

from borgish.cell.events import JobSubmitted
from borgish.errors import Fenced, OutcomeUnknown
from borgish.store.memory import MemoryStore
from tests.contract.store.samples import CELL, Life, body_of, job


def alive() -> tuple[MemoryStore, Life]:
    store = MemoryStore(CELL)
    life = Life(store)
    life.story()
    return store, life


@pytest.mark.parametrize("kept", [True, False])
def test_an_append_fails_on_demand(kept: bool) -> None:
    store, life = alive()
    before = life.cell.position
    store.fail_next_append(kept=kept)

    with pytest.raises(OutcomeUnknown):
        life.do(JobSubmitted(job("next")))
    with pytest.raises(OutcomeUnknown):
        store.load()

    assert store.reopen().load().position == before + kept


def test_the_next_master_on_the_same_disk_fences_the_one_before() -> None:
    store, life = alive()
    again = store.reopen()
    assert body_of(again.load()) == life.body()
    life.do()  # until another leads

    Life(again)

    with pytest.raises(Fenced):
        life.do()


def test_a_copy_goes_its_own_way() -> None:
    store, life = alive()
    life.checkpoint()
    copied = store.copy()
    Life(copied).do(JobSubmitted(job("what-if")))

    life.do()

    assert "ann/what-if" not in store.load().jobs
    assert "ann/what-if" in copied.load().jobs
    assert store.journal_sha256() != copied.journal_sha256()


def test_the_same_events_have_the_same_hash() -> None:
    assert alive()[0].journal_sha256() == alive()[0].journal_sha256()
