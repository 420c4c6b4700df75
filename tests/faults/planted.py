"""Bugs to plant into a borgmaster, so that it is seen that they would be found."""

from collections.abc import Sequence

from borgish.cell.events import Entry
from borgish.master.core import Core
from borgish.store.base import Records
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
    work = SqlStore._work
    _put(SqlStore, "_work", lambda *given: [row for row in work(*given) if row[0] != "append.tasks"])


def _put(owner: type, name: str, value: object) -> None:
    setattr(owner, name, value)
