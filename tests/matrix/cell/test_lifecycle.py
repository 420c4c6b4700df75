"""Every state x every event: the table's rows pass, everything else is refused."""

import ast
from pathlib import Path

import pytest

from borgish.cell.lifecycle import TABLE, TaskEvent, allows, diagram
from borgish.vocabulary import State

ROOT = Path(__file__).parents[3]

# Written out from figure 2 of the Borg paper, so that the code's table is held to something. Not in the
# figure: a pending task finishes when an attempt that was taken for lost did; rollbacks; who is no more.
P, R, D = State.PENDING, State.RUNNING, State.DEAD
_ENDS = {"finish": D, "fail": D, "kill": D, "lost": D, "restore to dead": D, "remove": None}
PAPER: dict[State | None, dict[str, State | None]] = {
    None: {"submit": P},
    P: {"schedule": R, "update": P, **_ENDS},
    R: {"update": R, "evict": P, "restore to pending": P, **_ENDS},
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
