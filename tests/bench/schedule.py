"""``schedule``: passes of the real scheduler over large cells, each a cell in memory.

Left out are the master, its store, and all machines: what is timed is the pass alone. Only ``kubernetes``,
the shapes of Kubernetes' scheduler_perf on 5,000 machines, goes through the master's whole core, which
decides, applies, schedules and enters.

``scratch`` places a whole cell that waits; the figures with a technique's name have this one switched off.
``online`` places new tasks on a cell that is 80 % full, in the batches of a trace, and in batches of at most
five. ``plan`` is a pass that changes nothing. ``nomad_grid`` is a job of 50 to 1,200 tasks on machines in 25
to 75 racks, as in Nomad's own benchmark. ``backlog``, a full cell before which jobs wait, also goes through
the whole core.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec

from borgish.cell.model import Cell, Job, Snapshot
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.master.host.garbage import settle
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from borgish.vocabulary import State
from tests.bench import backlog, grid, kubernetes, peers
from tests.bench.borglets import GIB
from tests.bench.cluster import Workload, fleet, job, sources
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes

FULL_SHARE = 0.8
NOW = Now(0.0, 0.0)
STOPPED_AFTER_SECONDS = 600
TECHNIQUES = ("score_cache", "equivalence_classes", "relaxed_randomisation")


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the seconds or milliseconds of each kind of pass, and what others publish for theirs."""
    machines, tasks, pending = sizes.fleet_machines, sizes.fleet_tasks, sizes.fleet_pending
    yield from _scratch_figures(machines, tasks, sizes.rounds)
    full = FullCell(machines)
    for name, batch_max in (("", pending), (".batches_to_5", 5)):
        passes = [full.place(pending, batch_max) for _ in range(sizes.rounds)]
        yield Figure(
            f"schedule.online.{pending}_on_{machines}{name}",
            "ms",
            [1000 * seconds for seconds, _ in passes],
            at_most(25.0),
            peers.BORG_ONLINE,
            note=f"shapes: {', '.join(str(shapes) for _, shapes in passes)}",
        )
    one = [1000 * full.place_new_shape(number) for number in range(sizes.rounds)]
    yield Figure("schedule.one_new_shape", "ms", one, at_most(2.0))
    planned = [1000 * full.dry_run(pending) for _ in range(sizes.rounds)]
    yield Figure(f"schedule.plan.{pending}_on_{machines}", "ms", planned, at_most(100.0))
    equal = [_equal(sizes.cell_machines, sizes.cell_tasks) for _ in range(sizes.rounds)]
    yield Figure(f"schedule.equal.{sizes.cell_tasks}_on_{sizes.cell_machines}", "s", equal)
    yield from kubernetes.figures(sizes)
    yield from grid.figures(sizes)
    yield from backlog.figures(sizes)
    yield from _switch_figures(machines, tasks)


def _scratch_figures(machines: int, tasks: int, rounds: int) -> Iterator[Figure]:
    name = f"schedule.scratch.{tasks}_on_{machines}"
    runs = [scratch(machines, tasks, SchedulerSettings()) for _ in range(rounds)]
    seconds = [run.seconds for run in runs]
    note = f"{runs[0].shapes} shapes; {sources()}"
    yield Figure(name, "s", seconds, at_most(2.0), peers.BORG_SCRATCH, note=note)
    yield Figure(f"{name}.memory", "MiB", [memory_apart(machines, tasks)], at_most(400.0))


def _switch_figures(machines: int, tasks: int) -> Iterator[Figure]:
    """Yield a run with each technique switched over, by itself."""
    default = SchedulerSettings()
    for technique in TECHNIQUES:
        is_on = getattr(default, technique)
        settings = msgspec.structs.replace(default, **{technique: not is_on})
        name = f"schedule.scratch.{technique}_{'off' if is_on else 'on'}"
        run = scratch(machines, tasks, settings)
        stopped = f"stopped after {STOPPED_AFTER_SECONDS} s with {run.placed} placed" * (run.placed < tasks)
        yield Figure(name, "s", [run.seconds], peer=peers.BORG_TECHNIQUES, note=stopped)


class Run(msgspec.Struct):
    """A first pass over a whole cell that waits, or the passes until it was stopped."""

    seconds: float
    placed: int
    shapes: int


def scratch(machines: int, tasks: int, settings: SchedulerSettings) -> Run:
    """Place a whole cell that waits; return how long the scheduler took."""
    workload = Workload(3)
    jobs = workload.jobs(tasks)
    cell = Cell(Snapshot("bench", jobs=jobs, machines=fleet(machines)))
    scheduler, run = Scheduler(1, settings), Run(0.0, 0, len(workload.shapes))
    budget = 2 * tasks if settings.equivalence_classes else 2_000  # so that it can be stopped on the way
    while run.seconds < STOPPED_AFTER_SECONDS:
        plan, seconds = _timed(scheduler, cell, budget)
        run.seconds += seconds
        run.placed += placed_of(plan)
        if not plan.more:
            break
        carry_out(cell, scheduler, plan)
    assert run.placed > 0.9 * tasks or run.seconds >= STOPPED_AFTER_SECONDS, f"{run.placed} placed"
    return run


def memory_apart(machines: int, tasks: int) -> float:
    """Return how many MiB a process of its own takes at most, all told, that schedules a waiting cell."""
    call = [sys.executable, "-m", "tests.bench.schedule", str(machines), str(tasks)]
    return float(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def _print_memory(machines: int, tasks: int) -> None:
    cell = Cell(Snapshot("bench", jobs=Workload(3).jobs(tasks), machines=fleet(machines)))
    plan = Scheduler(1).schedule(cell, Observed(), NOW, 2 * tasks)
    assert placed_of(plan)
    # Of this program alone: ru_maxrss begins with what the process was that started it.
    status = Path("/proc/self/status").read_text()
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def _equal(machines: int, tasks: int) -> float:
    jobs = [job("bench", f"equal-{number}", tasks // 2, Resources(100, GIB // 8), 0) for number in range(2)]
    cell = Cell(Snapshot("bench", jobs={each.key: each for each in jobs}, machines=fleet(machines)))
    plan, seconds = _timed(Scheduler(1), cell, budget=2 * tasks)
    assert placed_of(plan) == tasks // 2 * 2
    return seconds


class FullCell:
    """A cell with most of its cpu or ram taken, on which more is placed as it comes."""

    def __init__(self, machines: int) -> None:
        self._workload = Workload(9)
        self._numbers = count()
        self._scheduler = Scheduler(1)
        self._cell = Cell(Snapshot("bench", machines=fleet(machines)))
        self._fill()

    def _fill(self) -> None:
        there = sum(machine.capacity.cpu_millis for machine in self._cell.machines.values())
        wanted = 0
        while wanted < FULL_SHARE * there:
            each = self._wait()
            wanted += len(each.tasks) * each.spec.resources.cpu_millis
        carry_out(
            self._cell, self._scheduler, self._scheduler.schedule(self._cell, Observed(), NOW, budget=10**6)
        )
        for key in list(self._cell.waiting):  # what did not fit is not part of what is measured
            del self._cell.waiting[key]

    def place(self, tasks: int, batch_max: int) -> tuple[float, int]:
        """Let so many tasks come, in the trace's batches of at most so many.

        Return the seconds of their pass, and in how many shapes they came.
        """
        self._workload.shapes.clear()
        left = tasks
        while left:
            left -= len(self._wait(min(batch_max, left)).tasks)
        return self._pass(), len(self._workload.shapes)

    def place_new_shape(self, number: int) -> float:
        """Let one task come that is like no other."""
        self._add(job("bench", f"new-{next(self._numbers)}", 1, Resources(777 + number, 999 * 1024**2), 0))
        return self._pass()

    def dry_run(self, tasks: int) -> float:
        """Return the seconds of a plan for one more job."""
        spec = job("bench", "planned", tasks, Resources(1000, GIB), 0).spec
        settle()
        began = time.perf_counter()
        plan = self._scheduler.dry_run(self._cell, Observed(), spec, (), NOW)
        seconds = time.perf_counter() - began
        assert placed_of(plan) == tasks
        return seconds

    def _pass(self) -> float:
        plan, seconds = _timed(self._scheduler, self._cell)
        assert placed_of(plan), "nothing was placed"
        carry_out(self._cell, self._scheduler, plan)
        self._cell.waiting.clear()
        return seconds

    def _wait(self, tasks_max: int = 10_000) -> Job:
        each = self._workload.job(tasks_max)
        self._add(each)
        return each

    def _add(self, each: Job) -> None:
        self._cell.jobs[each.key] = each
        self._cell.waiting[each.key] = set(range(len(each.tasks)))


def carry_out(cell: Cell, scheduler: Scheduler, plan: Plan) -> None:
    """Put a plan's placements into the cell, and let the scheduler read what changed."""
    touched: set[str] = set()
    for placement in plan.placements:
        each = cell.jobs[placement.job]
        for index, machine in zip(placement.indexes, placement.machines, strict=True):
            task = each.tasks[index]
            task.state, task.machine, task.attempt = State.RUNNING, machine, 1
            cell.placed[machine].add((each.key, index))
        cell.waiting[each.key].difference_update(placement.indexes)
        touched.update(placement.machines)
    scheduler.refresh(cell, Observed(), sorted(touched))


def _timed(scheduler: Scheduler, cell: Cell, budget: int = 20_000) -> tuple[Plan, float]:
    settle()  # as the borgmaster does when it has loaded its cell
    began = time.perf_counter()
    plan = scheduler.schedule(cell, Observed(), NOW, budget)
    return plan, time.perf_counter() - began


def placed_of(plan: Plan) -> int:
    """Return how many tasks a plan places."""
    return sum(len(placement.indexes) for placement in plan.placements)


if __name__ == "__main__":
    _print_memory(int(sys.argv[1]), int(sys.argv[2]))
