"""All machines as a structure of arrays: one row a machine, found by its name.

Every change of a row gets the next version number, so that whoever keeps something computed from
the rows knows which to look at again. What a machine holds is counted in ``census``; this file
turns counts into rows and accounts for what the running pass places.
"""

from hashlib import blake2b

import numpy as np

from borgish.cell.model import Machine
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.scheduler.arrays import BitArray, BoolArray, FloatArray, IntArray, widened
from borgish.scheduler.attributes import Attributes
from borgish.scheduler.census import BANDS, KINDS, PORTS, Census, Kinds, take_census
from borgish.scheduler.ports import PortRange
from borgish.spec.job import Constraint
from borgish.vocabulary import Runtime

RUNTIME_BIT = {runtime: 1 << number for number, runtime in enumerate(Runtime)}
TIE_MAX = 2.0**-30
"""Ties are broken by adding less than this to a score: far below any difference that matters."""


def tie_of(seed: int, name: str) -> float:
    """Return a machine's place in the seeded order among equals, from 0 to ``TIE_MAX``."""
    digest = blake2b(f"{seed}:{name}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest) >> 10) * TIE_MAX / 2**22


class Fleet:
    """The rows of all machines. Amounts are by kind and row, ``limits`` by band, kind and row.

    ``free`` is ``capacity`` without ``limits`` and without what attempts that are leaving still hold.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.seed = seed
        self.version = 0
        self.kinds = Kinds()
        self.row: dict[str, int] = {}
        self.names: list[str] = []
        self.ports: list[PortRange] = []
        self.jobs: list[dict[str, int]] = []  # by row: tasks of each job placed there
        self.blocked: dict[int, float] = {}  # by row: when its first blocked port is free again
        self.attributes = Attributes()
        # By runtime and constraints: which rows suit them. What ``feasibility`` keeps till facts change.
        self.suitable: dict[tuple[Runtime, tuple[Constraint, ...]], BoolArray] = {}
        self._spare: list[int] = []
        self.present: BoolArray = np.zeros(0, dtype=np.bool_)
        self.up: BoolArray = np.zeros(0, dtype=np.bool_)
        self.cordoned: BoolArray = np.zeros(0, dtype=np.bool_)
        self.runtimes: BitArray = np.zeros(0, dtype=np.uint8)  # bits: has it
        self.working: BitArray = np.zeros(0, dtype=np.uint8)  # bits: has it, and it works
        self.changed: IntArray = np.zeros(0, dtype=np.int64)  # the version of the latest change
        self.tie: FloatArray = np.zeros(0)
        self.capacity: FloatArray = np.zeros((KINDS, 0))
        self.inverse: FloatArray = np.zeros((KINDS, 0))  # 1 / capacity; 0 where there is none
        self.free: FloatArray = np.zeros((KINDS, 0))
        self.limits: FloatArray = np.zeros((len(BANDS), KINDS, 0))  # sums of the tasks placed there
        self._widen(size)

    @classmethod
    def of(cls, cell: Cell, observed: Observed, seed: int, mono: float) -> "Fleet":
        """Return the rows of all machines of a cell."""
        fleet = cls(seed, len(cell.machines))
        for name in sorted(cell.machines):
            fleet.read(cell, observed, name, mono)
        return fleet

    def __len__(self) -> int:
        """Return the number of machines."""
        return len(self.row)

    def read(self, cell: Cell, observed: Observed, name: str, mono: float) -> None:
        """Make a machine's row anew. Its version changes only when the row does."""
        machine = cell.machines.get(name)
        if machine is None:
            self._remove(name)
            return
        row = self.row[name] if name in self.row else self._add(name)
        census = take_census(cell, observed, name, self.kinds, mono)
        seen = observed.machines.get(name)
        self._read_ports(row, machine, census)
        if self._read_facts(row, machine, seen.unhealthy_runtimes if seen else ()) | self._read_amounts(
            row, machine, census
        ):
            self._touch(row)

    def take(self, row: int, needs: tuple[tuple[int, float], ...], band: int, job: str) -> None:
        """Account for a task placed by the running pass; its ports are taken in ``ports``."""
        self.take_each([row], needs, band, job)

    def take_each(self, rows: list[int], needs: tuple[tuple[int, float], ...], band: int, job: str) -> None:
        """Account for tasks of one job, one on each of the rows."""
        for kind, amount in needs:
            free, limits = self.free[kind], self.limits[band, kind]
            for row in rows:
                free[row] -= amount
                limits[row] += amount
        self.version += 1
        for row in rows:
            self.changed[row] = self.version
            jobs = self.jobs[row]
            jobs[job] = jobs.get(job, 0) + 1

    def kind(self, name: str) -> int:
        """Return the number of a named resource; one that no machine has gets a column of zeros."""
        kind = self.kinds.number(name)
        self._deepen()
        return kind

    def usable(self) -> BoolArray:
        """Return which machines take new tasks at all."""
        return self.up & ~self.cordoned

    def _touch(self, row: int) -> None:
        self.version += 1
        self.changed[row] = self.version

    def _read_ports(self, row: int, machine: Machine, census: Census) -> None:
        self.ports[row] = PortRange(machine.ports_low, machine.ports_high, machine.port_next, census.ports)
        self.jobs[row] = census.jobs
        self.blocked.pop(row, None)
        if census.blocked_until != float("inf"):
            self.blocked[row] = census.blocked_until

    def _read_facts(self, row: int, machine: Machine, unhealthy: tuple[Runtime, ...]) -> bool:
        """Write what does not depend on tasks; return whether it changed."""
        has = sum(RUNTIME_BIT[runtime] for runtime in set(machine.runtimes))
        works = sum(RUNTIME_BIT[runtime] for runtime in set(machine.runtimes) - set(unhealthy))
        fresh = (machine.up, machine.cordoned, has, works)
        columns = (self.up, self.cordoned, self.runtimes, self.working)
        if self.attributes.rows[row] == machine.attributes and fresh == tuple(c[row] for c in columns):
            return False
        for column, value in zip(columns, fresh, strict=True):
            column[row] = value
        self.attributes.set(row, machine.attributes)
        self.suitable.clear()
        return True

    def _read_amounts(self, row: int, machine: Machine, census: Census) -> bool:
        """Write what there is and what is held; return whether what is free changed."""
        there: dict[int, int] = {PORTS: self.ports[row].size}
        self.kinds.add(there, machine.capacity)
        self._deepen()
        capacity = [float(there.get(kind, 0)) for kind in range(len(self.kinds))]
        free = capacity.copy()
        self.limits[:, :, row] = 0
        for band, limits in enumerate(census.limits):
            for kind, amount in limits.items():
                self.limits[band, kind, row] = amount
                free[kind] -= amount
        for kind, amount in census.leaving.items():
            free[kind] -= amount
        free[PORTS] = self.ports[row].free_count()  # several may hold one port: taken is not a sum
        if capacity == self.capacity[:, row].tolist() and free == self.free[:, row].tolist():
            return False
        self.capacity[:, row], self.free[:, row] = capacity, free
        self.inverse[:, row] = [1.0 / amount if amount > 0 else 0.0 for amount in capacity]
        return True

    def _add(self, name: str) -> int:
        if not self._spare:
            self._widen(len(self.names) + len(self.names) // 8 + 16)
        row = self._spare.pop()
        self.row[name] = row
        self.names[row] = name
        self.present[row] = True
        self.suitable.clear()
        self.tie[row] = tie_of(self.seed, name)
        self._touch(row)
        return row

    def _remove(self, name: str) -> None:
        row = self.row.pop(name, None)
        if row is None:
            return
        self.names[row] = ""
        self.jobs[row] = {}
        self.blocked.pop(row, None)
        for flags in (self.present, self.up, self.cordoned):
            flags[row] = False
        for amounts in (self.capacity, self.inverse, self.free, self.limits):
            amounts[..., row] = 0
        self._spare.append(row)
        self.suitable.clear()
        self._touch(row)

    def _widen(self, size: int) -> None:
        """Make rows for more machines; the lowest new one is used first."""
        self._spare += range(size - 1, len(self.names) - 1, -1)
        added = size - len(self.names)
        self.names += [""] * added
        self.ports += [PortRange(0, -1, 0, set())] * added
        self.jobs += [{} for _ in range(added)]
        self.attributes.widen(size)
        self.present, self.up, self.cordoned = (
            widened(flags, size) for flags in (self.present, self.up, self.cordoned)
        )
        self.runtimes, self.working = widened(self.runtimes, size), widened(self.working, size)
        self.changed = widened(self.changed, size)
        self.tie, self.capacity, self.inverse, self.free, self.limits = (
            widened(amounts, size)
            for amounts in (self.tie, self.capacity, self.inverse, self.free, self.limits)
        )

    def _deepen(self) -> None:
        """Make columns for kinds of resource that turned up."""
        kinds = len(self.kinds)
        if kinds == len(self.capacity):
            return
        self.capacity, self.inverse, self.free, self.limits = (
            widened(amounts, kinds, axis=-2)
            for amounts in (self.capacity, self.inverse, self.free, self.limits)
        )
