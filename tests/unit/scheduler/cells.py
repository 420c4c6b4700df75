"""Small cells for the scheduler's tests."""

from typing import Any

from borgish.cell.apply import apply_entry
from borgish.cell.events import AnyEvent, Entry, PlacesPromised, TasksEvicted, TasksPlaced
from borgish.cell.model import Cell, Job, Machine, Snapshot, Task
from borgish.cell.observed import Observed, SeenMachine
from borgish.clock import Now
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, Runtime

GIB = 1024**3
NOW = Now(1_700_000_000.0, 100.0)


def machine(name: str, cpu: int = 4000, ram: int = 8 * GIB, **more: Any) -> Machine:
    facts: dict[str, Any] = {
        "capacity": Resources(cpu, ram, 100 * GIB),
        "attributes": {},
        "runtimes": (Runtime.PROCESS,),
        "ports_low": 20000,
        "ports_high": 20009,
    }
    return Machine(name, "127.0.0.1", 7401, False, boot_id="b", joined_at=0.0, **(facts | more))


def spec(key: str, tasks: int = 1, cpu: int = 1000, ram: int = GIB, **more: Any) -> JobSpec:
    user, name = key.split("/")
    facts: dict[str, Any] = {"resources": Resources(cpu, ram)}
    return JobSpec(name, user, tasks, ("true",), **(facts | more))


def job(wanted: JobSpec) -> Job:
    tasks = [Task(index) for index in range(wanted.tasks)]
    return Job(wanted.key, 1, wanted, 0.0, wanted.user, tasks=tasks, pending=len(tasks))


def cell_of(machines: list[Machine], specs: list[JobSpec]) -> Cell:
    return Cell(
        Snapshot(
            "test",
            jobs={each.key: job(each) for each in specs},
            machines={each.name: each for each in machines},
        )
    )


def observed_of(cell: Cell) -> Observed:
    observed = Observed()
    observed.machines = {name: SeenMachine(first_heard=1.0, instance="i") for name in cell.machines}
    return observed


def happen(cell: Cell, *events: AnyEvent) -> None:
    apply_entry(cell, Entry(cell.position + 1, NOW.wall, 1, 1, "test", "test", events))


def carry_out(cell: Cell, plan: Plan) -> None:
    """Put the plan's placements, promises and preemptions into the cell, an entry each."""
    for each in plan.placements:
        handovers = cell.handovers.get(each.job, {})
        incoming = tuple(index for index in each.indexes if index in handovers)
        places = (each.indexes, each.machines, each.ports, each.devices, each.allocs, incoming)
        happen(cell, TasksPlaced(each.job, *places))
    for promise in plan.promises:
        happen(cell, PlacesPromised(promise.job, promise.indexes, promise.machines))
    preempt(cell, plan)


def preempt(cell: Cell, plan: Plan) -> None:
    """Let the victims go."""
    for each in plan.preemptions:
        happen(
            cell,
            TasksEvicted(
                each.job,
                each.indexes,
                Eviction.PREEMPTED,
                each.reason,
                each.notice_seconds,
                each.preemptor,
            ),
        )


def where(plan: Plan) -> dict[str, str]:
    """Return the machine of each task placed."""
    return {
        f"{each.job}/{index}": name
        for each in plan.placements
        for index, name in zip(each.indexes, each.machines, strict=True)
    }


def touched(cell: Cell) -> set[str]:
    """Return the machines that changed since last asked."""
    found = cell.take_touched()
    return found.machines | found.placements | found.machines_gone
