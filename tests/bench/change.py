"""``change``: what it costs to change a cell while it serves: rolling updates and drains.

``update`` is one job in simulated time, of which the core's cpu counts. ``turn`` is the core of a large cell
in simulated time, at rest and with many updates and drains: what polls, store and requests take is left out.
``master`` is the cpu of a whole borgmaster, as the kernel counts it, with simulated machines on sockets in
clear, on which programs are up, and gone, at once. ``drain`` and the updates ``_web`` are real programs in a
cell as ``borgctl up`` makes it, under load of clients that follow the watch.
"""

from collections.abc import Iterator

import msgspec

from borgish.cell.commands import (
    DrainMachines,
    SubmitJob,
)
from borgish.cell.model import Cell
from borgish.resources import Resources
from borgish.spec.job import JobSpec, Restart, Update
from borgish.spec.shares import Share
from borgish.vocabulary import RestartPolicy, Runtime
from tests.bench import changed_live, changed_served
from tests.bench.figure import MEAN, Figure, at_most
from tests.bench.sizes import Sizes
from tests.bench.stand_in import START_SECONDS, StandIn

SETTLE_SECONDS = 10.0
JOB_TASKS = 100
BATCH_EVERY = 10
"""Of so many jobs one runs to completion: it may finish on machines that are drained, which stay so."""
SECONDS_MAX = 3_600
TASK = Resources(3_000, 128 * 1024**2)
"""A machine has room for 21: a cell with 20 for each machine is 95 % full."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what one update takes, then what many take in a large cell and a whole borgmaster, then how real
    programs fare."""
    yield from _one_update(sizes)
    yield from _in_a_large_cell(sizes)
    yield from changed_served.figures(sizes)
    yield from changed_live.figures(sizes)


def _one_update(sizes: Sizes) -> Iterator[Figure]:
    tasks, at_a_time = sizes.updated_tasks, sizes.updated_tasks // 20
    spec = _spec("web", tasks, Update(at_a_time=Share(at_a_time), settle_seconds=SETTLE_SECONDS))
    cell = StandIn(sizes.updated_machines, [spec])
    rest = sum(cell.seconds(20)) / 20
    began, cpu = cell.at, cell.cpu_seconds
    cell.ask(SubmitJob(_changed(spec)))
    while cell.core.cell.rolling:
        assert cell.at - began < SECONDS_MAX, cell.core.cell.jobs[spec.key].rollout
        cell.step()
    seconds, used = cell.at - began, cell.cpu_seconds - cpu
    used -= rest * seconds
    job = cell.core.cell.jobs[spec.key]
    assert job.running == tasks
    assert all(task.version == job.version for task in job.tasks)
    name = f"change.update.{tasks}"
    ideal = tasks / at_a_time * (SETTLE_SECONDS + START_SECONDS)
    yield Figure(f"{name}.cpu", "ms", [1000 * used])
    yield Figure(f"{name}.cpu_a_task", "us/task", [1e6 * used / tasks])
    yield Figure(f"{name}.simulated", "s", [seconds], at_most(1.2 * ideal), note=f"ideal: {ideal:.0f} s")


def _in_a_large_cell(sizes: Sizes) -> Iterator[Figure]:
    tasks, seconds = sizes.checkpoint_tasks, sizes.changing_seconds
    size = min(JOB_TASKS, tasks // 5)
    specs = [_spec(f"job-{number}", size, Update()) for number in range(tasks // size)]
    for number in range(0, len(specs), BATCH_EVERY):
        specs[number] = msgspec.structs.replace(specs[number], restart=Restart(RestartPolicy.NEVER))
    cell = StandIn(sizes.checkpoint_machines, specs)
    cell.seconds(5)  # what follows from the beginning is over
    rest = cell.seconds(seconds)
    services = [spec for spec in specs if spec.is_service]
    before = cell.cpu_seconds
    cell.ask(*(SubmitJob(_changed(spec)) for spec in services[: sizes.updates]))
    drained = _with_batch(cell.core.cell)[: sizes.drains]
    cell.ask(DrainMachines(drained))
    cell.seconds(1)  # all machines with a task of these jobs are read again once
    asked = cell.cpu_seconds - before
    steps = cell.steps
    busy = cell.seconds(seconds)
    steps = cell.steps - steps
    there = cell.core.cell
    rolling, full = len(there.rolling), sum(bool(there.placed[name]) for name in drained)
    turn = f"change.turn.{tasks}"
    note = f"{rolling} updates and {full} drains were not over; {steps / seconds:.0f} steps a second"
    yield Figure(f"{turn}.at_rest", "ms/s", [1000 * each for each in rest], quantile=MEAN)
    yield Figure(
        f"{turn}.{sizes.updates}_updates_{sizes.drains}_drains",
        "ms/s",
        [1000 * each for each in busy],
        note=note,
        quantile=MEAN,
    )
    yield Figure(f"{turn}.ratio", "x", [sum(busy) / sum(rest)], at_most(1.2))
    yield Figure(f"{turn}.asked", "ms", [1000 * asked])


def _with_batch(cell: Cell) -> tuple[str, ...]:
    """Return the machines on which something runs that may finish when they are drained."""
    return tuple(
        name
        for name, placed in sorted(cell.placed.items())
        if any(not cell.jobs[key].spec.is_service for key, _ in placed)
    )


def _spec(name: str, tasks: int, update: Update) -> JobSpec:
    return JobSpec(
        name,
        "bench",
        tasks,
        ("serve",),
        runtime=Runtime.FAKE,
        resources=TASK,
        update=update,
    )


def _changed(spec: JobSpec) -> JobSpec:
    return msgspec.structs.replace(spec, env={"VERSION": "2"})
