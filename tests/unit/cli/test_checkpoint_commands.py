"""borgctl checkpoint against a small master: names, verdicts, and the files that are written."""

import hashlib
import json
import stat
from pathlib import Path

import msgspec
import pytest

from borgish.cli.commands.checkpoint import match_checkpoint, write_exported
from borgish.errors import Conflict, NotFound
from borgish.wire.api import CheckpointView, Problem
from borgish.wire.api_past import CheckpointContents, CheckpointDetail, CheckpointVerdict, Imported
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster

Out = pytest.CaptureFixture[str]
OLD = CheckpointView(7, NOW, "asked for by ann", 2048, "cd" * 32, "noon")
NEW = CheckpointView(9, NOW, "periodic", 1024, "ab" * 32)
CONTENTS = CheckpointContents(1, 4, 3, 2, 5, 40, 10, 20, 10, 4)
STORED = b"as stored\n\xff"
FILE = pack_checkpoint(
    CheckpointHeader("c", 7, 1.5, "r", "noon", len(STORED), hashlib.sha256(STORED).hexdigest()), STORED
)


@pytest.fixture(autouse=True)
def _kept(master: FakeMaster) -> None:
    master.answers |= {
        "GET /v1/checkpoints": {"items": [NEW, OLD]},
        "GET /v1/checkpoints/7": CheckpointDetail(OLD, CONTENTS),
        "GET /v1/checkpoints/9": CheckpointDetail(NEW, None, "its SHA-256 does not match"),
        "POST /v1/checkpoints/7/verify": CheckpointVerdict(7, "noon", good=True, text="good: 3 machines"),
        "POST /v1/checkpoints/9/verify": CheckpointVerdict(9, "", good=False, text="torn \x1b[2J"),
        "GET /v1/checkpoints/7/body": FILE,
        "GET /v1/checkpoints/9/body": FILE[:-1],
        "POST /v1/checkpoints/9/delete": NEW,
        "POST /v1/checkpoints/7/delete": Problem(
            "Conflict", 409, "it is the last good one", hint="make more"
        ),
    }


@pytest.mark.parametrize("text", ["", "8", "noo", "07", "-7", "NOON", "all"])
def test_only_whole_names_and_positions_are_taken(text: str) -> None:
    assert match_checkpoint("noon", [NEW, OLD]) == match_checkpoint("7", [NEW, OLD]) == OLD
    with pytest.raises(NotFound) as caught:
        match_checkpoint(text, [NEW, OLD])
    assert caught.value.hint == "There are: 9, noon"


def test_with_none_kept_the_way_out_is_to_make_one() -> None:
    with pytest.raises(NotFound) as caught:
        match_checkpoint("noon", [])
    assert "checkpoint create" in caught.value.hint


def test_a_name_is_given(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["POST /v1/checkpoints"] = OLD
    assert run("checkpoint", "create", "--name", "noon") == 0
    assert json.loads(master.asked[-1].body) == {"name": "noon"}
    assert capsys.readouterr().out.startswith("checkpoint noon at position 7, 2KiB, sha256 cdcd")


def test_a_checkpoint_is_shown_with_what_is_in_it(run: Run, capsys: Out) -> None:
    assert run("checkpoint", "show", "noon") == 0
    shown = capsys.readouterr().out
    assert "tasks     40: 10 pending, 20 running, 10 dead (4 finished)\n" in shown
    assert "machines  2 of 3 up\n" in shown
    assert "problem" not in shown
    assert run("checkpoint", "show", "9") == 0
    assert "problem   its SHA-256 does not match\n" in capsys.readouterr().out


def test_a_checkpoint_is_shown_to_programs(run: Run, capsys: Out) -> None:
    assert run("checkpoint", "show", "7", "-o", "json") == 0
    shown = msgspec.json.decode(capsys.readouterr().out, type=CheckpointDetail)
    assert shown == CheckpointDetail(OLD, CONTENTS)
    assert run("checkpoint", "show", "noon", "-o", "name") == 0
    assert capsys.readouterr().out == "7\n"


@pytest.mark.parametrize("which", [(), ("all",), ("9",)])
def test_a_bad_one_among_them_is_a_failure(run: Run, capsys: Out, which: tuple[str, ...]) -> None:
    assert run("checkpoint", "verify", *which) == 1
    shown = capsys.readouterr().out
    assert "no    torn \\x1b[2J\n" in shown
    assert ("good: 3 machines" in shown) == (which != ("9",))


def test_a_good_one_is_none(run: Run, capsys: Out) -> None:
    assert run("checkpoint", "verify", "noon", "-o", "json") == 0
    assert [item["good"] for item in json.loads(capsys.readouterr().out)] == [True]


def test_a_checkpoint_is_exported_for_its_owner_only(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "noon.checkpoint"
    assert run("checkpoint", "export", "noon", file) == 0
    assert file.read_bytes() == FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"noon.checkpoint", "a.token"}


def test_a_file_is_written_over_only_by_force(
    master: FakeMaster, run: Run, tmp_path: Path, capsys: Out
) -> None:
    file = tmp_path / "kept"
    file.write_text("mine")
    assert run("checkpoint", "export", "noon", file) == 1
    assert file.read_text() == "mine"
    assert master.asked == []
    assert "--force" in capsys.readouterr().err
    assert run("checkpoint", "export", "noon", file, "--force") == 0
    assert file.read_bytes() == FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_whoever_was_faster_keeps_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("mine")
    with pytest.raises(Conflict):
        write_exported(file, b"other", force=False)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_where_nothing_can_be_written_is_said(run: Run, tmp_path: Path, capsys: Out) -> None:
    assert run("checkpoint", "export", "noon", tmp_path, "--force") == 1
    assert "directory" in capsys.readouterr().err


def test_a_folder_that_is_missing_is_named(run: Run, tmp_path: Path, capsys: Out) -> None:
    assert run("checkpoint", "export", "noon", tmp_path / "none" / "x") == 1
    said = capsys.readouterr().err
    assert f"error: {tmp_path / 'none'}: there is no such folder\n" in said
    assert "hint: Create it first" in said


def test_a_damaged_checkpoint_is_not_exported(run: Run, tmp_path: Path, capsys: Out) -> None:
    assert run("checkpoint", "export", "9", tmp_path / "file") == 1
    said = capsys.readouterr().err
    assert "truncated" in said
    assert "checkpoint verify" in said
    assert not (tmp_path / "file").exists()


def test_a_checkpoint_is_taken_in(master: FakeMaster, run: Run, tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "noon.checkpoint"
    file.write_bytes(FILE)
    master.answers["POST /v1/checkpoints/import"] = Imported(OLD, "history after it is not kept")
    assert run("checkpoint", "import", file, "--name", "noon") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("imported the checkpoint noon at position 7, 2KiB, sha256 cdcd")
    assert shown.err == "note: history after it is not kept\n"
    assert (master.asked[-1].body, master.asked[-1].query) == (FILE, {"name": "noon"})
    assert master.asked[-1].headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("content", [b"", b"something else", FILE[:-1], FILE + b"x"])
def test_a_damaged_file_is_not_sent(
    master: FakeMaster, run: Run, tmp_path: Path, capsys: Out, content: bytes
) -> None:
    file = tmp_path / "noon.checkpoint"
    file.write_bytes(content)
    assert run("checkpoint", "import", file) != 0
    assert "error: " in capsys.readouterr().err
    assert master.asked == []


def test_a_file_that_is_none_or_too_large_is_not_read(
    run: Run, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("checkpoint", "import", tmp_path / "none") == 1
    assert "no such file" in capsys.readouterr().err
    monkeypatch.setattr("borgish.cli.commands.checkpoint.CHECKPOINT_FILE_BYTES_MAX", 3)
    (tmp_path / "large").write_bytes(FILE)
    assert run("checkpoint", "import", tmp_path / "large") == 1
    assert "larger than any checkpoint" in capsys.readouterr().err


def test_a_list_shows_what_is_wrong(master: FakeMaster, run: Run, capsys: Out) -> None:
    bad = msgspec.structs.replace(NEW, problem="its SHA-256 does not match")
    master.answers["GET /v1/checkpoints"] = {"items": [bad, OLD]}
    assert run("checkpoint", "list") == 0
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert "its SHA-256 does not match" in first
    assert "asked for by ann" in second


def test_a_checkpoint_is_deleted_or_the_refusal_told(run: Run, capsys: Out) -> None:
    assert run("checkpoint", "delete", "--yes", "9") == 0
    assert capsys.readouterr().out.startswith("deleted the checkpoint at position 9, 1KiB")
    assert run("checkpoint", "delete", "--yes", "noon") == 1
    said = capsys.readouterr().err
    assert "last good one" in said
    assert "make more" in said
