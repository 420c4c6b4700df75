"""The real scheduler on machines and tasks of anybody's, with nothing else around it: no borglets, no
time, no end of tasks. ``arrive`` and ``compact`` ask it two questions.
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
    """A cell to which tasks come one at a time. They stay where they are put; what finds no place goes."""

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


def waiting_jobs(specs: Iterable[JobSpec]) -> dict[str, Job]:
    """Return jobs by key, of which every task waits."""
    jobs = {}
    for number, spec in enumerate(specs, 1):
        tasks = [Task(index) for index in range(spec.tasks)]
        jobs[spec.key] = Job(spec.key, number, spec, 0.0, "pack", tasks=tasks, pending=spec.tasks)
    return jobs
