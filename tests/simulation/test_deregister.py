"""Tasks whose clients are given time to leave them: from the job, over the order, to when a program ends."""

from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    DrainMachines,
    KillTasks,
    RestartTasks,
    ScaleJob,
    SubmitJob,
)
from borgish.cell.model import Cell, Snapshot
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.job import JobSpec, Program, Stop
from borgish.vocabulary import Runtime, task_name
from borgish.wire.link import attempt_key, main_key
from tests.profiles import seeds

NEVER = 1e9
DEREGISTER_SECONDS = 20.0
POLL_SECONDS = 2.0
SPEC = JobSpec(
    "web",
    "ann",
    6,
    ("sim",),
    runtime=Runtime.FAKE,
    resources=Resources(100),
    labels={"sim": "service"},
    group=(Program("beside", ("sim",)),),
    stop=Stop(deregister_seconds=DEREGISTER_SECONDS),
)
AWAY: tuple[Command, ...] = (
    KillTasks("ann/web", (0,)),
    RestartTasks("ann/web", (1,)),
    SubmitJob(msgspec.structs.replace(SPEC, env={"RELEASE": "2"})),
    DrainMachines(("m1",), max_affected=9),
    ScaleJob("ann/web", 3),
)


def lived(seed: int, faults: Faults, spec: JobSpec = SPEC) -> World:
    """Return a world in which tasks of one job were ended in every way."""
    world = World(seed, machines=4, faults=faults, pause_seconds=NEVER)
    commands = (SubmitJob(spec), *AWAY)
    for number, command in enumerate(commands):
        ask = partial(world.master.command, command, lambda _: None, "ann", f"r{number}", f"d{number}")
        world.clock.after(5.0 + 60.0 * number, ask)
    assert world.run(storm_seconds=60.0 * len(commands) + 60.0).problems == ()
    return world


def ends(world: World) -> Iterator[tuple[str, float, float]]:
    """Yield each program that ended, when its attempt left the records, and when it ended itself."""
    store, cell = world.master.store.reopen(), Cell(Snapshot("judged"))
    placed, left = set[str](), dict[str, float]()
    for entry in store.entries(0):
        apply_entry(cell, entry)
        there = (cell.jobs[key].tasks[index] for at in cell.placed.values() for key, index in at)
        now_placed = {attempt_key(task_name("ann/web", task.index), task.attempt) for task in there}
        left.update(dict.fromkeys(placed - now_placed, store.sim_disk.decided_at[entry.position]))
        placed = now_placed
    for machine in world.machines.values():
        for key, lives in machine.programs.lives.items():
            yield from ((key, left[main_key(key)], life.ended) for life in lives if life.ended)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
def test_a_program_goes_on_that_long_after_its_task_was_ended(seed: int) -> None:
    ended = list(ends(lived(seed, NO_FAULTS)))
    assert len(ended) >= 2 * len(AWAY)
    for key, left, at in ended:
        assert DEREGISTER_SECONDS <= at - left < DEREGISTER_SECONDS + 2 * POLL_SECONDS, key
    by_task = {key: at for key, _, at in ended}
    assert all(by_task[main_key(key)] <= at for key, at in by_task.items())  # the main program first


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=40))
def test_in_a_storm_all_of_them_end_well(seed: int, exclusive: bool) -> None:
    stop = Stop(deregister_seconds=45.0)  # for longer than a lease
    lived(seed, Faults(), msgspec.structs.replace(SPEC, exclusive=exclusive, stop=stop))
