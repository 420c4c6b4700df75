"""Stories about a real master core: job files go in, what became of every task is written down.

Machines are fakes that do what they are told: what is assigned runs, what is to stop stops when the
story says so. After each step the whole cell must be sound. What was written is compared with what was
recorded; ``BORGISH_RECORD=1`` records it anew.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    Observe,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Job, Machine, Snapshot, Task
from borgish.cell.tasks.allocs import is_alloc_set
from borgish.clock import Now
from borgish.errors import Refused
from borgish.link.conversation import attempt_spec
from borgish.master.core import Core
from borgish.master.step import CommandRequest, Input, PollsAnswered, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.spec.file.read import read_job
from borgish.vocabulary import Ending, Phase, Runtime, State, task_name
from borgish.wire.api import Accepted
from tests.anew import decided_anew_of

RECORDED = Path(__file__).parent / "recorded"
JOBS = Path(__file__).parents[3] / "configs" / "jobs"
GIB = 1024**3


class Story:
    """A cell, and what is told of it."""

    def __init__(self, **settings: Any) -> None:
        self.now = Now(1_700_000_000.0, 1000.0)
        self.core = Core(Cell(Snapshot("story")), ReconcileSettings(), self.now, **settings)
        self.entries = [*self.core.begin(1, "me", self.now).entries]
        self.told: list[str] = []
        self._shown: dict[str, str] = {}

    # Machines

    def machine(
        self,
        name: str,
        cpu: int = 4,
        gib: int = 8,
        devices: dict[str, int] | None = None,
        runtimes: tuple[Runtime, ...] = (Runtime.PROCESS,),
        **attributes: str,
    ) -> None:
        """Let a machine join."""
        there = {kind: count * DEVICE_MILLIS for kind, count in (devices or {}).items()}
        facts = Machine(
            name=name,
            host="127.0.0.1",
            port=7500,
            tls=False,
            capacity=Resources(cpu * 1000, gib * GIB, 100 * GIB, {}, there),
            attributes=attributes,
            runtimes=runtimes,
            ports_low=20000,
            ports_high=20009,
            boot_id="boot",
            joined_at=self.now.wall,
            port_next=20000,
        )
        self.step(CommandRequest(1, JoinMachine(facts, name, known=False), name))
        self.step(CommandRequest(2, Observe(name, "boot", name, (), whole=True), name))
        more = [f"{key} {value}" for key, value in attributes.items()]
        more += [f"{count} {kind}" for kind, count in (devices or {}).items()]
        self.tell(f"machine {name}: {', '.join([f'{cpu} cpu', f'{gib} GiB', *more])}")

    def machines(self, *names: str, **more: Any) -> None:
        """Let machines join that are alike."""
        for name in names:
            self.machine(name, **more)

    def images(self, name: str, **images: str) -> None:
        """Let a machine have container images, each of an architecture."""
        there = {f"{image}:1": arch for image, arch in images.items()}
        self.tell(f"{name} has {', '.join(f'{image} for {arch}' for image, arch in there.items())}")
        self.step(CommandRequest(2, Observe(name, "boot", name, (), images=there), name))
        self.show()

    def report(self, name: str) -> None:
        """Let a machine say what it runs: all that it should, and what it was not told to end yet."""
        cell, seen = self.core.cell, self.core.observed.machines[name]
        attempts = {}
        for key, attempt in seen.attempts.items():
            if not cell.is_current(name, *key) and attempt.ended is None:
                attempts[key] = SeenAttempt(
                    *key,
                    Phase.STOPPING,
                    attempt.needs,
                    attempt.ports,
                    devices=attempt.devices,
                    alloc=attempt.alloc,
                )
        for job_key, index in sorted(cell.placed[name]):
            job = cell.jobs[job_key]
            if not is_alloc_set(job):
                one = running(cell, job, job.tasks[index])
                attempts[one.task, one.attempt] = one
        self.step(CommandRequest(2, Observe(name, "boot", name, tuple(attempts.values()), whole=True), name))

    def all_report(self) -> None:
        """Let every machine that is up say what it runs."""
        for name in sorted(self.core.cell.machines):
            if self.core.cell.machines[name].up:
                self.report(name)

    def leave(self, name: str) -> None:
        """Let what was told to end on a machine be gone."""
        cell, seen = self.core.cell, self.core.observed.machines[name]
        gone = sorted(key for key in seen.attempts if not cell.is_current(name, *key))
        self.tell(f"{name}: {', '.join(f'{task}@{attempt}' for task, attempt in gone)} ended")
        self.step(CommandRequest(2, Observe(name, "boot", name, (), gone=tuple(gone)), name))
        self.show()

    def fall_silent(self, *names: str) -> None:
        """Let machines say nothing for longer than one may."""
        self.tell(f"{', '.join(names)}: silent for 15 s")
        rest = [name for name in self.core.cell.machines if name not in names]
        for _ in range(15):
            self.wait(1.0, *rest)
        self.show()

    def wait(self, seconds: float, *heard: str) -> None:
        """Let time pass, and machines answer."""
        self.now = self.now.later(seconds)
        self.step(PollsAnswered(dict.fromkeys(heard or sorted(self.core.cell.machines), self.now.mono)))

    # People

    def submit(self, text: str, user: str = "ann") -> None:
        """Submit a job file, and show what came of it."""
        lines = text.strip("\n").rstrip().splitlines()
        margin = len(lines[0]) - len(lines[0].lstrip())
        body = [line[margin:] for line in lines]
        self.tell(f"{user} submits:", *(f"    {line}" for line in body))
        self.do(SubmitJob(read_job("\n".join(body), user)), user, "")

    def submit_file(self, name: str, user: str = "ann") -> None:
        """Submit one of the examples in ``configs/jobs``, and show what came of it."""
        self.tell(f"{user} submits configs/jobs/{name}.yaml")
        self.do(SubmitJob(read_job((JOBS / f"{name}.yaml").read_text(), user)), user, "")

    def do(self, command: Command, user: str = "ann", words: str = "-") -> None:
        """Give a command, and show what came of it."""
        if words:
            self.tell(f"{user}: {type(command).__name__} {words}".rstrip(" -"))
        answer = self.step(CommandRequest(3, command, user))
        if isinstance(answer, Refused):
            self.tell(f"  refused: {answer}")
        if isinstance(answer, Accepted):
            self.tell(*(f"  note: {note}" for note in answer.notes))
        self.show()

    def step(self, *inputs: Input) -> object:
        """Step until nothing more is to be done; return the answer to the last input that has one."""
        step = self._step(inputs)
        answer = step.replies[-1][1] if step.replies else None
        for _ in range(20):
            if not step.more:
                break
            step = self._step(())
        return answer

    def _step(self, inputs: Iterable[Input]) -> Step:
        step = self.core.step(inputs, self.now)
        assert step.failures == ()
        assert violations(self.core.cell) == []
        self.entries += step.entries
        return step

    # Telling

    def tell(self, *lines: str) -> None:
        """Write lines down."""
        self.told += lines

    def show(self) -> None:
        """Write down what is other than when last shown."""
        cell = self.core.cell
        lines = {}
        for key in sorted(cell.jobs):
            for task in cell.jobs[key].tasks:
                lines[task_name(key, task.index)] = self._task(cell.jobs[key], task)
        for name, line in lines.items():
            if self._shown.get(name) != line:
                self.tell(f"  {name} {line}")
        for name in sorted(self._shown.keys() - lines.keys()):
            self.tell(f"  {name} is no more")
        self._shown = lines

    def _task(self, job: Job, task: Task) -> str:
        if task.state is State.RUNNING:
            return f"on {task.machine}{self._details(job, task)}"
        if task.state is State.DEAD:
            return f"is dead: {task.reason}"
        said = [task.reason] if task.reason else []
        if task.promised:
            said.append(f"its place on {task.promised} is kept")
        refusals = self.core.refusals.get(job.key, ())
        said += [refusal.text for refusal in refusals if task.index in refusal.indexes]
        return f"waits: {'; '.join(said)}"

    def _details(self, job: Job, task: Task) -> str:
        attributes = self.core.cell.machines[task.machine].attributes
        asked = {spread.over for spread in job.spec.spread}
        asked |= {term.over for term in (*job.spec.near, *job.spec.apart)}
        asked |= {each.attribute for each in job.spec.constraints}
        asked |= {each.when.attribute for each in job.spec.prefer}
        words = [f"{name} {attributes[name]}" for name in sorted(asked) if name in attributes]
        words += [f"{name} {port}" for name, port in zip(job.spec.ports, task.ports, strict=True)]
        words += task.devices
        words += [f"in {job.spec.inside}/{task.alloc}"] * (task.alloc >= 0)
        return f" ({', '.join(words)})" if words else ""

    def where(self, job: str) -> list[str]:
        """Return the machine of each task of a job, "" of those that wait."""
        tasks = self.core.cell.jobs[job].tasks
        return [task.machine if task.state is State.RUNNING else "" for task in tasks]

    def end(self, name: str) -> None:
        """Compare what was told with what was recorded under a name."""
        told = "\n".join(self.told) + "\n"
        recorded = RECORDED / f"{name}.txt"
        if os.environ.get("BORGISH_RECORD"):
            recorded.parent.mkdir(exist_ok=True)
            recorded.write_text(told, "utf-8")
        assert told == recorded.read_text("utf-8")
        found = decided_anew_of("story", self.entries)
        assert found.otherwise is None, found.otherwise


def running(cell: Cell, job: Job, task: Task, ended: Ending | None = None) -> SeenAttempt:
    """Return a running task as its machine reports it."""
    spec = attempt_spec(cell, job, task)
    return SeenAttempt(
        spec.task,
        spec.attempt,
        Phase.UP,
        spec.resources,
        tuple(spec.ports.values()),
        ended=ended,
        devices=spec.devices,
        alloc=spec.alloc,
    )
