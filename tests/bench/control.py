"""``control``: submit to running, durable, through the real core, turn, store and conversations.

Machines are simulated in this process, and messages are handed over as they are: neither HTTP nor JSON is in
the figure, the borglets' own work is. A task counts when it was reported up and the master has taken that in
durably, in SQLite. Tasks come in few jobs as large as may be, and in many small ones.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import uvloop

from borgish.cell.commands import (
    JoinMachine,
    SubmitJob,
)
from borgish.clock import SystemClock
from borgish.link.conversation import Conversation
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.store.open import open_store
from borgish.vocabulary import TASKS_PER_JOB_MAX, Phase, Runtime
from borgish.wire.link import PollReply
from tests.bench import peers
from tests.bench.borglets import InstantBorglet, machine_record
from tests.bench.figure import Figure, at_least
from tests.bench.sizes import Sizes

SMALL_JOB_TASKS = 20
SECONDS_MAX = 900.0


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield tasks a second, for a few large jobs and for many small ones."""
    large = max(2, sizes.cell_tasks // TASKS_PER_JOB_MAX)
    small = max(2, sizes.cell_tasks // SMALL_JOB_TASKS)
    for name, jobs in (("", large), (f".{small}_jobs", small)):
        runs = [_measured(sizes.cell_machines, sizes.cell_tasks, jobs) for _ in range(sizes.rounds)]
        yield Figure(
            f"control.up{name}",
            "tasks/s",
            [sizes.cell_tasks / wall for wall, _ in runs],
            at_least(5_000),
            peers.NOMAD_CONTROL,
        )
        yield Figure(f"control.cpu{name}", "us/task", [cpu / sizes.cell_tasks * 1e6 for _, cpu in runs])


def _measured(machines: int, tasks: int, jobs: int) -> tuple[float, float]:
    """Return wall and cpu seconds from the submission to the last task up."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        return uvloop.run(_run(Path(folder), machines, job_specs(tasks, jobs)))


async def _run(folder: Path, machines: int, specs: list[JobSpec]) -> tuple[float, float]:
    cell = SimulatedCell(f"sqlite:///{folder / 'cell.db'}")
    try:
        await cell.begin(machines)
        wall, cpu = time.perf_counter(), time.process_time()
        await cell.submit(specs)
        async with asyncio.timeout(SECONDS_MAX):
            await cell.until_up(sum(spec.tasks for spec in specs))
        return time.perf_counter() - wall, time.process_time() - cpu
    finally:
        await cell.close()


def job_specs(tasks: int, jobs: int) -> list[JobSpec]:
    """Return so many services that have so many tasks in all."""
    return [
        JobSpec(
            name=f"job-{number}",
            user="bench",
            tasks=len(range(number, tasks, jobs)),
            run=("serve", "--index", "{{task.index}}"),
            runtime=Runtime.FAKE,
            resources=Resources(100, 128 * 1024**2),
        )
        for number in range(jobs)
    ]


class SimulatedCell:
    """The parts of a borgmaster that bring tasks up, put together as the daemon does."""

    def __init__(self, url: str) -> None:
        self.clock = SystemClock()
        self.store = open_store(url, "bench")
        cell = self.store.load()
        epoch = self.store.lead("bench", "bench")
        settings = ReconcileSettings(down_after_seconds=2 * SECONDS_MAX)  # who is told nothing says nothing
        self.core = Core(cell, settings, self.clock.now())
        self._first = self.core.begin(epoch, "bench", self.clock.now())
        self.inbox = Inbox()
        self.turn = Turn(self.core, self.store, self.inbox, self.clock, self._released, lambda _seconds: None)
        self._machines: dict[str, _Machine] = {}
        self.up = 0  # tasks that are known to be, on all machines
        self._heard = 0  # machines
        self.begun: dict[int, float] = {}  # when the first step of a timeline was let out
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    async def begin(self, machines: int) -> None:
        """Have machines that joined and were heard."""
        self._tasks.append(asyncio.create_task(self.turn.run(self._first)))
        joins = [
            JoinMachine(machine_record(f"m{number}"), f"m{number}-1", known=True)
            for number in range(machines)
        ]
        await asyncio.gather(*(self.inbox.ask(join, join.machine.name) for join in joins))
        while self._heard < machines:
            await self.next_news()

    async def submit(self, specs: list[JobSpec]) -> None:
        """Submit jobs, all at once; return when that is durable."""
        await asyncio.gather(*(self.inbox.ask(SubmitJob(spec), "bench") for spec in specs))

    async def until_up(self, tasks: int) -> None:
        """Wait until so many tasks were reported up, and that was taken in."""
        while self.up < tasks:
            await self.next_news()

    async def next_news(self) -> None:
        """Wait until a machine has reported something."""
        self._news.clear()
        await self._news.wait()

    def _told(self, machines: int, tasks: int) -> None:
        """Take in that so many more machines were heard, and that so many more tasks are up."""
        self._heard += machines
        self.up += tasks
        self._news.set()

    def _released(self, step: Step) -> None:
        for name in sorted(step.touched.machines):
            if name not in self._machines:
                self._begin_machine(name)
        for name in sorted(step.assignments):
            self._machines[name].renew()
        self.begun.setdefault(self.core.cell.timeline, time.perf_counter())

    def _begin_machine(self, name: str) -> None:
        conversation = Conversation(self.core.cell, self.core.observed, name)
        machine = _Machine(name, conversation, self.inbox, self.clock, self._told)
        self._machines[name] = machine
        self._tasks.append(asyncio.create_task(machine.run()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks)
        self.turn.close()
        self.store.close()


class _Machine:
    """One machine and the master's side of the talk with it, as the poller has it but for the network."""

    def __init__(
        self,
        name: str,
        conversation: Conversation,
        inbox: Inbox,
        clock: SystemClock,
        told: Callable[[int, int], None],
    ) -> None:
        self._up = set[tuple[str, int]]()  # tasks and attempts that the master durably knows to be up
        self._is_heard = False
        self._name = name
        self._conversation = conversation
        self._inbox = inbox
        self._clock = clock
        self._told = told
        self._borglet = InstantBorglet(name, clock)
        self._renewed = asyncio.Event()
        self.renew()

    def renew(self) -> None:
        self._conversation.renew(self._clock.now())
        self._renewed.set()

    async def run(self) -> None:
        """Poll at each new assignment, and once more, as a held poll would follow."""
        while True:
            await self._renewed.wait()
            self._renewed.clear()
            while await self._exchange():
                pass

    async def _exchange(self) -> bool:
        """Ask once; return whether to ask again: there was a report, or the machine has not what it was sent,
        as after a rollback."""
        request = self._conversation.request(0.0)
        reply = self._borglet.answer(request)
        self._inbox.heard(self._name, self._clock.now().mono)
        report = self._conversation.observe(reply)
        if report is not None:
            await self._inbox.observe(report)
        self._conversation.acknowledge(reply)
        self._count(reply)
        return reply.report is not None or reply.generation != request.generation

    def _count(self, reply: PollReply) -> None:
        if (report := reply.report) is None:
            return
        before = len(self._up)
        if not report.base:
            self._up.clear()
        self._up.difference_update(report.gone, ((each.task, each.attempt) for each in report.attempts))
        self._up.update((each.task, each.attempt) for each in report.attempts if each.phase is Phase.UP)
        self._told(not self._is_heard, len(self._up) - before)
        self._is_heard = True
