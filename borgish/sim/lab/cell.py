"""A simulated cell to experiment on: the real master and borglets, a list of what people want, and a look
from outside at what truly runs.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import ScaleJob, SubmitJob
from borgish.errors import BorgishError
from borgish.master.core import Core
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, FaultInjector
from borgish.sim.loop import VirtualLoop
from borgish.sim.machines import GIB, Machine
from borgish.sim.masters import MasterHost
from borgish.sim.network import Network
from borgish.sim.runtime import Watcher
from borgish.sim.store import SimDisk, SimStore
from borgish.spec.job import JobSpec, Stop, Update
from borgish.spec.shares import Share
from borgish.vocabulary import Runtime, split_task_name
from borgish.wire.api import Accepted

BEGIN_SECONDS = 65.0
"""Before anything is asked of it: a new master gives nobody up in its first minute."""
USER = "ann"


def service(name: str, tasks: int, version: int, cpu_millis: int = 1000, **fields: Any) -> JobSpec:
    """Return a service whose programs run until they are stopped."""
    return msgspec.structs.replace(
        JobSpec(
            name=name,
            user=USER,
            tasks=tasks,
            run=("serve", str(version)),
            runtime=Runtime.FAKE,
            resources=Resources(cpu_millis, GIB),
            labels={"sim": "service"},
            stop=Stop(grace_seconds=3.0),
            update=Update(at_a_time=Share(4), settle_seconds=1.0),
        ),
        **fields,
    )


class LabCell:
    """One master on one store, and machines. ``wanted`` has what people asked for, by job."""

    def __init__(self, seed: int, machines: int, core: Callable[..., Core] = Core) -> None:
        self.injector = FaultInjector(seed, NO_FAULTS)
        self.clock = VirtualLoop(self.injector.of("threads"))
        self.machines: dict[str, Machine] = {}
        self.network = Network(self.clock, self.injector, self.machines)
        store = SimStore(SimDisk("lab"), self.clock, self.injector)
        self.host = MasterHost(self.clock, self.injector, self.network, store, "lab", core)
        self.wanted: dict[str, JobSpec] = {}
        self.refused: list[str] = []  # of what people asked
        self._requests = 0
        for number in range(1, machines + 1):
            machine = Machine(f"m{number:02}", self.clock, self.injector, Watcher(), self.network)
            machine.leader = lambda: self.host if self.host.leader is not None else None
            self.machines[machine.name] = machine

    def begin(self, jobs: Iterable[JobSpec]) -> None:
        """Start everybody, submit jobs, and wait until all is as it is to be. Raises ValueError when it does
        not come to that."""
        self.host.begin()
        for machine in self.machines.values():
            machine.begin()
        self.clock.run_until(BEGIN_SECONDS / 2)
        for spec in jobs:
            self.submit(spec)
        self.clock.run_until(BEGIN_SECONDS)
        if gaps := self.gaps():
            raise ValueError(f"the cell did not come up: {gaps} {self.refused}")

    def submit(self, spec: JobSpec) -> None:
        """Want a job, or another specification of it."""
        self.wanted[spec.key] = spec
        self._ask(SubmitJob(spec))

    def scale(self, job: str, tasks: int) -> None:
        """Want so many tasks of a job."""
        self.wanted[job] = msgspec.structs.replace(self.wanted[job], tasks=tasks)
        self._ask(ScaleJob(job, tasks))

    def _ask(self, command: Command) -> None:
        self._requests += 1

        def answered(reply: Accepted | BorgishError) -> None:
            if isinstance(reply, BorgishError):
                self.refused.append(str(reply))

        self.host.command(command, answered, USER, f"r{self._requests}", "d")

    def gaps(self) -> dict[str, int]:
        """Return by how many programs what truly runs differs from what is wanted, of each job of which it
        does: what is missing, what is too much, and what is of an earlier specification."""
        return self.look()[0]

    def look(self) -> tuple[dict[str, int], int]:
        """Return the same, and how many programs are as they are wanted."""
        good: dict[str, set[int]] = {key: set() for key in self.wanted}
        gaps = dict.fromkeys(self.wanted, 0)
        for machine in self.machines.values():
            for program in machine.programs.by_key.values():
                if program.is_alive:
                    key, index = split_task_name(program.spec.task)
                    spec = self.wanted[key]
                    if program.spec.run == spec.run and index < spec.tasks and index not in good[key]:
                        good[key].add(index)
                    else:
                        gaps[key] += 1
        for key, spec in self.wanted.items():
            gaps[key] += spec.tasks - len(good[key])
        return {key: gap for key, gap in gaps.items() if gap}, sum(map(len, good.values()))

    def jobs_on(self, machine: str) -> set[str]:
        """Return the jobs of which something runs on a machine."""
        programs = self.machines[machine].programs.by_key.values()
        return {split_task_name(each.spec.task)[0] for each in programs if each.is_alive}

    def close(self) -> None:
        """Let nothing happen any more. Raises ValueError when something went wrong that should not."""
        problems = [*self.clock.faults, *self.host.problems]
        self.clock.close()
        if problems:
            raise ValueError(f"the simulated cell has problems: {problems[:3]}")


class Look(NamedTuple):
    """How a cell is at a moment, in programs."""

    at: float  # seconds since the lab began to look
    wanted: int
    right: int  # of these
    gap: int  # those that are missing, too many, or of an earlier specification


class Watch:
    """Looks at a cell all the time: how far off it is, and when each change has come about."""

    def __init__(self, cell: LabCell, every_seconds: float) -> None:
        self.looks: list[Look] = []
        self.seconds: list[float] = []  # of each change until it had come about; infinite: it never did
        self._cell, self._every_seconds = cell, every_seconds
        self._began = cell.clock.now().mono
        self._open: list[
            tuple[float, set[str]]
        ] = []  # changes: since when, and the jobs that are not there yet

    def changed(self, jobs: Iterable[str]) -> None:
        """Note that something was asked of jobs, or happened to them, just now."""
        self._open.append((self._cell.clock.now().mono, set(jobs)))

    def begin(self) -> None:
        """Look from now on."""
        now, (gaps, right) = self._cell.clock.now().mono, self._cell.look()
        wanted = sum(spec.tasks for spec in self._cell.wanted.values())
        self.looks.append(Look(round(now - self._began, 3), wanted, right, sum(gaps.values())))
        still: list[tuple[float, set[str]]] = []
        for since, jobs in self._open:
            if left := jobs & gaps.keys():
                still.append((since, left))
            else:
                self.seconds.append(now - since)
        self._open = still
        self._cell.clock.after(self._every_seconds, self.begin)

    def end(self) -> None:
        """Count what has not come about as never."""
        self.seconds += [float("inf")] * len(self._open)
        self._open = []
