"""A bad day: the real masters and borglets in virtual time, what people type, and what they are shown.

What is told is compared with what was recorded; ``BORGISH_RECORD=1`` records it anew. Moments are written in
seconds since the world began, and ages in borgctl's words are by the world's clock.
"""

import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from borgish.api.views.history import HistoryFilter, history_view
from borgish.api.views.jobs import job_detail
from borgish.api.views.machines import machine_view
from borgish.api.views.tally import Tally
from borgish.api.views.why import why_job, why_task
from borgish.cell.command import Command
from borgish.cell.commands import (
    DrainMachines,
    KillTasks,
    PauseUpdate,
    ResumeUpdate,
    RollBack,
    SubmitJob,
    UndoUpdate,
    UndrainMachines,
)
from borgish.cell.events import AnyEvent
from borgish.cell.model import Job, Rollout
from borgish.cell.updates.rollback import RollbackTarget
from borgish.cli.rollouts import status_in_full
from borgish.clock import Now
from borgish.errors import BorgishError
from borgish.master.core import Core
from borgish.master.reading import refusal_view
from borgish.resources import Resources
from borgish.sim.checkers.disruptions import disruption_problems
from borgish.sim.checkers.safety import settled_problems
from borgish.sim.faults import NO_FAULTS
from borgish.sim.loop import WALL_AT_START
from borgish.sim.machines import FACTS, GIB
from borgish.sim.masters import MasterHost
from borgish.sim.world import World
from borgish.spec.file.read import read_job
from borgish.spec.job import JobSpec
from borgish.store.replay import cell_at
from borgish.vocabulary import Runtime, split_task_name
from borgish.wire.api import Accepted, JobDetail, RefusalView
from tests.anew import decided_anew_of
from tests.scenario.bad_days.judge import Bound, problems, runs_of, stops_of

RECORDED = Path(__file__).parent / "recorded"
NEVER = 1e9
LOOK_SECONDS = 0.05
ANSWER_SECONDS_MAX = 5.0
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_STOPPED = "and should run there"
_TYPED = re.compile(r"`(borgctl [^`]+)`")

DOES = {"crash": "crashing", "sick": "sick"}
"""What a program does, by its name; all others are services that go on."""

WEB = "ann/web"
TASKS, MOST = 8, 2
SETTLE_SECONDS = 5.0
UNSEEN_SECONDS = 13.0
"""After so long a machine without power is down for everybody: a poll that waits for an answer, and 10 s."""
CHANGED = Bound(WEB, TASKS, MOST, SETTLE_SECONDS)
"""What an update of ``web`` may do: what it changed counts until it has settled."""
DRAINED = Bound(WEB, TASKS, MOST)
"""What a drain may do to it."""


def web(release: int, run: str = "serve", cpu: int = 1, update: str = "", more: str = "") -> str:
    """Return a job file of eight tasks, of which two may be down."""
    lines = [
        "name: web",
        f"tasks: {TASKS}",
        f"run: [{run}]",
        f'env: {{RELEASE: "{release}"}}',
        f"resources: {{cpu: {cpu}, ram: 1GiB}}",
        f"disruption: {{max_unavailable: {MOST}}}",
        f"update: {{settle: {SETTLE_SECONDS:g}s{update and f', {update}'}}}",
        more,
    ]
    return "\n".join(filter(None, lines))


class Day:
    """A cell of machines ``m1``, ``m2`` and so on, the last ``later`` of them not yet begun. ``bounds`` hold
    all day."""

    def __init__(
        self, *bounds: Bound, machines: int = 4, cpu: int = 8, masters: int = 1, later: int = 0
    ) -> None:
        self.world = World(1, machines + later, NO_FAULTS, NEVER, masters)
        self.told: list[str] = []
        self.offered: set[str] = set()  # commands that somebody was told to type
        self._bounds = bounds
        self._requests = 0
        for host in self.world.hosts:
            host.begin()
        for number, machine in enumerate(self.world.machines.values()):
            machine.facts = msgspec.structs.replace(
                FACTS, capacity=Resources(cpu * 1000, 16 * GIB, 100 * GIB)
            )
            if number < machines:
                machine.begin()
        self.wait(5.5)

    # Time

    @property
    def at(self) -> float:
        """Seconds since the world began."""
        return self.world.clock.now().mono

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.world.clock.run_until(self.at + seconds)

    def until(self, is_so: Callable[[], bool], seconds_max: float = 120.0) -> None:
        """Let time pass until something is so."""
        end = self.at + seconds_max
        while not is_so():
            assert self.at < end, "it does not come about"
            self.wait(LOOK_SECONDS)

    # The cell

    @property
    def master(self) -> MasterHost:
        return self.world.master

    @property
    def core(self) -> Core:
        """The core of the master that leads."""
        core = self.master.core
        assert core is not None, "nobody leads"
        return core

    def job(self, key: str = WEB) -> Job:
        return self.core.cell.jobs[key]

    def rollout(self, key: str = WEB) -> Rollout:
        rollout = self.job(key).rollout
        assert rollout is not None, f"no update of {key} is under way"
        return rollout

    def is_over(self, key: str = WEB) -> bool:
        """Return whether no update of a job is under way, as its leader knows."""
        return self.master.core is not None and self.job(key).rollout is None

    def versions(self, key: str = WEB) -> list[int]:
        return [task.version for task in self.job(key).tasks]

    def events(self) -> list[AnyEvent]:
        """Return all that the journal has."""
        return [event for entry in self.master.store.reopen().entries(0) for event in entry.events]

    @property
    def position(self) -> int:
        """The latest position of the journal."""
        return len(self.master.store.disk.entries)

    def attempts(self, key: str = WEB) -> list[int]:
        """Return how many attempts of each task have truly run."""
        runs = runs_of(self.world.machines, key)
        return [len({run.attempt for run in each}) for each in runs.values()]

    def stops(self, key: str = WEB) -> list[int]:
        """Return how often each task was truly taken down by us."""
        return list(stops_of(self.world.machines, key).values())

    def releases(self, key: str = WEB) -> list[str]:
        """Return the releases that truly run, without those that were asked to end."""
        return sorted(
            program.spec.env["RELEASE"]
            for machine in self.world.machines.values()
            for program in machine.programs.by_key.values()
            if program.is_alive and not program.is_signalled and split_task_name(program.spec.task)[0] == key
        )

    # People

    def submit(self, text: str) -> None:
        """Submit a job file, and tell what was answered. ``run`` names what its programs do (``DOES``)."""
        self.tell("ann submits:", *(f"    {line}" for line in text.splitlines()))
        self.ask(SubmitJob(_simulated(text)))

    def submit_unheard(self, text: str) -> None:
        """Submit a job file, and wait for no answer: the master may die before it is given."""
        self._send(SubmitJob(_simulated(text)), lambda _: None)

    def types(self, line: str) -> None:
        """Let somebody type a command, and tell what was answered."""
        self.tell(f"ann types: {line}")
        self.ask(command_of(line))

    def takes(self, line: str) -> None:
        """Let somebody type what they were told to type, just so."""
        assert line in self.offered, f"{line} was not offered, but {sorted(self.offered)}"
        self.types(line)

    def ask(self, command: Command) -> None:
        """Give a command to the master that leads, and tell what it answers."""
        answers: list[Accepted | BorgishError] = []
        self._send(command, answers.append)
        self.until(lambda: bool(answers), ANSWER_SECONDS_MAX)
        (answer,) = answers
        if isinstance(answer, BorgishError):
            self.tell(f"  refused: {answer.message}", f"  hint: {answer.hint}")
        else:
            self.tell(f"  {answer.text}", *(f"  note: {note}" for note in answer.notes))

    def _send(self, command: Command, answer: Callable[[Accepted | BorgishError], None]) -> None:
        target = None
        if isinstance(command, RollBack):
            store = self.master.store.reopen()
            target = RollbackTarget(cell_at(store, store.disk.cell, command.to).cell)
        self._requests += 1
        self.master.command(command, answer, "ann", f"asked-{self._requests}", "d", target)

    # Telling

    def tell(self, *lines: str) -> None:
        """Write lines down, the first with its time."""
        for number, line in enumerate(lines):
            stamp = f"[{self.at:5.0f} s] " if number == 0 else " " * 10
            self.told.append(f"{stamp}{_INSTANT.sub(_seconds, line)}".rstrip())
            self.offered.update(_TYPED.findall(line))

    def detail(self, key: str = WEB) -> JobDetail:
        """Return a job as the API shows it."""
        core = self.core
        return job_detail(
            core.cell, core.observed, self.job(key), self._refusals(key), self.now, secrets=True
        )

    @property
    def now(self) -> Now:
        """Return this moment, as the master that leads reads it."""
        assert self.master.process is not None
        return self.master.process.now()

    def status(self, key: str = WEB) -> str:
        """Tell, and return, what ``borgctl job update status`` shows."""
        process = self.master.process
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("borgish.text.SystemClock", lambda: process)
            shown = status_in_full(self.detail(key))
        self.tell(f"borgctl job update status {key}", *(f"  {line}" for line in shown.splitlines()))
        return shown

    def why(self, name: str = WEB) -> str:
        """Tell, and return, what ``borgctl why`` says of a job or a task."""
        core = self.core
        if name in core.cell.jobs:
            job = core.cell.jobs[name]
            found = why_job(core.cell, core.observed, job, self._refusals(name), (), self.now)
        else:
            key, index = split_task_name(name)
            job = core.cell.jobs[key]
            found = why_task(core.cell, core.observed, job, index, self._refusals(key), (), self.now)
        self.tell(f"borgctl why {name}", f"  {found.text}")
        return found.text

    def machines(self) -> dict[str, tuple[str, ...]]:
        """Tell what ``borgctl machine show`` says of every machine: its state, and what stays and why; return
        that."""
        core, staying = self.core, {}
        lines = ["borgctl machine show"]
        for name in sorted(core.cell.machines):
            view = machine_view(core.cell, core.observed, Tally(), core.cell.machines[name], self.now)
            staying[name] = view.staying
            of = f"{view.tasks} task{'s' * (view.tasks != 1)}"
            lines += [f"  {name} {view.state}, {of}{f'; {view.reason}' if view.reason else ''}"]
            lines += [f"     stays {line}" for line in view.staying]
        self.tell(*lines)
        return staying

    def _refusals(self, key: str) -> tuple[RefusalView, ...]:
        return tuple(map(refusal_view, self.core.refusals.get(key, ())))

    def history(self, key: str = WEB) -> None:
        """Tell what ``borgctl history`` has of a job."""
        self.tell(f"borgctl history {key}")
        for entry in self.master.store.reopen().entries(0):
            view = history_view(entry, HistoryFilter(job=key))
            if view is not None:
                at = f"  [{entry.at - WALL_AT_START:5.0f} s] {view.actor}, {view.asked}:"
                self.told += [f"{at} {_INSTANT.sub(_seconds, line.text)}" for line in view.events]

    # The end

    def end(self, name: str = "", *, is_at_rest: bool = True, restarts_by_probe: bool = False) -> None:
        """Judge the day, and compare what was told with what was recorded under a name; "" for a day of which
        nothing is recorded.

        ``is_at_rest``: what runs is exactly what should. ``restarts_by_probe``: programs are stopped that
        should run, since they fail their probes.
        """
        world = self.world
        store = self.master.store.reopen()
        found = [*world.clock.faults]
        found += [each for each in world.checker.problems if not (restarts_by_probe and _STOPPED in each)]
        found += [problem for host in world.hosts for problem in host.problems]
        found += [problem for machine in world.machines.values() for problem in machine.disk.problems]
        for bound in self._bounds:
            found += problems(world.machines, bound)
        entries = list(store.entries(0))
        found += disruption_problems(entries, store.sim_disk.decided_at, world.machines)
        if is_at_rest:
            found += settled_problems(self.core.cell, world.machines)
        assert not found, "; ".join(found)
        anew = decided_anew_of(store.disk.cell, entries)
        assert anew.otherwise is None, anew.otherwise
        if name:
            self._compare(name)

    def _compare(self, name: str) -> None:
        told, recorded = "\n".join(self.told) + "\n", RECORDED / f"{name}.txt"
        if os.environ.get("BORGISH_RECORD"):
            recorded.parent.mkdir(exist_ok=True)
            recorded.write_text(told, "utf-8")
        assert told == recorded.read_text("utf-8")


def _seconds(found: re.Match[str]) -> str:
    return f"{datetime.fromisoformat(found[0]).timestamp() - WALL_AT_START:.0f} s"


def _simulated(text: str) -> JobSpec:
    """Return what a job file says, for the simulator's programs."""
    spec = read_job(text, "ann")
    labels = {**spec.labels, "sim": DOES.get(spec.run[0], "service")}
    return msgspec.structs.replace(spec, runtime=Runtime.FAKE, labels=labels)


def command_of(line: str) -> Command:
    """Return the command that a line of ``borgctl`` gives."""
    match line.split():
        case ["borgctl", "job", "update", "pause", job]:
            return PauseUpdate(job)
        case ["borgctl", "job", "update", "resume", job]:
            return ResumeUpdate(job)
        case ["borgctl", "job", "update", "promote", job]:
            return ResumeUpdate(job, promote=True)
        case ["borgctl", "job", "update", "undo", job]:
            return UndoUpdate(job)
        case ["borgctl", "job", "kill", job]:
            return KillTasks(job)
        case ["borgctl", "machine", "drain", *names]:
            return DrainMachines(tuple(names))
        case ["borgctl", "machine", "undrain", *names]:
            return UndrainMachines(tuple(names))
        case ["borgctl", "rollback", position]:
            return RollBack(int(position), at=0.0)
        case ["borgctl", "rollback", position, "--only", job]:
            return RollBack(int(position), at=0.0, only=frozenset({job}))
        case _:
            raise AssertionError(f"nobody types {line}")
