"""Bad days of applications, against real daemons: a master that dies in an apply, two people at once, files
that are wrong, what never comes, and a rollback of the cell.
"""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from borgish.cli import local_cell
from borgish.errors import Invalid, NotFound, Unreachable
from borgish.failpoints import EXIT_CODE, VARIABLE
from borgish.wire.api import Accepted, JobList, StatusView
from borgish.wire.api_apps import AppDetail, AppList, ApplyRequest, SourceText
from borgish.wire.api_crons import CronDetail
from borgish.wire.api_past import RollbackPlan, RollbackRequest
from tests.cells import RealCell, wait_until
from tests.e2e.test_postgres_cell import made_with
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    asking,
    becomes,
    foreground,
    status_of,
    task_of,
    tasks_of,
    watched_cell,
)
from tests.forked import plain_environment

ANN = ("--user", "ann")
PATIENCE = ("--timeout", f"{PATIENCE_SECONDS:g}s")
SLEEPER = """\
name: {name}
tasks: {tasks}
run: [sleep, '100000']
env: {{RELEASE: "{release}"}}
resources: {{cpu: 10m, ram: 8MiB}}
"""


def job(name: str, release: int = 1, tasks: int = 1, **fields: str) -> str:
    more = "".join(f"{field}: {value}\n" for field, value in fields.items())
    return SLEEPER.format(name=name, release=release, tasks=tasks) + more


def written(file: Path, *documents: str) -> Path:
    file.write_text("---\n".join(documents))
    return file


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    with watched_cell(tmp_path_factory.mktemp("trouble") / "cell") as made:
        yield made


# The master dies

MOMENTS = {
    "append.begin:2": False,  # the first is that of the epoch
    "append.rows:4": False,
    "append.commit:2": False,
    "append.committed:2": True,
    "turn.committed:2": True,
    "turn.reply": True,
    "answer.made": True,
}
"""Moments of an apply, each with whether it is in the journal then."""
JOBS = 3


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a cell that was never up, with a database of each kind."""
    made = tmp_path / "cell"
    if request.param == "postgres":
        made_with(made, request.getfixturevalue("postgres_url"))
    local_cell.make(made, 1)
    return made


def test_a_master_that_dies_in_an_apply_has_applied_all_of_it_or_nothing(
    folder: Path, tmp_path: Path
) -> None:
    made = RealCell(folder)
    files = {
        moment: written(tmp_path / f"app{number}.yaml", *(job(f"app{number}-{each}") for each in range(JOBS)))
        for number, moment in enumerate(MOMENTS)
    }
    for moment, file in files.items():
        armed = {VARIABLE: moment}
        with foreground("borgish.master.main", folder / "cell.toml", environment=armed) as master:
            serves(made)
            said = made.borgctl("apply", file, *ANN, "--app", file.stem, "--detach")
            assert master.ended() == EXIT_CODE, f"{moment}: {said}"
            assert f"died at failpoint {moment.partition(':')[0]}" in master.said()
        assert said.code == 4, said
    with watched_cell(folder) as made:
        for (moment, is_there), file in zip(MOMENTS.items(), files.values(), strict=True):
            assert there(made, file.stem) == (JOBS if is_there else 0), moment
            again = made.ok("apply", file, *ANN, "--app", file.stem, "--detach")
            assert ("exactly like this" if is_there else f"{JOBS} created") in again, moment
            assert there(made, file.stem) == JOBS
        becomes(lambda: status_of(made).up, JOBS * len(MOMENTS))


def serves(made: RealCell) -> None:
    """Wait until a master answers."""

    def answers() -> bool:
        with suppress(Unreachable), closing(made.client()) as client:
            return bool(client.get("/v1/status", None, StatusView))
        return False

    wait_until(answers, PATIENCE_SECONDS)


def there(made: RealCell, app: str) -> int:
    """Return how many jobs of an application are there; it is there itself, or none of them is."""
    with asking(made) as client:
        jobs = [each.name for each in client.get("/v1/jobs", None, JobList).items]
        found = sum(name.startswith(f"ann/{app}-") for name in jobs)
        try:
            detail = client.get(f"/v1/apps/ann/{app}", None, AppDetail)
        except NotFound:
            assert not found
            return 0
        assert len(detail.jobs) == found
        return found


# Two people


def test_the_second_of_two_people_is_told_who_was_first_and_what_changed(
    cell: RealCell, tmp_path: Path
) -> None:
    """One is asked whether jobs are to end, thinks about it, and meanwhile another applies."""
    both = written(tmp_path / "both.yaml", job("site"), job("store"))
    one = written(tmp_path / "one.yaml", job("site", 2))
    other = written(tmp_path / "other.yaml", job("site", 3), job("store"), job("cache"))
    apply = ("apply", *ANN, "--app", "two", "--detach")
    cell.ok(*apply, both)
    before = app_of(cell, "two").app.generation
    with Asked(cell, *apply, "--prune", one) as first:
        first.read_until("This ends ann/store.")
        assert "version 2: 1 updated, 1 unchanged, 1 created" in cell.ok(*apply, other)
        now = app_of(cell, "two").app.generation
        code, said = first.answer("y")
    assert code == 1, said
    told = f"the application ann/two was changed since you looked (generation {before}, now {now})"
    assert told in said
    assert ": ann/two applied, version 2: 1 updated, 1 unchanged, 1 created, by " in said
    assert "look again with `borgctl app show ann/two`" in said
    with asking(cell) as client:
        jobs = {each.name: each for each in client.get("/v1/jobs", None, JobList).items}
    assert all(jobs[f"ann/{name}"].state != "dead" for name in ("site", "store", "cache"))
    assert jobs["ann/site"].version == 2, "what the second asked for is not there, and nothing of it"
    assert "2 ended" in cell.ok(*apply, "--prune", "--yes", one)  # looked at again, and decided anew
    cell.ok("app", "kill", "--yes", "two")


def app_of(made: RealCell, name: str) -> AppDetail:
    with asking(made) as client:
        return client.get(f"/v1/apps/ann/{name}", None, AppDetail)


class Asked:
    """A command on a terminal, where it asks."""

    def __init__(self, made: RealCell, *arguments: object) -> None:
        words = [sys.executable, "-m", "borgish.cli.borgctl", "--dir", made.folder, *arguments]
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [str(word) for word in words], stdin=theirs, stdout=theirs, stderr=theirs, env=plain_environment()
        )
        os.close(theirs)
        self._said = b""

    def read_until(self, words: str) -> None:
        while words.encode() not in self._said:
            assert self._read(), self._said

    def answer(self, words: str) -> tuple[int, str]:
        """Answer; return the exit code and all that was said, lines of the terminal joined."""
        os.write(self._ours, f"{words}\n".encode())
        while self._read():
            pass
        return self._process.wait(PATIENCE_SECONDS), " ".join(self._said.decode().split())

    def _read(self) -> bool:
        assert select.select([self._ours], [], [], PATIENCE_SECONDS)[0], self._said
        try:
            part = os.read(self._ours, 4096)
        except OSError:  # nobody has the terminal any more
            return False
        self._said += part
        return bool(part)

    def __enter__(self) -> "Asked":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


# Files that are wrong

WRONG = {
    "broken.yaml": "name: broken\nrun: [sleep\n",
    "first.yaml": job("twin"),
    "second.yaml": job("twin", 2),
    "valueless.yaml": "kind: app\nname: wrong\nvars:\n  release: {type: text}\n---\n"
    + job("valued").replace('RELEASE: "1"', 'RELEASE: "{{var.release}}"'),
    "misspelt.yaml": job("misspelt").replace("tasks:", "task:"),
}
SAID = {
    "broken.yaml": "broken.yaml:",
    "second.yaml": "the job 'twin' is there twice; the first is in ",
    "valueless.yaml": "release",
    "misspelt.yaml": "'task' is not a field of the job",
}
FAILS = "error 'no such release'"


def test_a_folder_with_mistakes_of_all_kinds_changes_nothing_and_names_them_all(
    cell: RealCell, tmp_path: Path
) -> None:
    for name, text in {**WRONG, "fails.jsonnet": FAILS, "right.yaml": job("right")}.items():
        (tmp_path / name).write_text(text)
    before = things(cell)
    said = cell.borgctl("apply", tmp_path, *ANN)
    assert said.code == 2, said
    for name, words in SAID.items():
        assert name in said.err, said.err
        assert words in said.err
    assert "fails.jsonnet" in said.err
    assert "no such release" in said.err
    assert "nothing was applied: correct every file first" in said.err
    assert things(cell) == before


def test_a_client_that_does_not_check_is_refused_the_same(cell: RealCell) -> None:
    before = things(cell)
    sources = tuple(SourceText(name, text) for name, text in WRONG.items())
    for path in ("/v1/apply", "/v1/apply/plan"):
        with asking(cell) as client, pytest.raises(Invalid) as caught:
            client.post(path, ApplyRequest(sources, user="ann"), Accepted)
        told = {mistake.source: mistake.message for mistake in caught.value.mistakes}
        assert told.keys() >= SAID.keys(), told
    assert things(cell) == before


def things(made: RealCell) -> set[tuple[str, int]]:
    """Return what there is of applications and jobs, each with its version."""
    with asking(made) as client:
        apps = client.get("/v1/apps", None, AppList).items
        jobs = client.get("/v1/jobs", None, JobList).items
    return {(each.name, each.version) for each in apps} | {(each.name, each.version) for each in jobs}


# What never comes


def test_what_waits_for_a_job_that_never_comes_says_so_when_its_time_is_over(
    cell: RealCell, tmp_path: Path
) -> None:
    after = "[{job: nobody, until: up, within: 1s}]"
    file = written(tmp_path / "late.yaml", job("late", after=after), job("prompt"))
    said = cell.borgctl("apply", file, *ANN, "--app", "late", *PATIENCE)
    assert said.code == 1, said
    why = "waited 1s for ann/nobody (up): there is no job ann/nobody"
    assert why in said.out + said.err, said
    assert task_of(cell, "ann/late/0").reason == why
    assert task_of(cell, "ann/prompt/0").phase == "up"
    written(file, job("late"), job("prompt"))
    assert "1 started again, 1 unchanged" in cell.ok("apply", file, *ANN, "--app", "late", *PATIENCE)
    cell.ok("app", "kill", "--yes", "late")


# Rollback

TICK = """\
kind: cron
name: tick
schedule: "{schedule}"
run: ['true']
overlap: allow
resources: {{cpu: 10m, ram: 8MiB}}
"""


def test_a_rollback_to_before_an_apply_says_what_becomes_of_all_of_it(cell: RealCell, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    apply = ("apply", file, *ANN, "--app", "shop", "--detach")
    written(file, job("web"), TICK.format(schedule="*/10 * * * * *"))
    cell.ok(*apply)
    up(cell, "web")
    first = position(cell)
    wait_until(lambda: cron_of(cell).cron.last, PATIENCE_SECONDS)
    written(file, job("web", 2), job("db"), TICK.format(schedule="0 4 1 1 *"))
    cell.ok(*apply)
    up(cell, "db")
    second = position(cell)
    fired = cron_of(cell).cron.last or ""
    runs = {run.name for run in cron_of(cell).runs}
    assert runs

    with asking(cell) as client:
        plan = client.post("/v1/rollback/plan", RollbackRequest(str(first)), RollbackPlan)
    assert plan.apps == ("ann/shop is version 1, as version 3, again",)
    assert {each.name: each.change for each in plan.jobs} == {"ann/web": "changes", "ann/db": "vanishes"}
    assert len(plan.crons) == 1
    assert plan.crons[0].startswith("ann/tick")
    shown = cell.ok("rollback", first, "--dry-run")
    assert plan.apps[0] in shown
    assert plan.crons[0] in shown
    assert "ann/db: is removed" in shown
    assert position(cell) >= second

    cell.ok("rollback", "--yes", first, "--max-affected", 10)
    becomes(lambda: tasks_of(cell, "ann/web")["ann/web/0"].version, 3)
    assert app_of(cell, "shop").app.version == 3
    assert [each.name for each in app_of(cell, "shop").jobs] == ["ann/web"]
    back = cron_of(cell)
    assert back.cron.schedule == "*/10 * * * * *"
    assert (back.cron.last or "") >= fired, "what was dealt with stays so"
    assert runs <= {run.name for run in back.runs}, "and no run of it goes, or comes again"

    cell.ok("app", "undo", "shop", "--to", 2, "--detach")
    assert [each.name for each in app_of(cell, "shop").jobs] == ["ann/web", "ann/db"]
    up(cell, "db")
    assert cron_of(cell).cron.schedule == "0 4 1 1 *"
    cell.ok("app", "undo", "shop", "--detach")
    assert [each.name for each in app_of(cell, "shop").jobs] == ["ann/web"]
    cell.ok("app", "kill", "--yes", "shop")


def up(made: RealCell, name: str) -> None:
    becomes(lambda: {str(task.phase) for task in tasks_of(made, f"ann/{name}").values()}, {"up"})


def position(made: RealCell) -> int:
    return status_of(made).position


def cron_of(made: RealCell) -> CronDetail:
    with asking(made) as client:
        return client.get("/v1/crons/ann/tick", None, CronDetail)
