"""Compares the tables in a database with the cell that they should show."""

from collections.abc import Iterable

from sqlalchemy import Table, Text, cast, select
from sqlalchemy.types import JSON

from borgish.cell.state import Cell
from borgish.store.rows import Row, job_row, machine_row, quota_row, task_rows
from borgish.store.sql import SqlStore
from borgish.store.tables import jobs, machines, quotas, tasks

Rows = dict[tuple[object, ...], Row]  # by primary key


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
    return {table.name: _by_key(table, _read(store, table)) for table in (jobs, tasks, machines, quotas)}


def differences(cell: Cell, store: SqlStore) -> list[str]:
    """Return one line for each row that is not as the cell has it; empty when all is well."""
    wanted, found = tables_of(cell), read_tables(store)
    return [
        f"{table} {key}: is {found[table].get(key)}, should be {wanted[table].get(key)}"
        for table in wanted
        for key in sorted(wanted[table].keys() | found[table].keys(), key=repr)
        if wanted[table].get(key) != found[table].get(key)
    ]


def _read(store: SqlStore, table: Table) -> list[Row]:
    # JSON as it was written, so that rows compare as they are.
    columns = [cast(column, Text) if isinstance(column.type, JSON) else column for column in table.c]
    return store.rows(select(*columns))


def _by_key(table: Table, rows: Iterable[Row]) -> Rows:
    at = [place for place, column in enumerate(table.c) if column.primary_key]
    return {tuple(row[place] for place in at): row for row in rows}
