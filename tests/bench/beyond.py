"""``beyond``: a cell ten times as large as one is made for: 100,000 machines and 1,000,000 tasks.

Nobody is asked to run one: this shows what gives way first. ``scratch`` and ``online`` are as in
``schedule``, ``checkpoint`` and ``load`` as in ``store``, in SQLite. ``turn`` is the real core, with machines
simulated in this process, and neither store, HTTP nor JSON. ``master`` is a real borgmaster which starts on
that cell; none of its machines answers, and all that their polls cost is left out (``polls`` has that).
"""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from borgish.cell.commands import SubmitJob
from borgish.cli import local_cell as cell_folder
from borgish.resources import Resources
from borgish.scheduler.schedule import SchedulerSettings
from borgish.spec.job import JobSpec
from borgish.store.open import open_store
from borgish.vocabulary import Runtime
from tests.bench import schedule, standing, store
from tests.bench.cli import MIB, memory_bytes
from tests.bench.figure import MEAN, Figure
from tests.bench.past import kept
from tests.bench.sizes import Sizes
from tests.bench.stand_in import StandIn

JOB_TASKS = 1_000
NEEDS = Resources(100, 64 * 1024**2)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what scheduling, a turn, a checkpoint and a start take."""
    machines, tasks = sizes.beyond_machines, sizes.beyond_tasks
    yield from _scheduled(sizes)
    yield from _turns(machines, tasks, sizes)
    large = msgspec.structs.replace(sizes, checkpoint_machines=machines, checkpoint_tasks=tasks, rounds=1)
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        url = f"sqlite:///{folder}/kept.db"
        with closing(store.Writer(url)) as writer:
            yield from store.checkpoints("beyond.sqlite", writer, large)
        yield Figure(f"beyond.sqlite.load.{tasks}", "s", [store.load(url)])
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        yield from _started(Path(folder) / "cell", f"sqlite:///{folder}/cell.db", machines, tasks)


def _scheduled(sizes: Sizes) -> Iterator[Figure]:
    machines, tasks, pending = sizes.beyond_machines, sizes.beyond_tasks, sizes.fleet_pending
    name = f"beyond.scratch.{tasks}_on_{machines}"
    run = schedule.scratch(machines, tasks, SchedulerSettings())
    yield Figure(name, "s", [run.seconds], note=f"{run.shapes} shapes")
    yield Figure(f"{name}.memory", "MiB", [schedule.memory_apart(machines, tasks)])
    full = schedule.FullCell(machines)
    passes = [1000 * full.place(pending, pending)[0] for _ in range(sizes.rounds)]
    yield Figure(f"beyond.online.{pending}_on_{machines}", "ms", passes)


def _turns(machines: int, tasks: int, sizes: Sizes) -> Iterator[Figure]:
    size = min(JOB_TASKS, tasks)
    cell = StandIn(machines, [_spec(f"job-{number}", size) for number in range(tasks // size)])
    cell.seconds(5)  # what follows from the beginning is over
    rest = cell.seconds(sizes.changing_seconds)
    yield Figure(f"beyond.turn.{tasks}.at_rest", "ms/s", [1000 * each for each in rest], quantile=MEAN)
    changes = []
    for number in range(sizes.scale_changes):
        before = cell.cpu_seconds
        cell.ask(SubmitJob(_spec(f"one-{number}", 1)))
        changes.append(1000 * (cell.cpu_seconds - before))
    yield Figure(f"beyond.turn.{tasks}.job_of_1", "ms", changes)


def _started(folder: Path, url: str, machines: int, tasks: int) -> Iterator[Figure]:
    cell_folder.make(folder, 1)
    cell = store.large_cell(machines, tasks, 1)
    with socket.create_server(("127.0.0.1", 0)) as listening:  # who accepts nothing: no machine answers
        standing.settle(cell, listening.getsockname()[1])
        with closing(open_store(url, cell.name)) as there:
            kept(there, cell)
        standing.configure(folder, cell.name, url)
        del cell
        with standing.master(folder) as started:
            yield Figure(f"beyond.master.start.{tasks}", "s", [started.seconds])
            yield Figure(f"beyond.master.rss.{tasks}", "MiB", [memory_bytes(started.pid)["Rss"] / MIB])


def _spec(name: str, tasks: int) -> JobSpec:
    return JobSpec(name, "bench", tasks, ("serve",), runtime=Runtime.FAKE, resources=NEEDS)
