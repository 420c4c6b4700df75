"""The pending queue that a master keeps from pass to pass is what it would read anew."""

from borgish.sim.world import World
from tests.profiles import seeds
from tests.unit.scheduler.kept import compared_with_new


def test_what_waits_is_known_without_reading_it() -> None:
    kept = 0
    for seed in seeds(quick=1, ci=1, nightly=60):
        with compared_with_new() as found:
            World(seed, machines=2 + seed % 2).run()  # so few that tasks wait
        assert (seed, found.differences) == (seed, [])
        kept += found.kept
    assert kept > 10
