"""Puts tasks of one class on the best machines, one by one.

Taking a machine changes its cost and no other. So the machines are ranked once, the best is taken
from the top, and only that one is scored again. A job's own earlier tasks make a machine dearer for
that job alone: such machines are kept in a second heap while the job has its turn.
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
            for _, row in own:
                heappush(ranked, (cost_of(fleet, kind, row, 0), row))
    return placed


def _place_run(
    fleet: Fleet, kind: TaskClass, ranked: Ranked, job: str, count: int
) -> tuple[list[int], Ranked]:
    """Place tasks of one job; return their rows, and the machines that are out of the ranking for it."""
    own: Ranked = []  # machines that have tasks of this job already, dearer by that
    taken: list[int] = []
    while len(taken) < count:
        row = _best(fleet, kind, ranked, own, job)
        if row is None:
            break
        taken.append(row)
        fleet.take(row, kind.needs, kind.band, job)
        _offer(fleet, kind, own, row, job)
    return taken, own


def _best(fleet: Fleet, kind: TaskClass, ranked: Ranked, own: Ranked, job: str) -> int | None:
    """Take the best machine for the job out of both heaps."""
    while ranked and not (own and own[0] < ranked[0]):
        row = heappop(ranked)[1]
        if job not in fleet.jobs[row]:
            return row
        _offer(fleet, kind, own, row, job)
    return heappop(own)[1] if own else None


def _offer(fleet: Fleet, kind: TaskClass, own: Ranked, row: int, job: str) -> None:
    """Put a machine among those with tasks of the job, when one more fits."""
    dearer = cost_of(fleet, kind, row, fleet.jobs[row][job])
    if dearer < UNFIT:
        heappush(own, (dearer, row))
