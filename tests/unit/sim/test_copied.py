"""A copy of a cell goes on as the cell would: sound, with every program where it should run."""

import logging
import random
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from borgish.cell.access.commands import SetSecret
from borgish.cell.commands import (
    DrainMachines,
    RestartTasks,
    SubmitJob,
    TaintMachine,
)
from borgish.cell.events import LeasesEnded, RolloutWentOn, TasksPlaced
from borgish.cell.invariants import violations
from borgish.cell.limits.availability import find_down
from borgish.cell.limits.disruption import Gate
from borgish.cell.model import Cell
from borgish.sim.faux.copied import Copy, copy_cell
from borgish.sim.faux.loss import lose_machines, machines_with
from borgish.sim.world import World
from borgish.spec.file.read import read_job
from borgish.spec.job import After
from borgish.store.replay import cell_at
from borgish.vocabulary import TaintEffect, Until
from tests.contract.store.samples import body_of
from tests.profiles import seeds
from tests.scenario.fauxmaster.kept_cell import KeptCell, job

WALL = 1_750_000_000.0


def expect_sound(copy: Copy) -> None:
    assert violations(copy.cell) == []
    assert copy.failures == []
    # Nothing ends but what was stopped, and nothing is missing.
    reported = [event for entry in copy.entries if entry.cause == "Observe" for event in entry.events]
    assert all(isinstance(event, LeasesEnded) for event in reported)
    up = {name for name, machine in copy.cell.machines.items() if machine.up}
    places = [(key, index) for name in sorted(up) for key, index in sorted(copy.cell.placed[name])]
    assert [place for place in places if not copy.runs_again(*place)] == []


@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=20))
def test_a_cell_in_a_storm_goes_on_in_a_copy(seed: int) -> None:
    """With rollbacks under way, machines down, allocs moving: whatever it was in the midst of."""
    world = World(seed)
    world.run(storm_seconds=90.0, calm_seconds=10.0)
    store, chance = world.master.store.reopen(), random.Random(seed)
    for position in chance.sample(range(20, store.disk.head), 4):
        there = cell_at(store, "sim", position).cell
        before = body_of(there)
        with closing(Copy(copy_cell(there), WALL)) as copy:
            assert copy.settle() < 120
            expect_sound(copy)
            up = sorted(machine.name for machine in copy.cell.machines.values() if machine.up)
            if not up:
                continue
            drained = chance.choice(up)
            copy.ask(TaintMachine(drained, "drain", "x", TaintEffect.EVICT, max_affected=1000))
            copy.settle()
            expect_sound(copy)
            gate = Gate(copy.cell, copy.core.observed, copy.clock.now())
            assert all(gate.refused(*left) for left in copy.cell.placed[drained])
            assert body_of(there) == before


@pytest.fixture
def cell() -> Cell:
    kept = KeptCell.in_memory()
    kept.machines(6)
    kept.submit(job("web", 6))
    return kept.core.cell


@pytest.fixture
def copy(cell: Cell) -> Iterator[Copy]:
    with closing(Copy(copy_cell(cell), WALL)) as copy:
        yield copy


@pytest.mark.parametrize("restarts", [0, 1])
def test_what_waits_for_a_job_that_is_up_starts_before_it_is_at_rest(restarts: int) -> None:
    kept = KeptCell.in_memory()
    kept.machines(2)
    kept.submit(job("db", 1))
    kept.core.cell.jobs["ann/db"].tasks[0].restarts = restarts
    with closing(Copy(copy_cell(kept.core.cell), WALL)) as copy:
        web = read_job(job("web", 2), "ann")
        copy.ask(SubmitJob(msgspec.structs.replace(web, after=(After("ann/db", Until.UP),))))
        copy.settle()
        assert copy.cell.deferred == {}
        expect_sound(copy)


PROBES = ("{http: /, port: main}", "{tcp: true, port: main}", "{command: [check]}")


def probed(name: str, probe: str) -> str:
    return job(name, 4) + f"ports: [main]\nhealth: {probe}\n"


@pytest.mark.parametrize("probe", PROBES)
def test_probes_of_services_are_answered(probe: str, caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptCell.in_memory()
    kept.machines(3)
    kept.submit(probed("web", probe))
    with closing(Copy(copy_cell(kept.core.cell), WALL)) as copy:
        copy.ask(DrainMachines(("m2",), deadline_seconds=0.0))
        copy.settle()
        copy.ask(RestartTasks("ann/web", None))
        copy.ask(SubmitJob(read_job(probed("more", probe), "ann")))
        copy.run(300.0)
        assert not copy.cell.placed["m2"]
        assert copy.cell.jobs["ann/web"].rollout is None
        expect_sound(copy)  # with no restart of an unhealthy one
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_tasks_with_secrets_start() -> None:
    """The values of secrets are not in a copy, and no program is there that reads them."""
    kept = KeptCell.in_memory()
    kept.machines(3)
    kept.do(SetSecret("ann", "key", b"sealed", 6))
    kept.submit(job("web", 4) + "secret_env: {KEY: key}\nsecret_files: {key: key}\n")
    with closing(Copy(copy_cell(kept.core.cell), WALL)) as copy:
        copy.ask(DrainMachines(("m2",), deadline_seconds=0.0))
        copy.settle()
        assert not copy.cell.placed["m2"]
        expect_sound(copy)


@pytest.mark.parametrize("probe", PROBES)
def test_a_restart_takes_services_that_are_probed_a_few_at_a_time(probe: str) -> None:
    """They are up when the cell is copied, and again as soon as their borglet begins."""
    kept = KeptCell.in_memory()
    kept.machines(3)
    kept.submit(probed("web", probe))
    with closing(Copy(copy_cell(kept.core.cell), WALL)) as copy:
        copy.ask(RestartTasks("ann/web", None))
        while copy.cell.jobs["ann/web"].rollout is not None:
            copy.run(0.01)
            assert len(find_down(copy.cell, copy.core.observed, copy.cell.jobs["ann/web"])) <= 1
        events = [event for entry in copy.entries for event in entry.events]
        taken = [event.pending for event in events if isinstance(event, RolloutWentOn) and event.pending]
        assert taken == [(0,), (1,), (2,), (3,)]
        expect_sound(copy)


def test_what_is_lost_runs_again_when_it_is_seen_to_be_lost(cell: Cell, copy: Copy) -> None:
    names = machines_with(cell, ["rack=r2"])
    found = lose_machines(copy, names)
    assert found.machines == ("m3", "m4")
    assert found.lost == {"ann/web": tuple(sorted(i for name in names for _, i in cell.placed[name]))}
    assert 10.0 < found.seen_seconds < 12.0
    assert found.seen_seconds + 10.0 <= found.again_seconds < 22.0  # one machine in ten seconds
    assert (found.again, found.waiting, found.frozen) == (2, {}, False)
    assert not any(copy.cell.placed[name] for name in names)


def test_the_same_copy_comes_out_the_same(cell: Cell) -> None:
    bodies = set()
    for _ in range(2):
        with closing(Copy(copy_cell(cell), WALL)) as copy:
            lose_machines(copy, ("m1",))
            bodies.add(body_of(copy.cell))
    assert len(bodies) == 1


def test_victims_get_their_grace() -> None:
    """A machine whose first news is that it has to end something does end it, and takes its time."""
    kept = KeptCell.in_memory()
    kept.machine("m1")
    kept.submit(job("low", 4))
    with closing(Copy(copy_cell(kept.core.cell), WALL)) as copy:
        copy.ask(SubmitJob(read_job(job("high", 1, cpu=4, priority="production"), "ann")))
        assert copy.cell.jobs["ann/high"].running == 0
        copy.settle()
        assert copy.cell.jobs["ann/high"].running == 1
        placed = [entry for entry in copy.entries if any(isinstance(e, TasksPlaced) for e in entry.events)]
        asked = next(entry for entry in copy.entries if entry.actor == "fauxmaster")
        assert placed[-1].at > asked.at
        expect_sound(copy)
