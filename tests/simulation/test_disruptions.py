"""Machines that are emptied one after another: nobody is taken down beyond a budget, and it is judged."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    DrainMachines,
    FreezeCell,
    RestartTasks,
    SetBudget,
    SubmitJob,
    TaintMachine,
    UndoUpdate,
    UntaintMachine,
)
from borgish.cell.events import RolloutWentOn, TasksEvicted, TasksHandedOver
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.disruption import Gate
from borgish.cell.model import Job
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.job import Constraint, Disruption, JobSpec, Update
from borgish.spec.shares import Share
from borgish.vocabulary import Eviction, Runtime, TaintEffect
from tests.profiles import seeds

MACHINES_AND_MASTERS = msgspec.structs.replace(
    NO_FAULTS, machine_cut_off_seconds=25.0, master_dies_seconds=30.0, task_lives_seconds=60.0
)
NEVER = 1e9
SHOP = SetBudget(Budget("shop", (Constraint("app", "==", ("shop",)),), Share(2)))


def spec(name: str, version: str = "1", *, handover: bool = False) -> JobSpec:
    return JobSpec(
        name,
        "ann",
        8,
        ("sim", version),
        runtime=Runtime.FAKE,
        resources=Resources(100, 64 * 1024**2),
        labels={"sim": "service", "app": "shop"},
        disruption=Disruption(Share(2)),
        update=Update(settle_seconds=2.0 if handover else 1.0, handover=handover),
    )


def emptied(faults: Faults, seed: int, *first: Command) -> World:
    """Let two jobs run on four machines, of which each gets an evicting taint for a while."""
    world, numbers = World(seed, machines=4, faults=faults, pause_seconds=NEVER), count()

    def ask(command: Command) -> None:
        world.master.command(command, lambda _: None, "ann", f"t{next(numbers)}", "d")

    for at, command in enumerate((SubmitJob(spec("web")), SubmitJob(spec("api")), *first)):
        world.clock.after(5.0 + at, partial(ask, command))
    for turn, name in enumerate(world.machines):
        taint = TaintMachine(name, "repair", effect=TaintEffect.EVICT, max_affected=100)
        world.clock.after(30.0 + 15.0 * turn, partial(ask, taint))
        world.clock.after(44.0 + 15.0 * turn, partial(ask, UntaintMachine(name, "repair")))
    return world


def changed(faults: Faults, seed: int) -> World:
    """Let both jobs be updated, restarted and undone beside it."""
    world = emptied(faults, seed, SHOP)
    what = (
        (32.0, SubmitJob(spec("web", "2"))),
        (34.0, RestartTasks("ann/api")),
        (55.0, SubmitJob(spec("api", "2"))),
        (58.0, SubmitJob(spec("web", "3"))),
        (75.0, UndoUpdate("ann/web")),
    )
    for number, (at, command) in enumerate(what):
        ask = partial(world.master.command, command, lambda _: None, "ann", f"c{number}", "d")
        world.clock.after(at, ask)
    return world


def evicted(world: World) -> int:
    """Return how many tasks left for a taint."""
    return sum(
        len(event.indexes)
        for entry in world.master.store.reopen().entries(0)
        for event in entry.events
        if isinstance(event, TasksEvicted) and event.cause is Eviction.TAINTED
    )


@pytest.mark.parametrize("faults", [NO_FAULTS, MACHINES_AND_MASTERS], ids=["calm", "faults"])
@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=8))
def test_machines_are_emptied_within_the_budgets(faults: Faults, seed: int) -> None:
    world = emptied(faults, seed, SHOP)
    assert world.run(storm_seconds=100.0, calm_seconds=100.0).problems == ()
    assert evicted(world) > 4


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (SubmitJob(spec("third")), "of ann/"),
        (SHOP, "of the budget shop"),
        (FreezeCell("holidays"), "while the cell was frozen"),
    ],
    ids=["of a job", "across jobs", "frozen"],
)
def test_an_open_gate_is_found(first: Command, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "refused", lambda *_, **__: "")
    problems = emptied(NO_FAULTS, 1, first).run(storm_seconds=100.0, calm_seconds=100.0).problems
    assert any(says in problem for problem in problems), problems


@pytest.mark.parametrize("faults", [NO_FAULTS, MACHINES_AND_MASTERS], ids=["calm", "faults"])
@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=8))
def test_updates_restarts_and_drains_at_once_keep_to_the_budgets(faults: Faults, seed: int) -> None:
    world = changed(faults, seed)
    assert world.run(storm_seconds=140.0, calm_seconds=150.0).problems == ()
    entries = world.master.store.reopen().entries(0)
    reached = [event for entry in entries for event in entry.events if isinstance(event, RolloutWentOn)]
    assert len(reached) > 4


def test_an_update_that_asks_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks_nobody(_job: Job, _gate: Gate, indexes: Sequence[int]) -> tuple[list[int], str]:
        return list(indexes), ""

    monkeypatch.setattr("borgish.cell.updates.rollout.let_go", asks_nobody)
    monkeypatch.setattr("borgish.reconcilers.rollout.let_go", asks_nobody)
    problems = changed(NO_FAULTS, 1).run(storm_seconds=140.0, calm_seconds=60.0).problems
    assert any("tasks were down after it" in problem for problem in problems), problems


def replaced(faults: Faults, seed: int) -> World:
    """Let a job whose tasks hand over be updated, restarted and sent from each machine."""
    world, numbers = World(seed, machines=4, faults=faults, pause_seconds=NEVER), count()

    def ask(command: Command) -> None:
        world.master.command(command, lambda _: None, "ann", f"h{next(numbers)}", "d")

    what = (
        (5.0, SubmitJob(spec("web", handover=True))),
        (30.0, SubmitJob(spec("web", "2", handover=True))),
        (45.0, DrainMachines((next(iter(world.machines)),))),
        (60.0, RestartTasks("ann/web")),
    )
    for at, command in what:
        world.clock.after(at, partial(ask, command))
    return world


def handed_over(world: World) -> int:
    entries = world.master.store.reopen().entries(0)
    found = [event for entry in entries for event in entry.events if isinstance(event, TasksHandedOver)]
    return sum(len(event.indexes) for event in found)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=8))
def test_who_hands_over_is_never_down(seed: int) -> None:
    world = replaced(NO_FAULTS, seed)
    assert world.run(storm_seconds=120.0, calm_seconds=60.0).problems == ()
    entries = world.master.store.reopen().entries(0)
    assert not any(isinstance(event, TasksEvicted) for entry in entries for event in entry.events)
    assert handed_over(world) >= 16


@pytest.mark.parametrize("seed", seeds(quick=1, ci=3, nightly=20))
def test_handovers_go_on_among_faults(seed: int) -> None:
    world = replaced(MACHINES_AND_MASTERS, seed)
    assert world.run(storm_seconds=120.0, calm_seconds=150.0).problems == ()
    assert handed_over(world) > 0


def test_a_handover_to_what_is_not_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_placed(*given: Any) -> bool:
        return bool(given[4].attempt)

    monkeypatch.setattr("borgish.reconcilers.handovers.is_up", is_placed)
    problems = replaced(MACHINES_AND_MASTERS, 1).run(storm_seconds=120.0, calm_seconds=60.0).problems
    assert any("which has not settled" in problem for problem in problems), problems
