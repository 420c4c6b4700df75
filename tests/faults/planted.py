"""Bugs to plant into a borgmaster, so that it is seen that they would be found."""

from collections.abc import Sequence

from borgish.cell.events import Entry
from borgish.master.core import Core
from borgish.store.base import Records
from borgish.store.rows import Row
from borgish.store.sql import SqlStore


def acknowledge_what_is_not_durable() -> None:
    """Every fifth append is not done."""
    append, count = SqlStore.append, 0

    def forgetful(self: SqlStore, entries: Sequence[Entry], records: Records) -> None:
        nonlocal count
        count += 1
        if count < 5:
            append(self, entries, records)

    _put(SqlStore, "append", forgetful)


def do_requests_again() -> None:
    """A request id is remembered by nobody."""
    _put(Core, "_known", lambda *_: None)


def write_tables_by_half() -> None:
    """The journal has it all, the tables have no tasks."""

    def forgetful(self: SqlStore, entries: Sequence[Entry], records: Records) -> list[tuple[str, list[Row]]]:
        return [
            (statement, rows) for statement, rows in work(self, entries, records) if "tasks" not in statement
        ]

    work = SqlStore._work
    _put(SqlStore, "_work", forgetful)


def _put(owner: type, name: str, value: object) -> None:
    setattr(owner, name, value)
