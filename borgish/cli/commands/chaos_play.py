"""The story of ``borgctl chaos play``: scenes in which something breaks, and how long the cell took to heal.

The story has jobs of its own, which it ends, and touches no others but as the failures do. A scene is over
when all tasks of its service are up again, by the master's own account; that is what is measured.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import typer

from borgish.cli.commands.chaos import MASTER, LocalCell, emptied, filled, killed, stopped
from borgish.cli.errors import FAILED
from borgish.cli.screen import print_err, print_out, styled
from borgish.client import quoted
from borgish.errors import BorgishError, Unreachable
from borgish.vocabulary import MachineState, State
from borgish.wire.api import (
    Accepted,
    DrainRequest,
    JobDetail,
    MachineList,
    StatusView,
    TaskList,
    TaskView,
    UndrainRequest,
)
from borgish.wire.api_past import RollbackRequest

SERVICE, WRITER = "chaos-web", "chaos-writer"
HEALED_SECONDS_MAX = 180.0
FROZEN_SECONDS = 25.0
_MASTER_FROZEN_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_SEEN_SECONDS = 4.0
"""So long something stays within a scene, so that somebody sees it."""


class Scene(NamedTuple):
    """What breaks, what to look for meanwhile, and what breaks it; the cell heals when it is left."""

    title: str
    look_for: str
    breaks: "Callable[[Story], contextlib.AbstractContextManager[str]]"


class Story:
    """A local cell, and the service whose tasks are to be up."""

    def __init__(self, made: LocalCell) -> None:
        self.cell = made

    def begin(self) -> None:
        """Submit the service, unless it is there, and wait until it is up."""
        self.submit(self.service())
        self.healed()

    def end(self) -> None:
        """End what the story brought."""
        emptied(self.cell)
        for job in (SERVICE, WRITER):
            with contextlib.suppress(BorgishError):
                self.cell.kill_job(job)

    def service(self, module: str = "http.server") -> dict[str, Any]:
        """Return the service, as a job file has it; another ``module`` of Python is another version."""
        return {
            "name": SERVICE,
            "tasks": max(3, len(self.cell.borglets)),
            "priority": "production",
            "run": ["python3", "-m", module, "--bind", "127.0.0.1", "{{port.http}}"],
            "ports": ["http"],
            "health": {"http": "/", "port": "http", "interval": "1s"},
            "update": {"settle": "2s", "on_failure": "undo"},
            "resources": {"cpu": "50m", "ram": "48MiB"},
        }

    def submit(self, spec: dict[str, Any]) -> None:
        """Submit a job of the story."""
        with contextlib.closing(self.cell.client()) as client:
            client.post("/v1/jobs", msgspec.json.encode(spec), Accepted, params={"user": self.cell.user})

    def position(self) -> int:
        """Return how far the journal has come."""
        with contextlib.closing(self.cell.client()) as client:
            return client.get("/v1/status", None, StatusView).position

    def roll_back(self, position: int) -> str:
        """Make the service what it was at a position; return what was done."""
        asked = RollbackRequest(str(position), only=(f"{self.cell.user}/{SERVICE}",), max_affected=100_000)
        with contextlib.closing(self.cell.client()) as client:
            return client.post("/v1/rollback", asked, Accepted).text

    def tasks(self, job: str = SERVICE) -> list[TaskView]:
        """Return the tasks of the service, or of another job of the story."""
        with contextlib.closing(self.cell.client()) as client:
            found = client.get("/v1/tasks", {"job": f"{self.cell.user}/{job}"}, TaskList)
        return list(found.items)

    def looked_at(self, name: str = SERVICE) -> JobDetail | None:
        """Return what the master says of a job; None where it does not answer."""
        with contextlib.closing(self.cell.client()) as client:
            try:
                return client.get(quoted("jobs", self.cell.user, name), None, JobDetail)
            except Unreachable:
                return None

    def is_well(self, name: str = SERVICE) -> bool:
        """Whether the master says that all tasks of a job are up."""
        found = self.looked_at(name)
        return found is not None and found.job.up == found.job.tasks

    def is_settled(self) -> bool:
        """Whether no update of the service is under way."""
        found = self.looked_at()
        return found is not None and found.rollout is None

    def healed(self, name: str = SERVICE) -> bool:
        """Wait until all of a job is up; return whether it came to that."""
        return self.until(lambda: self.is_well(name))

    def broken(self, seconds_max: float, name: str = SERVICE) -> bool:
        """Wait until the master knows that something is not up; return whether it came to that."""
        return self.until(lambda: not self.is_well(name), seconds_max)

    def until(self, holds: Callable[[], bool], seconds_max: float = HEALED_SECONDS_MAX) -> bool:
        """Wait until something holds; return whether it came to that."""
        began = time.perf_counter()
        while not (held := holds()) and time.perf_counter() - began < seconds_max:
            time.sleep(_LOOK_SECONDS)
        return held

    def release_machines(self) -> None:
        """Take machines back that are quarantined, since they went down again and again: as people do who
        know why. Else a story that is told twice ends with all tasks on the last machine."""
        with contextlib.closing(self.cell.client()) as client:
            for each in client.get("/v1/machines", None, MachineList).items:
                if each.state is MachineState.QUARANTINED:
                    client.post(f"{quoted('machines', each.name)}/uncordon", None, Accepted)
                    print_out(f"  {each.name} went down too often, so that it was quarantined; uncordoned it")

    def machine(self) -> str:
        """Return the machine that has the most tasks of the service."""
        machines = [each.machine for each in self.tasks() if each.machine and each.state is State.RUNNING]
        return max(sorted(set(machines)), key=machines.count)


@contextlib.contextmanager
def _a_program_dies(story: Story) -> Iterator[str]:
    yield killed(story.cell, next(each.name for each in story.tasks() if each.pid))
    story.broken(5.0)


@contextlib.contextmanager
def _the_master_dies(story: Story) -> Iterator[str]:
    pids = {each.name: each.pid for each in story.tasks()}
    yield killed(story.cell, MASTER)
    story.broken(5.0)
    story.cell.up()
    story.healed()
    kept = sum(pids.get(each.name) == each.pid for each in story.tasks())
    print_out(f"  {kept} of {len(pids)} programs never noticed: they have the pids of before")


@contextlib.contextmanager
def _a_machine_is_silent(story: Story, *, programs: bool) -> Iterator[str]:
    with stopped(story.cell, story.machine(), programs=programs) as words:
        yield words
        story.broken(FROZEN_SECONDS)
        story.healed()


@contextlib.contextmanager
def _a_machine_dies(story: Story) -> Iterator[str]:
    yield killed(story.cell, story.machine())
    story.broken(90.0)
    story.healed()
    story.cell.up()


@contextlib.contextmanager
def _the_master_freezes(story: Story) -> Iterator[str]:
    with stopped(story.cell, MASTER, programs=False) as words:
        yield words
        time.sleep(_MASTER_FROZEN_SECONDS)


@contextlib.contextmanager
def _a_writer_is_cut_off(story: Story) -> Iterator[str]:
    spec = {"name": WRITER, "run": ["sleep", "1000000"], "exclusive": True, "stop": {"grace": "1s"}}
    story.submit(spec | {"resources": {"cpu": "10m", "ram": "8MiB"}})
    story.healed(WRITER)
    (before,) = story.tasks(WRITER)
    with stopped(story.cell, before.machine or "", programs=False) as words:
        yield f"started {WRITER}, which is `exclusive`; {words}"
        if story.broken(FROZEN_SECONDS, WRITER) and story.healed(WRITER):
            (now,) = story.tasks(WRITER)
            print_out(f"  its lease on {before.machine} ended, and now it runs on {now.machine}")


@contextlib.contextmanager
def _a_machine_is_drained(story: Story) -> Iterator[str]:
    machine = story.machine()
    with contextlib.closing(story.cell.client()) as client:
        client.post("/v1/drains", DrainRequest((machine,), reason="a new disk"), Accepted)
        try:
            yield f"borgctl machine drain {machine} --reason 'a new disk'"
            if story.until(lambda: not any(each.machine == machine for each in story.tasks())):
                print_out(f"  no task of {SERVICE} is on {machine} any more")
        finally:  # also where somebody stops the story
            client.post("/v1/drains/delete", UndrainRequest((machine,)), Accepted)


@contextlib.contextmanager
def _a_version_is_broken(story: Story) -> Iterator[str]:
    story.submit(story.service("http.sever"))
    yield "submitted a new version, whose program is `python3 -m http.sever`"
    story.until(story.is_settled)
    if (now := story.looked_at()) is not None and now.last_rollout is not None:
        print_out(f"  undone: {now.last_rollout.reason.removeprefix('undone ')}")


@contextlib.contextmanager
def _the_cell_is_full(story: Story) -> Iterator[str]:
    words = filled(story.cell)
    time.sleep(_SEEN_SECONDS)
    victim = next(each.name for each in story.tasks() if each.pid)
    yield f"{words}; {killed(story.cell, victim)}"
    story.broken(5.0)
    story.healed()
    emptied(story.cell)


@contextlib.contextmanager
def _somebody_errs(story: Story) -> Iterator[str]:
    before = story.position()
    story.cell.kill_job(SERVICE)
    yield f"killed the whole job {SERVICE}, as somebody might who meant another"
    story.broken(5.0)
    time.sleep(_SEEN_SECONDS)  # to see it gone
    print_out(f"  {story.roll_back(before)}")


SCENES = (
    Scene(
        "A program dies",
        "its task goes through starting to healthy, on the same machine",
        _a_program_dies,
    ),
    Scene(
        "The master dies, and comes back",
        "the dashboard says that it is not reachable, and goes on by itself; the tasks do not mind",
        _the_master_dies,
    ),
    Scene(
        "The master freezes",
        "the dashboard says for how long it has had no answer; all tasks run on, and none is moved",
        _the_master_freezes,
    ),
    Scene(
        "A machine freezes",
        "it is down after ten silent seconds, and its tasks run elsewhere; when it wakes up it ends its own",
        partial(_a_machine_is_silent, programs=True),
    ),
    Scene(
        "A machine is cut off",
        "as before, but its programs run on: a task runs twice until the machine is heard again, unless its "
        "job is `exclusive`",
        partial(_a_machine_is_silent, programs=False),
    ),
    Scene(
        "A machine dies",
        "its host refuses connections, so it might be an upgrade of the borglet: it is given a minute",
        _a_machine_dies,
    ),
    Scene(
        "A task that must never run twice is cut off",
        "an exclusive task waits until the lease on its old machine has surely ended, over half a minute",
        _a_writer_is_cut_off,
    ),
    Scene(
        "A machine is to be repaired",
        "it is drained: its tasks move, no more of them at once than the job's budget lets be down",
        _a_machine_is_drained,
    ),
    Scene(
        "A new version is broken",
        "the update stops at its first task, and undoes itself; the other tasks serve on",
        _a_version_is_broken,
    ),
    Scene(
        "The cell is full",
        "tasks of the free band take all cpu, and those of production are still started again",
        _the_cell_is_full,
    ),
    Scene(
        "Somebody makes a mistake",
        "the job ends, and a rollback brings it back; t in the dashboard shows both, entry by entry",
        _somebody_errs,
    ),
)


def play(made: LocalCell, wanted: str, pause_seconds: float) -> int:
    """Play scenes, all or those with the numbers ``wanted``, with a pause after each, in which somebody can
    look; return the exit code."""
    numbers = _numbers(wanted)
    story = Story(made)
    print_out("Watch it with `borgctl dashboard` in another terminal.")
    try:
        story.begin()
        took = []
        for number in numbers:
            took.append(_played(story, number))
            time.sleep(pause_seconds)
    except KeyboardInterrupt:
        print_err("stopped; `borgctl chaos heal` mends what is broken")
        return 130
    finally:
        story.end()
    print_out("The story is over; what it brought was ended.")
    return FAILED if None in took else 0


def _played(story: Story, number: int) -> float | None:
    scene = SCENES[number - 1]
    print_out(styled(f"\n{number}. {scene.title}", "bold", sys.stdout))
    print_out(f"  look for: {scene.look_for}")
    with scene.breaks(story) as words:
        began = time.perf_counter()
        print_out(f"  {words}")
    if not story.healed():
        print_err(f"  not healed after {HEALED_SECONDS_MAX:.0f} s: `borgctl why {SERVICE}` says why", "red")
        return None
    seconds = time.perf_counter() - began
    story.release_machines()
    print_out(styled(f"  all tasks are up again after {seconds:.1f} s", "green", sys.stdout))
    return seconds


def _numbers(text: str) -> list[int]:
    """Read the numbers of scenes; all where none is named."""
    if not text:
        return list(range(1, len(SCENES) + 1))
    try:
        numbers = [int(each) for each in text.split(",")]
        if not all(1 <= each <= len(SCENES) for each in numbers):
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' are no scenes: there are 1 to {len(SCENES)}", param_hint="--scenes"
        ) from None
    return numbers
