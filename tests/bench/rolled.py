"""A large cell on simulated machines that is kept while it runs, and then rolled back: a part of ``time``."""

import asyncio
import gc
import time
from collections.abc import Iterator

import msgspec
import uvloop

from borgish.api.moments import Moment
from borgish.api.views.status import Daemon
from borgish.cell.access.model import Asker, Principal, Role
from borgish.cell.commands import KillTasks
from borgish.master.past.checkpoints import Checkpointer
from borgish.master.past.moments import Moments
from borgish.master.past.rollbacks import Rollbacks
from borgish.spec.job import JobSpec
from borgish.vocabulary import State
from borgish.wire.api_past import RollbackRequest
from tests.bench.control import SECONDS_MAX, SimulatedCell, job_specs
from tests.bench.figure import Figure, at_least, at_most
from tests.bench.past import held_up
from tests.bench.sizes import Sizes


class Rolled(msgspec.Struct):
    """What was measured. Seconds, and tasks."""

    pauses: list[float]  # of the loop, while the cell was kept
    decided: float
    converged: float
    tasks: int  # all of the cell
    undisturbed: int  # of those that no rollback was about


def figures_of(kind: str, url: str, sizes: Sizes) -> Iterator[Figure]:
    """Yield the pause of a running cell that is kept, and what a rollback of it takes."""
    found = uvloop.run(_run(url, sizes))
    gc.unfreeze()
    name, count = f"time.{kind}", sizes.rolled_back
    pauses = [1000 * pause for pause in found.pauses]
    yield Figure(f"{name}.checkpoint.{found.tasks}.held_up", "ms", pauses, at_most(100.0), quantile=1.0)
    yield Figure(f"{name}.rollback.{count}.decided", "s", [found.decided], at_most(5.0))
    yield Figure(f"{name}.rollback.{count}.converged", "s", [found.converged], at_most(90.0))
    goal = at_least(found.tasks - count)
    yield Figure(f"{name}.rollback.undisturbed", "tasks", [found.undisturbed], goal, decimals=0)


async def _run(url: str, sizes: Sizes) -> Rolled:
    cell = SimulatedCell(url)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return await _measured(cell, sizes)
    finally:
        await cell.close()


async def _measured(cell: SimulatedCell, sizes: Sizes) -> Rolled:
    tasks, count = sizes.checkpoint_tasks, sizes.rolled_back
    await cell.begin(sizes.checkpoint_machines)
    specs = job_specs(tasks, tasks // count)
    await cell.submit(specs)
    await cell.until_up(tasks)
    gc.collect()
    gc.freeze()  # as a borgmaster does with its cell
    keeper = Checkpointer(cell.core, cell.turn, cell.store, cell.clock)
    pauses = [await held_up(keeper.make("bench")) for _ in range(sizes.rounds)]

    good, before = cell.core.cell.position, _attempts(cell)
    bad = specs[0]
    await cell.inbox.ask(KillTasks(bad.key), "bench")
    while cell.core.cell.jobs[bad.key].running or cell.up > tasks - count:
        await cell.next_news()
    await cell.submit([msgspec.structs.replace(bad, env={"VERSION": "bad"})])
    await cell.until_up(tasks)

    began = time.perf_counter()
    moment, asked = Moment(str(good), position=good), RollbackRequest(str(good), max_affected=tasks)
    asker = Asker(Principal("bench", Role.ADMIN))
    await _rollbacks(cell, keeper).roll_back(moment, asked, asker, "", "")
    decided = cell.begun[cell.core.cell.timeline] - began  # what machines do next is in the same loop
    while not _is_back(cell, bad, tasks):
        await cell.next_news()
    converged = time.perf_counter() - began
    after = _attempts(cell)
    kept = sum(after[name] == attempt for name, attempt in before.items() if name[0] != bad.key)
    return Rolled(pauses, decided, converged, tasks, kept)


def _rollbacks(cell: SimulatedCell, keeper: Checkpointer) -> Rollbacks:
    moments = Moments(cell.core, cell.turn, cell.store, cell.clock, lambda: Daemon(0.0, "bench"))
    return Rollbacks(
        cell.core,
        cell.turn,
        cell.inbox,
        cell.store,
        moments,
        keeper,
        cell.clock,
    )


def _is_back(cell: SimulatedCell, spec: JobSpec, tasks: int) -> bool:
    job = cell.core.cell.jobs[spec.key]
    return not cell.core.cell.rolling and job.running == spec.tasks and job.spec == spec and cell.up == tasks


def _attempts(cell: SimulatedCell) -> dict[tuple[str, int], tuple[int, str, State, int]]:
    """Return what must not change of a task that nobody touched."""
    return {
        (job.key, task.index): (task.attempt, task.machine, task.state, task.restarts)
        for job in cell.core.cell.jobs.values()
        for task in job.tasks
    }
