"""A plan on a real cell: it changes nothing, comes true, and is refused when the cell has changed."""

from pathlib import Path

import pytest

from tests.cells import RealCell
from tests.e2e.watched import end_jobs, lives, status_of, submitted, tasks_of

JOB = """
name: planned
user: ann
tasks: 4
run: [sleep, "1000"]
resources: {cpu: 10m, ram: 16MiB}
spread: [{over: machine, max: 2}]
"""


@pytest.fixture
def file(tidied: RealCell, tmp_path: Path) -> Path:
    path = tmp_path / "planned.yaml"
    path.write_text(JOB)
    return path


def test_a_plan_changes_nothing_and_comes_true(tidied: RealCell, file: Path) -> None:
    before = status_of(tidied).position
    plan = tidied.items("plan", file)
    dry_run = tidied.ok("job", "submit", "--dry-run", file)
    assert status_of(tidied).position == before
    assert dry_run.startswith("ann/planned: of 4 tasks 4 would be placed at once\n")
    tidied.ok("job", "submit", "--settle", 0, "--plan", plan["token"], file)
    there = {task.index: task.machine for task in tasks_of(tidied, "ann/planned").values()}
    assert there == {place["index"]: place["machine"] for place in plan["places"]}
    assert sorted(map(str, there.values())) == ["m1", "m1", "m2", "m2"]


def test_a_plan_is_refused_when_the_cell_has_changed(tidied: RealCell, file: Path) -> None:
    token = tidied.items("plan", file)["token"]
    tidied.ok("machine", "cordon", "m1")
    try:
        said = tidied.borgctl("job", "submit", "--plan", token, file)
        assert said.code == 1
        assert "the cell changed since this plan was made" in said.err
        assert "hint: make a new plan: `borgctl plan FILE`" in said.err
        plan = tidied.borgctl("plan", file)
        assert plan.code == 3
        assert "2 would be placed at once, and 2 would wait" in plan.out
        assert "would fit 1 machine that is cordoned" in plan.out
    finally:
        tidied.ok("machine", "uncordon", "m1")
    assert not lives(tidied)


def test_what_can_never_fit_is_noted_at_submission_and_told_by_why(tidied: RealCell) -> None:
    text = "name: picky\nrun: [sleep, '1000']\nconstraints: [osr == linux]\n"
    said = tidied.borgctl("job", "submit", "--detach", "--user", "ann", "-", stdin=text)
    assert said.code == 0
    assert said.err == "note: no machine has the attribute 'osr'; did you mean os?\n"
    why = tidied.ok("why", "ann/picky/0")
    assert "Can never fit: no machine has the attribute 'osr'; did you mean os?" in why
    assert "fits 2 machines without the constraint osr == linux" in why
    submitted(tidied, "name: next\nrun: [sleep, '1000']\n")  # it holds nobody up
    end_jobs(tidied)
