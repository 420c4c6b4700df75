"""The real scheduler on machines and tasks of anybody's, with nothing else around it: no borglets, no
clock. ``arrive`` and ``compact`` ask it two questions.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from borgish.cell.lifecycle import note_move
from borgish.cell.model import Cell, Job, Machine, Snapshot, Task
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from borgish.spec.job import Constraint, JobSpec, Override
from borgish.vocabulary import Runtime, State, job_key

DEVICE = "gpu"
"""How the one kind of device is called."""

START = Now(0.0, 0.0)


Note = Callable[[str], None]
"""Takes how far an experiment has come, in words."""


def nothing(_words: str) -> None:
    """Do nothing, where nobody wants to know how far it has come."""


OnPlacement = Callable[[int, str, tuple[str, ...]], None]
"""Takes where a task went, by its number among all: its machine, "" where it has none, and its devices."""


def ignore_placement(_number: int, _machine: str, _devices: tuple[str, ...]) -> None:
    """Do nothing, where nobody wants to know where tasks went."""


class Arrival(msgspec.Struct, frozen=True):
    """One task that comes, of a user's job."""

    user: str
    job: str
    priority: int
    needs: Resources
    constraints: tuple[Constraint, ...] = ()

    @property
    def key(self) -> str:
        return job_key(self.user, self.job)


class Times(msgspec.Struct, frozen=True):
    """When tasks come, in ascending order, and when they leave: in seconds, in parallel to them."""

    comes: Sequence[float]
    leaves: Sequence[float]  # inf: never


def machine_of(name: str, capacity: Resources, attributes: dict[str, str]) -> Machine:
    """Return a machine that runs whatever fits it."""
    return Machine(
        name,
        host="",
        port=0,
        tls=False,
        capacity=capacity,
        attributes=attributes,
        runtimes=(Runtime.PROCESS,),
        ports_low=0,
        ports_high=-1,
        boot_id="",
        joined_at=0.0,
    )


def specs_of(arrivals: Iterable[Arrival]) -> dict[str, JobSpec]:
    """Return the jobs by their key, each with the tasks in the order in which they come."""
    by_job: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        by_job.setdefault(arrival.key, []).append(arrival)
    return {key: _spec(tasks) for key, tasks in by_job.items()}


def _spec(tasks: Sequence[Arrival]) -> JobSpec:
    first = tasks[0]
    return JobSpec(
        first.job,
        first.user,
        len(tasks),
        ("true",),
        priority=first.priority,
        resources=first.needs,
        constraints=first.constraints,
        overrides={
            index: Override(resources=task.needs)
            for index, task in enumerate(tasks)
            if task.needs != first.needs
        },
    )


class PackedCell:
    """A cell to which tasks come one at a time. They stay where they are put until they are removed; what
    finds no place goes."""

    def __init__(
        self, machines: Iterable[Machine], specs: dict[str, JobSpec], policy: str, seed: int
    ) -> None:
        self._specs = specs
        self._cell = Cell(Snapshot("pack", machines={machine.name: machine for machine in machines}))
        self._observed = Observed()
        self._scheduler = Scheduler(seed, SchedulerSettings(policy=policy), preempts=False)

    def add(self, key: str) -> Plan:
        """Let the next task of a job come, and carry out where the scheduler puts it."""
        cell = self._cell
        job = cell.jobs.get(key)
        if job is None:
            job = cell.jobs[key] = Job(key, len(cell.jobs) + 1, self._specs[key], 0.0, "pack")
        task = Task(len(job.tasks))
        job.tasks.append(task)
        job.pending += 1
        cell.waiting[key] = {task.index}
        plan = self._scheduler.schedule(cell, self._observed, START)
        del cell.waiting[key]
        job.pending -= 1
        for placement in plan.placements:
            task.state, task.machine = State.RUNNING, placement.machines[0]
            task.devices = placement.devices[0] if placement.devices else ()
            job.running += 1
            note_move(cell, job, task, 1)
            self._scheduler.refresh(cell, self._observed, placement.machines)
        if not plan.placements:
            task.state = State.DEAD
            job.dead += 1
        return plan

    def remove(self, key: str, index: int) -> None:
        """Let a task of a job leave its machine."""
        job = self._cell.jobs[key]
        task = job.tasks[index]
        note_move(self._cell, job, task, -1)
        self._scheduler.refresh(self._cell, self._observed, (task.machine,))
        job.tasks[index] = Task(index, State.DEAD)
        job.running -= 1
        job.dead += 1


def waiting_jobs(specs: Iterable[JobSpec]) -> dict[str, Job]:
    """Return jobs by key, of which every task waits."""
    jobs = {}
    for number, spec in enumerate(specs, 1):
        tasks = [Task(index) for index in range(spec.tasks)]
        jobs[spec.key] = Job(spec.key, number, spec, 0.0, "pack", tasks=tasks, pending=spec.tasks)
    return jobs
