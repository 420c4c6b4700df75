"""For any history: the cell as it was lived, the journal replayed, and the tables are the same."""

import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.events import Entry
from borgish.store.open import open_store
from borgish.store.replay import cell_at
from borgish.store.sql import SqlStore
from borgish.store.tables import differences
from tests.contract.store.samples import CELL, Life, body_of
from tests.fixtures_postgres import PostgresServer
from tests.profiles import examples
from tests.property.store.histories import next_event, rollback

STEPS_MAX = 25


def live(life: Life, data: st.DataObject) -> None:
    """Let things happen, a few in each transaction, with a checkpoint now and then."""
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        life.write(*(_one(life, data) for _ in range(data.draw(st.integers(1, 4)))))
        if data.draw(st.integers(0, 9)) == 0:
            life.checkpoint()


def _one(life: Life, data: st.DataObject) -> Entry:
    if data.draw(st.integers(0, 9)) == 0:
        position = data.draw(st.integers(1, life.durable))
        event = rollback(life.cell, cell_at(life.store, CELL, position).cell)
    else:
        event = next_event(life.cell, data)
    return life.entry(*([event] if event else []))


def check(store: SqlStore, url: str, data: st.DataObject) -> None:
    life = Life(store)
    try:
        live(life, data)
        assert differences(life.cell, store.table_rows) == []
    finally:
        store.close()
    again = open_store(url, CELL)
    try:
        loaded = again.load()
        assert body_of(loaded) == life.body()
        assert (loaded.placed, loaded.waiting) == (life.cell.placed, life.cell.waiting)
        assert differences(loaded, again.table_rows) == []
    finally:
        again.close()


@settings(max_examples=examples(30))
@given(st.data())
def test_on_sqlite(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/cell.db"
        check(open_store(url, CELL), url, data)


@pytest.mark.postgres
def test_on_postgres(postgres_server: PostgresServer) -> None:
    @settings(max_examples=examples(12))
    @given(st.data())
    def on_a_fresh_database(data: st.DataObject) -> None:
        with postgres_server.lent() as url:
            check(open_store(url, CELL), url, data)

    on_a_fresh_database()
