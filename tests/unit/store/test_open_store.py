"""A URL that cannot be used, or a database that does not answer, is said with the way out."""

import socket
import sqlite3
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from borgish.errors import StoreDamaged, Unreachable, UnsafeConfiguration
from borgish.store import postgres
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
