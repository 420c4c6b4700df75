"""Many rows written by few statements are the rows that were given."""

import json

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import sqlite

from borgish.cell.model import Task
from borgish.store.statements import JSON_ROWS, WIDTHS, statements_for
from borgish.store.tables import task_rows, tasks
from borgish.vocabulary import State

SQL = statements_for(sqlite.dialect())
COUNTS = [0, 1, *(width + more for width in WIDTHS for more in (-1, 0, 1)), 2 * sum(WIDTHS) + 3]


@pytest.mark.parametrize("count", COUNTS)
def test_rows_are_written_and_written_over(count: int) -> None:
    engine = create_engine("sqlite://")
    tasks.create(engine)
    first = task_rows("ann/web", [Task(index) for index in range(count)])
    then = task_rows("ann/web", [Task(index, State.RUNNING, index, f"m{index}") for index in range(count)])
    with engine.begin() as connection:
        for rows in (first, then):
            for text, values in SQL.together(SQL.tasks, rows):
                connection.exec_driver_sql(text, values)
        written = connection.exec_driver_sql("SELECT * FROM tasks ORDER BY idx").all()
    assert [tuple(row) for row in written] == then


def test_a_statement_takes_as_many_values_as_it_is_given() -> None:
    rows = [(number, "a") for number in range(2 * sum(WIDTHS) + 3)]
    pieces = list(SQL.together("INSERT INTO t (a, b) VALUES (?, ?)", rows))
    assert [len(values) for text, values in pieces if text.count("?") > 2] == [
        text.count("?") for text, _ in pieces if text.count("?") > 2
    ]
    assert len(pieces) <= 6


def test_what_writes_no_values_is_left_as_it_is() -> None:
    rows = [("a",)] * 300
    assert list(SQL.together("DELETE FROM t WHERE a = ?", rows)) == [("DELETE FROM t WHERE a = ?", rows)]


def test_postgres_is_handed_rows_as_json() -> None:
    sql = statements_for(create_engine("postgresql+psycopg://", paramstyle="format").dialect)
    rows = task_rows("ann/web", [Task(index, since=0.1 + index) for index in range(2 * JSON_ROWS + 1)])
    pieces = list(sql.together(sql.tasks, rows))
    names = tasks.c.keys()
    given = [tuple(each[name] for name in names) for _, (text,) in pieces for each in json.loads(str(text))]
    assert given == rows
    assert len({text for text, _ in pieces}) == 1
    assert "SELECT job, idx, " in pieces[0][0]
    assert "ports::json" in pieces[0][0]
    assert pieces[0][0].endswith("failed = excluded.failed")
    assert list(sql.together(sql.tasks, rows[:1])) == [(sql.tasks, rows[:1])]
    assert list(sql.together(sql.leases_gone, [("a", 1)] * 3)) == [(sql.leases_gone, [("a", 1)] * 3)]
