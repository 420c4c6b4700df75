"""``simulator``: how much faster than real time whole cells are simulated, on one cpu.

The real master and borglets run with simulated machines, clock, network and faults, as tests and
``fauxmaster`` run them; a figure is the virtual seconds of a run by its seconds of cpu, a seed a round: a
storm of faults and then calm, and a storm only. Real programs and real sockets are left out.
"""

import logging
import time
from collections.abc import Iterator

from borgish.sim.world import World
from tests.bench import peers
from tests.bench.figure import Figure, at_least
from tests.bench.sizes import Sizes


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield virtual seconds a cpu second, one seed a round: a storm of faults then calm, and storm only."""
    storm, calm = sizes.sim_storm_seconds, sizes.sim_calm_seconds
    rates = [_rate(seed, sizes.sim_machines, storm, calm) for seed in range(sizes.rounds)]
    yield Figure(
        f"simulator.{sizes.sim_machines}_borglets",
        "virtual s/s",
        rates,
        at_least(360.0),
        peers.TIGERBEETLE_SIMULATOR,
    )

    storms = [_rate(seed, sizes.sim_machines, storm, 0.0) for seed in range(sizes.rounds)]
    yield Figure(f"simulator.{sizes.sim_machines}_borglets.storm", "virtual s/s", storms)


def _rate(seed: int, machines: int, storm_seconds: float, calm_seconds: float) -> float:
    began = time.process_time()
    logging.disable()  # what daemons log of the faults that they are given is no news here
    try:
        verdict = World(seed, machines).run(storm_seconds, calm_seconds)
    finally:
        logging.disable(logging.NOTSET)
    seconds = time.process_time() - began
    # Without calm nothing has had the time to settle, and the verdict says so.
    assert not (calm_seconds and verdict.problems), f"seed {seed}: {verdict.problems}"
    return verdict.virtual_seconds / seconds
