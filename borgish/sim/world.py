"""A whole cell in one thread: seed in, journal out. The same seed gives the same journal, always.

First the storm: clients work, things break. Then calm: nothing breaks any more, and after a while what
is must be exactly what should be.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from borgish.cell.free_space import AMPLE, FreeSpace, Level
from borgish.sim.checkers.crons import cron_problems
from borgish.sim.checkers.disruptions import disruption_problems
from borgish.sim.checkers.liveness import BACK_SECONDS, RUNS_SECONDS, Liveness
from borgish.sim.checkers.order import order_problems
from borgish.sim.checkers.policy import Loss, Record
from borgish.sim.checkers.safety import Checker, request_problems, settled_problems
from borgish.sim.faults import FaultInjector, Faults
from borgish.sim.loop import VirtualLoop
from borgish.sim.machines import Machine
from borgish.sim.masters import SETTINGS, MasterHost
from borgish.sim.network import Network
from borgish.sim.store import SimDisk, SimStore
from borgish.sim.workload import Clients

LOW, FULL = FreeSpace(Level.LOW, 2, 4), FreeSpace(Level.FULL, 0, 4)
STORM_SECONDS = 120.0
YOUNG_SECONDS = 10.0
CALM_SECONDS = 300.0
"""Longer than any restart may still be backed off after such a storm, and than all grace."""


class Verdict(msgspec.Struct, frozen=True):
    """What came of one seed. ``journal_sha256`` is the hash of every entry, in hex."""

    seed: int
    journal_sha256: str
    problems: tuple[str, ...]
    virtual_seconds: float
    entries: int
    starts: int
    stops: int
    masters: int
    borglet_deaths: int
    copies: int  # of the master, that began beside it
    losses: tuple[Loss, ...]  # machines that were taken for lost with their tasks


class World:
    """Masters on one store, mostly one, some machines, and everything that happens to them."""

    def __init__(
        self,
        seed: int,
        machines: int = 6,
        faults: Faults | None = None,
        pause_seconds: float = 1.5,
        masters: int = 1,
        careful_share: float = 0.0,
    ) -> None:
        """Of several ``masters`` one leads by a lease, as on Postgres, and the others stand by. For
        ``careful_share`` see ``Clients``."""
        self.injector = FaultInjector(seed, Faults() if faults is None else faults)
        self.clock = VirtualLoop(self.injector.of("threads"))
        self.checker = Checker(self.clock)
        self.machines: dict[str, Machine] = {}
        self.network = Network(self.clock, self.injector, self.machines)
        names = [f"m{number}" for number in range(1, machines + 1)]
        for name in names:
            machine = Machine(name, self.clock, self.injector, self.checker, self.network)
            machine.leader = self._leader
            self.machines[name] = machine
        lease_seconds = SETTINGS.lease.ttl_seconds if masters > 1 else 0.0
        store = SimStore(SimDisk("sim", lease_seconds=lease_seconds), self.clock, self.injector)
        self.hosts = [
            MasterHost(self.clock, self.injector, self.network, store, f"sim-{number}" if number else "sim")
            for number in range(masters)
        ]
        self.checker.store, self.checker.master = store, lambda: self.master
        self.checker.machines = self.machines
        self.clients = Clients(
            self.clock, self.injector, lambda: self.master, names, pause_seconds, careful_share
        )
        self.liveness = Liveness(self.clock, lambda: self.master, self.machines)
        self.copies: list[MasterHost] = []
        self._backup: SimStore | None = None
        self.held_up: list[tuple[float, float]] = []  # when the master could write nothing
        self.masters = 0
        self.borglet_deaths = 0

    def run(self, storm_seconds: float = STORM_SECONDS, calm_seconds: float = CALM_SECONDS) -> Verdict:
        """Let it all happen, and judge."""
        try:
            self.begin()
            self.clock.run_until(storm_seconds)
            kill = bool(self.injector.faults.master_dies_seconds)
            self.injector.calm()
            self.clients.stop()
            if calm_seconds > BACK_SECONDS + 2 * RUNS_SECONDS:
                self.clock.after(BACK_SECONDS, lambda: self.liveness.begin(kill=kill))
            self.clock.run_until(storm_seconds + calm_seconds)
            return self._verdict()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of everything; nothing happens any more."""
        self.clock.close()

    def begin(self) -> None:
        """Start everybody; what follows happens as the clock goes on."""
        for host in self.hosts:
            self._begin_master(host)
        for machine in self.machines.values():
            self.begin_borglet(machine)
        self.clients.begin()
        self._plan_disasters()

    @property
    def master(self) -> MasterHost:
        """The master that has the store, or else the first."""
        leader = self.hosts[0].store.sim_disk.leader
        return next((host for host in self.hosts if host.process is leader), self.hosts[0])

    def _begin_master(self, host: MasterHost) -> None:
        self.masters += 1
        host.begin()

    def begin_borglet(self, machine: Machine) -> None:
        """Start a machine's borglet where none runs."""
        if not machine.is_up:
            machine.begin()

    def _leader(self) -> MasterHost | None:
        return self.master if self.master.leader is not None else None

    # Disasters

    def _plan_disasters(self) -> None:
        faults = self.injector.faults
        for mean_seconds, strike in (
            (faults.master_dies_seconds, self._kill_master),
            (faults.borglet_dies_seconds, self._kill_borglet),
            (faults.machine_cut_off_seconds, self._cut_off),
            (faults.machine_boots_seconds, partial(self._lose, Machine.lose_programs)),
            (faults.machine_wiped_seconds, partial(self._lose, Machine.lose_disk)),
            (faults.machine_flaps_seconds, self._flap),
            (faults.master_stalls_seconds, self._stall_master),
            (faults.borglet_stops_seconds, self._stop_borglet),
            (faults.clock_steps_seconds, self._step_clock),
            (faults.store_fills_seconds, self._fill_store),
            (faults.master_copied_seconds, self._begin_copy),
            (faults.session_lost_seconds, self._lose_session),
        ):
            if mean_seconds:
                self._plan(mean_seconds, strike)
        for host in self.hosts:
            self._watch_master(host)

    def _plan(self, mean_seconds: float, strike: Callable[[], None]) -> None:
        def happen() -> None:
            if self.injector.faults.away_seconds:
                strike()
                self._plan(mean_seconds, strike)

        self.clock.after(self.injector.until_next(mean_seconds), happen)

    def _watch_master(self, host: MasterHost) -> None:
        """Start a master again some time after it ended, whatever ended it."""
        if not host.is_up:
            self.clock.after(self.injector.away_seconds(), lambda: self._revive_master(host))
        else:
            self.clock.after(0.5, lambda: self._watch_master(host))

    def _revive_master(self, host: MasterHost) -> None:
        self._begin_master(host)
        self._watch_master(host)

    def _kill_master(self) -> None:
        self.master.die()

    def _stall_master(self) -> None:
        self.master.stall(self._hold_up(self.injector.away_seconds()))

    def _hold_up(self, seconds: float) -> float:
        now = self.clock.now().mono
        self.held_up.append((now, now + seconds))
        return seconds

    def _begin_copy(self) -> None:
        """Start a master on a copy of the disk, of now or of the last time; not of a cell that is as young
        as its first polls, since nobody can tell that from one without a leader."""
        began = self.master.began_at[-1] if self.master.began_at else self.clock.now().mono
        if self.master.core is not None and self.clock.now().mono > began + YOUNG_SECONDS:
            latest = self.master.store.copy()
            self.copy_of(self.injector.random.choice([latest, self._backup or latest])).begin()
            self._backup = latest

    def copy_of(self, store: SimStore) -> MasterHost:
        """Return a master on a copy of a disk, on a host of its own."""
        name = f"copy-{len(self.copies) + 1}"
        copy = MasterHost(self.clock, self.injector, self.network, store.copy(), name)
        self.copies.append(copy)
        return copy

    def _lose_session(self) -> None:
        """Let the leader's session with the store end while its process lives."""
        self.master.store.lose_session()

    def _step_clock(self) -> None:
        self.clock.step_wall(self.injector.clock_step_seconds())

    def _fill_store(self) -> None:
        disk = self.master.store.disk
        if disk.free_space is AMPLE:
            disk.free_space = self.injector.random.choice((LOW, FULL))
            self.clock.after(self._hold_up(self.injector.away_seconds()), self._clear_store)

    def _clear_store(self) -> None:
        self.master.store.disk.free_space = AMPLE

    def _kill_borglet(self) -> None:
        self._lose(Machine.die)

    def _lose(self, what: Callable[[Machine], None]) -> None:
        """End one borglet, and whatever goes with it, and start one there again some time after."""
        machine = self._any()
        if machine.is_up:
            self.borglet_deaths += 1
            what(machine)
            self.clock.after(self.injector.away_seconds(), lambda: self.begin_borglet(machine))

    def _stop_borglet(self) -> None:
        self._any().stop_borglet(self.injector.away_seconds())

    def _cut_off(self) -> None:
        machine = self._any()
        if not machine.is_cut_off:
            machine.cut_off(cut=True)
            self.clock.after(self.injector.away_seconds(), lambda: machine.cut_off(cut=False))

    def _flap(self) -> None:
        machine = self._any()
        if machine.is_cut_off:
            return

        def turn(*, cut: bool) -> None:
            machine.cut_off(cut=cut and bool(self.injector.faults.machine_flaps_seconds))

        at = 0.0
        for number, seconds in enumerate(self.injector.flaps()):
            self.clock.after(at, partial(turn, cut=number % 2 == 0))
            at += seconds

    def _any(self) -> Machine:
        return self.injector.random.choice(list(self.machines.values()))

    # The end

    def _verdict(self) -> Verdict:
        problems = [
            *self.clock.faults,
            *self.checker.problems,
            *self.clients.problems,
            *self.liveness.problems,
        ]
        for host in self.hosts:
            problems += host.problems
        store = self.master.store
        for machine in self.machines.values():
            problems += [f"{machine.name}: {problem}" for problem in machine.disk.problems]
        problems += request_problems(store, self.clients.calls)
        problems += [f"{copy.name} leads beside the master" for copy in self.copies if copy.is_up]
        record = Record(
            list(store.reopen().entries(0)),
            store.sim_disk.decided_at,
            sorted(at for host in self.hosts for at in host.began_at),
            self.held_up,
            self.machines,
        )
        problems += record.problems
        problems += disruption_problems(
            list(store.reopen().entries(0)), store.sim_disk.decided_at, self.machines
        )
        problems += order_problems(
            list(store.reopen().entries(0)), store.sim_disk.decided_at, self.machines, self.clock.now().mono
        )
        problems += cron_problems(store.reopen().entries(0))
        if self.master.core is None:
            problems.append("there is no master")
        else:
            problems += settled_problems(self.master.core.cell, self.machines)
        return Verdict(
            seed=self.injector.seed,
            journal_sha256=store.journal_sha256(),
            problems=tuple(dict.fromkeys(problems)),
            virtual_seconds=self.clock.now().mono,
            entries=len(store.disk.entries),
            starts=self.checker.starts,
            stops=self.checker.stops,
            masters=self.masters,
            borglet_deaths=self.borglet_deaths,
            copies=len(self.copies),
            losses=tuple(record.losses),
        )
