"""How a real borgmaster ends when its store is gone, taken or damaged, and how it is brought back."""

import contextlib
import http.client
import json
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from borgish.errors import Fenced, StoreDamaged
from borgish.store.open import open_store
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint
from tests.contract.store.places import InDatabase
from tests.faults.judge import CELL
from tests.faults.ledger import JOB, Request
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege

LATE = ("late0", "late1", "late2")
_COMMAND = re.compile(r"To go on from there: (borgmaster .*)")


@pytest.fixture
def siege(nursery: Nursery, tmp_path: Path, url: str) -> Iterator[Siege]:
    """A cell that has worked for a while, did something after its last checkpoint, and lost its master."""
    with Siege(nursery, tmp_path, url) as made:
        made.found_cell()
        made.begin()
        made.start()
        assert made.serves(), made.said()
        made.more(12)
        made.go_home()
        assert made.ask(Request("/v1/checkpoints", b"{}"))[0] == 201
        for name in LATE:
            assert made.ask(submission(name))[0] == 201
        made.until(lambda: all(running(made, f"ann/{name}/0") for name in LATE))
        made.kill()
        yield made


def submission(name: str) -> Request:
    return Request("/v1/jobs?user=ann", JOB.format(name=name, tasks=1).encode())


def running(siege: Siege, task: str) -> set[int]:
    """Return the attempts of a task that run on the machines."""
    everywhere = siege.machines.running().values()
    return {attempt for there in everywhere for name, attempt in there if name == task}


def place(siege: Siege) -> InDatabase:
    return InDatabase(siege.url)


def newest_checkpoint(siege: Siege) -> int:
    with closing(open_store(siege.url, CELL)) as store:
        return store.checkpoints()[0].position


def refused_as_damaged(siege: Siege) -> list[str]:
    """Start on a damaged store; return the arguments of the command that it says."""
    siege.start()
    assert not siege.serves()
    assert siege.ended() == StoreDamaged.exit_code == 72, siege.said()
    assert "Nothing was changed" in siege.said()
    found = _COMMAND.search(siege.said())
    assert found, siege.said()
    command, *arguments = shlex.split(found[1])
    assert command == "borgmaster"
    return arguments


def test_a_damaged_store_names_what_is_good_and_the_command_that_goes_on(siege: Siege) -> None:
    newest = newest_checkpoint(siege)
    place(siege).garble_entry(newest + 1)
    before = {name: running(siege, f"ann/{name}/0") for name in LATE}

    arguments = refused_as_damaged(siege)
    assert f"Journal entry {newest + 1} cannot be read" in siege.said()
    assert f"The checkpoint at {newest} is good" in siege.said()
    siege.run(arguments)
    assert siege.ended() == 0, siege.said()
    assert all(f"SubmitJob  ann/{name}" in siege.said() for name in LATE)  # each that is lost
    assert f"lost-{newest + 1}.jsonl" in siege.said()

    siege.start()
    assert siege.serves(), siege.said()
    for name in LATE:  # nobody remembers it: it is done again, beside what still runs of it
        assert siege.ask(submission(name))[0] == 201
    siege.until(lambda: all(len(running(siege, f"ann/{name}/0")) == 2 for name in LATE))
    assert all(before[name] < running(siege, f"ann/{name}/0") for name in LATE)
    siege.kill()
    siege.run([*arguments[: arguments.index("--recover")], "--recover"])
    assert siege.ended() == 0
    assert "The store is sound" in siege.said()


def test_a_checkpoint_that_is_passed_over_is_named_in_the_log(siege: Siege) -> None:
    newest = newest_checkpoint(siege)
    place(siege).damage_checkpoint(newest)
    siege.start()
    assert siege.serves(), siege.said()
    why = "The checkpoint's SHA-256 does not match"
    assert f"The checkpoint at {newest} is passed over: {why}" in siege.said()


@pytest.mark.parametrize("url", [""])  # a server's database is no file of ours
def test_a_checkpoint_that_was_exported_brings_a_lost_database_back(siege: Siege) -> None:
    with closing(open_store(siege.url, CELL)) as store:
        info, stored = store.checkpoint_body(store.checkpoints()[0].position)
    header = CheckpointHeader(CELL, info.position, info.at, info.reason, info.name, info.bytes, info.sha256)
    exported = siege.folder / "exported.checkpoint"
    exported.write_bytes(pack_checkpoint(header, stored))
    (siege.folder / "cell.db").write_bytes(b"not what it was" * 1000)
    shutil.rmtree(siege.folder / "cell.checkpoints")

    siege.start()
    assert not siege.serves()
    assert siege.ended() == 72
    assert "--recover FILE" in siege.said()
    siege.run(["--config", str(siege.folder / "cell.toml"), "--recover", str(exported)])
    assert siege.ended() == 0, siege.said()
    assert "cell.db.damaged-1" in siege.said()
    siege.start()
    assert siege.serves(), siege.said()


def lose_log(folder: Path) -> None:
    """Leave of the database what SQLite has carried over into it: of a young one next to nothing."""
    for name in ("cell.db-wal", "cell.db-shm"):
        (folder / name).unlink()


def lose_database(folder: Path) -> None:
    for path in folder.glob("cell.db*"):
        path.unlink()


@pytest.mark.parametrize("lose", [lose_log, lose_database])
def test_a_young_cell_that_lost_its_log_or_its_database_is_brought_back(
    nursery: Nursery, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """Minutes old: no checkpoint was due yet, and nobody asked for one."""
    with Siege(nursery, tmp_path) as siege:
        siege.start()
        assert siege.serves(), siege.said()
        siege.join_machines()
        joined = json.loads(siege.get("/v1/status")[1])["position"]
        # A file is kept each time the journal has doubled: with these there is one that has both machines,
        # wherever the last one before them was.
        for number in range(2 * joined):
            assert siege.ask(submission(f"late{number}"))[0] == 201
        siege.until(lambda: bool(running(siege, "ann/late0/0")))
        filed = siege.folder / "cell.checkpoints"
        siege.until(lambda: any(int(path.stem) >= joined for path in filed.glob("*.checkpoint")))
        siege.kill()
        newest = max((path for path in filed.glob("*.checkpoint")), key=lambda path: int(path.stem))
        assert newest.stat().st_mode & 0o077 == 0
        lose(siege.folder)

        arguments = refused_as_damaged(siege)
        assert arguments[-2:] == ["--recover", newest.stem]
        assert str(newest) in siege.said()
        siege.run([*arguments[:-1]])  # without the position, it is the newest one
        assert siege.ended() == 0, siege.said()
        siege.start()
        assert siege.serves(), siege.said()
        machines = json.loads(siege.get("/v1/machines")[1])["items"]
        assert {machine["name"] for machine in machines} == set(siege.machines.joins)
        siege.kill()
        siege.start()  # what is in the files is older than what it has now
        assert siege.serves(), siege.said()


def test_an_older_database_beside_newer_files_is_gone_on_from_only_when_told(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Without any machine that could tell what the database has lost."""
    with Siege(nursery, tmp_path) as siege:
        siege.start()
        assert siege.serves(), siege.said()
        siege.signal(signal.SIGTERM)
        assert siege.ended() == 0
        shutil.copy(siege.folder / "cell.db", siege.folder / "older.db")
        siege.begin()
        siege.start()
        assert siege.serves(), siege.said()
        siege.more(6)
        siege.go_home()
        siege.signal(signal.SIGTERM)
        assert siege.ended() == 0
        lose_database(siege.folder)
        shutil.copy(siege.folder / "older.db", siege.folder / "cell.db")
        refused_as_damaged(siege)
        assert "--take-over-from-older-store" in siege.said()
        siege.run(["--config", str(siege.folder / "cell.toml"), "--take-over-from-older-store"])
        assert siege.serves(), siege.said()
        siege.until(lambda: json.loads(siege.get("/v1/status")[1])["position"] > 1_000_000)
        siege.kill()
        siege.start()
        assert siege.serves(), siege.said()


def test_one_who_does_not_lead_any_more_writes_nothing(siege: Siege) -> None:
    siege.start()
    assert siege.serves(), siege.said()
    place(siege).usurp()
    [(before,)] = place(siege).read("SELECT max(position) FROM journal")
    with contextlib.suppress(OSError, http.client.HTTPException):
        status, _ = siege.ask(submission("fenced"))
        assert status >= 500  # on a busy machine the end of the process may still answer that it failed
    assert siege.ended() == Fenced.exit_code == 71
    assert f"does not lead cell '{CELL}'" in siege.said()
    assert "nothing was written here" in siege.said()
    assert place(siege).read("SELECT max(position) FROM journal") == [(before,)]
