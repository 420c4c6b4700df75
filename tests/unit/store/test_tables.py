"""Rows are what people find in the tables."""

import json

from sqlalchemy import Table

from borgish.cell.model import Cell
from borgish.store.memory import MemoryStore
from borgish.store.tables import Row, cell_rows, jobs, machines, tasks
from tests.contract.store.samples import CELL, JOB, Life


def named(table: Table, row: Row) -> dict[str, object]:
    return dict(zip(table.columns.keys(), row, strict=True))


def cell() -> Cell:
    life = Life(MemoryStore(CELL))
    life.story()
    return life.cell


def test_a_task_that_runs() -> None:
    row = named(tasks, cell_rows(cell())["tasks"][JOB, 0])

    assert (row["job"], row["idx"], row["user_name"], row["name"]) == (JOB, 0, "ann", "ann/web/0")
    assert (row["state"], row["attempt"], row["machine"], row["ports"]) == ("running", 4, "m1", "[20000]")
    assert (row["since"], row["reason"], row["ending"]) == (104.25, "", None)


def test_a_task_that_failed() -> None:
    row = named(tasks, cell_rows(cell())["tasks"][JOB, 2])

    assert (row["state"], row["ending"], row["exit_code"], row["started_at"]) == ("dead", "fail", 127, 98.5)
    assert row["reason"] == "no \N{REPLACEMENT CHARACTER} such file"  # Postgres takes no NUL


def test_all_text_is_plain_text() -> None:
    row = named(tasks, cell_rows(cell())["tasks"][JOB, 1])

    assert row["reason"] == "drain"
    assert {type(value) for value in row.values()} <= {str, int, float, type(None)}


def test_a_job() -> None:
    row = named(jobs, cell_rows(cell())["jobs"][JOB,])

    assert (row["key"], row["user_name"], row["name"], row["state"], row["band"]) == (
        JOB,
        "ann",
        "web",
        "running",
        "free",
    )
    assert [row[count] for count in ("tasks", "pending", "running", "dead", "finished")] == [3, 1, 1, 1, 0]
    assert json.loads(str(row["spec"]))["run"] == ["true"]


def test_a_machine() -> None:
    row = named(machines, cell_rows(cell())["machines"]["m1",])

    assert (row["name"], row["up"], row["cpu_millis"], row["named"]) == ("m1", True, 4000, '{"gpu":2}')
    assert (row["attributes"], row["runtimes"], row["port_next"]) == ('{"rack":"r1"}', '["process"]', 20003)
