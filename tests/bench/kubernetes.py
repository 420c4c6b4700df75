"""The shapes of Kubernetes' scheduler_perf at 5,000 machines, through the real core.

Machines and tasks are those of scheduler_perf: 4 cores and 32 GiB, in three zones; 100 m and 500 MiB a
task. Tasks come in jobs of a hundred, 500 at a time. Each step decides, applies, schedules and enters;
nothing is stored, and there are no borglets, as there are no kubelets there.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from borgish.cell.command import Command
from borgish.cell.commands import SubmitJob
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.host.garbage import settle
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import Affinity, Constraint, JobSpec, Spread
from borgish.vocabulary import Runtime
from tests.bench.figure import Figure, at_least
from tests.bench.sizes import Sizes

TASKS_PER_S = 10_000.0
JOB_TASKS = 100
ARRIVING = 500
ZONES = 3
NODE = Resources(4000, 32 * 1024**3, 0)
TASK = Resources(100, 500 * 1024**2, 0)
GREEN = (Constraint("color", "==", ("green",)),)
LOW, HIGH = Resources(900, 500 * 1024**2, 0), Resources(3_000, 500 * 1024**2, 0)
IMPOSSIBLE = Resources(1_000_000, 500 * 1024**2, 0)

Row = tuple[str, int, int, str, dict[str, Any], dict[str, Any]]
"""Name, tasks there before, tasks measured, pass mark, and what the two kinds ask for."""

ROWS: tuple[Row, ...] = (
    ("plain", 1_000, 10_000, "680/s", {}, {}),
    ("plain_more", 5_000, 50_000, "810/s", {}, {}),
    ("spread_hard", 5_000, 5_000, "460/s", {}, {"spread": (Spread("zone", 5_000),)}),
    ("spread_soft", 5_000, 5_000, "340/s", {}, {"spread": (Spread("zone"),)}),
    (
        "affinity",
        5_000,
        5_000,
        "35/s",
        {"labels": {"color": "green"}},
        {"labels": {"color": "green"}, "near": (Affinity(GREEN, "zone"),)},
    ),
    (
        "affinity_soft",
        5_000,
        5_000,
        "90/s",
        {"labels": {"color": "green"}},
        {"labels": {"color": "green"}, "near": (Affinity(GREEN, "zone", 10),)},
    ),
    (
        "anti_affinity",
        1_000,
        2_000,
        "60/s",
        {"labels": {"color": "green"}, "apart": (Affinity(GREEN),)},
        {"labels": {"color": "green"}, "apart": (Affinity(GREEN),)},
    ),
)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield tasks a second for each row, with Kubernetes' pass mark beside it."""
    machines = sizes.kubernetes_machines
    for name, before, measured, mark, first, then in ROWS:
        scale = machines / 5_000
        samples = [
            rate(Perf(machines, int(before * scale), first), int(measured * scale), then)
            for _ in range(sizes.rounds)
        ]
        yield _figure(name, samples, mark)
    yield _figure("preemption", [_preempting(machines) for _ in range(sizes.rounds)], "none published")
    yield _figure(
        "plain_beside_preemptors", [_beside(machines, _preemptor) for _ in range(sizes.rounds)], "570/s"
    )
    yield _figure(
        "plain_beside_impossible", [_beside(machines, _impossible) for _ in range(sizes.rounds)], "590/s"
    )


def _figure(name: str, samples: list[float], mark: str) -> Figure:
    return Figure(
        f"schedule.kubernetes.{name}", "tasks/s", samples, at_least(TASKS_PER_S), f"kube-scheduler: {mark}"
    )


class Perf:
    """A core with machines, and tasks that were there before."""

    def __init__(self, machines: int, before: int, first: dict[str, Any]) -> None:
        self._jobs = 0
        self._now = Now(1_000.0, 1_000.0)
        cell = Cell(Snapshot("perf", machines={f"m{n}": _machine(n) for n in range(machines)}))
        self.core = Core(cell, ReconcileSettings(), self._now)
        self.core.begin(1, "bench", self._now)
        self.submit(before, **first)
        self.settle()
        settle()  # as the borgmaster does when it has loaded its cell

    def submit(self, tasks: int, *, priority: int = 0, needs: Resources = TASK, **more: Any) -> None:
        """Submit jobs with so many tasks in all, in one step."""
        asks = []
        while tasks:
            size = min(JOB_TASKS, tasks)
            tasks -= size
            self._jobs += 1
            spec = JobSpec(
                f"j{self._jobs}", "perf", size, ("true",), resources=needs, priority=priority, **more
            )
            asks.append(SubmitJob(spec))
        self.ask(*asks)

    def ask(self, *commands: Command) -> None:
        """Have people ask for this, in one step."""
        self._step([CommandRequest(number, each, "perf") for number, each in enumerate(commands)])

    def settle(self) -> None:
        """Step until nothing is left to do."""
        while self._step(()):
            pass

    def running(self) -> int:
        """Return how many tasks run."""
        return sum(map(len, self.core.cell.placed.values()))

    def _step(self, asks: Any) -> bool:
        self._now = self._now.later(0.001)
        step = self.core.step(asks, self._now)
        return step.more or bool(step.entries)


def rate(perf: Perf, tasks: int, asked: dict[str, Any]) -> float:
    """Return tasks placed a second while so many come."""
    before, began, left = perf.running(), time.perf_counter(), tasks
    while left:
        size = min(ARRIVING, left)
        perf.submit(size, **asked)
        left -= size
    perf.settle()
    seconds = time.perf_counter() - began
    placed = perf.running() - before
    assert placed == tasks, f"{placed} of {tasks} placed"
    return tasks / seconds


def _preempting(machines: int) -> float:
    """Return preemptors placed a second in a cell that low tasks fill: each takes the place of three."""
    tasks = machines
    perf = Perf(machines, machines * 4, {"needs": LOW})
    before, began = perf.running(), time.perf_counter()
    perf.submit(tasks, needs=HIGH, priority=200)
    while sum(map(len, perf.core.cell.promised.values())) or any(
        key.startswith("perf/") and perf.core.cell.jobs[key].spec.priority == 200
        for key in perf.core.cell.waiting
    ):
        perf._step(())
    seconds = time.perf_counter() - began
    assert perf.running() < before
    return tasks / seconds


def _preemptor(perf: Perf) -> None:
    perf.submit(5, needs=HIGH, priority=200)


def _impossible(perf: Perf) -> None:
    perf.submit(5, needs=IMPOSSIBLE)


def _beside(machines: int, disturb: Callable[[Perf], None]) -> float:
    """Return plain tasks placed a second while others come that have to preempt, or can never fit."""
    tasks = machines
    perf = Perf(machines, 4 * machines, {})
    began, left = time.perf_counter(), tasks
    while left:
        size = min(ARRIVING, left)
        disturb(perf)
        perf.submit(size)
        left -= size
    perf.settle()
    return tasks / (time.perf_counter() - began)


def _machine(number: int) -> Machine:
    return Machine(
        f"m{number}",
        "127.0.0.1",
        7401,
        False,
        NODE,
        {"zone": f"z{number % ZONES}", "rack": f"r{number // 40}"},
        (Runtime.PROCESS,),
        20000,
        29999,
        "b",
        0.0,
    )
