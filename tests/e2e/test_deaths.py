"""kill -9 of the master, of a borglet, of both, of a task, while the example jobs run.

The bar is the same each time: the cell is as it was, and no task that was not killed has noticed.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.cells import RealCell, runs, wait_until
from tests.e2e.watched import (
    JOBS,
    PATIENCE_SECONDS,
    Life,
    becomes,
    end_of,
    lives,
    runs_anew,
    submitted,
    task_of,
    tasks_of,
    watched_cell,
)

EXAMPLES = {"demo/web": 3, "demo/placed": 3, "demo/ticker": 2}
DEATHS = [
    pytest.param(("borgmaster",), id="master"),
    pytest.param(("m1",), id="borglet"),
    pytest.param(("borgmaster", "m1"), id="both"),
]
# A batch task that goes on until its gate opens, and ends with code 7.
GATED = """\
name: {name}
run: [sh, -c, "while [ ! -e gate ]; do sleep 0.05; done; exit 7"]
restart: {{policy: never}}
resources: {{cpu: 10m, ram: 16MiB}}
"""
# Tasks whose processes say which task they are: two processes of one task would both live.
COUNTED = """\
name: {name}
tasks: 12
run: [sleep, "100000"]
env: {{COUNTED_IN: "{mark}"}}
resources: {{cpu: 10m, ram: 8MiB}}
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    """A cell in which the example jobs run, as in the demo."""
    with watched_cell(tmp_path_factory.mktemp("deaths") / "cell", machines=2) as made:
        files = [JOBS / f"{name}.yaml" for name in ("web", "placed", "ticker", "batch")]
        made.ok("job", "submit", "--settle", 0, *files, "--user", "demo")
        made.ok("job", "wait", "primes", "--for", "finished", "--timeout", "240s")  # it computes
        yield made


@pytest.fixture
def steady(demo: RealCell) -> dict[str, Life]:
    """The running programs of the example jobs, all of them up, with all daemons there."""
    demo.ok("up")
    becomes(lambda: up_counts(demo), EXAMPLES)
    return lives(demo)


def up_counts(made: RealCell) -> dict[str, int]:
    tasks = tasks_of(made).values()
    return {job: sum(t.job == job and t.phase in ("up", "healthy") for t in tasks) for job in EXAMPLES}


@pytest.mark.parametrize("dead", [*DEATHS, pytest.param(("borgmaster", "m1", "m2"), id="all")])
def test_no_task_notices_that_daemons_are_killed(
    demo: RealCell, steady: dict[str, Life], dead: tuple[str, ...]
) -> None:
    finished = {name: end_of(task) for name, task in tasks_of(demo, "demo/primes").items()}
    for name in dead:
        demo.kill(name)
    said = demo.ok("up")
    assert f"started {', '.join(dead)}" in said
    becomes(lambda: up_counts(demo), EXAMPLES)
    assert lives(demo) == steady
    assert all(life.pid and runs(life.pid) for life in steady.values())
    assert {name: end_of(task) for name, task in tasks_of(demo, "demo/primes").items()} == finished
    assert set(finished.values()) == {("dead", 0, "exit code 0")}


def test_a_killed_task_comes_back_and_no_other_notices(demo: RealCell, steady: dict[str, Life]) -> None:
    name = "demo/web/1"
    before = steady.pop(name)
    assert before.pid
    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: runs_anew(demo, name, before), PATIENCE_SECONDS)
    becomes(lambda: up_counts(demo), EXAMPLES)
    after = lives(demo)
    assert (after[name].attempt, after[name].restarts) == (before.attempt, before.restarts + 1)
    assert after.pop(name).started_at != before.started_at
    assert after == steady
    assert task_of(demo, name).signal == signal.SIGKILL


@pytest.mark.parametrize("dead", DEATHS)
def test_a_task_killed_while_daemons_are_dead_comes_back(
    demo: RealCell, steady: dict[str, Life], dead: tuple[str, ...]
) -> None:
    victim = next(name for name, task in tasks_of(demo, "demo/placed").items() if task.machine == "m1")
    before = steady.pop(victim)
    assert before.pid
    for name in dead:
        demo.kill(name)
    os.kill(before.pid, signal.SIGKILL)
    demo.ok("up")
    wait_until(lambda: runs_anew(demo, victim, before), PATIENCE_SECONDS)
    after = lives(demo)
    assert (after[victim].attempt, after[victim].restarts) == (before.attempt, before.restarts + 1)
    assert task_of(demo, victim).signal == signal.SIGKILL
    del after[victim]
    assert after == steady


@pytest.mark.parametrize("dead", DEATHS)
def test_an_exit_code_is_not_lost_while_daemons_are_dead(
    demo: RealCell, steady: dict[str, Life], dead: tuple[str, ...]
) -> None:
    job = f"gated-{len(dead)}-{dead[0]}"
    submitted(demo, GATED.format(name=job))
    task = task_of(demo, f"ann/{job}/0")
    assert task.pid
    assert task.machine in ("m1", "m2")
    for name in dead:
        demo.kill(task.machine if name == "m1" else name)
    there = demo.folder / "machines" / task.machine / "state/process/runs"
    (there / f"ann+{job}+0@{task.attempt}" / "work/gate").touch()
    wait_until(lambda: task.pid and not runs(task.pid), PATIENCE_SECONDS)
    demo.ok("up")
    becomes(lambda: end_of(task_of(demo, task.name)), ("dead", 7, "exit code 7"))
    assert task_of(demo, task.name).attempt == task.attempt
    assert lives(demo) == steady


@pytest.mark.parametrize("dead", DEATHS)
def test_daemons_killed_in_the_middle_of_starting_start_nothing_twice(
    demo: RealCell, steady: dict[str, Life], dead: tuple[str, ...]
) -> None:
    job = f"counted-{len(dead)}-{dead[0]}"
    mark = f"{job} of {os.getpid()}"
    submitted(demo, COUNTED.format(name=job, mark=mark), "--detach")
    for name in dead:
        demo.kill(name)
    demo.ok("up")
    demo.ok("job", "wait", f"ann/{job}", "--settle", 0)
    becomes(lambda: living(mark), {index: [life.pid] for index, life in by_index(demo, job).items()})
    assert len(living(mark)) == 12
    assert {name: life for name, life in lives(demo).items() if not name.startswith("ann/")} == steady
    demo.ok("job", "kill", "--yes", f"ann/{job}", "--max-affected", 12)
    becomes(lambda: living(mark), {})
    becomes(lambda: {task.state for task in tasks_of(demo, f"ann/{job}").values()}, {"dead"})


def living(mark: str) -> dict[int, list[int]]:
    """Return the processes that live of each task with this mark in its environment."""
    found: dict[int, list[int]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            if environment.get("COUNTED_IN") == mark:
                found.setdefault(int(environment["BORGISH_INDEX"]), []).append(process.pid)
    return dict(sorted(found.items()))


def by_index(made: RealCell, job: str) -> dict[int, Life]:
    return {int(name.rpartition("/")[2]): life for name, life in lives(made, f"ann/{job}").items()}
