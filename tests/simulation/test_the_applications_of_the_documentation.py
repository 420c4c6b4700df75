"""The applications of ``configs/apps``, read as ``borgctl apply`` reads them, are applied, changed, undone,
pruned and run while machines and masters die, and come to where they belong when all is calm."""

import functools
import random
from collections.abc import Callable, Set
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from borgish.api.read_apply import read_apply
from borgish.bands import DEFAULT_BANDS
from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    KillApp,
    KillTasks,
    RestartTasks,
    RunApp,
    RunCron,
    ScaleJob,
    UndoApp,
)
from borgish.cell.events import JobReady
from borgish.cell.limits.availability import down_of
from borgish.cli.sources import load
from borgish.master.core import Core
from borgish.reconcilers import order as reconciler
from borgish.sim.faults import Faults
from borgish.sim.workload import Clients
from borgish.sim.world import World
from borgish.spec.app import Document
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Runtime
from borgish.wire.api_apps import ApplyRequest, SourceText
from tests.cells import ROOT
from tests.profiles import seeds

SHOP, PIPELINE = "ann/shop", "ann/pipeline"
DB, WEB, CLEAN_UP = "ann/db", "ann/web", "ann/clean-up"
STAGES = EXTRACT, TRANSFORM, LOAD = "ann/extract", "ann/transform", "ann/load"
STORM_SECONDS, CALM_SECONDS, PAUSE_SECONDS = 900.0, 480.0, 10.0
ANYBODY = 1000  # tasks that a command may stop


@functools.cache
def texts(name: str) -> tuple[SourceText, ...]:
    """Return what ``borgctl`` sends of a file."""
    loaded = load([Path(ROOT / "configs" / "apps" / name)], {})
    assert not loaded.mistakes
    return tuple(SourceText(source.name, source.text) for source in loaded.sources)


@functools.cache
def read(name: str, prune: bool = False, **variables: str) -> ApplyApp:
    """Return the command that applies a file, of programs that the simulator has."""
    request = ApplyRequest(
        texts(name), variables=variables, prune=prune, take_over=True, max_affected=ANYBODY
    )
    command = read_apply(msgspec.json.encode(request), "ann", DEFAULT_BANDS)
    documents = tuple(
        Document(simulated(each.spec), (*each.named, "runtime", "labels.sim", "labels.sim-exit"))
        for each in command.documents
    )
    crons = tuple(msgspec.structs.replace(each, job=simulated(each.job)) for each in command.crons)
    return msgspec.structs.replace(command, documents=documents, crons=crons)


def simulated(spec: JobSpec) -> JobSpec:
    """Return the job with a simulated program that does what the one of the file would."""
    labels, health = dict(spec.labels), spec.health
    if not spec.is_service:
        labels |= {"sim": "batch", "sim-exit": "1" if "if true;" in spec.run[-1] else "0"}
    if health is not None:  # no port is listened on
        health = msgspec.structs.replace(health, tcp=False, http="", port="", command=("well",))
    return msgspec.structs.replace(spec, runtime=Runtime.FAKE, labels=labels, health=health)


def shop(release: str = "1") -> ApplyApp:
    return read("shop.yaml", release=release, prune=True)


def without_cron() -> ApplyApp:
    return msgspec.structs.replace(shop(), crons=())


def pipeline(*, strict: bool) -> ApplyApp:
    return read("pipeline.jsonnet", strict=str(strict).lower())


def without_load() -> ApplyApp:
    whole = read("pipeline.jsonnet", strict="false", prune=True)
    stages = tuple(each for each in whole.documents if each.spec.key != LOAD)
    return msgspec.structs.replace(whole, documents=stages)


def any_app(chance: random.Random) -> str:
    return chance.choice([SHOP, PIPELINE])


WAYS: dict[Callable[[random.Random], Command], int] = {
    lambda chance: shop(chance.choice("12")): 4,
    lambda _: without_cron(): 1,
    lambda chance: pipeline(strict=chance.random() < 0.5): 4,
    lambda _: without_load(): 1,
    lambda chance: UndoApp(any_app(chance), take_over=True, max_affected=ANYBODY): 3,
    lambda chance: RunApp(PIPELINE, chance.choice(["", "transform"])): 3,
    lambda _: RunCron(CLEAN_UP): 1,
    lambda chance: ScaleJob(WEB, chance.randint(1, 5)): 2,
    lambda chance: RestartTasks(chance.choice([DB, WEB])): 1,
    lambda chance: KillTasks(chance.choice([DB, TRANSFORM])): 1,
    lambda chance: KillApp(any_app(chance), ANYBODY): 1,
}
"""What people ask for, and how often."""


class People(Clients):
    """Those of the two applications."""

    def _command(self) -> Command:
        chance = self._injector.random
        (way,) = chance.choices(list(WAYS), list(WAYS.values()))
        return way(chance)

    def ask(self, command: Command) -> None:
        """Ask for something, until there is an answer."""
        self._send(command)


class Shopping(World):
    """A world in which nobody asks for anything else."""

    clients: People

    def __init__(self, seed: int) -> None:
        super().__init__(seed, machines=4, faults=Faults())
        names = list(self.machines)
        self.clients = People(self.clock, self.injector, lambda: self.master, names, PAUSE_SECONDS)


class Stage(NamedTuple):
    """What there is of a stage; each has one task."""

    ending: Ending | None
    attempt: int
    waits: bool


class Course:
    """What people do when all is calm, and what was there before each step, by its name."""

    def __init__(self, world: Shopping) -> None:
        self.stages: dict[str, dict[str, Stage]] = {}
        self.down: dict[
            str, Set[int] | None
        ] = {}  # at the end: tasks of the shop; None: there is no such job
        self.crons: dict[str, str] = {}  # and its crons, with the applications that they are of
        self.left: set[str] = set()  # and the stages that are of the pipeline still
        self._world = world
        steps: dict[str, tuple[float, Command]] = {
            "stormy": (60.0, KillApp(PIPELINE, ANYBODY)),
            "killed": (65.0, pipeline(strict=True)),
            "strict": (130.0, RunApp(PIPELINE)),
            "failed": (260.0, pipeline(strict=False)),
            "mended": (350.0, RunApp(PIPELINE, "transform")),
            "again": (440.0, without_load()),
            "pruned": (450.0, shop("2")),
        }
        for name, (seconds, command) in steps.items():
            world.clock.after(STORM_SECONDS + seconds, functools.partial(self._go_on, name, command))
        world.clock.after(STORM_SECONDS + CALM_SECONDS - 1.0, self._look)

    def _go_on(self, name: str, command: Command) -> None:
        jobs = self._core.cell.jobs
        self.stages[name] = {
            key: Stage(job.tasks[0].ending, job.tasks[0].attempt, job.waits is not None)
            for key in STAGES
            if (job := jobs.get(key)) is not None
        }
        self._world.clients.ask(command)

    def _look(self) -> None:
        cell, observed = self._core.cell, self._core.observed
        for key in (DB, WEB):
            job = cell.jobs.get(key)
            self.down[key] = None if job is None else down_of(cell, observed, job)
        self.crons = {key: cron.app for key, cron in cell.crons.items()}
        self.left = {key for key, job in cell.jobs.items() if job.app == PIPELINE}

    @property
    def _core(self) -> Core:
        core = self._world.master.core
        assert core is not None
        return core


def let_go(world: World) -> list[str]:
    """Return the jobs that waited until what they come after was there."""
    return [
        event.job
        for entry in world.master.store.reopen().entries(0)
        for event in entry.events
        if isinstance(event, JobReady) and entry.actor == "order"
    ]


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=40))
def test_what_they_are_to_be_they_are_in_the_end(seed: int) -> None:
    world = Shopping(seed)
    course = Course(world)
    assert world.run(STORM_SECONDS, CALM_SECONDS).problems == ()
    assert {WEB, TRANSFORM, LOAD} <= set(let_go(world))
    assert course.down == {DB: set(), WEB: set()}
    assert course.crons == {CLEAN_UP: SHOP}
    assert course.left == {EXTRACT, TRANSFORM}
    assert course.stages["pruned"] == course.stages["again"], "what is over is only let go of"

    failed, mended, again = (course.stages[name] for name in ("failed", "mended", "again"))
    assert [failed[key].ending for key in STAGES] == [Ending.FINISH, Ending.FAIL, None]
    assert failed[LOAD].waits
    assert [mended[key].ending for key in STAGES] == [Ending.FINISH] * 3
    assert mended[EXTRACT] == again[EXTRACT] == failed[EXTRACT]
    assert [again[key].ending for key in STAGES] == [Ending.FINISH] * 3
    order = [
        failed[EXTRACT],
        failed[TRANSFORM],
        mended[TRANSFORM],
        mended[LOAD],
        again[TRANSFORM],
        again[LOAD],
    ]
    assert [stage.attempt for stage in order] == sorted({stage.attempt for stage in order})


def test_a_web_site_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "is_met", lambda *_: True)
    problems = Shopping(0).run(200.0, 60.0).problems
    assert any("ann/web is let go, and" in problem for problem in problems), problems
