"""The latest events: of all, of one job, and of one task of it."""

import pytest

from borgish.cell.events import AnyEvent, Entry, JobHeld, MachineDown, TasksEvicted, TasksPlaced
from borgish.master import reading
from borgish.master.reading import RecentEvents
from borgish.vocabulary import Eviction

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


def test_those_of_large_jobs_push_out_more_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "EVENTS_BYTES_KEPT", 100_000)
    events = RecentEvents()
    for position in range(1, 101):
        down = MachineDown(f"m{position}", "not heard of")
        events.add(Entry(position, 1e9, 1, 1, "x", "x", (down,)))
    assert len(events.latest("", 0, 1000)) == 100
    indexes = tuple(range(2000))
    events.add(Entry(101, 1e9, 1, 1, "x", "x", (TasksEvicted("ann/web", indexes, Eviction.DRAIN, "gone"),)))
    kept = events.latest("", 0, 1000)
    assert 10 < len(kept) < 60
    assert kept[-1].position == 101
