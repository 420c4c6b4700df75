"""A small cell that goes on from pass to pass, for the scheduler's tests."""

from typing import Any

from borgish.cell.commands import SeenAttempt
from borgish.cell.events import JobSubmitted
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import JobSpec
from borgish.vocabulary import Phase
from tests.unit.scheduler.cells import NOW, carry_out, cell_of, happen, machine, observed_of, touched


class Cluster:
    """Machines m1, m2 ... with 4 cpus and 10 ports each, and a scheduler whose passes are carried out."""

    def __init__(self, machines: int, *running: JobSpec, **more: Any) -> None:
        """Let these jobs run already, submitted one after another; ``more`` is of each machine."""
        self.cell: Cell = cell_of([machine(f"m{n}", **more) for n in range(1, machines + 1)], [])
        self.observed: Observed = observed_of(self.cell)
        self.scheduler = Scheduler()
        for each in running:
            self.submit(each)
            self.run()

    def submit(self, wanted: JobSpec) -> None:
        happen(self.cell, JobSubmitted(wanted))

    def run(self) -> Plan:
        self.scheduler.refresh(self.cell, self.observed, touched(self.cell))
        plan = self.scheduler.schedule(self.cell, self.observed, NOW)
        carry_out(self.cell, plan)
        return plan

    def see(self, key: str, alloc: str = "") -> None:
        """Let the machines report the tasks of a job."""
        for task in self.cell.jobs[key].tasks:
            name = (f"{key}/{task.index}", task.attempt)
            needs, seen = self.cell.jobs[key].spec.needs(task.index), self.observed.machines[task.machine]
            seen.put(SeenAttempt(*name, Phase.UP, needs, task.ports, alloc=alloc))

    def part(self) -> None:
        """Let everything that should not run be gone."""
        for name, seen in self.observed.machines.items():
            seen.drop_all()
            self.scheduler.refresh(self.cell, self.observed, [name])
