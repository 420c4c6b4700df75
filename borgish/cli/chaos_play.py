"""The story of ``borgctl chaos play``: scenes in which something breaks, and how long the cell took to heal.

The story has jobs of its own, which it ends, and touches no others but as the failures do. A scene is over
when all tasks of its service are up again, by the master's own account; that is what is measured.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec
import typer

from borgish.cli.chaos import MASTER, LocalCell, emptied, filled, killed, stopped
from borgish.cli.errors import FAILED
from borgish.cli.screen import print_err, print_out, styled
from borgish.client import quoted
from borgish.errors import BorgishError, Unreachable
from borgish.vocabulary import State
from borgish.wire.api import (
    Accepted,
    JobDetail,
    StatusView,
    TaskList,
    TaskView,
)
from borgish.wire.api_past import RollbackRequest

SERVICE = "chaos-web"
HEALED_SECONDS_MAX = 180.0
FROZEN_SECONDS = 25.0
_LOOK_SECONDS = 0.05
_PAUSE_SECONDS = 4.0
"""Between two scenes, so that somebody can look."""


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
        spec = {
            "name": SERVICE,
            "tasks": max(3, len(self.cell.borglets)),
            "priority": "production",
            "run": ["python3", "-m", "http.server", "--bind", "127.0.0.1", "{{port.http}}"],
            "ports": ["http"],
            "health": {"http": "/", "port": "http", "interval": "1s"},
            "resources": {"cpu": "50m", "ram": "48MiB"},
        }
        with contextlib.closing(self.cell.client()) as client:
            client.post("/v1/jobs", msgspec.json.encode(spec), Accepted, params={"user": self.cell.user})
        self.healed()

    def end(self) -> None:
        """End what the story brought."""
        emptied(self.cell)
        with contextlib.suppress(BorgishError):
            self.cell.kill_job(SERVICE)

    def position(self) -> int:
        """Return how far the journal has come."""
        with contextlib.closing(self.cell.client()) as client:
            return client.get("/v1/status", None, StatusView).position

    def roll_back(self, position: int) -> str:
        """Make the service what it was at a position; return what was done."""
        asked = RollbackRequest(str(position), only=(f"{self.cell.user}/{SERVICE}",), max_affected=100_000)
        with contextlib.closing(self.cell.client()) as client:
            return client.post("/v1/rollback", asked, Accepted).text

    def tasks(self) -> list[TaskView]:
        """Return the tasks of the service."""
        with contextlib.closing(self.cell.client()) as client:
            found = client.get("/v1/tasks", {"job": f"{self.cell.user}/{SERVICE}"}, TaskList)
        return list(found.items)

    def is_well(self) -> bool:
        """Whether the master says that all tasks of the service are up."""
        with contextlib.closing(self.cell.client()) as client:
            try:
                job = client.get(quoted("jobs", self.cell.user, SERVICE), None, JobDetail).job
            except Unreachable:
                return False
        return job.up == job.tasks

    def healed(self) -> float | None:
        """Wait until all is up; return the seconds that took, None when it did not come about."""
        began = time.perf_counter()
        while (waited := time.perf_counter() - began) < HEALED_SECONDS_MAX:
            if self.is_well():
                return waited
            time.sleep(_LOOK_SECONDS)
        return None

    def broken(self, seconds_max: float) -> bool:
        """Wait until the master knows that something is not up; return whether it came to that."""
        began = time.perf_counter()
        while time.perf_counter() - began < seconds_max:
            if not self.is_well():
                return True
            time.sleep(_LOOK_SECONDS)
        return False

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
def _the_cell_is_full(story: Story) -> Iterator[str]:
    words = filled(story.cell)
    time.sleep(_PAUSE_SECONDS)
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
    time.sleep(_PAUSE_SECONDS)  # to see it gone
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


def play(made: LocalCell, wanted: str) -> int:
    """Play scenes, all or those with the numbers ``wanted``; return the exit code."""
    numbers = _numbers(wanted)
    story = Story(made)
    print_out("Watch it with `borgctl dashboard` in another terminal.")
    try:
        story.begin()
        took = [_played(story, number) for number in numbers]
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
    if story.healed() is None:
        print_err(f"  not healed after {HEALED_SECONDS_MAX:.0f} s: `borgctl why {SERVICE}` says why", "red")
        return None
    seconds = time.perf_counter() - began
    print_out(styled(f"  all tasks are up again after {seconds:.1f} s", "green", sys.stdout))
    time.sleep(_PAUSE_SECONDS)
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
