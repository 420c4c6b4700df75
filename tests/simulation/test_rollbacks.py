"""A rollback to a version that crashes, in a simulated cell: it costs one task, and is undone."""

from collections.abc import Callable

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    KillTasks,
    RollBack,
    SubmitJob,
)
from borgish.cell.model import Job
from borgish.cell.observed import Remaining
from borgish.cell.updates.rollback import RollbackTarget
from borgish.reconcilers import rollout as rollout_loop
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS
from borgish.sim.world import World
from borgish.spec.changes import SpecChange, TaskChange
from borgish.spec.job import JobSpec
from borgish.store.replay import cell_at
from borgish.vocabulary import Runtime, split_task_name
from borgish.wire.link import split_attempt_key
from tests.profiles import seeds

TASKS = 5
NEVER = 1e9


def spec(does: str) -> JobSpec:
    needs = Resources(100, 64 * 1024**2)
    return JobSpec(
        "web", "ann", TASKS, ("sim", does), runtime=Runtime.FAKE, resources=needs, labels={"sim": does}
    )


class Story:
    """A good version in the place of one that crashed; at 60 s back to that, at 200 s back again."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, faults=NO_FAULTS, pause_seconds=NEVER)
        self.least = TASKS
        self.paused = ""
        self._bad = self._good = self._asked = 0
        at = self.world.clock.after
        at(5.0, lambda: self._ask(SubmitJob(spec("crashing"))))
        at(20.0, self._replace)
        at(60.0, lambda: self._roll_back(self._bad))
        at(61.0, self._look)
        at(130.0, lambda: self.world.master.die())
        at(190.0, self._note)
        at(200.0, lambda: self._roll_back(self._good))

    def _ask(self, command: Command, target: RollbackTarget | None = None) -> None:
        self._asked += 1
        self.world.master.command(command, lambda _reply: None, "ann", f"story-{self._asked}", "d", target)

    def _replace(self) -> None:
        self._bad = len(self.world.master.store.disk.entries)
        self._ask(KillTasks("ann/web"))
        self._ask(SubmitJob(spec("service")))

    def _roll_back(self, position: int) -> None:
        store = self.world.master.store.reopen()
        self._good = self._good or len(store.disk.entries)
        then = cell_at(store, store.disk.cell, position).cell
        self._ask(RollBack(position, at=0.0, max_affected=TASKS), RollbackTarget(then))

    def _look(self) -> None:
        self.least = min(self.least, self.alive("service"))
        if self.world.clock.now().mono < 199.0:
            self.world.clock.after(0.1, self._look)

    def _note(self) -> None:
        core = self.world.master.core
        job = core.cell.jobs["ann/web"] if core is not None else None
        self.paused = job.rollout.paused if job is not None and job.rollout is not None else ""

    def alive(self, does: str) -> int:
        """Return how many tasks have a program that runs, by the machines themselves."""
        tasks = set()
        for machine in self.world.machines.values():
            for key in machine.programs.alive():
                who = split_attempt_key(key)
                if who is not None and machine.programs.by_key[key].spec.labels["sim"] == does:
                    tasks.add(split_task_name(who[0])[1])
        return len(tasks)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
def test_it_costs_one_task_and_is_undone(seed: int) -> None:
    story = Story(seed)
    verdict = story.world.run(storm_seconds=250.0, calm_seconds=100.0)
    assert verdict.problems == ()
    assert verdict.masters == 2
    assert story.least == TASKS - 1
    assert story.paused.startswith("task 0 was restarted ")
    assert "(exit code 3)" in story.paused
    assert (story.alive("service"), story.alive("crashing")) == (TASKS, 0)


def test_it_would_be_found_if_it_looked_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def looks_at_nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(rollout_loop, "not_ready", looks_at_nothing)
    story = Story(0)
    story.world.run(storm_seconds=250.0, calm_seconds=100.0)
    assert story.least < TASKS - 1


def never_go_on_rolling_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("borgish.cell.updates.rollout.remaining", lambda _job: Remaining())


def take_what_lags_behind_for_restored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "spec_of", lambda self, _task: self.spec)


def keep_what_runs_another_program(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpecChange, "of", lambda _self, _index: TaskChange.NONE)


def back_to_another_program() -> tuple[str, ...]:
    """Return the problems of a cell in which a job with ports is rolled back to one that has none."""
    world = World(0, machines=2, faults=NO_FAULTS, pause_seconds=NEVER)
    master, positions = world.master, list[int]()

    def ask(command: Command, request_id: str, target: RollbackTarget | None = None) -> None:
        master.command(command, lambda _reply: None, "ann", request_id, "d", target)

    def replace() -> None:
        positions.append(len(master.store.disk.entries))
        ask(KillTasks("ann/web"), "kill")
        ask(SubmitJob(msgspec.structs.replace(spec("service"), ports=("a",))), "replace")

    def roll_back() -> None:
        store = master.store.reopen()
        then = cell_at(store, store.disk.cell, positions[0]).cell
        ask(RollBack(positions[0], at=0.0, max_affected=TASKS), "back", RollbackTarget(then))

    world.clock.after(5.0, lambda: ask(SubmitJob(spec("service")), "submit"))
    world.clock.after(10.0, replace)
    world.clock.after(20.0, roll_back)
    world.clock.after(24.0, master.die)
    return world.run(storm_seconds=30.0, calm_seconds=60.0).problems


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (never_go_on_rolling_back, "still lags behind a rollback"),
        (take_what_lags_behind_for_restored, "has 1 ports and needs 0"),
        (keep_what_runs_another_program, "runs something else than its job specifies"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert back_to_another_program() == ()
    plant(monkeypatch)
    assert any(words in problem for problem in back_to_another_program())
