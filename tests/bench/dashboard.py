"""``dashboard``: how soon the dashboard shows something and obeys, and what it takes.

It runs in a terminal of 200 by 60, with a stand-in for the master that streams the summary of 10,000 machines
and 100,000 tasks, another four times a second, and answers a list with its first 200 rows. What such a master
itself takes for them is left out, and so is the start of borgctl.
"""

import time
from collections.abc import Iterator

import msgspec
import psutil

from borgish.wire.api import SummaryView, TaskList
from tests.bench.cli import MIB
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes
from tests.integration.dashboard.streaming import StreamingMaster, serving, terminal
from tests.terminal import Terminal
from tests.unit.dashboard import answers, summaries

SIZE = (200, 60)
FRAMES_A_SECOND = 4
ROWS = 200


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield how soon it shows something, how soon it obeys, and what it takes."""
    yield Figure("dashboard.first_frame", "s", [_first_frame() for _ in range(sizes.rounds)], at_most(0.5))
    with serving(StreamingMaster(summaries.full())) as master:
        tasks = tuple(answers.task(name=f"ann/web/{i}", index=i) for i in range(ROWS))
        master.answers["/v1/tasks"] = msgspec.json.encode(TaskList(tasks))
        with terminal(master.url, SIZE) as seen:
            seen.until(lambda: seen.shows("q quit"))
            keys = [_key(seen, key) for _ in range(sizes.rounds) for key in ("j", "k")]
            yield Figure("dashboard.key", "ms", keys, at_most(50))
            into = [each for _ in range(sizes.rounds) for each in _list(seen)]
            yield Figure("dashboard.list_of_200", "ms", into, at_most(50))
            process = psutil.Process(seen.process.pid)
            before, began = sum(process.cpu_times()[:2]), time.perf_counter()
            for second in range(sizes.dashboard_seconds):
                for frame in range(FRAMES_A_SECOND):
                    master.tell(_later(second * FRAMES_A_SECOND + frame))
                    end = began + second + (frame + 1) / FRAMES_A_SECOND
                    while time.perf_counter() < end:
                        seen.read(end - time.perf_counter())
            share = (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - began)
            yield Figure("dashboard.cpu_of_a_core", "%", [100 * share], at_most(10))
            memory = process.memory_full_info()
            yield Figure("dashboard.pss", "MiB", [memory.pss / MIB], at_most(80))
            seen.press("q")
            seen.ended()


def _first_frame() -> float:
    """Return the seconds from the start of the program to a whole first frame."""
    with serving(StreamingMaster(summaries.full())) as master, terminal(master.url, SIZE) as seen:
        began = time.perf_counter()
        seen.until(lambda: seen.shows("q quit"))
        took = time.perf_counter() - began
        seen.press("q")
        seen.ended()
    return took


def _key(seen: Terminal, key: str) -> float:
    """Return the milliseconds from a key that moves the cursor to the frame that shows it."""
    before, began = len(seen.output), time.perf_counter()
    seen.press(key)
    seen.until(lambda: len(seen.output) > before and seen.shows("q quit"))
    return (time.perf_counter() - began) * 1000


def _list(seen: Terminal) -> Iterator[float]:
    """Yield the milliseconds from a key to the list that it leads to."""
    began = time.perf_counter()
    seen.press("2")
    seen.until(lambda: seen.shows("ann/web/0 ") and seen.shows("q quit"))
    yield (time.perf_counter() - began) * 1000
    seen.press("0")
    seen.until(lambda: seen.shows("JOBS") and seen.shows("q quit"))


def _later(number: int) -> SummaryView:
    """Return the summary of a cell in which all that is shown has changed."""
    full = summaries.full()
    status = msgspec.structs.replace(full.status, position=full.status.position + number, up=number)
    turn = number % len(full.jobs)
    jobs = tuple(msgspec.structs.replace(each, up=number) for each in (*full.jobs[turn:], *full.jobs[:turn]))
    return msgspec.structs.replace(full, status=status, jobs=jobs)
