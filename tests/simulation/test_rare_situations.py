"""The simulator reaches what is rare: a life that never does proves nothing about it.

Antithesis calls these sometimes-assertions. A situation is what happens, and while what else is so.
"""

from typing import Any

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.events import AnyEvent, Elected, TasksEnded, TasksEvicted
from borgish.cell.model import Cell, Snapshot
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World

NEW_SECONDS = 5.0
LIVES = 100

TWO_MASTERS = msgspec.structs.replace(Faults(), session_lost_seconds=20.0)
FULL_STORE = msgspec.structs.replace(Faults(), store_fills_seconds=30.0)
WORLDS: tuple[dict[str, Any], ...] = (
    {},
    {"masters": 2, "faults": TWO_MASTERS},
    {"faults": FULL_STORE},
    {"machines": 3, "pause_seconds": 0.7},
)

ALWAYS = {
    *("JobSubmitted", "JobChanged", "TasksPlaced", "TasksRestarted", "TasksResubmitted", "TasksEnded finish"),
    *("TasksEnded kill", "TasksEvicted restart", "TasksEvicted alloc moved", "MachineJoined", "MachineFacts"),
    *("MachineCordoned", "MachineUncordoned", "RolledBack", "RolloutWentOn", "Elected"),
}
"""What happens in each of these situations, too, and not only in all."""
SITUATIONS = {
    "": ALWAYS
    | {"TasksEnded fail", "TasksEnded finish late", "TasksEvicted machine lost", "TasksEvicted vanished"}
    | {"MachineDown", "MachineLost", "MachineUp", "MachineRemoved", "JobForgotten", "RolloutPaused"}
    | {"MachineDrained", "TasksEvicted drain"}
    | {"HandoversBegan", "TasksHandedOver", "IncomingEnded", "HandoversEnded", "TasksEvicted taken over"},
    " by a new leader": ALWAYS | {"JobForgotten", "MachineRemoved", "MachineUp"},
    " in a rollback": ALWAYS | {"MachineDown", "MachineLost", "TasksEvicted machine lost"},
    " while a machine is down": (ALWAYS - {"TasksEvicted alloc moved"})
    | {"MachineDown", "MachineLost", "MachineUp", "TasksEvicted machine lost", "TasksEnded finish late"}
    | {"HandoversBegan", "TasksHandedOver", "IncomingEnded"},
}
NAMED = {happening + meanwhile for meanwhile, there in SITUATIONS.items() for happening in there}


def name_of(event: AnyEvent) -> str:
    name = type(event).__name__
    if isinstance(event, TasksEvicted):
        return f"{name} taken over" if event.taken_over else f"{name} {event.cause}"
    if isinstance(event, TasksEnded):
        return f"{name} {event.ending}" + " late" * bool(event.attempts)
    return name


def reached(world: World) -> set[str]:
    """Return the situations that there were in a life that is over."""
    cell, elected_at, found = Cell(Snapshot("sim")), float("-inf"), set()
    store = world.master.store
    for entry in store.reopen().entries(0):
        at = store.sim_disk.decided_at[entry.position]
        meanwhile = [""]
        meanwhile += [" by a new leader"] * (at - elected_at < NEW_SECONDS)
        meanwhile += [" in a rollback"] * bool(cell.rolling)
        meanwhile += [" while a machine is down"] * any(not each.up for each in cell.machines.values())
        found |= {name_of(event) + each for event in entry.events for each in meanwhile}
        if any(isinstance(event, Elected) for event in entry.events):
            elected_at = at
        apply_entry(cell, entry)
    return found


def test_a_calm_life_reaches_what_is_common_only() -> None:
    world = World(1, faults=NO_FAULTS)
    world.run(storm_seconds=60.0, calm_seconds=30.0)
    assert len(NAMED) >= 60
    assert {"JobSubmitted", "TasksPlaced", "TasksEnded finish", "JobSubmitted by a new leader"} <= (
        found := reached(world)
    )
    assert not {"MachineLost", "TasksEnded finish late", "Elected in a rollback"} & found


@pytest.mark.nightly
def test_every_named_situation_is_reached() -> None:
    found, problems = set(), []
    for seed in range(LIVES):
        world = World(seed, **WORLDS[seed % len(WORLDS)])
        problems += [f"seed {seed}: {problem}" for problem in world.run().problems]
        found |= reached(world)
    assert not problems
    assert not NAMED - found
