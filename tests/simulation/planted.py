"""Short lives of a cell, for planted bugs: most of them show what is wrong, and without a bug none does."""

from borgish.sim.faults import Faults
from borgish.sim.world import World

SEEDS = 12
STORM_SECONDS = 60.0
CALM_SECONDS = 100.0
"""Longer than any restart is backed off after so short a storm."""


def first_problem(faults: Faults, machines: int = 6) -> str:
    """Return the first problem that a short life comes to, "" when a dozen of them have none."""
    return next(filter(None, (problem_of(seed, faults, machines) for seed in range(SEEDS))), "")


def problem_of(seed: int, faults: Faults, machines: int = 6) -> str:
    """Return the first problem of one short life, "" when it has none."""
    world = World(seed, machines=machines, faults=faults)
    try:
        problems = world.run(STORM_SECONDS, CALM_SECONDS).problems
    except (AssertionError, ValueError) as error:  # what ends a master is found as well
        return f"{type(error).__name__}: {error}"
    return next(iter(problems), "")
