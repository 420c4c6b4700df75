"""Two applications, applied, changed, undone and pruned by a user's commands: a shop whose web site waits for
its database, and a pipeline whose second stage fails the first time.

test_guides.py types the commands of docs/how-to/applications.md; the refusal that it shows is said here.
"""

import re
from collections.abc import Iterator

import pytest

from borgish.vocabulary import Outcome
from tests.cells import ROOT, RealCell
from tests.documents import blocks, page
from tests.e2e.watched import PATIENCE_SECONDS, tasks_of, watched_cell

APPS = ROOT / "configs" / "apps"
SHOP, PIPELINE = APPS / "shop.yaml", APPS / "pipeline.jsonnet"
PATIENCE = ("--timeout", f"{PATIENCE_SECONDS:g}s")
ANN = ("--user", "ann")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    with watched_cell(tmp_path_factory.mktemp("apps") / "cell", machines=3) as made:
        yield made


class Told:
    """A cell, and what each of its commands said."""

    def __init__(self, cell: RealCell) -> None:
        self.cell = cell
        self.said: list[set[str]] = []

    def __call__(self, *words: object, code: int = 0) -> str:
        done = self.cell.borgctl(*words)
        assert done.code == code, done
        self.said.append({normal(line) for line in (done.out + done.err).splitlines()})
        return done.out + done.err

    def has_said(self, example: list[str]) -> bool:
        """Return whether this is all that one of them said, in any order; "..." stands for more lines."""
        lines = {normal(line) for line in example}
        return any(lines == said or ("..." in lines and lines - {"..."} <= said) for said in self.said)


def test_the_stories_of_the_documentation(cell: RealCell) -> None:
    say = Told(cell)
    shop(cell, say)
    pipeline(cell, say)
    (refused,) = [block.lines for block in blocks(page("how-to/applications")) if block.language == "text"]
    assert say.has_said(refused)


def shop(cell: RealCell, say: Told) -> None:
    first = say("apply", SHOP, *ANN, *PATIENCE)
    assert "ann/shop applied, version 1: 3 created" in first
    (db,), (web,) = tasks_of(cell, "ann/db").values(), tasks_of(cell, "ann/web").values()
    assert web.attempt > db.attempt, "it was placed after the database was healthy"
    assert cell.items("cron", "show", "clean-up")["cron"]["name"] == "ann/clean-up"

    say("job", "scale", "web", 3)
    cell.ok("app", "wait", "shop", *PATIENCE)
    assert "exactly like this" in say("apply", SHOP, *ANN)
    would = say("diff", "-f", SHOP, *ANN, "--var", "release=2")
    assert "~ ann/web: updated" in would
    changed = say("apply", SHOP, *ANN, "--var", "release=2")
    assert "version 2: 2 unchanged, 1 updated" in changed
    assert {task.version for task in tasks_of(cell, "ann/web").values()} == {2}
    assert len(tasks_of(cell, "ann/web")) == 3, "the file does not say how many, and somebody did"
    say("app", "status", "shop")
    say("app", "undo", "shop")
    say("app", "history", "shop")

    say("job", "show", "web", "--owners")
    cell.ok("job", "scale", "db", 2)
    taken = cell.folder.parent / "taken.yaml"
    taken.write_text(SHOP.read_text().replace("name: db\n", "name: db\ntasks: 1\n"))
    say("apply", taken, *ANN, code=1)
    say("apply", taken, *ANN, *PATIENCE, "--take-over")
    assert len(tasks_of(cell, "ann/db")) == 1

    smaller = cell.folder.parent / "smaller.yaml"
    smaller.write_text(SHOP.read_text().partition("---\nkind: cron")[0])
    assert "not in the files" in say("apply", smaller, *ANN, "--dry-run")
    asked = say("apply", smaller, *ANN, "--prune", code=2)
    assert "nothing was done: this ends ann/clean-up" in asked
    say("apply", smaller, *ANN, *PATIENCE, "--prune", "--yes")
    assert cell.items("cron", "list") == []
    say("app", "kill", "--yes", "shop")
    say("app", "remove", "--yes", "shop")


def pipeline(cell: RealCell, say: Told) -> None:
    failed = say("apply", PIPELINE, *ANN, code=1)
    assert "row 17 has no date" in failed
    say("app", "status", "pipeline", code=1)
    mended = say("apply", PIPELINE, *ANN, "--var", "strict=false", *PATIENCE)
    assert "version 2: 2 unchanged, 1 started again" in mended
    cell.ok("app", "wait", "pipeline", "--for", "finished", *PATIENCE)
    say("app", "run", "pipeline", *PATIENCE)
    again = say("app", "run", "pipeline", "--from", "transform", *PATIENCE)
    assert "ann/pipeline runs: transform, load" in again

    say("app", "undo", "pipeline", code=1)
    strict, loaded = tasks_of(cell, "ann/transform")["ann/transform/0"], tasks_of(cell, "ann/load")
    assert (strict.version, strict.exit_code) == (3, 1), "the version before was strict"
    assert [task.outcome for task in loaded.values()] == [Outcome.FINISHED], "it had run, and does not again"

    smaller = cell.folder.parent / "smaller.jsonnet"
    smaller.write_text("".join(line for line in PIPELINE.open() if "b.stage('load'" not in line))
    pruned = say("apply", smaller, *ANN, "--var", "strict=false", "--prune", "--yes", *PATIENCE)
    assert "version 4: 1 unchanged, 1 started again, 1 ended" in pruned
    there = cell.items("app", "show", "pipeline")
    assert (there["stages"], there["app"]["outcome"]) == (["ann/extract", "ann/transform"], "finished")
    assert tasks_of(cell, "ann/load") == loaded, "it was over: it stays to be looked at, by itself"
    assert cell.items("job", "show", "load")["job"]["app"] == ""
    say("app", "list")


def normal(text: str) -> str:
    """Return a line without what differs from run to run: numbers, times, and gaps of tables."""
    text = re.sub(r"\d[\d:.-]*", "N", text.strip())
    text = re.sub(r"(\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\bN N CES?T", "TIME", text)
    return re.sub(r"\s+", " ", text).replace("tasks", "task")
