"""A job of which too many tasks fail is ended, whatever becomes of the masters meanwhile."""

from functools import partial

import pytest

from borgish.cell.commands import SubmitJob
from borgish.cell.model import Job
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS
from borgish.sim.world import Verdict, World
from borgish.spec.job import JobSpec, Restart
from borgish.spec.shares import Share
from borgish.vocabulary import RestartPolicy, Runtime
from tests.simulation.test_machines_that_do_not_answer import NEVER


def with_failures(limit: Share | None) -> tuple[World, Verdict]:
    """Run a job whose tasks fail on one machine, and go on on three. The master dies as they fail."""
    world = World(1, machines=4, faults=NO_FAULTS, pause_seconds=NEVER)
    spec = JobSpec(
        "sweep",
        "ann",
        12,
        ("sim",),
        runtime=Runtime.FAKE,
        resources=Resources(100),
        labels={"sim": "crashing", "sim-on": "m2"},
        restart=Restart(RestartPolicy.NEVER),
        max_failures=limit,
    )
    world.clock.after(5.0, partial(world.master.command, SubmitJob(spec), lambda _: None, "ann", "r", "d"))
    world.clock.after(6.0, lambda: world.master.die())
    return world, world.run(storm_seconds=20.0, calm_seconds=60.0)


def test_the_rest_of_it_is_ended() -> None:
    world, verdict = with_failures(Share(1))
    assert verdict.problems == ()
    assert not any(machine.programs.alive() for machine in world.machines.values())


def test_without_a_limit_it_goes_on() -> None:
    world, verdict = with_failures(None)
    assert verdict.problems == ()
    assert sum(len(machine.programs.alive()) for machine in world.machines.values()) == 9


def test_a_master_that_ends_nothing_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "has_too_many_failures", property(lambda _: False))
    _, verdict = with_failures(Share(1))
    assert any("goes on although" in problem for problem in verdict.problems)
