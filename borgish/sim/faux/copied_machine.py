"""A machine of a copied cell: it runs what the record of a real one says that it ran, and never joins."""

from borgish.borglet.attempts.entry import Entry, Head
from borgish.borglet.attempts.transitions import Stage
from borgish.borglet.runtimes.base import RunState
from borgish.borglet.state_folder import Membership
from borgish.cell import model
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import Process, VirtualLoop
from borgish.sim.machines import Machine
from borgish.sim.network import Network
from borgish.sim.runtime import Program, Watcher
from borgish.wire.link import AttemptSpec, Facts


class CopiedMachine(Machine):
    """One machine. Its programs do not end by themselves: of real ones nobody knows when they would."""

    def __init__(
        self, record: model.Machine, loop: VirtualLoop, injector: FaultInjector, network: Network
    ) -> None:
        facts = Facts(
            record.capacity, record.attributes, record.runtimes, record.ports_low, record.ports_high
        )
        super().__init__(record.name, loop, injector, Watcher(), network, facts)
        self.programs.are_lasting = True
        self.disk.head = Head(record.name, 0, 1)  # its borglet has obeyed a master before
        self._record = record

    @property
    def port(self) -> int:
        return self._record.port

    @property
    def boot_id(self) -> str:
        return self._record.boot_id

    def join(self, cell: str, poll_token: str) -> None:
        """Have been in a cell already. Before ``begin``."""
        Membership(b"", self.disk.keep_membership).keep(cell, poll_token)

    def runs_already(self, spec: AttemptSpec, started_at: float) -> None:
        """Have an attempt be there and be well, started by a borglet before the first one here. Before
        ``begin``."""
        run = RunState(spec.key, 1, 1, started_at)
        self.programs.by_key[spec.key] = Program(spec, run, self._loop.now().mono)
        self.disk.entries[spec.key] = Entry(
            spec.task,
            spec.attempt,
            spec,
            Stage.UP,
            run=1,
            started_at=started_at,
            first_started_at=started_at,
            answered=spec.health is not None,
        )

    async def _live(self, process: Process) -> None:
        await self._open(process, Membership(self.disk.membership, self.disk.keep_membership))
