"""The allocs of one set as rows, so that tasks are placed in them as they are on machines.

So every filter, rule, policy and refusal is the same code. A row has what its alloc reserves, and the facts
of its machine. Allocs of one machine share its ports, and the counters of spread and affinity stay by
machine, or a task inside would not see one outside: both are kept in the rows of the machines.

Allocs never reach a machine: nothing runs for them, and what runs inside carries the name of its alloc's stay
(``user/room/3@1200``), so that its needs count for themselves when the alloc has gone first.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from borgish.cell.model import Cell, Job, Machine
from borgish.cell.observed import Observed
from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.affinity import Choice, Counter
from borgish.scheduler.arrays import FloatArray, IntArray, widened
from borgish.scheduler.fleet.fleet import UNSEEN, Fleet, Reading, Widening
from borgish.scheduler.fleet.usage import PORTS, usage_of_alloc
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import MACHINE
from borgish.vocabulary import State, split_task_name, task_name


class AllocFleet(Fleet):
    """The rows of one alloc set. A row is named like its alloc: ``user/room/3``."""

    noun = "alloc"
    independent_rows = False
    preemptible = False

    def __init__(self, machines: Fleet, key: str) -> None:
        """Use the rows of all machines for what allocs share, and the key of the set."""
        self._machines = machines
        self.alloc_set = key
        self.machine_row: IntArray = np.zeros(0, dtype=np.int64)
        self._machine: dict[int, str] = {}  # by row: on which machine it is
        self._on: dict[str, set[int]] = {}  # by machine: the rows of its allocs
        super().__init__(machines.seed, 0)
        self.topology, self.bands = machines.topology, machines.bands
        self.failure_domains = machines.failure_domains

    def read_on(self, cell: Cell, observed: Observed, machines: Iterable[str]) -> None:
        """Make the rows anew of allocs that are on these machines, or were."""
        names: set[str] = set()
        for machine in machines:
            names.update(self.names[row] for row in self._on.get(machine, ()))
            there = cell.placed.get(machine, ())
            names.update(task_name(key, index) for key, index in there if key == self.alloc_set)
        readings = [self._reading(cell, observed, name) for name in sorted(names)]
        self._read(cell, [each for each in readings if each])

    def _reading(self, cell: Cell, observed: Observed, name: str) -> Reading | None:
        """Return what to read into an alloc's row; one that is on no machine has none."""
        allocs, index = cell.jobs.get(self.alloc_set), split_task_name(name)[1]
        task = allocs.tasks[index] if allocs and index < len(allocs.tasks) else None
        if allocs is None or task is None or task.state is not State.RUNNING:
            self._remove(cell, name)
            return None
        row = self.row[name] if name in self.row else self._add(name)
        self._settle(row, task.machine)
        usage = usage_of_alloc(cell, observed, allocs, index, self.kinds)
        machine = _with_reservation(cell.machines[task.machine], allocs, index)
        return Reading(row, machine, usage, observed.machines.get(task.machine) or UNSEEN, task.devices)

    def _settle(self, row: int, machine: str) -> None:
        """Note on which machine an alloc is, and where that machine's row is now."""
        if self._machine.get(row) != machine:
            self._leave(row)
            self._machine[row] = machine
            self._on.setdefault(machine, set()).add(row)
            self._forget_facts()
            self.touch(row)
        self.machine_row[row] = self._machines.row[machine]

    def rows_on(self, machine: str) -> list[int]:
        return sorted(self._on.get(machine, ()))

    def _remove(self, cell: Cell, name: str) -> None:
        if name in self.row:
            self._leave(self.row[name])
        super()._remove(cell, name)

    def _leave(self, row: int) -> None:
        if row in self._machine:
            self._on[self._machine.pop(row)].discard(row)

    def close(self, cell: Cell, names: Iterable[str]) -> None:
        """Have no rows of these allocs, which are about to leave, until their machines are read again."""
        for name in names:
            self._remove(cell, name)

    # What allocs have of their own

    def _read_ports(self, readings: Sequence[Reading]) -> list[bool]:
        for each in readings:
            self.ports[each.row] = self._machines.ports[self.machine_row.item(each.row)]
        return self.fixed_ports.read([each.row for each in readings], self.ports)

    def _free_ports(self, readings: Sequence[Reading]) -> list[int]:
        return [int(self._machines.free.item(PORTS, self.machine_row.item(each.row))) for each in readings]

    def _read_jobs(self, _cell: Cell, readings: Sequence[Reading]) -> None:
        for each in readings:
            self.jobs[each.row] = each.usage.jobs  # where they are is counted by machine

    def _forget_jobs(self, _cell: Cell, row: int) -> None:
        self.jobs[row] = {}

    def _read_devices(self, readings: Sequence[Reading]) -> list[bool]:
        changed = [False] * len(readings)
        for place, each in enumerate(readings):
            row, there = each.row, each.machine.capacity.devices
            for kind in there.keys() | self.devices.keys():
                devices, millis = self.device(kind), there.get(kind, 0)
                own = [name for name in each.devices if name.startswith(f"{kind}:")]
                numbers = [int(name.partition(":")[2]) for name in own]
                before = devices.free[:, row].tolist()
                devices.write(row, dict.fromkeys(numbers, min(millis, DEVICE_MILLIS)), each.usage.devices)
                changed[place] |= before != devices.free[:, row].tolist()
        return changed

    def _widen(self, size: int) -> None:
        super()._widen(size)
        self.machine_row = widened(self.machine_row, size)

    def _parts(self) -> tuple[Widening, ...]:
        return (self.attributes, self.taints, self.images, self.fixed_ports, *self.devices.values())

    # What they share

    def take(self, rows: Sequence[int], kind: TaskClass, job: Job) -> None:
        self._account(rows, kind, 1.0)
        self._share(rows, kind, job, 1)

    def undo_take(self, rows: Sequence[int], kind: TaskClass, job: Job) -> None:
        self._account(rows, kind, -1.0)
        self._share(rows, kind, job, -1)

    def _share(self, rows: Sequence[int], kind: TaskClass, job: Job, times: int) -> None:
        """Account for tasks in allocs on their machines: where they are, and their ports."""
        machines = [self.machine_row.item(row) for row in rows]
        for row, machine in zip(rows, machines, strict=True):
            for jobs in (self.jobs[row], self._machines.jobs[machine]):
                jobs[job.key] = jobs.get(job.key, 0) + times
                if not jobs[job.key]:
                    del jobs[job.key]
        self.topology.add(job.spec, job.key, machines, times, undoes=times < 0)
        if not (kind.ports or kind.fixed_ports):
            return
        for row, machine in zip(rows, machines, strict=True):
            beside = sorted(self._on[self._machine[row]] - {row})
            self.free[PORTS, beside] -= times * kind.ports
            self._machines.free[PORTS, machine] -= times * kind.ports
            if kind.fixed_ports:
                self._fix_ports([row, *beside], kind, taken=times > 0)
                self._machines._fix_ports([machine], kind, taken=times > 0)
            self._machines.touch(machine)
            self.changed[beside] = self.version

    def choose_ports(self, row: int, count: int) -> tuple[int, ...]:
        chosen = self._machines.choose_ports(self.machine_row.item(row), count)
        self.fixed_ports.note(self._on[self._machine[row]], chosen)
        return chosen

    # Where machines are

    def codes(self, attribute: str) -> IntArray:
        if attribute == MACHINE:
            return self.machine_row
        found: IntArray = self._machines.codes(attribute)[self.machine_row]
        return found

    def absent(self, attribute: str) -> int:
        return -1 if attribute == MACHINE else self._machines.absent(attribute)

    def at_values(self, by_machine: IntArray, attribute: str) -> IntArray:
        return self._machines.at_values(by_machine, attribute)

    def at_rows(self, by_value: FloatArray, attribute: str) -> FloatArray:
        found: FloatArray = by_value[self.codes(attribute)]
        return found

    def counter(self, cell: Cell, choice: Choice) -> Counter:
        return self._machines.counter(cell, choice)

    def rows_of(self, _cell: Cell, job: str) -> list[int]:
        return [row for row, jobs in enumerate(self.jobs) for _ in range(jobs.get(job, 0))]


def _with_reservation(machine: Machine, allocs: Job, index: int) -> Machine:
    """Return a machine as it is in an alloc: its facts, and what the alloc reserves."""
    return msgspec.structs.replace(machine, capacity=allocs.spec_of(allocs.tasks[index]).needs(index))
