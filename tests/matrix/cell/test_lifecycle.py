"""Every state x every event: the table's rows pass, everything else is refused."""

import ast
from pathlib import Path

import pytest

from borgish.cell.commands import (
    KillTasks,
    PlaceTasks,
    SubmitJob,
)
from borgish.cell.lifecycle import TABLE, IllegalTransition, TaskEvent, allows, diagram, transition
from borgish.vocabulary import Ending, State
from tests.unit.cell.test_decide import Desk, spec

ROOT = Path(__file__).parents[3]

# Written out from figure 2 of the Borg paper, so that the code's table is held to something. Not in the
# figure: a pending task finishes when an attempt that was taken for lost did; rollbacks; who is no more.
P, R, D = State.PENDING, State.RUNNING, State.DEAD
_ENDS = {"finish": D, "fail": D, "kill": D, "lost": D, "restore to dead": D, "remove": None}
PAPER: dict[State | None, dict[str, State | None]] = {
    None: {"submit": P},
    P: {"schedule": R, "update": P, **_ENDS},
    R: {"update": R, "hand over": R, "evict": P, "restore to pending": P, **_ENDS},
    D: {"submit": P, "restore to pending": P, "restore to dead": D, "remove": None, "forget": None},
}


@pytest.mark.parametrize("state", [None, *State])
@pytest.mark.parametrize("event", list(TaskEvent))
def test_table_is_the_papers(state: State | None, event: TaskEvent) -> None:
    assert allows(state, event) == (event.value in PAPER[state])
    assert TABLE.get((state, event), "no row") == PAPER[state].get(event.value, "no row")


@pytest.mark.parametrize("event", list(TaskEvent))
def test_an_event_leads_to_one_state(event: TaskEvent) -> None:
    """``transition`` relies on it. An update leads nowhere else."""
    targets = {target for (_, each), target in TABLE.items() if each is event}
    assert len(targets) == 1 or all(s is t for (s, each), t in TABLE.items() if each is event)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("event", list(TaskEvent))
def test_a_task_moves_by_its_row_or_not_at_all(state: State, event: TaskEvent) -> None:
    desk = Desk()
    desk.do(SubmitJob(spec(tasks=1)))
    if state is R:
        desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    if state is D:
        desk.do(KillTasks("ann/web"))
    job = desk.cell.jobs["ann/web"]
    (task,) = job.tasks
    assert task.state is state
    task.machine = "m1"  # whoever schedules says where, first
    if event.value not in PAPER[state]:
        with pytest.raises(IllegalTransition, match=f"{event} does not go with ann/web/0, which is {state}"):
            transition(desk.cell, job, (0,), event, 7.0)
        assert task.state is state
        return
    transition(desk.cell, job, (0,), event, 7.0, "why", ending=Ending.KILL)
    to = PAPER[state][event.value] or state  # what is no more stays as it was last
    assert task.state is to
    if event.value not in ("update", "remove", "forget"):
        assert (task.since, task.reason) == (7.0, "why")
        assert (job.pending, job.running, job.dead) == (to is P, to is R, to is D)


def test_diagram_has_every_row() -> None:
    text = diagram()
    for (state, event), target in TABLE.items():
        row = next(r for r in text.splitlines() if f"{state or '[*]'} --> {target or '[*]'}:" in r)
        assert event in row


def test_the_tour_shows_this_diagram() -> None:
    assert diagram() in (ROOT / "borgish" / "README.md").read_text()


@pytest.mark.reads_code
def test_nobody_else_moves_a_task() -> None:
    """Nor changes the counts of a job, which follow from it."""
    found = {
        path.name
        for path in sorted((ROOT / "borgish" / "cell").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if node.attr in {"state", "ending", "pending", "running", "dead", "finished"}
    }
    assert found == {"lifecycle.py"}
