"""Never two processes of one index of an exclusive job, whatever dies, hangs, is cut off or comes back; and
the planted bugs with which there would be."""

from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest

from borgish.borglet.attempts.attempt import Attempt
from borgish.borglet.core import BorgletCore
from borgish.cell.commands import SubmitJob
from borgish.cell.model import Cell
from borgish.cell.tasks import leases
from borgish.clock import Now
from borgish.master import core
from borgish.sim.faults import NO_FAULTS
from borgish.sim.machines import Machine
from borgish.sim.runtime import Program, Programs
from borgish.sim.world import World
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import Runtime
from borgish.wire.link import Exit, PollRequest
from tests.profiles import seeds

HARD = msgspec.structs.replace(
    NO_FAULTS,
    message_slow=0.1,
    slow_seconds=3.0,
    borglet_stops_seconds=60.0,
    machine_cut_off_seconds=60.0,
    borglet_dies_seconds=120.0,
    machine_boots_seconds=300.0,
    master_dies_seconds=150.0,
    away_seconds=150.0,
)
MACHINES = 12
STORM_SECONDS = 500.0
"""Machines are away for longer than a lease and a wait, and come back with what they have; but not so many at
a time that it is taken for a mass failure, in which nothing is moved."""


def twice(seed: int, masters: int = 1) -> list[str]:
    """Return where two ran at a time. What else is found belongs to other tests: here all is away long."""
    verdict = World(seed, MACHINES, HARD, masters=masters, pause_seconds=10.0).run(STORM_SECONDS, 0.0)
    return [problem for problem in verdict.problems if "it is exclusive" in problem]


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=30))
def test_no_index_runs_twice(seed: int) -> None:
    assert twice(seed) == []
    assert twice(seed, masters=2) == []


def a_shim_that_lets_it_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Programs, "_watch_lease", lambda *_: None)


def a_master_that_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cell, "is_leased", lambda *_: False)


def a_master_that_does_not_wait_long_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "CLOCK_RATES_MAX", 0.1)


def a_new_master_that_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core, "record_over", lambda cell, *_: cell.leases.clear())


PLANTED: list[Callable[[pytest.MonkeyPatch], None]] = [
    a_shim_that_lets_it_run,
    a_master_that_does_not_wait,
    a_master_that_does_not_wait_long_enough,
    a_new_master_that_forgets,
]


@pytest.mark.parametrize("plant", PLANTED)
def test_each_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    assert any(twice(seed) for seed in range(8))


# -- Moments that chance comes to too rarely


EXCLUSIVE = JobSpec(
    *("db", "ann", 1, ("db",)),
    runtime=Runtime.FAKE,
    exclusive=True,
    labels={"sim": "service"},
    restart=Restart(backoff_seconds=75.0),
)


def one_task(seed: int = 1) -> tuple[World, Machine, Program]:
    """Return a world with ``EXCLUSIVE`` and its one task, its machine and its program."""
    world = World(seed, machines=4, faults=NO_FAULTS, pause_seconds=1e9)
    world.begin()
    world.clock.run_until(10.0)
    submit(world, EXCLUSIVE)
    world.clock.run_until(40.0)
    on = next(machine for machine in world.machines.values() if machine.programs.alive())
    return world, on, next(iter(on.programs.by_key.values()))


def submit(world: World, job: JobSpec) -> None:
    world.master.command(SubmitJob(job), lambda _reply: None, "ann", str(job.labels), "d")


def reads_late(world: World, on: Machine, _program: Program) -> None:
    """The borglet is stopped, a poll comes to its socket for an update in place, and its machine is cut off
    when it goes on."""
    on.stop_borglet(25.0)
    updated = msgspec.structs.replace(EXCLUSIVE, labels={**EXCLUSIVE.labels, "version": "2"})
    world.clock.after(1.0, lambda: submit(world, updated))
    world.clock.after(3.0, lambda: on.cut_off(cut=True))


def waits_for_its_next_start(world: World, on: Machine, program: Program) -> None:
    """The program has crashed twice, and is to be started again in a minute, on a machine that is cut off."""
    for seconds in (0.0, 1.0):
        world.clock.after(seconds, lambda: crash(on, program))
    world.clock.after(3.0, lambda: on.cut_off(cut=True))


def crash(on: Machine, program: Program) -> None:
    there = on.programs.by_key[program.state.key]
    on.programs._end(program.state.key, there.state.run, Exit(code=1))


def renews_by_when_it_reads(patch: pytest.MonkeyPatch) -> None:
    renew = BorgletCore._renew

    def by_arrival(self: BorgletCore, request: PollRequest, now: Now) -> None:
        fresh = msgspec.structs.replace(request, echo=now.boot, seen_instance=self.instance)
        renew(self, fresh, now)

    patch.setattr(BorgletCore, "_renew", by_arrival)


def starts_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    advance, never = Attempt.advance, float("-inf")
    patch.setattr(Attempt, "advance", lambda self, now: advance(self, Now(now.wall, now.mono, never)))
    patch.setattr(Programs, "has_lease", lambda *_: True)


@pytest.mark.parametrize(
    ("happens", "plant"),
    [(reads_late, renews_by_when_it_reads), (waits_for_its_next_start, starts_without_a_lease)],
)
def test_a_rare_moment_and_the_bug_that_it_would_show(
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[World, Machine, Program], None],
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    for is_planted in (False, True):
        if is_planted:
            plant(monkeypatch)
        world, on, program = one_task()
        with closing(world):
            happens(world, on, program)
            world.clock.run_until(200.0)
            assert any(m.programs.alive() for m in world.machines.values() if m is not on), "it was not moved"
            assert any("it is exclusive" in text for text in world.checker.problems) is is_planted
