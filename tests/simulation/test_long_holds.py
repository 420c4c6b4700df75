"""Cells whose machines hold polls as long as those of the largest cells do: what depends on it holds."""

from functools import partial

import msgspec
import pytest

from borgish.cell.commands import SubmitJob
from borgish.link import holds
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS
from borgish.sim.world import Verdict, World
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import Runtime

MACHINES, TASKS = 8, 24
DETECTED_SECONDS_MAX = 12.0
CUT_AT = 30.0
NEVER = 1e9
SPEC = JobSpec(
    "web",
    "ann",
    TASKS,
    ("sim",),
    runtime=Runtime.FAKE,
    resources=Resources(100),
    labels={"sim": "service"},
    restart=Restart(),
)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few machines be as many as poll at the most."""
    monkeypatch.setattr(holds, "POLLS_PER_SECOND_MAX", 1.0)
    assert holds.PollSettings().hold_of(MACHINES) == holds.PollSettings().hold_seconds_max


def world_of(spec: JobSpec, seed: int) -> World:
    world = World(seed, machines=MACHINES, faults=NO_FAULTS, pause_seconds=NEVER)
    world.clock.after(5.0, partial(world.master.command, SubmitJob(spec), lambda _: None, "ann", "r", "d"))
    return world


def cut_off(machines: int, seed: int, seconds: float) -> Verdict:
    """Let so many machines be cut off together for some time."""
    world = world_of(SPEC, seed)
    for machine in list(world.machines.values())[:machines]:
        world.clock.after(CUT_AT, partial(machine.cut_off, cut=True))
        world.clock.after(CUT_AT + seconds, partial(machine.cut_off, cut=False))
    return world.run(storm_seconds=90.0, calm_seconds=60.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_silent_machine_is_found_in_time(seed: int) -> None:
    verdict = cut_off(1, seed, 40.0)
    assert verdict.problems == ()
    assert [loss.machine for loss in verdict.losses] == ["m1"]
    assert verdict.losses[0].at - CUT_AT <= DETECTED_SECONDS_MAX


@pytest.mark.parametrize("seed", range(4))
def test_of_machines_that_fail_together_none_loses_its_tasks(seed: int) -> None:
    verdict = cut_off(6, seed, 40.0)
    assert verdict.problems == ()
    assert verdict.losses == ()


def test_what_is_exclusive_goes_on() -> None:
    spec = msgspec.structs.replace(SPEC, exclusive=True)
    verdict = world_of(spec, 1).run(storm_seconds=120.0, calm_seconds=30.0)
    assert verdict.problems == ()
    assert (verdict.starts, verdict.stops) == (TASKS, 0)
