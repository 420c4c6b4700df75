"""A cell that nobody leads for an hour: what runs goes on, and its machines start what crashed."""

from contextlib import closing

import msgspec
import pytest

from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World

ABSENT_SECONDS = 3600.0
CRASHES = msgspec.structs.replace(NO_FAULTS, task_lives_seconds=900.0)


def alive(world: World) -> dict[str, int]:
    """Return the programs that run of all that does not end by itself, and their runs. An exclusive task
    does, when nobody renews its lease."""
    programs = {key: p for machine in world.machines.values() for key, p in machine.programs.by_key.items()}
    lasting = {
        key: p
        for key, p in programs.items()
        if p.spec.labels["sim"] != "batch" and not p.spec.lease_seconds and p.is_alive
    }
    return {key: program.state.run for key, program in lasting.items()}


@pytest.mark.parametrize("faults", [NO_FAULTS, CRASHES], ids=["calm", "crashes"])
def test_a_master_is_away_for_an_hour(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(World(1, faults=faults)) as world:
        monkeypatch.setattr(world.injector, "away_seconds", lambda: ABSENT_SECONDS)
        world.begin()
        world.clock.run_until(60.0)
        world.clients.stop()
        world.clock.run_until(90.0)
        before = alive(world)
        assert before
        world.master.die()
        world.clock.run_until(80.0 + ABSENT_SECONDS)
        assert world.master.core is None
        if faults is NO_FAULTS:
            assert alive(world) == before
        else:
            assert any(run > before[key] for key, run in alive(world).items())
        world.clock.run_until(150.0 + ABSENT_SECONDS)
        assert world.master.core is not None
        if faults is NO_FAULTS:
            assert alive(world) == before
        assert world.checker.problems == world.master.problems == []
