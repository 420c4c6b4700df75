"""fauxmaster opens what a cell left behind: its database, or an exported checkpoint."""

from pathlib import Path

import pytest

from borgish.bands import Bands
from borgish.cell.events import MachineUp, QuotaSet, RulesSet
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Cell, Rules
from borgish.errors import BorgishError, NotFound, StoreDamaged
from borgish.master.past.checkpoint_contents import packed as export
from borgish.resources import Resources
from borgish.sim import fauxmaster
from borgish.sim.faux.opened import opened
from borgish.sim.faux.session import Session
from borgish.store.base import CheckpointInfo
from borgish.store.codec import PackedJournal, compress
from borgish.store.open import open_store
from borgish.vocabulary import Band
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint, unpack_checkpoint
from tests.contract.store.samples import CELL, Life, body_of

JOB = "name: more\nuser: ann\nrun: ['true']\nresources: {cpu: 1, ram: 1GiB}\n"


def open_cell(file: Path) -> Cell:
    with opened(str(file)) as there:
        return Session(there).cell


def packed(info: CheckpointInfo, stored: bytes, cell: str = CELL) -> bytes:
    header = CheckpointHeader(cell, info.position, info.at, info.reason, info.name, info.bytes, info.sha256)
    return pack_checkpoint(header, stored)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(open_store(f"sqlite:///{tmp_path}/cell.db", CELL))
    made.story()
    return made


@pytest.fixture
def exported(life: Life, tmp_path: Path) -> Path:
    file = tmp_path / "exported"
    file.write_bytes(packed(*life.store.checkpoint_body(life.checkpoint().position)))
    return file


def test_checkpoint_and_database_show_the_same_cell(life: Life, exported: Path, tmp_path: Path) -> None:
    assert body_of(open_cell(exported)) == body_of(open_cell(tmp_path / "cell.db")) == life.body()
    life.store.close()


def test_an_export_of_an_older_version_is_followed(
    life: Life, exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal does not say what was asked."""
    (info,) = life.store.checkpoints()
    entry = life.do(MachineUp("m1"))
    life.store.close()
    line = (
        b'{"position":%d,"at":%r,"timeline":1,"epoch":1,"actor":"tester","cause":"SetMachineUp",'
        b'"events":[{"type":"MachineUp","machine":"m1"}],"request_id":"r7","digest":"d"}\n'
    ) % (entry.position, entry.at)
    journal = PackedJournal(compress(line), 1, entry.position)
    header, stored = unpack_checkpoint(exported.read_bytes())
    assert header.position == info.position
    exported.write_bytes(export(CELL, info, stored, journal))

    assert body_of(open_cell(exported)) == life.body()
    monkeypatch.setattr("sys.argv", ["fauxmaster", "replay", str(exported)])
    fauxmaster.main()
    assert "left out: 1 entries of older versions of borgish: their commands are not recorded" in (
        capsys.readouterr().out
    )


def test_room_is_told_whatever_quotas_say_and_with_the_bands_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(open_store(f"sqlite:///{tmp_path}/cell.db", CELL))
    life.story()
    life.do(RulesSet(Rules(Bands(names={"prod": Band.PRODUCTION}), quota_required=True)))
    life.do(QuotaSet(Quota("ann", Band.PRODUCTION, Resources(1, 1))))
    life.store.close()
    job = tmp_path / "more.yaml"
    job.write_text(f"{JOB}priority: prod\n")
    monkeypatch.setattr("sys.argv", ["fauxmaster", "fits", str(tmp_path / "cell.db"), str(job)])

    fauxmaster.main()

    said = capsys.readouterr().out
    assert "3 more tasks of more fit (m1: 3)" in said
    assert "4 of one job, if 2 tasks of lower priority leave for them" in said


@pytest.mark.parametrize("name", ["exported", "cell.db"])
@pytest.mark.parametrize("question", ["show", "fits"])
def test_both_answer_every_question(
    life: Life,
    exported: Path,
    tmp_path: Path,
    name: str,
    question: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exported.exists()
    life.store.close()
    job = tmp_path / "more.yaml"
    job.write_text(JOB)
    asked = ["fauxmaster", question, str(tmp_path / name), *([str(job)] if question == "fits" else [])]
    monkeypatch.setattr("sys.argv", asked)

    fauxmaster.main()

    said = capsys.readouterr().out
    words = "job ann/web: 1 pending, 1 running, 1 dead" if question == "show" else "more tasks of more fit"
    assert words in said


def test_a_torn_checkpoint_is_refused(exported: Path) -> None:
    exported.write_bytes(exported.read_bytes()[:-1])
    with pytest.raises(StoreDamaged, match="truncated"):
        open_cell(exported)


def test_a_checkpoint_that_holds_something_else_is_refused(life: Life, exported: Path) -> None:
    info, stored = life.store.checkpoint_body(life.cell.position)
    exported.write_bytes(packed(info, stored, cell="other"))
    with pytest.raises(BorgishError, match="of cell 'testing', not of 'other'"):
        open_cell(exported)
    life.store.close()


@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_other_files_are_told_apart(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NotFound):
        open_cell(file)
