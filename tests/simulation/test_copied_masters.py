"""A second master on a copy of the store beside the first: it ends, and no task is disturbed."""

from collections.abc import Iterator

import msgspec
import pytest

from borgish.errors import Fenced, InUse, StoreOlder
from borgish.link.fencing import FencedByMachines
from borgish.master.host.preflight import RivalSearch, TakeOver, Verdict
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.masters import MasterHost
from borgish.sim.workload import EXCLUSIVE
from borgish.sim.world import World
from tests.profiles import seeds

COPIES = msgspec.structs.replace(
    Faults(),
    message_lost=0.02,
    message_slow=0.05,
    append_fails=0.0,
    master_dies_seconds=0.0,
    master_stalls_seconds=0.0,
    borglet_dies_seconds=40.0,
    machine_cut_off_seconds=40.0,
    master_copied_seconds=12.0,
)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=20))
def test_copies_beside_the_master_end_and_disturb_nothing(seed: int) -> None:
    world = World(seed, faults=COPIES)
    verdict = world.run()
    assert verdict.problems == ()
    assert verdict.masters == 1
    assert verdict.copies >= 3
    # One that could ask few machines, of those that nobody reached just then, is refused by all of them.
    ends = [copy.ended for copy in world.copies]
    assert all(isinstance(end, InUse | StoreOlder | Fenced) for end in ends), ends
    assert sum(isinstance(end, InUse) for end in ends) > len(ends) / 2


def test_it_would_be_found_if_they_led(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RivalSearch, "evaluate", lambda *_: Verdict.NOBODY)
    verdicts = [World(seed, faults=COPIES).run(60.0, 0.0) for seed in range(3)]
    problems = [text for verdict in verdicts for text in verdict.problems]
    assert "copy-1 leads beside the master" in problems
    assert "there is no master" in problems
    assert any("was never placed there" in text for text in problems)


@pytest.fixture
def world() -> Iterator[World]:
    """A cell without faults after half a minute, in which nobody asks for anything any more."""
    world = World(3, faults=NO_FAULTS)
    world.begin()
    world.clock.run_until(30.0)
    world.clients.stop()
    world.clock.run_until(60.0)
    assert any(machine.programs.alive() for machine in world.machines.values())
    yield world
    world.close()


def refused(master: MasterHost) -> FencedByMachines | None:
    assert master.leader is not None
    return master.leader.link.fencing.fenced()


def alive(world: World) -> dict[str, list[str]]:
    """Return what runs where, but for exclusive tasks: they end where no master is for long."""
    return {
        name: sorted(
            key for key in machine.programs.alive() if not machine.programs.by_key[key].spec.lease_seconds
        )
        for name, machine in world.machines.items()
    }


def test_a_copy_waits_for_a_leader_that_is_held_up(world: World) -> None:
    before = alive(world)
    world.master.stall(8.0)
    world.clock.run_until(66.0)
    copy = world.copy_of(world.master.store)
    copy.begin()
    world.clock.run_until(90.0)
    assert isinstance(copy.ended, InUse)
    assert world.master.core is not None
    assert alive(world) == before


def test_one_that_takes_over_is_obeyed_and_the_other_one_ends(world: World) -> None:
    before, first = alive(world), world.master
    assert first.core is not None
    timeline = first.core.cell.timeline
    copy = world.copy_of(first.store)
    copy.begin(TakeOver.MACHINES)
    world.clock.run_until(66.0)
    assert copy.core is not None
    assert copy.core.cell.timeline == timeline + 1
    assert first.ended is None
    assert refused(first) is not None
    world.clock.run_until(71.0)
    assert isinstance(first.ended, Fenced), first.ended
    world.clock.run_until(130.0)  # it is started again, and again
    assert isinstance(first.ended, InUse)
    assert f"at {copy.name}, leads 6 of 6 machines" in first.ended.message
    assert (copy.is_up, alive(world)) == (True, before)
    copy.die()
    world.clock.run_until(
        190.0
    )  # nobody polls the machines, and they have seen more than this one has stored
    assert isinstance(first.ended, StoreOlder)
    first.begin(TakeOver.OLDER_STORE)
    world.clock.run_until(250.0)
    assert first.core is not None
    assert (first.core.cell.timeline, alive(world)) == (timeline + 2, before)
    # Where an exclusive task runs may be lost with entries: who takes over stops it, and waits.
    exclusive = tuple(f"ann/job-{number}/" for number in EXCLUSIVE)
    problems = [text for text in world.checker.problems if not text.startswith(exclusive)]
    assert world.master.problems == problems == []


def test_one_that_half_of_its_machines_refuse_acknowledges_nothing_and_ends() -> None:
    world = World(2, faults=NO_FAULTS)
    world.begin()
    world.clock.run_until(30.0)
    first, copy = world.master, world.copy_of(world.master.store)
    copy.begin(TakeOver.MACHINES)
    world.clock.run_until(36.0)
    assert copy.core is not None
    assert refused(first) is not None
    acknowledged = len(world.clients.calls)
    world.clock.run_until(60.0)
    assert acknowledged > 3
    assert len(world.clients.calls) == acknowledged
    assert first.core is None
    world.close()


def test_of_two_that_come_to_one_term_a_machine_obeys_the_first(world: World) -> None:
    before = alive(world)
    world.master.die()
    copy = world.copy_of(world.master.store)
    copy.begin()
    world.master.begin()
    world.clock.run_until(61.0)
    assert copy.core is not None
    assert world.master.core is not None
    assert copy.core.cell.epoch == world.master.core.cell.epoch
    assert refused(world.master) is not None
    assert refused(copy) is None
    world.clock.run_until(120.0)
    assert isinstance(world.master.ended, InUse)
    assert (copy.is_up, alive(world)) == (True, before)
