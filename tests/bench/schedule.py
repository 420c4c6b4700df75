"""``schedule``: passes of the real scheduler over large cells, each a cell in memory."""

import csv
import os
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec

from borgish.cell.model import Job, Machine, Snapshot, Task
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import Constraint, JobSpec
from borgish.vocabulary import Runtime, State
from tests.bench import peers
from tests.bench.borglets import GIB, machine_record
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes

TRACES = Path(os.environ.get("BORGISH_TRACES", Path(__file__).parents[3] / "shared" / "data"))
MIX_FILE = TRACES / "machine_mix_2011.csv"
# Where the file is not there, its six largest groups, 99.9 % of it: share of cpu, of ram, machines.
MIX_STATED = (
    (0.5, 0.5, 6732),
    (0.5, 0.25, 3863),
    (0.5, 0.75, 1001),
    (1.0, 1.0, 795),
    (0.25, 0.25, 126),
    (0.5, 0.12, 52),
)
LARGEST_CPU_MILLIS, LARGEST_RAM_BYTES = 64_000, 256 * GIB
SHAPES = 2_500
USERS = 200
PRIORITIES = (0, 100, 110, 200, 210, 300)
CPU_MILLIS = (100, 250, 500, 1000, 2000, 4000, 8000)
RAM_GIB = (0.25, 0.5, 1, 1.75, 3.5, 7, 14, 28)
JOB_TASKS = (1, 1, 1, 2, 3, 5, 8, 20, 40)
CONSTRAINTS = ((Constraint("arch", "==", ("amd64",)),), (Constraint("rack", "!=", ("r3",)),))
FULL_SHARE = 0.8
NOW = Now(0.0, 0.0)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the seconds or milliseconds of each kind of pass."""
    machines, tasks, pending = sizes.fleet_machines, sizes.fleet_tasks, sizes.fleet_pending
    scratch = [_scratch(machines, tasks) for _ in range(sizes.rounds)]
    mix = "machine_mix_2011.csv" if MIX_FILE.is_file() else "stated mix"
    yield Figure(
        f"schedule.scratch.{tasks}_on_{machines}", "s", scratch, at_most(2.0), f"{peers.BORG_SCRATCH}; {mix}"
    )
    full = FullCell(machines)
    online = [1000 * full.place(pending) for _ in range(sizes.rounds)]
    yield Figure(f"schedule.online.{pending}_on_{machines}", "ms", online, at_most(25.0), peers.BORG_ONLINE)
    one = [1000 * full.place_new_shape(number) for number in range(sizes.rounds)]
    yield Figure("schedule.one_new_shape", "ms", one)
    equal = [_equal(sizes.cell_machines, sizes.cell_tasks) for _ in range(sizes.rounds)]
    yield Figure(f"schedule.equal.{sizes.cell_tasks}_on_{sizes.cell_machines}", "s", equal)


def _scratch(machines: int, tasks: int) -> float:
    """Return the seconds of a first pass over a whole cell that waits."""
    chance = random.Random(3)
    shapes = _shapes(chance)
    cell = Cell(Snapshot("bench", jobs=_jobs(chance, shapes, tasks), machines=fleet(machines)))
    plan, seconds = _timed(Scheduler(1), cell, budget=2 * tasks)
    assert placed_of(plan) > 0.9 * tasks, f"only {placed_of(plan)} of {tasks} tasks were placed"
    return seconds


def _equal(machines: int, tasks: int) -> float:
    jobs = [_job("bench", f"equal-{number}", tasks // 2, Resources(100, GIB // 8), 0) for number in range(2)]
    cell = Cell(Snapshot("bench", jobs={job.key: job for job in jobs}, machines=fleet(machines)))
    plan, seconds = _timed(Scheduler(1), cell, budget=2 * tasks)
    assert placed_of(plan) == tasks // 2 * 2
    return seconds


class FullCell:
    """A cell with most of its cpu or ram taken, on which more is placed as it comes."""

    def __init__(self, machines: int) -> None:
        self._chance = random.Random(9)
        self._shapes = _shapes(self._chance)
        self._numbers = count()
        self._scheduler = Scheduler(1)
        self._cell = Cell(Snapshot("bench", machines=fleet(machines)))
        self._fill()

    def _fill(self) -> None:
        there = sum(machine.capacity.cpu_millis for machine in self._cell.machines.values())
        wanted = 0
        while wanted < FULL_SHARE * there:
            job = self._wait(self._chance.choice(JOB_TASKS))
            wanted += len(job.tasks) * job.spec.resources.cpu_millis
        self._carry_out(self._scheduler.schedule(self._cell, Observed(), NOW, budget=10**6))
        for key in list(self._cell.waiting):  # what did not fit is not part of what is measured
            del self._cell.waiting[key]

    def place(self, tasks: int) -> float:
        """Let so many tasks of shapes that were seen before come; return the seconds of their pass."""
        while sum(map(len, self._cell.waiting.values())) < tasks:
            self._wait(min(5, tasks))
        return self._pass()

    def place_new_shape(self, number: int) -> float:
        """Let one task come that is like no other."""
        job = _job("bench", f"new-{next(self._numbers)}", 1, Resources(777 + number, 999 * 1024**2), 0)
        self._add(job)
        return self._pass()

    def _pass(self) -> float:
        plan, seconds = _timed(self._scheduler, self._cell)
        assert placed_of(plan), "nothing was placed"
        self._carry_out(plan)
        self._cell.waiting.clear()
        return seconds

    def _wait(self, tasks: int) -> Job:
        user = f"u{self._chance.randrange(USERS)}"
        needs, priority = self._chance.choice(self._shapes), self._chance.choice(PRIORITIES)
        job = _job(user, f"job-{next(self._numbers)}", tasks, needs, priority)
        self._add(job)
        return job

    def _add(self, job: Job) -> None:
        self._cell.jobs[job.key] = job
        self._cell.waiting[job.key] = set(range(len(job.tasks)))

    def _carry_out(self, plan: Plan) -> None:
        touched: set[str] = set()
        for placement in plan.placements:
            job = self._cell.jobs[placement.job]
            for index, machine in zip(placement.indexes, placement.machines, strict=True):
                task = job.tasks[index]
                task.state, task.machine, task.attempt = State.RUNNING, machine, 1
                self._cell.placed[machine].add((job.key, index))
                self._cell.waiting[job.key].discard(index)
            touched.update(placement.machines)
        self._scheduler.refresh(self._cell, Observed(), sorted(touched))


def _timed(scheduler: Scheduler, cell: Cell, budget: int = 20_000) -> tuple[Plan, float]:
    began = time.perf_counter()
    plan = scheduler.schedule(cell, Observed(), NOW, budget)
    return plan, time.perf_counter() - began


def placed_of(plan: Plan) -> int:
    """Return how many tasks a plan places."""
    return sum(len(placement.indexes) for placement in plan.placements)


def fleet(machines: int) -> dict[str, Machine]:
    """Return machines of a real cell's sizes, in racks, most of them amd64."""
    chance = random.Random(1)
    mix = _mix()
    found = {}
    for number in range(machines):
        cpu, ram, _ = chance.choices(mix, [row[2] for row in mix])[0]
        capacity = Resources(int(cpu * LARGEST_CPU_MILLIS), int(ram * LARGEST_RAM_BYTES), 1000 * GIB)
        attributes = {"rack": f"r{number // 40}", "arch": "amd64" if chance.random() < 0.9 else "arm64"}
        record = machine_record(f"m{number}")
        found[record.name] = msgspec.structs.replace(
            record, capacity=capacity, attributes=attributes, runtimes=(Runtime.PROCESS, Runtime.DOCKER)
        )
    return found


def _mix() -> list[tuple[float, float, int]]:
    if not MIX_FILE.is_file():
        return list(MIX_STATED)
    with MIX_FILE.open(newline="") as file:
        return [
            (float(row["cpu_capacity"]), float(row["memory_capacity"]), int(row["machines"]))
            for row in csv.DictReader(file)
        ]


def _shapes(chance: random.Random) -> list[Resources]:
    return [
        Resources(
            chance.choice(CPU_MILLIS) + chance.randrange(40) * 10,
            int(chance.choice(RAM_GIB) * GIB) + chance.randrange(64) * 1024**2,
        )
        for _ in range(SHAPES)
    ]


def _jobs(chance: random.Random, shapes: list[Resources], tasks: int) -> dict[str, Job]:
    """Return waiting jobs with so many tasks in all; a fifth of the jobs has a constraint."""
    jobs: dict[str, Job] = {}
    left = tasks
    while left:
        size = min(chance.choice(JOB_TASKS), left)
        left -= size
        user, needs, priority = (
            f"u{chance.randrange(USERS)}",
            chance.choice(shapes),
            chance.choice(PRIORITIES),
        )
        constraints = () if chance.random() < 0.8 else chance.choice(CONSTRAINTS)
        job = _job(user, f"job-{len(jobs)}", size, needs, priority, constraints)
        jobs[job.key] = job
    return jobs


def _job(
    user: str,
    name: str,
    tasks: int,
    needs: Resources,
    priority: int,
    constraints: tuple[Constraint, ...] = (),
) -> Job:
    spec = JobSpec(name, user, tasks, ("serve",), priority=priority, resources=needs, constraints=constraints)
    return Job(spec.key, 1, spec, 0.0, user, tasks=[Task(index) for index in range(tasks)], pending=tasks)
