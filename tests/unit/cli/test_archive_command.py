"""borgctl archive against a small master: the files, the schema as it is told, and what is not whole."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from borgish.cli.commands import archive
from borgish.cli.commands.archive import _lines
from borgish.wire.api import Problem
from borgish.wire.archive import ArchiveBegin, ArchiveEnd, ArchivePiece, AttemptRow, EventRow, UsageRow
from tests.cells import ROOT
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster

Out = pytest.CaptureFixture[str]
NOON = 1_800_000_000.0
MIB = 1024**2
BEGIN = ArchivePiece(begin=ArchiveBegin("c", "9.9", NOON, None, NOON + 9, 3, 40))
PROGRAM = ("ann/web/0", "ann", "ann/web", 0, "job", "m1", "batch", 100, 2000, 100 * MIB, 0)
EVENTS = [
    EventRow(
        4, 0, NOON, 1, 2, "ann", "kill", "r1", "ann/web", "done", "TasksEnded", "ann/web", None, 2, "{}"
    ),
    EventRow(40, 0, NOON + 3600.25, 1, 2, "ann", "kill", "r2", "ann/web", "gone", None, None, None, 0, None),
]
ATTEMPTS = [
    AttemptRow(2, *PROGRAM, NOON - 3599.75, NOON + 0.25, 4, "machine lost", "m1 is down", None, 9, 3),
    AttemptRow(3, *PROGRAM, NOON + 1800.25),
    AttemptRow(3, "bob/db/7", "bob", "bob/db", 7, "alloc_set", "m2", "free", 0, 1, 1, 1, NOON),
]
USAGE = [
    UsageRow(NOON + at, "m1", "ann/web/0", "ann", "ann/web", 0, 3, 100 * at, 11 * at * MIB)
    for at in range(1, 11)
]
ROWS = ArchivePiece(events=EVENTS, attempts=ATTEMPTS, usage=USAGE)
END = ArchivePiece(end=ArchiveEnd(2, 3, 10))


def lines(*pieces: ArchivePiece) -> bytes:
    return b"".join(msgspec.json.encode(piece) + b"\n" for piece in pieces)


@pytest.fixture(autouse=True)
def _told(master: FakeMaster) -> None:
    master.answers["GET /v1/archive"] = lines(BEGIN, ROWS, END)


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    made = tmp_path / "made"
    assert run("archive", "export", "--to", made) == 0
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / f"{table}.parquet").to_pylist()
    return found


def told() -> str:
    return (ROOT / "configs" / "archive.md").read_text()


def test_all_rows_and_a_manifest(run: Run, tmp_path: Path, capsys: Out, master: FakeMaster) -> None:
    folder = tmp_path / "made"
    assert run("archive", "export", "--to", folder) == 0
    assert names(folder) == ["attempts.parquet", "events.parquet", "manifest.json", "usage.parquet"]
    for table, wanted in (("events", EVENTS), ("attempts", ATTEMPTS), ("usage", USAGE)):
        found = rows(folder, table)
        assert len(found) == len(wanted)
        for row, one in zip(found, wanted, strict=True):
            moments = {key: value.timestamp() for key, value in row.items() if hasattr(value, "timestamp")}
            assert row | moments == msgspec.structs.asdict(one)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["cell"], manifest["first_position"], manifest["last_position"]) == ("c", 4, 40)
    assert {name: file["rows"] for name, file in manifest["files"].items()} == {
        "events.parquet": 2,
        "attempts.parquet": 3,
        "usage.parquet": 10,
    }
    said = capsys.readouterr()
    assert said.out == (
        f"wrote 2 events, 3 attempts and 10 samples of usage to {folder}, of positions 4 to 40\n"
    )
    assert said.err == "2 events, 3 attempts and 10 samples of usage so far\n"
    assert master.asked[-1].query == {}


def test_the_time_is_asked_for(run: Run, master: FakeMaster, tmp_path: Path) -> None:
    assert (
        run("archive", "export", "--to", tmp_path / "a", "--since", "2h", "--until", "2026-01-01T00:00Z") == 0
    )
    assert master.asked[-1].query == {"since": "2h", "until": "2026-01-01T00:00:00+00:00"}


def test_the_schema_is_as_it_is_told(folder: Path) -> None:
    sections = re.findall(r"^## (\w+)\.parquet\n(.*?)(?=^## )", told(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == list(archive.TABLES)
    for name, text in sections:
        columns = re.findall(r"^\| (\w+) \| (.*) \|$", text, re.MULTILINE)[1:]
        schema = pq.read_schema(folder / f"{name}.parquet")
        assert [column for column, _ in columns] == schema.names
        empty = {column for column, meaning in columns if "empty" in meaning or "where it is" in meaning}
        assert empty - {field.name for field in schema if field.nullable} == set()


def test_the_three_questions_are_answered(folder: Path) -> None:
    queries = re.findall(r"```sql\n(.*?)```", told(), re.DOTALL)
    assert asked(folder, queries) == [
        [["ann", "batch", 3.0]],  # an hour and half an hour, of two cores
        [["machine lost", "m1", 1, 1]],
        [["ann/web", 48, 105, 10]],
    ]


def asked(folder: Path, queries: list[str]) -> Any:
    """Ask in a process of its own: at the end of one DuckDB has much to say about itself."""
    ask = (
        "import duckdb, json, sys; "
        "print(json.dumps([duckdb.execute(query).fetchall() for query in json.load(sys.stdin)]))"
    )
    said = subprocess.run(
        [sys.executable, "-c", ask], cwd=folder, input=json.dumps(queries), capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_rows_are_written_a_group_at_a_time(
    run: Run, master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "GROUP_ROWS", 4)
    piece = ArchivePiece(usage=USAGE[:3])
    end = ArchivePiece(end=ArchiveEnd(0, 0, 15))
    master.answers["GET /v1/archive"] = lines(BEGIN, *[piece] * 5, end)
    assert run("archive", "export", "--to", tmp_path / "a") == 0
    file = pq.ParquetFile(tmp_path / "a" / "usage.parquet")
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert groups == [6, 6, 3]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        lines(BEGIN, ROWS),
        lines(BEGIN, ROWS, END)[:-9],
        lines(ROWS, END),
        lines(BEGIN, ROWS, ArchivePiece(end=ArchiveEnd(2, 3, 11))),
        lines(BEGIN, ROWS) + b"<html>\n",
        lines(BEGIN, ROWS, ArchivePiece(problem="entry 7 cannot be read", hint="look")),
        Problem("Gone", 410, "what was before noon is no longer kept", hint="--since noon"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_what_is_not_whole_leaves_nothing(
    run: Run, master: FakeMaster, tmp_path: Path, answer: object, *, there: bool
) -> None:
    master.answers["GET /v1/archive"] = answer
    folder = tmp_path / "made"
    if there:
        folder.mkdir()
    assert run("archive", "export", "--to", folder) == 1
    assert folder.exists() is there
    assert not there or names(folder) == []


def test_what_came_in_the_way_is_said(run: Run, master: FakeMaster, tmp_path: Path, capsys: Out) -> None:
    piece = ArchivePiece(problem="entry 7 cannot be read", hint="look")
    master.answers["GET /v1/archive"] = lines(BEGIN, piece)
    run("archive", "export", "--to", tmp_path / "a")
    assert "error: entry 7 cannot be read\nhint: look\n" in capsys.readouterr().err
    master.answers["GET /v1/archive"] = lines(BEGIN)
    run("archive", "export", "--to", tmp_path / "a")
    assert "the master's answer broke off, and no archive was written" in capsys.readouterr().err


def test_only_into_a_folder_of_its_own(
    run: Run, folder: Path, tmp_path: Path, master: FakeMaster, capsys: Out
) -> None:
    before, asked = names(folder), len(master.asked)
    assert run("archive", "export", "--to", folder) == 1
    assert "is not empty: attempts.parquet is in it" in capsys.readouterr().err
    assert names(folder) == before
    file = tmp_path / "file"
    file.touch()
    assert run("archive", "export", "--to", file) == 1
    assert run("archive", "export", "--to", tmp_path / "no" / "such") == 1
    said = capsys.readouterr().err
    assert "file: file exists" in said
    assert "such: no such file or directory" in said
    cut_off = tmp_path / "cut"
    cut_off.mkdir()
    (cut_off / "events.parquet.part").touch()
    assert run("archive", "export", "--to", cut_off) == 1
    assert "has an incomplete archive" in capsys.readouterr().err
    assert len(master.asked) == asked


def test_without_pyarrow_it_says_how_to_get_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert run("archive", "export", "--to", tmp_path / "a") == 1
    assert "pip install 'borgish[archive]'" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [([], []), ([b"a\nb", b"c\n", b"\nd"], [b"a", b"bc", b""]), ([b"a", b"b", b"c\n"], [b"abc"])],
)
def test_lines_are_put_together(pieces: Sequence[bytes], wanted: list[bytes]) -> None:
    assert list(_lines(pieces)) == wanted
