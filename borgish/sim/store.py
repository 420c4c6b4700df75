"""A store in memory on a simulated disk: it fails on demand, and one process at a time leads it."""

from collections.abc import Sequence

from borgish.cell.events import Entry
from borgish.errors import Fenced, InUse, OutcomeUnknown
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import Process, VirtualLoop
from borgish.store.base import Records
from borgish.store.leadership import Leadership
from borgish.store.memory import Disk, MemoryStore


class SimDisk(Disk, kw_only=True):
    """What outlives a master, and who has its lock."""

    leader: Process | None = None
    address: str = ""
    lease_seconds: float = (
        0.0  # as on Postgres, where not 0: after so long without a renewal another may lead
    )
    renewed_at: float = 0.0  # monotonic
    has_session: bool = True  # of the leader; without it another may lead, though the process lives

    def is_led(self, mono: float) -> bool:
        """Whether somebody leads whom nobody may follow yet."""
        if self.leader is None or not self.leader.is_alive:
            return False
        return not self.lease_seconds or (self.has_session and mono <= self.renewed_at + self.lease_seconds)

    decided_at: dict[int, float] = {}  # by position; monotonic, as wall clocks are stepped


class SimStore(MemoryStore):
    """One that is opened by a master; ``reopen`` is what the next one finds."""

    def __init__(self, disk: SimDisk, loop: VirtualLoop, injector: FaultInjector) -> None:
        super().__init__(disk.cell, disk=disk)
        self.sim_disk = disk
        self.has_lease = bool(disk.lease_seconds)
        self.renewed_at = 0.0  # by this one, on the world's monotonic clock
        self._has_session = True
        self._seen_epoch = disk.epoch
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

    def lose_session(self) -> None:
        """End the session with the database, and with it its lock. The process does not know yet."""
        self._has_session = self.sim_disk.has_session = False

    def append(self, entries: Sequence[Entry], records: Records) -> None:
        if not self._has_session:
            raise OutcomeUnknown("The session with the store ended", "Start again")
        if self._injector.happens(self._injector.faults.append_fails):
            self.fail_next_append(kept=self._injector.happens(0.5))
        self.sim_disk.decided_at |= {entry.position: self._loop.mono_at(entry.at) for entry in entries}
        super().append(entries, records)

    def lead(self, holder: str, address: str) -> int:
        if self.has_lease and self._seen_epoch != self.sim_disk.epoch:
            raise Fenced("Another borgmaster was quicker to lead", "It leads the cell now")
        self.sim_disk.address, self.sim_disk.has_session = address, True
        self._renewed()
        return super().lead(holder, address)

    def renew(self) -> None:
        if not self._has_session:
            raise OutcomeUnknown("The session with the store ended", "Start again")
        super().renew()
        self._renewed()

    def _renewed(self) -> None:
        self.renewed_at = self.sim_disk.renewed_at = self._loop.now().mono


class MemoryCandidate:
    """One that may come to lead a store: by its disk's lock, which a process has as long as it lives, or by
    that of its session and a lease."""

    owns_folder = False

    def __init__(self, store: SimStore, process: Process, loop: VirtualLoop) -> None:
        self._store, self._process, self._loop = store, process, loop

    def try_lead(self) -> SimStore | None:
        disk = self._store.sim_disk
        if disk.leader is not self._process and disk.is_led(self._loop.now().mono):
            return None
        disk.leader, disk.renewed_at, disk.has_session = self._process, self._loop.now().mono, True
        return self._store.reopen()

    def reader(self) -> SimStore | None:
        return self._store.reopen()

    def another_reader(self) -> SimStore | None:
        return self._store.reopen()

    def leadership(self) -> Leadership | None:
        disk = self._store.sim_disk
        holder = disk.leader.name if disk.leader else ""
        return Leadership(0, disk.epoch, holder, disk.address, "", 0.0)

    def in_use_error(self) -> InUse | None:
        disk = self._store.sim_disk
        leader = disk.leader
        if leader is None or not disk.is_led(self._loop.now().mono):
            return None
        return InUse(f"The store is in use: {leader.name} leads", "Stop that borgmaster first")

    def close(self) -> None:
        disk = self._store.sim_disk
        if disk.leader is self._process:
            disk.leader = None
