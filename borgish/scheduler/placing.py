"""Puts tasks of one class on the best machines.

Taking a machine changes its cost and no other. So the machines are ranked once, the best are taken
from the top, and only those are scored again. ``spread`` outweighs all else, so that a job goes to
the ranked machines that have none of its tasks first, each once. Only where these are used up are
those that have some ranked, for that job alone.
"""

import sys
from heapq import heapify, heappop, heappush

import numpy as np

from borgish.scheduler.arrays import FloatArray
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.machines import Fleet
from borgish.scheduler.scoring import UNFIT, cost_of

GROUPS_MIN = 64
LIMIT_MAX = sys.float_info.max  # above every cost, below UNFIT

Ranked = list[tuple[float, int]]
"""A heap of (cost, row)."""


def ranking(costs: FloatArray, count: int) -> Ranked:
    """Return the ``count`` best machines that fit, and perhaps some more."""
    rows = np.flatnonzero(costs <= _limit(costs, count))
    ranked = list(zip(costs[rows].tolist(), rows.tolist(), strict=True))
    heapify(ranked)
    return ranked


def _limit(costs: FloatArray, count: int) -> float:
    """Return a cost that at least ``count`` machines are within, if so many fit.

    The machines are looked at in groups: when ``count`` groups have their best within a limit, so have
    ``count`` machines. That is much less work than to put all machines in order.
    """
    groups = min(len(costs), max(4 * count, GROUPS_MIN))
    size = len(costs) // max(1, groups)
    if size < 2:
        return LIMIT_MAX
    best = costs[: size * groups].reshape(size, groups).min(axis=0)
    return min(float(np.partition(best, count - 1)[count - 1]), LIMIT_MAX)


def place(
    fleet: Fleet, kind: TaskClass, costs: FloatArray, runs: list[tuple[str, int]], own_max: int
) -> list[list[int]]:
    """Place tasks of one class; return, for each run, the rows taken by its first tasks, in order.

    Each run is a job and how many of its tasks; ``own_max`` is on how many machines the widest of these
    jobs is already. A list shorter than its run means that nothing more of the class fits.

    Each task takes at most one of the ranked machines away, so that as many machines as tasks, and
    ``own_max`` more, always hold the best of all.
    """
    ranked = ranking(costs, sum(count for _, count in runs) + own_max)
    placed = []
    for job, count in runs:
        taken, own = _place_run(fleet, kind, ranked, job, count)
        placed.append(taken)
        if len(placed) < len(runs):
            for row in own:
                _offer(fleet, kind, ranked, row, 0)
    return placed


def _place_run(
    fleet: Fleet, kind: TaskClass, ranked: Ranked, job: str, count: int
) -> tuple[list[int], list[int]]:
    """Place tasks of one job; return their rows, and those that are out of the ranking for it."""
    taken: list[int] = []
    own: list[int] = []  # all with tasks of this job
    while ranked and len(taken) < count:
        row = heappop(ranked)[1]
        own.append(row)
        if job not in fleet.jobs[row]:
            taken.append(row)
    fleet.take_each(taken, kind.needs, kind.band, job)
    if len(taken) < count:
        taken += _place_more(fleet, kind, own, job, count - len(taken))
    return taken, own


def _place_more(fleet: Fleet, kind: TaskClass, own: list[int], job: str, count: int) -> list[int]:
    """Place tasks of a job on machines that have some of it already, one by one; return their rows."""
    ranked: Ranked = []
    for row in own:
        _offer(fleet, kind, ranked, row, fleet.jobs[row][job])
    taken: list[int] = []
    while ranked and len(taken) < count:
        row = heappop(ranked)[1]
        taken.append(row)
        fleet.take(row, kind.needs, kind.band, job)
        _offer(fleet, kind, ranked, row, fleet.jobs[row][job])
    return taken


def _offer(fleet: Fleet, kind: TaskClass, ranked: Ranked, row: int, same_job: int) -> None:
    """Rank a machine, when one more task fits there."""
    cost = cost_of(fleet, kind, row, same_job)
    if cost < UNFIT:
        heappush(ranked, (cost, row))
