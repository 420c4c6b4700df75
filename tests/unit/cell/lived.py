"""A cell that is lived step by step, with its whole journal at hand, so that it can be taken back."""

from typing import Any

import msgspec

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    KillTasks,
    Observe,
    RollBack,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.events import AnyEvent, Entry
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Now
from borgish.errors import Refused
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Phase, Runtime, State
from borgish.wire.api import Accepted
from tests.sentences import check_refusal, check_sentence

GIB = 1024**3
NAME = "lived"


def machine(name: str = "m1", **changes: Any) -> Machine:
    made = Machine(
        name=name,
        host="127.0.0.1",
        port=7500,
        tls=False,
        capacity=Resources(8000, 8 * GIB, 100 * GIB),
        attributes={"arch": "amd64"},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20099,
        boot_id="b1",
        joined_at=1.0,
        port_next=20000,
    )
    return msgspec.structs.replace(made, **changes)


def spec(name: str = "web", tasks: int = 3, **changes: Any) -> JobSpec:
    needs = Resources(100, GIB // 64, 0)
    return msgspec.structs.replace(JobSpec(name, "ann", tasks, ("sleep", "1"), resources=needs), **changes)


CRASHES = ("crash",)
"""What a job runs whose tasks are up for a second, and never again."""

LOOPS = ("loop",)
"""What a job runs whose tasks crash over and over."""

STEPS_MAX = 5000
"""No test needs so many; one that waits for what never happens fails, rather than hangs."""

QUIET_STEPS = 13
"""A rollback waits so long for what it started to stay up, before it goes on."""


class Lived:
    """A core and all it wrote. Each ``do`` is a step of its own, a second later; invariants hold after it.

    Machines are heard in each step but for those in ``silent``, and report what was placed on them as up.
    """

    def __init__(self, machines: tuple[str, ...] = ("m1", "m2")) -> None:
        self.now = Now(1000.0, 10.0)
        self.steps = 0
        self.silent: set[str] = set()
        self.crashes = True  # what runs ``CRASHES`` does
        self.stuck: set[int] = set()  # attempts that never come up
        self.core = Core(Cell(Snapshot(NAME)), ReconcileSettings(), self.now)
        self.entries: list[Entry] = list(self.core.begin(1, "me", self.now).entries)
        for name in machines:
            self.do(JoinMachine(machine(name), name, known=False))

    @property
    def cell(self) -> Cell:
        return self.core.cell

    @property
    def position(self) -> int:
        return self.core.cell.position

    def step(self, *commands: Command, actor: str = "ann", then: Cell | None = None) -> Step:
        """Take a step; ``then`` is given with a rollback instead of the cell as it was."""
        self.steps += 1
        assert self.steps <= STEPS_MAX, "it does not come to rest"
        self.now = self.now.later(1.0)
        there = sorted(self.cell.machines.keys() - self.silent)
        heard = PollsAnswered(dict.fromkeys(there, self.now.mono))
        reports = [
            CommandRequest(-1, report, report.machine) for name in there if (report := self._report(name))
        ]
        asks = [
            CommandRequest(
                number,
                command,
                actor,
                target=RollbackTarget(past) if (past := then or self.then_of(command)) else None,
            )
            for number, command in enumerate(commands)
        ]
        step = self.core.step([heard, *reports, *asks], self.now)
        self.entries += step.entries
        assert violations(self.cell) == []
        return step

    def _report(self, name: str) -> Observe | None:
        """Return what a machine reports, None when that is what it reported before."""
        seen = self.core.observed.machines[name].attempts
        current = set()
        changed = []
        there = [(key, self.cell.jobs[key].tasks[index]) for key, index in sorted(self.cell.placed[name])]
        arriving = sorted(self.cell.arriving.get(name, ()))
        there += [(key, self.cell.handovers[key][index].task(index)) for key, index in arriving]
        for key, task in there:
            job = self.cell.jobs[key]
            known = seen.get(found := (f"{key}/{task.index}", task.attempt))
            current.add(found)
            if job.spec_of(task).run == CRASHES and known is not None and self.crashes:
                fresh = SeenAttempt(*found, Phase.STARTING, restarts=1, exit_code=1)
            elif job.spec_of(task).run == LOOPS and known is not None:
                fresh = SeenAttempt(*found, Phase.CRASH_LOOPING, restarts=3, exit_code=1)
            else:
                phase = Phase.UP if job.spec.health is None else Phase.HEALTHY
                phase = Phase.STARTING if task.attempt in self.stuck else phase
                fresh = SeenAttempt(*found, phase, restarts=known.restarts if known else 0)
            if known is None or (known.phase, known.restarts) != (fresh.phase, fresh.restarts):
                changed.append(fresh)
        gone = tuple(sorted(seen.keys() - current))
        return Observe(name, "b1", name, tuple(changed), gone) if changed or gone else None

    def do(self, command: Command, actor: str = "ann", then: Cell | None = None) -> str:
        """Have a command done, and what follows at once; return the answer. Raises what it was refused."""
        before = msgspec.json.encode(self.cell.snapshot())
        step = self.step(command, actor=actor, then=then)
        (reply,) = (reply for handle, reply in step.replies if handle >= 0)
        if isinstance(reply, Refused):
            check_refusal(reply)
            if not step.entries:
                assert msgspec.json.encode(self.cell.snapshot()) == before
            raise reply
        assert isinstance(reply, Accepted)
        check_sentence(reply.text)
        return reply.text

    def happen(self, *events: AnyEvent) -> None:
        """Have something happen that nobody here decides."""
        at, epoch = self.now.wall, self.cell.epoch
        entry = Entry(self.position + 1, at, self.cell.timeline, epoch, "ann", "test", events)
        apply_entry(self.cell, entry)
        self.entries.append(entry)

    def settle(self, steps_max: int = 200) -> int:
        """Step until nothing happens any more; return how many steps that took."""
        quiet = 0
        for number in range(steps_max):
            quiet = 0 if self.step().entries else quiet + 1
            if quiet == QUIET_STEPS:
                return number + 1 - quiet
        raise AssertionError("it does not come to rest")

    def then(self, position: int) -> Cell:
        """Return the cell as it was, from the journal as it is stored."""
        cell = Cell(Snapshot(NAME))
        for entry in self.entries:
            if entry.position > position:
                break
            apply_entry(cell, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
        return cell

    def then_of(self, command: Command) -> Cell | None:
        """Return the cell that a rollback is decided against."""
        return self.then(command.to) if isinstance(command, RollBack) else None

    def roll_back(self, position: int, **options: Any) -> str:
        """Roll back to a position, whatever that stops."""
        at = self.entries[position - 1].at
        options = {"max_affected": 10_000, **options}
        return self.do(RollBack(position, at, **options))

    def states(self, job: str = "ann/web") -> list[State]:
        return [task.state for task in self.cell.jobs[job].tasks]

    def attempts(self, job: str = "ann/web") -> list[int]:
        return [task.attempt for task in self.cell.jobs[job].tasks]

    def ended(self, job: str, index: int, ending: Ending, code: int = 0) -> None:
        """Have the machine of a task say that it ended."""
        task = self.cell.jobs[job].tasks[index]
        seen = SeenAttempt(f"{job}/{index}", task.attempt, Phase.STOPPING, ended=ending, exit_code=code)
        self.report(task.machine, seen)

    def report(self, machine: str, *seen: SeenAttempt, whole: bool = False) -> None:
        """Have a machine report."""
        self.step(Observe(machine, "b1", machine, seen, whole=whole), actor=machine)


def wanted_of(cell: Cell) -> dict[str, object]:
    """Return what a rollback restores, without what only grows: the jobs, who is to run, and the cordons."""
    jobs = {
        key: (job.spec, job.uid, job.submitted_by, [task.state is State.DEAD for task in job.tasks])
        for key, job in cell.jobs.items()
    }
    return {"jobs": jobs, "cordons": {m.name: m.cordoned for m in cell.machines.values()}}


def deploy(lived: Lived, name: str = "web", **changes: Any) -> None:
    """Put another version in the place of a job."""
    lived.do(KillTasks(f"ann/{name}", max_affected=10_000))
    lived.do(SubmitJob(spec(name, **changes)))


FIVE = 5


def crashed_before() -> tuple[Lived, int]:
    """Return a cell whose five tasks are well, and the position at which they crashed."""
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=FIVE, run=CRASHES)))
    bad = lived.position
    deploy(lived, tasks=FIVE)
    lived.settle()
    return lived, bad
