"""Every state x every happening: the table's rows pass, everything else is refused."""

from pathlib import Path

import pytest

from borgish.cell.lifecycle import TABLE, Happening, IllegalTransition, after, allows, diagram
from borgish.vocabulary import State

# Written out from figure 2 of the Borg paper, so that the code's table is held to something. Not in the
# figure: a pending task finishes when an attempt that was taken for lost did.
P, R, D = State.PENDING, State.RUNNING, State.DEAD
PAPER: dict[State | None, dict[str, State]] = {
    None: {"submit": P},
    P: {"schedule": R, "update": P, "finish": D, "fail": D, "kill": D, "lost": D},
    R: {"update": R, "evict": P, "finish": D, "fail": D, "kill": D, "lost": D},
    D: {"submit": P},
}


@pytest.mark.parametrize("state", [None, *State])
@pytest.mark.parametrize("happening", list(Happening))
def test_table_is_the_papers(state: State | None, happening: Happening) -> None:
    expected = PAPER[state].get(happening.value)
    assert allows(state, happening) == (expected is not None)
    if expected is None:
        with pytest.raises(IllegalTransition, match=happening):
            after(state, happening)
    else:
        assert after(state, happening) is expected


def test_diagram_has_every_row() -> None:
    text = diagram()
    for (state, happening), target in TABLE.items():
        row = next(r for r in text.splitlines() if f"{state or '[*]'} --> {target}:" in r)
        assert happening in row


def test_the_tour_shows_this_diagram() -> None:
    tour = Path(__file__).parents[3] / "borgish" / "README.md"
    assert diagram() in tour.read_text()
