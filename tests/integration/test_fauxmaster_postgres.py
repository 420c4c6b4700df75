"""fauxmaster reads a cell in Postgres, in a session in which nothing can be written."""

from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from borgish.errors import BorgishError
from borgish.sim.faux.opened import opened
from borgish.sim.faux.session import Session
from borgish.store.open import open_reader, open_store
from borgish.store.tables import journal
from tests.forked import FAUXMASTER, call
from tests.scenario.fauxmaster.kept_cell import NAME, KeptCell, job

pytestmark = pytest.mark.postgres


def test_a_cell_in_use_is_read_and_not_written_to(postgres_url: str, tmp_path: Path) -> None:
    kept = KeptCell(tmp_path, open_store(postgres_url, NAME))
    kept.machines(2)
    kept.submit(job("web", 2))
    position = kept.position
    with opened(postgres_url) as there:
        session = Session(there, "3")
        assert (there.kind, there.cell, there.head) == ("postgresql", NAME, position)
        assert [entry.position for entry in session.steps(2)] == [4, 5]
        session.copy().settle()
        kept.submit(job("db", 1))  # its master is not held up
        session.close()
    reader, _ = open_reader(postgres_url)
    with pytest.raises(SQLAlchemyError, match="read-only"), reader._connection.begin():
        reader._connection.execute(journal.delete())
    reader.close()
    assert kept.store.load().position == kept.position
    kept.store.close()


def test_a_database_without_a_cell_is_said_to_have_none(postgres_url: str) -> None:
    with pytest.raises(BorgishError, match="has no cell in it"), opened(postgres_url):
        pass


def test_a_password_is_not_shown(postgres_url: str) -> None:
    url = postgres_url.replace("postgresql://", "postgresql://somebody:secret@nowhere.invalid/") + "x"
    done = call(FAUXMASTER, ["show", url])
    assert done.code != 0
    assert "secret" not in done.out + done.err
