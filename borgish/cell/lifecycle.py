"""Pending -> Running -> Dead, as a table (EuroSys 2015, figure 2). What is not listed is refused.

A task moves by these rows; a job's state follows from its tasks. ``docs`` are not kept by hand: the
diagram in ``borgish/README.md`` is what ``diagram`` returns, and a test compares them.
"""

from enum import StrEnum

from borgish.vocabulary import Ending, State


class Happening(StrEnum):
    """What moves a task from state to state."""

    SUBMIT = "submit"
    SCHEDULE = "schedule"
    UPDATE = "update"
    EVICT = "evict"
    FINISH = "finish"
    FAIL = "fail"
    KILL = "kill"
    LOST = "lost"


TABLE: dict[tuple[State | None, Happening], State] = {
    (None, Happening.SUBMIT): State.PENDING,
    (State.PENDING, Happening.SCHEDULE): State.RUNNING,
    (State.PENDING, Happening.UPDATE): State.PENDING,
    (State.PENDING, Happening.FINISH): State.DEAD,  # by an attempt that was taken for lost
    (State.PENDING, Happening.FAIL): State.DEAD,
    (State.PENDING, Happening.KILL): State.DEAD,
    (State.PENDING, Happening.LOST): State.DEAD,
    (State.RUNNING, Happening.UPDATE): State.RUNNING,
    (State.RUNNING, Happening.EVICT): State.PENDING,
    (State.RUNNING, Happening.FINISH): State.DEAD,
    (State.RUNNING, Happening.FAIL): State.DEAD,
    (State.RUNNING, Happening.KILL): State.DEAD,
    (State.RUNNING, Happening.LOST): State.DEAD,
    (State.DEAD, Happening.SUBMIT): State.PENDING,
}

OF_ENDING = {
    Ending.FINISH: Happening.FINISH,
    Ending.FAIL: Happening.FAIL,
    Ending.KILL: Happening.KILL,
    Ending.LOST: Happening.LOST,
}


class IllegalTransition(AssertionError):
    """An event that the table does not list reached a task: a bug in ``decide``, never a user's doing."""


def after(state: State | None, happening: Happening) -> State:
    """Return the state that follows. Raises IllegalTransition when the table has no such row."""
    try:
        return TABLE[state, happening]
    except KeyError:
        raise IllegalTransition(f"{happening} does not go with {state}") from None


def allows(state: State | None, happening: Happening) -> bool:
    """Return whether the table has such a row."""
    return (state, happening) in TABLE


def diagram() -> str:
    """Return the table as Mermaid text, for the tour of the code."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, happening), target in TABLE.items():
        arrows.setdefault((str(state or "[*]"), str(target)), []).append(happening)
    rows = (f"    {a} --> {b}: {', '.join(words)}" for (a, b), words in arrows.items())
    return "\n".join(["stateDiagram-v2", *rows, "    dead --> [*]: forgotten"])
