"""Who asks beside somebody else's bad day, and what they wait for: a part of ``bad_days``.

One asks for health, 50 ms after each answer, in a process of its own. Another one submits jobs of one task,
twenty a second.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from tests.bench.farm import FORKED
from tests.bench.figure import Figure, Goal, at_most
from tests.bench.load import Asked, Load
from tests.bench.scale_beside import asked, health

JOBS_EACH_SECONDS = 0.05
JOBS_TOGETHER = 20
"""After so many it is looked whether the day is over; until then all of them run."""
API_P99_MS = 100.0

T = TypeVar("T")


class Seen(NamedTuple):
    """Milliseconds: until questions of health and submissions were answered, and until the jobs ran."""

    health: list[float]
    submit: list[float]
    running: list[float]

    def figures(self, name: str) -> Iterator[Figure]:
        """Yield what others waited for."""
        for what, waits in self._asdict().items():
            goal = at_most(API_P99_MS) if what != "running" else None
            yield from spread(f"{name}.others.{what}", waits, goal)


def spread(name: str, waits: list[float], goal: Goal | None = None) -> Iterator[Figure]:
    """Yield the median and the 99th percentile of milliseconds, which is what a goal is for."""
    yield Figure(f"{name}_p50", "ms", waits)
    yield Figure(f"{name}_p99", "ms", waits, goal, quantile=0.99)


def seen(load: Load, jobs: int, is_over: Callable[[], bool] | None = None) -> Seen:
    """Have others ask until so many jobs run, or until it is over."""
    found, done = Seen([], [], []), 0
    with asked(load.folder, {"health": health}) as waits:
        while done < jobs if is_over is None else not (done and is_over()):
            together = min(JOBS_TOGETHER, jobs)
            waited = load.start(
                [Asked(1, due_seconds=number * JOBS_EACH_SECONDS) for number in range(together)]
            )
            found.submit.extend(waited.submit)
            found.running.extend(waited.running)
            done += together
    found.health.extend(waits["health"])
    return found


class Beside(Generic[T]):
    """What is done in a process of its own."""

    def __init__(self, here: Any) -> None:  # Connection is generic in newer types of the library only
        self._here = here

    def is_over(self) -> bool:
        """Return whether it has a result, or broke off."""
        return bool(self._here.poll())

    def result(self) -> T:
        """Wait for its result, and return it. Raises EOFError where it broke off."""
        found: T = self._here.recv()
        return found


@contextmanager
def beside(work: Callable[[], T]) -> Iterator[Beside[T]]:
    """Have something done in a process of its own; behind it that is ended."""
    here, there = FORKED.Pipe(duplex=False)

    def run() -> None:
        there.send(work())

    process = FORKED.Process(target=run, daemon=True)
    process.start()
    there.close()  # so that the end of that process is the end of what it says
    try:
        yield Beside(here)
    finally:
        process.kill()
        process.join()
        here.close()
