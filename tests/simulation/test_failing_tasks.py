"""Services that fail on one machine, or on all: who moves, how often, and that it ends by itself."""

from functools import partial
from itertools import pairwise

import msgspec
import pytest

from borgish.cell.commands import SubmitJob
from borgish.cell.events import JobHeld, JobReleased, TasksEvicted, TasksPlaced
from borgish.cell.model import Job
from borgish.cell.tasks.failing import HELD_AFTER
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.job import JobSpec, Restart
from borgish.store.replay import cell_at
from borgish.vocabulary import Eviction, Runtime
from tests.profiles import seeds

NEVER = 1e9
DYING = msgspec.structs.replace(
    NO_FAULTS, master_dies_seconds=60.0, borglet_dies_seconds=60.0, message_lost=0.05, away_seconds=8.0
)
WHILE = 1200.0


def world_with(seed: int, machines: int, faults: Faults, spec: JobSpec) -> World:
    world = World(seed, machines=machines, faults=faults, pause_seconds=NEVER)
    world.clock.after(5.0, partial(world.master.command, SubmitJob(spec), lambda _: None, "ann", "r", "d"))
    return world


def service(tasks: int, *, attempts: int = 0, on: str = "") -> JobSpec:
    return JobSpec(
        "web",
        "ann",
        tasks,
        ("sim",),
        runtime=Runtime.FAKE,
        resources=Resources(100),
        labels={"sim": "crashing"} | ({"sim-on": on} if on else {}),
        restart=Restart(attempts=attempts),
    )


def job_of(world: World) -> Job:
    """Return the job as the journal has it: at the moment there may be no master."""
    store = world.master.store.reopen()
    return cell_at(store, store.disk.cell, len(store.disk.entries)).cell.jobs["ann/web"]


def moved(world: World) -> int:
    """Return how many evictions there were for failing."""
    events = [event for entry in world.master.store.reopen().entries(0) for event in entry.events]
    return sum(
        len(each.indexes)
        for each in events
        if isinstance(each, TasksEvicted) and each.cause is Eviction.FAILED
    )


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=20))
@pytest.mark.parametrize("faults", [NO_FAULTS, DYING])
@pytest.mark.parametrize("attempts", [0, 3])
def test_what_crashes_on_one_machine_only_gets_away_from_it(attempts: int, faults: Faults, seed: int) -> None:
    world = world_with(seed, 4, faults, service(8, attempts=attempts, on="m2"))
    verdict = world.run(storm_seconds=240.0)
    assert verdict.problems == ()
    job = job_of(world)
    assert (job.running, job.held) == (8, None)
    assert not any(task.machine == "m2" for task in job.tasks)
    assert moved(world) <= 8 * HELD_AFTER


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=20))
@pytest.mark.parametrize("faults", [NO_FAULTS, DYING])
@pytest.mark.parametrize(("tasks", "attempts", "machines"), [(1, 0, 1), (6, 3, 4), (6, 0, 4)])
def test_what_crashes_everywhere_is_held_and_ends_by_itself(
    tasks: int, attempts: int, machines: int, faults: Faults, seed: int
) -> None:
    world = world_with(seed, machines, faults, service(tasks, attempts=attempts))
    world.begin()
    world.clock.run_until(WHILE)
    world.injector.calm()
    held = job_of(world).held
    assert held is not None
    assert "failed" in held.reason
    before, tried = moved(world), WHILE / 60.0
    assert before <= HELD_AFTER * tasks + tried
    for machine in world.machines.values():
        machine.programs.are_lasting = True  # whatever it was, it is mended
    world.clock.run_until(WHILE + 900.0)
    job = job_of(world)
    assert (job.held, job.running, moved(world) - before <= 2) == (None, tasks, True)
    world.clock.run_until(WHILE + 1800.0)
    assert not any(task.failed for task in job_of(world).tasks)  # and forgotten
    world.close()


def test_a_held_job_is_tried_once_a_minute() -> None:
    world = world_with(1, 4, NO_FAULTS, service(20, attempts=3))
    world.begin()
    world.clock.run_until(WHILE)
    entries = list(world.master.store.reopen().entries(0))
    since = next(entry.at for entry in entries for each in entry.events if isinstance(each, JobHeld))
    assert not any(isinstance(each, JobReleased) for entry in entries for each in entry.events)
    at = [
        entry.at
        for entry in entries
        for each in entry.events
        if isinstance(each, TasksPlaced) and entry.at > since
    ]
    assert min(later - earlier for earlier, later in pairwise(at)) >= 60.0
    assert len(at) >= 15
    world.close()
