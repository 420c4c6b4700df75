"""What the tasks of a cell are like: how much they ask for together, and in which shapes."""

from collections import Counter
from itertools import chain

from borgish.cell.model import Job
from borgish.cell.state import Cell
from borgish.scheduler.census import CPU, RAM
from borgish.scheduler.equivalence import Classes, TaskClass
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.policy import Shape
from borgish.scheduler.queue import Level


class CellDemand:
    """What the tasks of one cell ask for, those that run and those that wait."""

    def __init__(self, cell: Cell, fleet: Fleet, classes: Classes, waiting: list[Level]) -> None:
        self._cell, self._fleet, self._classes = cell, fleet, classes
        self._waiting = waiting

    def totals(self) -> tuple[float, float]:
        """Return how much cpu and ram, in their units."""
        fleet = self._fleet
        cpu, ram = ((fleet.capacity[kind] - fleet.free[kind]).sum() for kind in (CPU, RAM))
        for waiting in chain.from_iterable(chain.from_iterable(self._waiting)):
            tasks = len(waiting.indexes) - waiting.done
            cpu += waiting.usual.cpu * tasks
            ram += waiting.usual.ram * tasks
        return float(cpu), float(ram)

    def size(self) -> int:
        """Return how many jobs there are."""
        return len(self._cell.jobs)

    def shapes(self) -> list[Shape]:
        """Return all shapes, the most frequent first. Bands, ports and rules are no part of a shape."""
        counts: Counter[object] = Counter()
        kinds: dict[object, TaskClass] = {}
        for job in self._cell.jobs.values():
            for kind, tasks in self._classes_of(job).items():
                shape = (kind.cpu, kind.ram, kind.devices, kind.wanted)
                counts[shape] += tasks
                kinds.setdefault(shape, kind)
        ordered = sorted(counts, key=lambda shape: (-counts[shape], repr(shape)))
        return [Shape(kinds[shape], counts[shape]) for shape in ordered if counts[shape] > 0]

    def _classes_of(self, job: Job) -> dict[TaskClass, int]:
        """Return the classes of a job's tasks that run or wait here: on machines, or in this alloc set."""
        spec, alive = job.spec, job.pending + job.running
        if spec.inside != self._fleet.room or not alive:
            return {}
        own = [index for index, override in spec.overrides.items() if override.resources is not None]
        found: Counter[TaskClass] = Counter()
        found[self._class(job, -1)] = max(0, alive - len(own))
        for index in own:
            found[self._class(job, index)] += 1
        return found

    def _class(self, job: Job, index: int) -> TaskClass:
        return self._classes.of(self._cell, job.spec, index, self._fleet)
