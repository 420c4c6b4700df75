"""Where the contract is tried: each kind of store, with a way to tamper behind its back."""

import sqlite3
from pathlib import Path
from typing import Protocol

import msgspec
from sqlalchemy import create_engine, text

from borgish.store.base import Store
from borgish.store.checkpoints import Retention
from borgish.store.memory import Disk, MemoryStore
from borgish.store.open import open_store
from tests.contract.store.samples import CELL


class Place(Protocol):
    """Where one cell is kept, whoever has it open."""

    def open(self, retention: Retention | None = None) -> Store: ...

    def close(self) -> None:
        """Close every store that was opened here."""
        ...

    def usurp(self) -> None:
        """Become the leader behind the back of who leads."""
        ...

    def damage_checkpoint(self, position: int) -> None: ...

    def lose_entry(self, position: int) -> None: ...

    def garble_entry(self, position: int) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self.disk = Disk(CELL)

    def open(self, retention: Retention | None = None) -> Store:
        return MemoryStore(CELL, retention, self.disk)

    def close(self) -> None:
        pass  # there is nothing that anybody else could want

    def usurp(self) -> None:
        self.open().lead("usurper", "")

    def damage_checkpoint(self, position: int) -> None:
        info, stored = self.disk.checkpoints[position]
        self.disk.checkpoints[position] = (info, stored[:-1])

    def lose_entry(self, position: int) -> None:
        del self.disk.entries[position - 1]

    def garble_entry(self, position: int) -> None:
        entry = msgspec.json.decode(self.disk.entries[position - 1])
        entry["events"] = [{"type": "Unheard"}]
        self.disk.entries[position - 1] = msgspec.json.encode(entry)


class InDatabase:
    """SQLite or Postgres, tampered with by SQL through a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[Store] = []

    def open(self, retention: Retention | None = None) -> Store:
        self._opened.append(open_store(self.url, CELL, retention=retention))
        return self._opened[-1]

    def close(self) -> None:
        """Let go of what a test left open: a server has only so many connections for all tests."""
        for store in self._opened:
            store.close()

    def usurp(self) -> None:
        self.run("UPDATE leadership SET epoch = epoch + 1")

    def damage_checkpoint(self, position: int) -> None:
        self.run(f"UPDATE checkpoints SET body = substr(body, 2) WHERE position = {position}")

    def lose_entry(self, position: int) -> None:
        self.run(f"DELETE FROM journal WHERE position = {position}")

    def garble_entry(self, position: int) -> None:
        self.run(f'UPDATE journal SET events = \'[{{"type": "Unheard"}}]\' WHERE position = {position}')

    def read(self, query: str) -> list[tuple[object, ...]]:
        """Look at it, behind the back of whoever has it open."""
        engine = create_engine(self.url)
        with engine.connect() as connection:
            rows = [tuple(row) for row in connection.execute(text(query))]
        engine.dispose()
        return rows

    def run(self, statement: str) -> None:
        """Do something behind the back of whoever has it open."""
        engine = create_engine(self.url)
        with engine.begin() as connection:
            # Not a bound statement: the colons of JSON are none of a parameter.
            connection.execute(text(statement.replace(":", "\\:")))
        engine.dispose()


def read_from_outside(file: Path, query: str) -> list[tuple[object, ...]]:
    """Return what a reader sees that may only read."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
