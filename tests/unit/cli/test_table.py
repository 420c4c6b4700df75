"""Tables: what they show, how wide they are, and that no text in them acts on a terminal."""

import io
from typing import Any

import pytest

from borgish.cli.render import Column, Table, cell_width, cut, draw
from borgish.text import clock_time
from borgish.vocabulary import Outcome, TaintEffect
from borgish.wire.api import TaintView
from tests.unit.cli.samples import event, job, machine, task

WIDTH = 80


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def columns_of(kind: str, *, wide: bool = False) -> list[Column[Any]]:
    from borgish.cli.commands.events import EVENT_COLUMNS
    from borgish.cli.commands.job import JOB_COLUMNS
    from borgish.cli.commands.machine import MACHINE_COLUMNS
    from borgish.cli.commands.task import TASK_COLUMNS

    every: dict[str, tuple[Column[Any], ...]] = {
        "job": JOB_COLUMNS,
        "task": TASK_COLUMNS,
        "machine": MACHINE_COLUMNS,
        "event": EVENT_COLUMNS,
    }
    return [column for column in every[kind] if (wide or not column.wide) and column.title != "AGE"]


def test_jobs() -> None:
    jobs = [
        job(),
        job(name="bob/a", state="dead", up=0, finished=3, dead=3, outcome="finished"),
        job(name="bob/b", state="dead", up=0, failed=3, dead=3, outcome="failed", reason="exit 1"),
        job(name="bob/c", state="dead", up=0, killed=3, dead=3, outcome="killed"),
        job(name="bob/d", state="dead", up=0, finished=1, failed=1, killed=1, dead=3, outcome="failed"),
    ]
    assert draw(jobs, columns_of("job"), io.StringIO()) == (
        "NAME     STATE             UP  PENDING  FINISHED  FAILED  KILLED  BAND        REASON\n"
        "ann/web  running          3/3        0         0       0       0  production\n"
        "bob/a    dead (finished)  0/3        0         3       0       0  production\n"
        "bob/b    dead (failed)    0/3        0         0       3       0  production  exit 1\n"
        "bob/c    dead (killed)    0/3        0         0       0       3  production\n"
        "bob/d    dead (failed)    0/3        0         1       1       1  production\n"
    )


def test_counts_that_are_all_0_have_no_column() -> None:
    table = Table(columns_of("job"), io.StringIO(), rare=False)
    assert table.rows([job()]).split()[:6] == ["NAME", "STATE", "UP", "PENDING", "BAND", "REASON"]
    table = Table(columns_of("job"), io.StringIO(), rare=False)
    shown = table.rows([job(), job(killed=1)]).split()
    assert shown[:7] == ["NAME", "STATE", "UP", "PENDING", "KILLED", "BAND", "REASON"]


def test_rows_that_come_later_go_on_below_and_a_column_that_they_need_has_a_header_again() -> None:
    table = Table(columns_of("job"), io.StringIO(), rare=False)
    assert table.rows([job()]) == (
        "NAME     STATE     UP  PENDING  BAND        REASON\nann/web  running  3/3        0  production\n"
    )
    assert table.rows([job(name="a/b")]) == "a/b      running  3/3        0  production\n"
    assert table.rows([job(name="ann/longer")]) == "ann/longer  running  3/3        0  production\n"
    assert table.rows([job(failed=1)]) == (
        "NAME        STATE     UP  PENDING  FAILED  BAND        REASON\n"
        "ann/web     running  3/3        0       1  production\n"
    )
    assert table.rows([job()]) == "ann/web     running  3/3        0       0  production\n"


def test_how_dead_tasks_came_out() -> None:
    tasks = [task(state="dead", phase=None, outcome=outcome) for outcome in (*Outcome, None)]
    state = next(column for column in columns_of("task") if column.title == "STATE")
    assert [(state.text(each), state.style(each)) for each in tasks] == [
        ("dead (finished)", "dim"),
        ("dead (failed)", "red"),
        ("dead (killed)", "dim"),
        ("dead (lost)", "red"),
        ("dead", "dim"),
    ]


def test_tasks() -> None:
    pending = task(
        name="ann/web/1", state="pending", phase=None, machine=None, ports={}, reason="no machine fits"
    )
    assert draw([task(), pending], columns_of("task"), io.StringIO()) == (
        "NAME       STATE    PHASE    MACHINE  PORTS       REASON\n"
        "ann/web/0  running  healthy  m1       http=20001\n"
        "ann/web/1  pending  -        -        -           no machine fits\n"
    )


def test_machines() -> None:
    old = TaintView("old", TaintEffect.REFUSE, "")
    assert draw(
        [machine(), machine("m2", state="down", reason="silent", taints=(old,))],
        columns_of("machine"),
        io.StringIO(),
    ) == (
        "NAME  STATE  TASKS     CPU          RAM  RUNTIMES  TAINTS      REASON\n"
        "m1    up         1  500m/4  256MiB/8GiB  process   -\n"
        "m2    down       1  500m/4  256MiB/8GiB  process   old:refuse  silent\n"
    )


def test_events() -> None:
    at = clock_time(event(1).at)
    assert draw([event(7)], columns_of("event"), io.StringIO()) == (
        f"AT        ABOUT        KIND    WHAT\n{at}  ann/web/0-2  placed  was placed on m1\n"
    )


@pytest.mark.parametrize("kind", ["job", "task", "machine", "event"])
def test_a_terminal_of_80_columns_is_enough(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    long = "a reason without end " * 10
    items = {
        "job": job(reason=long),
        "task": task(reason=long),
        "machine": machine(reason=long),
        "event": event(1, long),
    }
    lines = Table(columns_of(kind), Terminal(), rare=False).rows([items[kind]]).splitlines()
    assert all(cell_width(line) <= WIDTH for line in lines)
    assert lines[1].endswith("…")


def test_wide_has_more_and_nothing_is_cut_when_nobody_watches() -> None:
    assert len(columns_of("task", wide=True)) > len(columns_of("task"))
    assert "x" * 500 in draw([job(reason="x" * 500)], columns_of("job"), io.StringIO())


def test_colours_on_a_terminal_only_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32mrunning\x1b[0m" in draw([job()], columns_of("job"), Terminal())
    assert "\x1b" not in draw([job()], columns_of("job"), io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in draw([job()], columns_of("job"), Terminal())


def test_text_of_users_is_neither_codes_nor_markup() -> None:
    shown = draw([job(reason="\x1b[31m[red]x[/bold]")], columns_of("job"), io.StringIO())
    assert "\\x1b[31m[red]x[/bold]" in shown


def test_wide_characters_take_two_columns() -> None:
    assert cell_width("漢字a") == 5
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("abc", 3) == "abc"
