"""A whole cell in one thread: seed in, journal out. The same seed gives the same journal, always.

First the storm: people work, things break. Then calm: nothing breaks any more, and after a while what
is must be exactly what should be.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from borgish.cell.commands import JoinMachine
from borgish.cell.model import Machine
from borgish.cell.room import AMPLE, Level, Room
from borgish.errors import Refused
from borgish.sim.checkers import Overseer, misheard, settled_problems
from borgish.sim.clock import VirtualClock
from borgish.sim.faults import Fate, Faults
from borgish.sim.machine import FACTS, UNHEARD_SECONDS, SimMachine
from borgish.sim.master import SimMaster
from borgish.sim.network import Network
from borgish.sim.policy import Loss, Record
from borgish.sim.workload import People
from borgish.store.memory import MemoryStore
from borgish.wire.api import Accepted

LOW, FULL = Room(Level.LOW, 2, 4), Room(Level.FULL, 0, 4)
STORM_SECONDS = 120.0
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
    """One master, some machines, and everything that happens to them."""

    def __init__(
        self, seed: int, machines: int = 6, faults: Faults | None = None, pause_seconds: float = 1.5
    ) -> None:
        self.clock = VirtualClock()
        self.fate = Fate(seed, Faults() if faults is None else faults)
        self.overseer = Overseer()
        self.network = Network(self.clock, self.fate)
        names = [f"m{number}" for number in range(1, machines + 1)]
        self.machines = {name: SimMachine(name, self.clock, self.fate, self.overseer) for name in names}
        self.master = SimMaster(self.clock, self.fate, self.network, self.machines, MemoryStore("sim"))
        self.overseer.store, self.overseer.master = self.master.store, self.master
        self.overseer.machines = self.machines
        self.people = People(self.clock, self.fate, self.master, names, pause_seconds)
        self.copies: list[SimMaster] = []
        self._backup: MemoryStore | None = None
        self.masters = 0
        self.borglet_deaths = 0

    def run(self, storm_seconds: float = STORM_SECONDS, calm_seconds: float = CALM_SECONDS) -> Verdict:
        """Let it all happen, and judge."""
        self.begin()
        self.clock.run_until(storm_seconds)
        self.fate.calm()
        self.people.stop()
        self.clock.run_until(storm_seconds + calm_seconds)
        return self._verdict()

    def begin(self) -> None:
        """Start everybody; what follows happens as the clock goes on."""
        self._begin_master()
        for machine in self.machines.values():
            self.begin_borglet(machine)
        self.people.begin()
        self._plan_disasters()
        self._join_again()

    def _begin_master(self) -> None:
        self.masters += 1
        self.master.begin()

    def begin_borglet(self, machine: SimMachine) -> None:
        """Start a machine's borglet, and have it join, where none runs."""
        if not machine.is_up:
            machine.begin()
            self._join(machine, machine.instance, joined=[])

    def _join(self, machine: SimMachine, instance: str, joined: list[bool]) -> None:
        """Join with this run of the borglet, and again until that is accepted."""
        if joined or machine.instance != instance or not machine.is_up:
            return

        def take(reply: Accepted | Refused) -> None:
            if isinstance(reply, Accepted) and machine.is_up and machine.instance == instance:
                machine.joined()
                joined.append(True)

        if self.master.core is not None and not machine.is_cut_off:
            command = JoinMachine(_record(machine), instance, known=machine.is_known)
            self.master.ask(command, take, machine.name)
        self.clock.after(1.0, lambda: self._join(machine, instance, joined))

    def _join_again(self) -> None:
        """Have those join again that the master seems to have lost."""
        for machine in self.machines.values():
            if machine.is_up and machine.is_unheard:
                self._join(machine, machine.instance, joined=[])
        self.clock.after(UNHEARD_SECONDS, self._join_again)

    # Disasters

    def _plan_disasters(self) -> None:
        faults = self.fate.faults
        for mean_seconds, strike in (
            (faults.master_dies_seconds, self._kill_master),
            (faults.borglet_dies_seconds, self._kill_borglet),
            (faults.machine_cut_off_seconds, self._cut_off),
            (faults.machine_boots_seconds, partial(self._lose, SimMachine.lose_programs)),
            (faults.machine_wiped_seconds, partial(self._lose, SimMachine.lose_disk)),
            (faults.master_stalls_seconds, self._stall_master),
            (faults.clock_steps_seconds, self._step_clock),
            (faults.store_fills_seconds, self._fill_store),
            (faults.master_copied_seconds, self._begin_copy),
        ):
            if mean_seconds:
                self._plan(mean_seconds, strike)
        self._watch_master()

    def _plan(self, mean_seconds: float, strike: Callable[[], None]) -> None:
        def happen() -> None:
            if self.fate.faults.away_seconds:
                strike()
                self._plan(mean_seconds, strike)

        self.clock.after(self.fate.until_next(mean_seconds), happen)

    def _watch_master(self) -> None:
        """Start the master again some time after it ended, whatever ended it."""
        if not self.master.is_up:
            self.clock.after(self.fate.away_seconds(), self._revive_master)
        else:
            self.clock.after(0.5, self._watch_master)

    def _revive_master(self) -> None:
        self._begin_master()
        self._watch_master()

    def _kill_master(self) -> None:
        self.master.die()

    def _stall_master(self) -> None:
        self.master.stall(self.fate.away_seconds())

    def _begin_copy(self) -> None:
        """Start a master on a copy of the disk, of now or of the last time."""
        if self.master.core is not None and self.master.core.cell.machines:
            latest = self.master.store.copy()
            self.copy_of(self.fate.random.choice([latest, self._backup or latest])).begin()
            self._backup = latest

    def copy_of(self, store: MemoryStore) -> SimMaster:
        """Return a master on a copy of a disk, on a host of its own."""
        name = f"copy-{len(self.copies) + 1}"
        copy = SimMaster(self.clock, self.fate, self.network, self.machines, store.copy(), name)
        self.copies.append(copy)
        return copy

    def _step_clock(self) -> None:
        self.clock.step_wall(self.fate.clock_step_seconds())

    def _fill_store(self) -> None:
        disk = self.master.store.disk
        if disk.room is AMPLE:
            disk.room = self.fate.random.choice((LOW, FULL))
            self.clock.after(self.fate.away_seconds(), self._clear_store)

    def _clear_store(self) -> None:
        self.master.store.disk.room = AMPLE

    def _kill_borglet(self) -> None:
        self._lose(SimMachine.die)

    def _lose(self, what: Callable[[SimMachine], None]) -> None:
        """End one borglet, and whatever goes with it, and start one there again some time after."""
        machine = self._any()
        if machine.is_up:
            self.borglet_deaths += 1
            what(machine)
            self.clock.after(self.fate.away_seconds(), lambda: self.begin_borglet(machine))

    def _cut_off(self) -> None:
        machine = self._any()
        if not machine.is_cut_off:
            machine.cut_off(cut=True)
            self.clock.after(self.fate.away_seconds(), lambda: machine.cut_off(cut=False))

    def _any(self) -> SimMachine:
        return self.fate.random.choice(list(self.machines.values()))

    # The end

    def _verdict(self) -> Verdict:
        problems = [*self.master.problems, *self.overseer.problems]
        store = self.master.store
        problems += misheard(store, self.people.acknowledged)
        problems += [f"{copy.name} leads beside the master" for copy in self.copies if copy.is_up]
        record = Record(
            list(store.reopen().entries(0)), self.master.committed_at, self.master.began_at, self.machines
        )
        problems += record.problems
        if self.master.core is None:
            problems.append("there is no master")
        else:
            problems += settled_problems(self.master.core.cell, self.machines)
        return Verdict(
            seed=self.fate.seed,
            journal_sha256=store.journal_sha256(),
            problems=tuple(dict.fromkeys(problems)),
            virtual_seconds=self.clock.now().mono,
            entries=len(store.disk.entries),
            starts=self.overseer.starts,
            stops=self.overseer.stops,
            masters=self.masters,
            borglet_deaths=self.borglet_deaths,
            copies=len(self.copies),
            losses=tuple(record.losses),
        )


def _record(machine: SimMachine) -> Machine:
    return Machine(
        name=machine.name,
        host="sim",
        port=machine.port,
        tls=False,
        capacity=FACTS.capacity,
        attributes=FACTS.attributes,
        runtimes=FACTS.runtimes,
        ports_low=FACTS.ports_low,
        ports_high=FACTS.ports_high,
        boot_id=machine.boot_id,
        joined_at=0.0,
        port_next=FACTS.ports_low,
    )
