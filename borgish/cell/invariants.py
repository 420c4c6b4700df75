"""What must hold of a cell after every step, whatever happened. For the simulator and for tests.

Each check yields one sentence for each thing wrong; a sound cell yields none.
"""

from collections.abc import Iterator

from borgish.cell.demand import Demand
from borgish.cell.model import Job, Task
from borgish.cell.state import Cell
from borgish.resources import Resources
from borgish.vocabulary import Ending, State, task_name


def violations(cell: Cell) -> list[str]:
    """Return everything that is wrong with a cell, in words."""
    return [text for check in CHECKS for text in check(cell)]


def tasks_fill_their_jobs(cell: Cell) -> Iterator[str]:
    """Each job has exactly its tasks, and its counts are those of its tasks."""
    for key, job in cell.jobs.items():
        if [task.index for task in job.tasks] != list(range(job.spec.tasks)):
            yield f"{key} wants {job.spec.tasks} tasks and has {len(job.tasks)}"
        if (job.pending, job.running, job.dead, job.finished) != _counts(job):
            yield f"{key} counts {job.pending}/{job.running}/{job.dead}/{job.finished}, not {_counts(job)}"


def _counts(job: Job) -> tuple[int, int, int, int]:
    states = [task.state for task in job.tasks]
    finished = sum(task.state is State.DEAD and task.ending is Ending.FINISH for task in job.tasks)
    return states.count(State.PENDING), states.count(State.RUNNING), states.count(State.DEAD), finished


def indexes_follow_records(cell: Cell) -> Iterator[str]:
    """What is placed and what waits is what the tasks say."""
    placed: dict[str, set[tuple[str, int]]] = {name: set() for name in cell.machines}
    waiting: dict[str, set[int]] = {}
    for key, job in cell.jobs.items():
        for task in job.tasks:
            if task.state is State.RUNNING:
                placed.setdefault(task.machine, set()).add((key, task.index))
            elif task.state is State.PENDING:
                waiting.setdefault(key, set()).add(task.index)
    if placed != cell.placed:
        yield "the index of placed tasks does not follow from the tasks"
    if waiting != cell.waiting:
        yield "the index of waiting tasks does not follow from the tasks"


def demand_follows_records(cell: Cell) -> Iterator[str]:
    """What users are said to ask for is what their jobs do ask for."""
    if Demand(cell.jobs, cell.rules.bands).totals != cell.demand.totals:
        yield "the sums of what users ask for do not follow from the jobs"


def running_tasks_have_a_place(cell: Cell) -> Iterator[str]:
    """A running task has an attempt the journal knows, a machine of the cell, and its ports."""
    for key, job, task in _running(cell):
        name = task_name(key, task.index)
        if not 0 < task.attempt <= cell.position:
            yield f"{name} runs as attempt {task.attempt}, after journal position {cell.position}"
        if task.machine not in cell.machines:
            yield f"{name} runs on {task.machine}, which is not in the cell"
        if len(task.ports) != len(job.spec.ports):
            yield f"{name} has {len(task.ports)} ports and needs {len(job.spec.ports)}"


def machines_are_not_overfull(cell: Cell) -> Iterator[str]:
    """The limits of the tasks placed on a machine fit its capacity."""
    for name, machine in cell.machines.items():
        held = Resources()
        for job, index in sorted(cell.placed.get(name, ())):
            held = held.plus(cell.jobs[job].spec.needs(index))
        if not _fits(held, machine.capacity):
            yield f"{name} holds {held}, more than its {machine.capacity}"


def _fits(held: Resources, capacity: Resources) -> bool:
    return (
        held.cpu_millis <= capacity.cpu_millis
        and held.ram_bytes <= capacity.ram_bytes
        and held.disk_bytes <= capacity.disk_bytes
        and all(amount <= capacity.named.get(name, 0) for name, amount in held.named.items())
    )


def ports_are_held_once(cell: Cell) -> Iterator[str]:
    """No port of a machine is given to two running tasks."""
    holders: dict[tuple[str, int], str] = {}
    for key, _job, task in _running(cell):
        name = task_name(key, task.index)
        for port in task.ports:
            other = holders.setdefault((task.machine, port), name)
            if other != name:
                yield f"port {port} of {task.machine} is held by {other} and by {name}"


def _running(cell: Cell) -> Iterator[tuple[str, Job, Task]]:
    for key, job in cell.jobs.items():
        for task in job.tasks:
            if task.state is State.RUNNING:
                yield key, job, task


CHECKS = (
    tasks_fill_their_jobs,
    indexes_follow_records,
    demand_follows_records,
    running_tasks_have_a_place,
    machines_are_not_overfull,
    ports_are_held_once,
)
