"""The statements that write rows of ``tables``, as SQL of each kind of database that takes tuples."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, starmap
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import JSON, Dialect, Table, bindparam, delete, func, insert, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ClauseElement

from borgish.store.tables import (
    Row,
    apps,
    audit,
    budgets,
    crons,
    handovers,
    jobs,
    journal,
    leadership,
    leases,
    machines,
    metadata,
    quotas,
    tasks,
    versions,
)

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql


WIDTHS = (128, 16)
"""So many rows are written by one statement; what is left, row by row. Few numbers, since each is a statement
that SQLite compiles once; the most values that it takes are 32,766."""
_VALUES = re.compile(r" VALUES (\([?, ]+\))")
JSON_ROWS = 500
"""So many rows are one value for Postgres. To encode them holds the interpreter for half a millisecond."""
_INSERT = re.compile(
    r"INSERT INTO (?P<table>\w+) \((?P<columns>[^)]+)\) VALUES (?P<values>.*?)(?P<rest> ON CONFLICT .*)?"
)


class Statements:
    """SQL texts of the hot path that take tuples, each compiled once to the database's own SQL."""

    def __init__(self, dialect: Dialect) -> None:
        self._widths = WIDTHS if dialect.name == "sqlite" else ()
        self._dialect = dialect
        self.journal = insert_text(dialect, journal)
        self.jobs = _upsert(dialect, jobs)
        self.versions = insert_text(dialect, versions)
        self.versions_gone = _text(
            dialect, delete(versions).where(versions.c.job == bindparam("gone")), ["gone"]
        )
        self.tasks = _upsert(dialect, tasks)
        self.machines = _upsert(dialect, machines)
        self.quotas = _upsert(dialect, quotas)
        self.quotas_gone = _text(
            dialect,
            delete(quotas).where(quotas.c.user_name == bindparam("whose"), quotas.c.band == bindparam("in")),
            ["whose", "in"],
        )
        self.audit = insert_text(dialect, audit)
        self.leases = insert_text(dialect, leases)
        self.leases_gone = _text(
            dialect,
            delete(leases).where(leases.c.job == bindparam("whose"), leases.c.idx == bindparam("at")),
            ["whose", "at"],
        )
        self.handovers = _upsert(dialect, handovers)
        self.handovers_gone = _text(
            dialect,
            delete(handovers).where(
                handovers.c.job == bindparam("whose"), handovers.c.idx == bindparam("at")
            ),
            ["whose", "at"],
        )
        self.budgets = _upsert(dialect, budgets)
        self.budgets_gone = _text(
            dialect, delete(budgets).where(budgets.c.name == bindparam("gone")), ["gone"]
        )
        self.apps = _upsert(dialect, apps)
        self.apps_gone = _text(dialect, delete(apps).where(apps.c.key == bindparam("gone")), ["gone"])
        self.crons = _upsert(dialect, crons)
        self.crons_gone = _text(dialect, delete(crons).where(crons.c.key == bindparam("gone")), ["gone"])
        # (timeline, or None to leave it; epoch)
        self.renew = _text(
            dialect,
            update(leadership)
            .values(timeline=func.coalesce(bindparam("led"), leadership.c.timeline), renewed_at=func.now())
            .where(leadership.c.epoch == bindparam("mine")),
            ["led", "mine"],
            written=["timeline", "renewed_at"],
        )
        # (job, first index that is no more)
        self.tasks_gone = _text(
            dialect,
            delete(tasks).where(tasks.c.job == bindparam("gone"), tasks.c.idx >= bindparam("first")),
            ["gone", "first"],
        )
        gone = delete(machines).where(machines.c.name == bindparam("gone"))
        self.machines_gone = _text(dialect, gone, ["gone"])
        self.jobs_gone = _text(dialect, delete(jobs).where(jobs.c.key == bindparam("gone")), ["gone"])

    def together(self, statement: str, rows: Sequence[Row]) -> Iterator[tuple[str, Row | Sequence[Row]]]:
        """Yield statements, each with the rows or the row that it takes, that write many rows at once.

        Python's driver of SQLite lets other threads run at every row that a statement writes, and has to wait
        for its own turn then: beside a busy event loop each row may take as long as the interpreter's switch
        interval. That of Postgres adapts each value of each row: these are handed to it as JSON, which is
        encoded in one go. Only COPY is faster, and only for more rows than nearly all turns have.
        """
        first = 0
        found = _from_json(self._dialect, statement) if len(rows) > 1 else None
        if found is not None:
            text, record = found
            for first in range(0, len(rows), JSON_ROWS):
                encoded = msgspec.json.encode(list(starmap(record, rows[first : first + JSON_ROWS])))
                yield text, (encoded.decode(),)
            return
        for width in self._widths if _VALUES.search(statement) else ():
            while len(rows) - first >= width:
                yield _wide(statement, width), tuple(chain.from_iterable(rows[first : first + width]))
                first += width
        if first < len(rows):
            yield statement, rows[first:]


_STATEMENTS: dict[str, Statements] = {}


def statements_for(dialect: Dialect) -> Statements:
    """Return those of a kind of database; a process compiles them once, however many stores it opens."""
    if dialect.name not in _STATEMENTS:
        _STATEMENTS[dialect.name] = Statements(dialect)
    return _STATEMENTS[dialect.name]


@cache
def _wide(statement: str, width: int) -> str:
    return _VALUES.sub(lambda found: f" VALUES {', '.join([found[1]] * width)}", statement, count=1)


@cache
def _from_json(dialect: Dialect, statement: str) -> tuple[str, Callable[..., msgspec.Struct]] | None:
    """Return the statement of Postgres that writes the same from a JSON array of objects, and what makes such
    an object of the values of a row. None for one that inserts nothing, and for other databases.

    The values are text, finite numbers, booleans, JSON as text, and None.
    """
    found = _INSERT.fullmatch(statement) if dialect.name == "postgresql" else None
    if found is None:
        return None
    names = found["columns"].split(", ")
    columns = [metadata.tables[found["table"]].c[name.strip('"')] for name in names]
    kinds = ["text" if isinstance(c.type, JSON) else c.type.compile(dialect) for c in columns]
    taken = [f"{n}::json" if isinstance(c.type, JSON) else n for n, c in zip(names, columns, strict=True)]
    given = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    head = statement[: found.start("values")].removesuffix(" VALUES ")
    source = f"json_to_recordset(%s::json) AS given({given}){found['rest'] or ''}"
    text = " ".join((head, "SELECT", ", ".join(taken), "FROM", source))
    return text, msgspec.defstruct(found["table"], [str(column.name) for column in columns], gc=False)


def insert_text(dialect: Dialect, table: Table) -> str:
    """Return the statement that writes new rows of a table."""
    return _text(dialect, insert(table), table.c.keys())


def _upsert(dialect: Dialect, table: Table) -> str:
    statement: sqlite.Insert | postgresql.Insert
    if dialect.name == "sqlite":
        statement = sqlite.insert(table)
    else:
        # Loaded only where its engine is anyway: it takes a while.
        from sqlalchemy.dialects.postgresql import insert as insert_for_postgres

        statement = insert_for_postgres(table)
    keys = [column.name for column in table.primary_key]
    written = {c.name: statement.excluded[c.name] for c in table.c if not c.primary_key}
    return _text(dialect, statement.on_conflict_do_update(index_elements=keys, set_=written), table.c.keys())


def _text(
    dialect: Dialect, statement: ClauseElement, order: list[str], written: list[str] | None = None
) -> str:
    """Compile, and check that the values are taken in this order. ``written``: columns, where others."""
    compiled = statement.compile(dialect=dialect, column_keys=written or order)
    assert getattr(compiled, "positiontup", None) == order, "rows would not match the statement"
    return str(compiled)
