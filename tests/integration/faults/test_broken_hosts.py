"""A real borgmaster under load on a host where something is wrong: the disk, the clock, another program."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from borgish.cell.events import JobForgotten, MachineDown, TasksEvicted
from borgish.store.open import open_store
from borgish.vocabulary import Eviction
from tests.faults.judge import CELL
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege
from tests.faults.vfs import FULL, SYNC_FAILED, WRITE_FAILED
from tests.fixtures_postgres import durable_server

YEAR_SECONDS = 365 * 86400.0
KIB = 1024


def breaking(code: int, after: int) -> dict[str, str]:
    return {"DISK_CODE": str(code), "DISK_AFTER": str(after)}


def goes_on(siege: Siege) -> None:
    siege.start()
    assert siege.serves(), siege.said()
    siege.more(6)
    siege.say_the_same_again()
    assert siege.end_in_peace() == []


@pytest.mark.parametrize(
    ("code", "after", "said"),
    [
        pytest.param(FULL, 300, "Make room on the database's disk", id="full"),
        pytest.param(WRITE_FAILED, 300, "Look at the disk", id="write"),
        pytest.param(SYNC_FAILED, 20, "Look at the disk", id="sync"),
    ],
)
def test_a_disk_that_breaks(nursery: Nursery, tmp_path: Path, code: int, after: int, said: str) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before="tests.faults.planted:break_disk", environment=breaking(code, after))
        assert siege.serves(), siege.said()
        assert siege.ended() == 70
        assert "The store may not have the last write: " in siege.said()
        assert said in siege.said()
        assert siege.problems() == []
        siege.start(before="tests.faults.planted:break_disk", environment=breaking(code, 0))
        assert not siege.serves()
        assert siege.ended() in (4, 70), siege.said()
        assert said in siege.said()
        assert siege.problems() == []
        goes_on(siege)


def test_a_file_that_may_not_grow(nursery: Nursery, tmp_path: Path) -> None:
    """What the kernel does of its own, without us between SQLite and the disk."""
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(file_bytes_max=700 * KIB)
        assert siege.serves(), siege.said()
        assert siege.ended() == 70
        assert "disk I/O error" in siege.said()
        assert siege.problems() == []
        goes_on(siege)


@contextmanager
def held(siege: Siege) -> Iterator[None]:
    """Have another program write to the database, as nobody should, and not end its transaction."""
    other = sqlite3.connect(siege.folder / "cell.db", isolation_level=None, timeout=60)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


def test_a_database_that_another_program_holds(nursery: Nursery, tmp_path: Path) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before="tests.faults.planted:do_not_wait_long")
        assert siege.serves(), siege.said()
        siege.more(3)
        with held(siege):
            assert siege.ended() == 70
            assert "database is locked" in siege.said()
            assert "End the program that holds it" in siege.said()
            siege.start(before="tests.faults.planted:do_not_wait_long")
            assert not siege.serves()
            assert siege.ended() == 4
            assert "database is locked" in siege.said()
        assert siege.problems() == []
        goes_on(siege)


def test_a_wall_clock_that_leaps(nursery: Nursery, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before="tests.faults.planted:step_clock", environment={"CLOCK_FILE": str(clock)})
        assert siege.serves(), siege.said()
        for seconds in (3600.0, -3600.0, 10 * YEAR_SECONDS, -10 * YEAR_SECONDS, 0.0):
            siege.more(4)
            draft = tmp_path / "draft"
            draft.write_text(str(seconds))
            draft.replace(clock)
            time.sleep(1.1)  # a resync, at which the age of everything is looked at
        siege.more(4)
        siege.kill()
        assert siege.problems() == []
        assert aged(siege) == []
        goes_on(siege)


def aged(siege: Siege) -> list[object]:
    """Return what happened for the sake of time alone."""
    store = open_store(siege.url, CELL)
    events = [event for entry in store.entries(0) for event in entry.events]
    store.close()
    return [
        event
        for event in events
        if isinstance(event, JobForgotten | MachineDown)
        or (isinstance(event, TasksEvicted) and event.cause is Eviction.MACHINE_LOST)
    ]


@pytest.mark.postgres
def test_a_database_server_that_crashes(nursery: Nursery, tmp_path: Path) -> None:
    with durable_server() as server, Siege(nursery, tmp_path, server.fresh_url()) as siege:
        siege.found_cell()
        siege.begin()
        for _ in range(2):
            siege.start()
            assert siege.serves(), siege.said()
            siege.more(4)
            server.crash()
            assert siege.ended() == 70
            assert "The store may not have the last write" in siege.said()
            siege.start()
            assert not siege.serves()
            assert siege.ended() == 4
            assert "does not answer" in siege.said()
            server.start_again()
            assert siege.problems() == []
        goes_on(siege)
