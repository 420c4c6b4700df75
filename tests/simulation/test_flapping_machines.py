"""A machine that is up and down by turns gets nothing new for a growing time: what moves is bounded."""

from functools import partial

import msgspec
import pytest

from borgish.cell.commands import SubmitJob
from borgish.cell.events import MachineQuarantined, MachineReleased, TasksPlaced
from borgish.cell.machines.flapping import QUARANTINE_SECONDS
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.job import JobSpec, Spread
from borgish.vocabulary import Runtime
from tests.profiles import seeds

NEVER = 1e9
TASKS = 4
SPEC = JobSpec(
    "web",
    "ann",
    TASKS,
    ("sim",),
    runtime=Runtime.FAKE,
    resources=Resources(100),
    labels={"sim": "service"},
    spread=(Spread(max=1),),  # each machine is wanted, the flapping one among them
)
DYING = msgspec.structs.replace(NO_FAULTS, master_dies_seconds=150.0, away_seconds=5.0)


def flap(world: World, name: str, down_seconds: float, up_seconds: float, times: int) -> None:
    """Cut a machine off and let it be back by turns, from the first minute on."""
    machine, at = world.machines[name], 60.0
    for _ in range(times):
        world.clock.after(at, partial(machine.cut_off, cut=True))
        world.clock.after(at + down_seconds, partial(machine.cut_off, cut=False))
        at += down_seconds + up_seconds


@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=40))
def test_storms_with_flapping_machines_end_well(seed: int) -> None:
    faults = msgspec.structs.replace(Faults(), machine_flaps_seconds=40.0)
    assert World(seed, faults=faults).run().problems == ()


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
@pytest.mark.parametrize("faults", [NO_FAULTS, DYING])
def test_it_is_filled_a_few_times_only_and_takes_tasks_again_by_itself(seed: int, faults: Faults) -> None:
    world = World(seed, machines=TASKS, faults=faults, pause_seconds=NEVER)
    world.clock.after(5.0, partial(world.master.command, SubmitJob(SPEC), lambda _: None, "ann", "r", "d"))
    flap(world, "m1", down_seconds=14.0, up_seconds=8.0, times=50)
    # In the calm the clients uncordon all machines; here it is to end by itself.
    verdict = world.run(storm_seconds=60 + 50 * 22.0 + QUARANTINE_SECONDS)
    assert verdict.problems == ()
    entries = list(world.master.store.reopen().entries(0))
    events = [(entry.at, event) for entry in entries for event in entry.events]
    placed = sum(isinstance(each, TasksPlaced) and "m1" in each.machines for _, each in events)
    assert placed <= 3 + 1  # the last one when it takes tasks again
    marks = [type(each) for _, each in events if isinstance(each, MachineQuarantined | MachineReleased)]
    assert marks[:1] + marks[-1:] == [MachineQuarantined, MachineReleased]
    assert len([each for each in verdict.losses if each.machine == "m1"]) <= 3
