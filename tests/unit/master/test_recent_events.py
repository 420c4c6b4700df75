"""The latest events: of all, of one job, and of one task of it."""

import pytest

from borgish.cell.events import AnyEvent, Entry, JobHeld, MachineDown, TasksPlaced
from borgish.master.reading import RecentEvents

HAPPENED: tuple[AnyEvent, ...] = (
    TasksPlaced("ann/web", (0, 1), ("m1", "m2")),
    TasksPlaced("bob/web", (1,), ("m1",)),
    JobHeld("ann/web", "it fails everywhere", 1e9),
    MachineDown("m2", "not heard of"),
    TasksPlaced("ann/web", (1,), ("m1",)),
)


@pytest.mark.parametrize(
    ("job", "index", "limit", "positions"),
    [
        ("", None, 9, [1, 2, 3, 4, 5]),
        ("", None, 2, [4, 5]),
        ("ann/web", None, 9, [1, 3, 5]),
        ("ann/web", 0, 9, [1, 3]),  # what is about all of a job is about each of its tasks
        ("ann/web", 1, 9, [1, 3, 5]),
        ("ann/web", 1, 1, [5]),
        ("ann/web", 7, 9, [3]),
    ],
)
def test_the_latest_that_are_asked_for(job: str, index: int | None, limit: int, positions: list[int]) -> None:
    events = RecentEvents(Entry(i + 1, 1e9, 1, 1, "x", "x", (each,)) for i, each in enumerate(HAPPENED))
    found = events.latest(job, 0, limit, index)
    assert sorted({event.position for event in found}) == positions
