"""What happens to a cell besides storms: cuts in one direction, much of it gone at once, clocks that drift, a
runtime that hangs, programs that fail their health checks, ports that foreign programs have, masters that
end in order or take the lead from one another."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from borgish.cell.commands import SubmitJob
from borgish.master.lease import LeaderGuard
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.machines import Machine
from borgish.sim.world import Verdict, World
from borgish.spec.job import Health, JobSpec
from borgish.vocabulary import Runtime
from tests.profiles import seeds

Happens = Callable[[World], None]
NOBODY_REMOVES = 2
"""A seed with which nobody removes a machine that is silent: the others would be fewer than half."""

CALM_SECONDS = 120.0
"""Enough where no program crashes, so that no restart is backed off for long."""


def lived(*happens: tuple[float, Happens], seed: int = 1) -> Verdict:
    """Let things happen at some times, in a cell in which people work for two minutes."""
    world = World(seed, faults=NO_FAULTS)
    for at, happen in happens:
        world.clock.after(at, partial(happen, world))
    return world.run(calm_seconds=CALM_SECONDS)


def on(count: int, do: Callable[[Machine], None]) -> Happens:
    """Return what does something to the first so many machines."""

    def happen(world: World) -> None:
        for machine in list(world.machines.values())[:count]:
            do(machine)

    return happen


def heal(machine: Machine) -> None:
    machine.cut_off(cut=False)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
@pytest.mark.parametrize(("to", "of"), [(True, False), (False, True)])
def test_a_cut_in_one_direction_harms_nothing(to: bool, of: bool, seed: int) -> None:
    cut = partial(Machine.cut_off, cut=True, to=to, of=of)
    verdict = lived((40.0, on(2, cut)), (100.0, on(2, heal)), seed=seed)
    assert verdict.problems == ()
    assert verdict.losses  # to be heard and not answered, or the reverse, is to be silent


@pytest.mark.parametrize("count", [3, 6])
def test_when_half_of_the_cell_or_all_is_silent_at_once_nothing_is_moved(count: int) -> None:
    cut, cured = on(count, lambda machine: machine.cut_off(cut=True)), on(count, heal)
    verdict = lived((40.0, cut), (60.0, cured), seed=NOBODY_REMOVES)
    assert (verdict.problems, verdict.losses) == ((), ())


def test_after_a_power_cut_in_the_whole_cell_all_goes_on_where_it_was() -> None:
    def cut_power(world: World) -> None:
        world.master.die()
        on(6, Machine.lose_programs)(world)

    verdict = lived((60.0, cut_power), (75.0, on(6, Machine.begin)))
    assert (verdict.problems, verdict.losses) == ((), ())


@pytest.mark.parametrize("rates", [(0.97, 1.03), (1.03, 0.97)])
def test_clocks_that_drift_harm_nothing(rates: tuple[float, float]) -> None:
    world = World(1, faults=NO_FAULTS)
    for number, machine in enumerate(world.machines.values()):
        machine.clock_rate = rates[number % 2]
    verdict = world.run(calm_seconds=CALM_SECONDS)
    assert (verdict.problems, verdict.losses) == ((), ())


def test_a_runtime_that_hangs_for_a_while_starts_and_stops_later() -> None:
    verdict = lived(
        (30.0, on(2, lambda machine: machine.hang(hung=True))),
        (31.0, on(1, Machine.die)),
        (100.0, on(2, lambda machine: machine.hang(hung=False))),
        (101.0, on(2, lambda machine: machine.die() if machine.is_up else None)),
        (105.0, on(2, Machine.begin)),
    )
    assert verdict.problems == ()


def test_a_program_that_fails_its_health_checks_is_started_again() -> None:
    world = World(1, faults=NO_FAULTS, pause_seconds=1e9)
    health = Health(command=("check",), interval_seconds=1.0)
    needs, labels = Resources(100), {"sim": "sick"}
    spec = JobSpec(
        "web", "ann", 1, ("sim",), runtime=Runtime.FAKE, resources=needs, labels=labels, health=health
    )
    submit = partial(world.master.command, SubmitJob(spec), lambda _: None, "ann", "r", "d")
    world.clock.after(5.0, submit)
    verdict = world.run(storm_seconds=60.0, calm_seconds=0.0)
    assert verdict.starts > 2


def test_a_master_that_ends_in_order_is_followed_by_the_next_and_nothing_is_lost() -> None:
    verdict = lived((40.0, lambda world: world.master.stop()), (80.0, lambda world: world.master.stop()))
    assert verdict.problems == ()
    assert verdict.masters == 3


@pytest.mark.parametrize("held", [range(20000, 20003), range(20000, 20100)])
def test_ports_that_foreign_programs_have_are_given_to_no_task_for_long(held: range) -> None:
    world = World(1, faults=NO_FAULTS, pause_seconds=1e9)
    for machine in list(world.machines.values())[:5]:
        machine.programs.foreign_ports = frozenset(held)
    needs, labels = Resources(100), {"sim": "service"}
    spec = JobSpec(
        "web", "ann", 8, ("sim",), runtime=Runtime.FAKE, resources=needs, labels=labels, ports=("http",)
    )
    submit = partial(world.master.command, SubmitJob(spec), lambda _: None, "ann", "r", "d")
    world.clock.after(5.0, submit)
    verdict = world.run(storm_seconds=60.0, calm_seconds=240.0)
    assert verdict.problems == ()
    alive = [
        machine.programs.by_key[key]
        for machine in world.machines.values()
        for key in machine.programs.alive()
        if key.startswith("ann/web/")
    ]
    assert len(alive) == 8


LEASE = msgspec.structs.replace(
    NO_FAULTS,
    master_dies_seconds=40.0,
    master_stalls_seconds=15.0,
    session_lost_seconds=20.0,
    away_seconds=15.0,
)
"""A leader is held up beyond its lease, or loses its lock and does not know; then another leads beside it."""


@pytest.mark.parametrize("faults", [LEASE, msgspec.structs.replace(Faults(), session_lost_seconds=20.0)])
def test_masters_that_take_the_lead_from_one_another_harm_nothing(faults: Faults) -> None:
    for seed in seeds(quick=1, ci=1, nightly=20):
        world = World(seed, faults=faults, masters=2)
        assert world.run().problems == (), f"seed {seed}"
        assert all(len(host.began_at) >= 2 for host in world.hosts)


def test_a_master_that_goes_on_after_its_lease_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderGuard, "check", lambda _self: None)
    lives = (World(seed, faults=LEASE, masters=2).run(calm_seconds=0.0) for seed in range(6))
    assert any("after the end of its lease" in problem for life in lives for problem in life.problems)
