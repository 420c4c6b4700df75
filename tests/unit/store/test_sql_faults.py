"""A write that fails has an unknown outcome and ends the store's use; a checkpoint that fails does not."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Transaction, create_engine, text
from sqlalchemy.exc import OperationalError

from borgish.cell.events import JobSubmitted
from borgish.errors import BorgishError, OutcomeUnknown
from borgish.store.open import open_store
from borgish.store.sql import SqlStore
from tests.contract.store.samples import CELL, Life, body_of, job


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/cell.db"


@pytest.fixture
def life(url: str) -> Iterator[Life]:
    made = Life(open_store(url, CELL))
    yield made
    made.store.close()


def fill_disk(life: Life) -> None:
    """Let the database not grow any more: what SQLite says then is what it says of a full disk."""
    assert isinstance(life.store, SqlStore)
    [(used,)] = life.store.rows(text("PRAGMA page_count"))
    life.store.rows(text(f"PRAGMA max_page_count = {used}"))


def test_a_full_disk_ends_the_store_and_loses_nothing(life: Life, url: str) -> None:
    life.story()
    before = life.body()
    fill_disk(life)

    with pytest.raises(OutcomeUnknown, match="disk is full") as caught:
        life.do(JobSubmitted(job("large", tasks=5000)))
    assert "Make room" in caught.value.hint
    assert caught.value.exit_code == 70
    with pytest.raises(OutcomeUnknown):
        life.store.checkpoints()

    life.store.close()
    again = open_store(url, CELL)
    assert body_of(again.load()) == before
    again.close()


def test_a_checkpoint_that_finds_no_room_leaves_the_cell_going(life: Life) -> None:
    life.story()
    fill_disk(life)
    incompressible = random.Random(1).randbytes(1_000_000)

    with pytest.raises(BorgishError, match="was not kept") as caught:
        life.store.save_checkpoint(incompressible, life.cell.position, 1.0, "test")
    assert not isinstance(caught.value, OutcomeUnknown)

    life.do()
    assert life.store.checkpoints() == []


def test_a_commit_that_fails_ends_the_store(life: Life, url: str) -> None:
    life.story()
    assert isinstance(life.store, SqlStore)
    before = life.body()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "commit", _no_commit)
        with pytest.raises(OutcomeUnknown, match="disk I/O error") as caught:
            life.do(JobSubmitted(job("lost")))

    assert "read back" in caught.value.hint
    with pytest.raises(OutcomeUnknown):
        life.do(JobSubmitted(job("later")))
    life.store.close()
    again = open_store(url, CELL)
    assert body_of(again.load()) == before
    again.close()


def _no_commit(_transaction: Transaction) -> None:
    raise OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))


@pytest.mark.postgres
def test_a_connection_that_is_cut_ends_the_store(postgres_url: str) -> None:
    life = Life(open_store(postgres_url, CELL))
    life.story()
    before = life.cell.position
    engine = create_engine(postgres_url)
    with engine.connect() as other:
        other.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()

    with pytest.raises(OutcomeUnknown):
        life.do(JobSubmitted(job("lost")))
    life.store.close()

    again = open_store(postgres_url, CELL)
    assert again.load().position == before
    again.close()
