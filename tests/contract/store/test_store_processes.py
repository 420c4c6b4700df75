"""What needs more than one process: sudden death, two masters, readers from outside."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from borgish.errors import UnsafeConfiguration
from borgish.store.open import open_store
from borgish.store.sql import SqlStore
from borgish.store.tables import differences
from tests.contract.store.places import InDatabase, read_from_outside
from tests.contract.store.samples import CELL, Life

ROOT = Path(__file__).parents[3]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    """Return the next line a process prints. Fails with its exit code and stderr when it prints no more."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, errors = process.communicate()
        pytest.fail(f"{process.args!r} ended with exit code {process.returncode} before its line: {errors}")
    return line


def test_a_process_that_ends_too_early_is_reported_with_its_exit_code_and_stderr() -> None:
    with running("-c", "import sys; print('one'); sys.exit('no such database')") as process:
        assert next_line(process) == "one\n"
        with pytest.raises(pytest.fail.Exception, match=r"(?s)exit code 1 .*no such database"):
            next_line(process)


def test_sudden_death_loses_nothing_that_was_acknowledged(database: InDatabase) -> None:
    with running("-m", "tests.contract.store.appender", database.url) as process:
        acknowledged = [int(next_line(process)) for _ in range(40)]
        process.kill()
        assert process.stdout is not None
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
        process.wait()  # its output ends before the kernel has let go of its lock

    store = database.open()
    assert isinstance(store, SqlStore)
    cell = store.load()

    assert cell.position >= acknowledged[-1] >= 40
    assert differences(cell, store.table_rows) == []
    Life(store).do()  # and it goes on
    store.close()


def test_a_second_master_is_told_who_holds_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cell.db"
    with running("-m", "tests.contract.store.appender", url) as holder:
        assert next_line(holder)
        with pytest.raises(UnsafeConfiguration) as caught:
            open_store(url, CELL)

    assert f"process {holder.pid} holds {tmp_path}/cell.lock" in caught.value.message
    assert "Stop that borgmaster" in caught.value.hint
    assert caught.value.exit_code == 74


def test_one_file_has_one_lock_whatever_its_name_and_the_folder_of_the_master(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/cell.db", CELL, lock_path=tmp_path / "a" / "cell.lock")
    (tmp_path / "alias.db").symlink_to(tmp_path / "cell.db")

    with pytest.raises(UnsafeConfiguration, match="in use"):
        open_store(f"sqlite:///{tmp_path}/alias.db", CELL, lock_path=tmp_path / "b" / "cell.lock")
    with pytest.raises(UnsafeConfiguration, match="in use"):
        open_store(f"sqlite:///{tmp_path}/other.db", CELL, lock_path=tmp_path / "a" / "cell.lock")
    store.close()

    open_store(f"sqlite:///{tmp_path}/alias.db", CELL, lock_path=tmp_path / "b" / "cell.lock").close()


def test_people_read_the_tables_while_the_cell_runs(tmp_path: Path) -> None:
    file = tmp_path / "cell.db"
    life = Life(open_store(f"sqlite:///{file}", CELL))
    life.story()

    # A process of its own: a second connection in this one would share SQLite's locks with the first.
    query = "select state, count(*) from tasks group by state order by state"
    program = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1], uri=True).execute(sys.argv[2]).fetchall())"
    )
    command = [sys.executable, "-c", program, f"file:{file}?mode=ro", query]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said.strip() == "[('dead', 1), ('pending', 1), ('running', 1)]"
    life.do()
    life.store.close()
    assert read_from_outside(file, query) == [("dead", 1), ("pending", 1), ("running", 1)]


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/made/cell.db", CELL)
    Life(store).story()

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "made").iterdir()}
    assert modes == dict.fromkeys(["cell.db", "cell.db-wal", "cell.db-shm", "cell.lock"], 0o600)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    store.close()
