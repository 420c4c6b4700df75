"""Compares the tables in a database with the cell that they should show."""

from collections.abc import Callable, Iterable

from sqlalchemy import Table, Text, cast, select
from sqlalchemy.types import JSON

from borgish.cell.state import Cell
from borgish.store.rows import Row, job_row, machine_row, quota_row, task_rows
from borgish.store.sql import SqlStore
from borgish.store.tables import jobs, machines, quotas, tasks

Rows = dict[tuple[object, ...], Row]  # by primary key


TABLES = {table.name: table for table in (jobs, tasks, machines, quotas)}
"""Those that follow from the cell."""


def tables_of(cell: Cell) -> dict[str, Rows]:
    """Return the rows that a cell should have, by table and primary key."""
    return {
        "jobs": _by_key(jobs, (job_row(job, cell.rules.bands) for job in cell.jobs.values())),
        "tasks": _by_key(tasks, (row for job in cell.jobs.values() for row in task_rows(job.key, job.tasks))),
        "machines": _by_key(machines, (machine_row(machine) for machine in cell.machines.values())),
        "quotas": _by_key(quotas, (quota_row(quota) for quota in cell.quotas.values())),
    }


def read_tables(store: SqlStore) -> dict[str, Rows]:
    """Return the rows that a store has, by table and primary key."""
    return {name: _by_key(table, _read(store, table)) for name, table in TABLES.items()}


def differences(cell: Cell, store: SqlStore) -> list[str]:
    """Return one line for each row that is not as the cell has it; empty when all is well."""
    return table_differences(cell, lambda table: _read(store, table))


def table_differences(cell: Cell, read: Callable[[Table], list[Row] | None]) -> list[str]:
    """Return the same, of tables that are read in another way; one that cannot be (None) is passed over."""
    return [
        line
        for table, wanted in tables_of(cell).items()
        for line in _compared(table, wanted, read(TABLES[table]))
    ]


def _compared(table: str, wanted: Rows, read: list[Row] | None) -> list[str]:
    if read is None:
        return []
    found = _by_key(TABLES[table], read)
    return [
        f"{table} {key}: is {found.get(key)}, should be {wanted.get(key)}"
        for key in sorted(wanted.keys() | found.keys(), key=repr)
        if wanted.get(key) != found.get(key)
    ]


def _read(store: SqlStore, table: Table) -> list[Row]:
    # JSON as it was written, so that rows compare as they are.
    columns = [cast(column, Text) if isinstance(column.type, JSON) else column for column in table.c]
    return store.rows(select(*columns))


def _by_key(table: Table, rows: Iterable[Row]) -> Rows:
    at = [place for place, column in enumerate(table.c) if column.primary_key]
    return {tuple(row[place] for place in at): row for row in rows}
