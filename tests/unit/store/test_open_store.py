"""A URL that cannot be used, or a database that does not answer, is said with the way out."""

import errno
import os
import shutil
import socket
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from borgish.cell.events import Elected, Entry
from borgish.errors import StoreDamaged, Unreachable, UnsafeConfiguration
from borgish.store import postgres
from borgish.store.base import Records
from borgish.store.open import open_store
from tests.fixtures_postgres import PostgresServer


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("cell.db", "cannot be read", "sqlite:////"),
        ("", "cannot be read", "sqlite:////"),
        ("mysql://u:hidden@h/d", "kind 'mysql'", "postgresql://"),
        ("postgres://u:hidden@h/d", "kind 'postgres'", "postgresql:// in full"),
        ("postgresql+asyncpg://u:hidden@h/d", "kind 'postgresql+asyncpg'", "postgresql://..."),
        ("sqlite+aiosqlite:///x.db", "kind 'sqlite+aiosqlite'", "sqlite://..."),
        ("sqlite://", "not a file", "sqlite:////"),
        ("sqlite:///:memory:", "not a file", "sqlite:////"),
        ("sqlite:///x.db?mode=ro", "only a path", "sqlite:////"),
        ("postgresql://u:hidden@h:port/d", "cannot be read", "postgresql://"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, message: str, hint: str) -> None:
    with pytest.raises(UnsafeConfiguration) as caught:
        open_store(url, "c")

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "hidden" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "cell.db").write_bytes(b"not what it seems" * 1000)

    with pytest.raises(StoreDamaged, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/cell.db", "c")


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "cell.db").mkdir()

    with pytest.raises(UnsafeConfiguration, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/cell.db", "c")


def test_a_database_that_another_program_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.store.sqlite.BUSY_SECONDS_MAX", 0.05)
    url = f"sqlite:///{tmp_path}/cell.db"
    open_store(url, "c").close()
    other = sqlite3.connect(tmp_path / "cell.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(Unreachable, match="database is locked"):
        open_store(url, "c")

    other.close()
    open_store(url, "c").close()


def test_postgres_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(UnsafeConfiguration) as caught:
        open_store("postgresql://u:hidden@h/d", "c")

    assert "pip install 'borgish[postgres]'" in caught.value.hint


def test_postgres_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can be there
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match="does not answer") as caught:
            open_store(f"postgresql://u:hidden@127.0.0.1:{port}/d", "c")

    assert "hidden" not in str(caught.value)
    assert "host and port" in caught.value.hint


@pytest.mark.postgres
def test_postgres_that_refuses(postgres_server: PostgresServer) -> None:
    with pytest.raises(UnsafeConfiguration, match="does not exist"):
        open_store(f"postgresql://postgres@/nowhere?host={postgres_server.folder}", "c")
    with pytest.raises(UnsafeConfiguration, match="refuses"):
        open_store(f"postgresql://nobody-known@/postgres?host={postgres_server.folder}", "c")


@pytest.mark.postgres
def test_postgres_commits_durably_whatever_the_server_thinks(postgres_url: str) -> None:
    with_it_off = f"{postgres_url}&options=-c%20synchronous_commit%3Doff"
    store = open_store(with_it_off, "c")

    assert store.rows(text("SHOW synchronous_commit")) == [("on",)]
    store.close()


@pytest.mark.postgres
@pytest.mark.parametrize("served_by", [(7, 7, 7), (7, 8, 9)], ids=["one for both", "another each time"])
def test_a_pooler_that_pools_transactions_is_refused(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, served_by: tuple[int, ...]
) -> None:
    """Played: which process of the server serves our transactions is what shows it."""
    postgres.connect_unpooled(make_url(postgres_url)).engine.dispose()
    processes = iter(served_by)
    monkeypatch.setattr(postgres, "_backend_pid", lambda _connection: next(processes))
    with pytest.raises(UnsafeConfiguration, match="behind a pooler that gives each transaction"):
        postgres.connect_unpooled(make_url(postgres_url))


def elected(position: int) -> Entry:
    return Entry(position, 1.0, 1, 1, "election", "lead", (Elected(1, 1, "here"),))


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize(
    ("name", "happens", "said"),
    [
        ("cell.db", removed, "cell.db was deleted"),
        ("cell.db", replaced, "cell.db was replaced"),
        ("cell.db", emptied, "cell.db was emptied"),
        ("cell.db-wal", removed, "cell.db-wal was deleted"),
        ("cell.db-wal", replaced, "cell.db-wal was replaced"),
    ],
)
def test_what_happens_to_a_file_that_is_open_is_found_at_the_next_commit(
    tmp_path: Path, name: str, happens: Callable[[Path], None], said: str
) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/cell.db", "c")) as store:
        store.lead("here", "")
        store.append([elected(1)], Records())
        happens(tmp_path / name)

        for _ in range(2):  # and there is no second chance
            with pytest.raises(StoreDamaged, match=said):
                store.append([elected(2)], Records())


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "denied", str(path))

    with closing(open_store(f"sqlite:///{tmp_path}/cell.db", "c")) as store:
        store.lead("here", "")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", denied)
            store.append([elected(1)], Records())


def test_a_log_that_is_cut_and_a_file_that_grows_are_what_sqlite_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.store.sqlite._PRAGMAS", ("wal_autocheckpoint = 1", "journal_size_limit = 0"))
    sizes = set()
    with closing(open_store(f"sqlite:///{tmp_path}/cell.db", "c")) as store:
        store.lead("here", "")
        for first, count in ((1, 500), (501, 1), (502, 1)):
            store.append([elected(position) for position in range(first, first + count)], Records())
            sizes.add((tmp_path / "cell.db-wal").stat().st_size)
    assert len(sizes) > 1, "it was cut between two commits"
