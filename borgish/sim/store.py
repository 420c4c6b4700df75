"""A store in memory on a simulated disk: it fails on demand, and one process at a time leads it."""

from collections.abc import Sequence

from borgish.cell.events import Entry
from borgish.errors import InUse
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import Process, VirtualLoop
from borgish.store.base import Records
from borgish.store.leadership import Leadership
from borgish.store.memory import Disk, MemoryStore


class SimDisk(Disk, kw_only=True):
    """What outlives a master, and who has its lock."""

    leader: Process | None = None
    address: str = ""
    decided_at: dict[int, float] = {}  # by position; monotonic, as wall clocks are stepped


class SimStore(MemoryStore):
    """One that is opened by a master; ``reopen`` is what the next one finds."""

    def __init__(self, disk: SimDisk, loop: VirtualLoop, injector: FaultInjector) -> None:
        super().__init__(disk.cell, disk=disk)
        self.sim_disk = disk
        self._loop = loop
        self._injector = injector

    def reopen(self) -> "SimStore":
        return SimStore(self.sim_disk, self._loop, self._injector)

    def copy(self) -> "SimStore":
        copied = super().copy().disk
        names = (name for name in Disk.__struct_fields__ if name != "free_space")
        disk = SimDisk(**{name: getattr(copied, name) for name in names})
        disk.decided_at = dict(self.sim_disk.decided_at)
        return SimStore(disk, self._loop, self._injector)

    def append(self, entries: Sequence[Entry], records: Records) -> None:
        if self._injector.happens(self._injector.faults.append_fails):
            self.fail_next_append(kept=self._injector.happens(0.5))
        self.sim_disk.decided_at |= {entry.position: self._loop.mono_at(entry.at) for entry in entries}
        super().append(entries, records)

    def lead(self, holder: str, address: str) -> int:
        self.sim_disk.address = address
        return super().lead(holder, address)


class MemoryCandidate:
    """One that may come to lead a store: by its disk's lock, which a process has as long as it lives."""

    owns_folder = False

    def __init__(self, store: SimStore, process: Process) -> None:
        self._store, self._process = store, process

    def try_lead(self) -> SimStore | None:
        disk = self._store.sim_disk
        if disk.leader is not None and disk.leader.is_alive and disk.leader is not self._process:
            return None
        disk.leader = self._process
        return self._store.reopen()

    def reader(self) -> SimStore | None:
        return self._store.reopen()

    def leadership(self) -> Leadership | None:
        disk = self._store.sim_disk
        holder = disk.leader.name if disk.leader else ""
        return Leadership(0, disk.epoch, holder, disk.address, "", 0.0)

    def in_use_error(self) -> InUse | None:
        leader = self._store.sim_disk.leader
        if leader is None or not leader.is_alive:
            return None
        return InUse(f"The store is in use: {leader.name} leads", "Stop that borgmaster first")

    def close(self) -> None:
        disk = self._store.sim_disk
        if disk.leader is self._process:
            disk.leader = None
