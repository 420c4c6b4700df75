"""Tasks come one at a time to a cell that was empty, until all have come: how much of it can be used?

The experiment of the FGD paper (ATC 2023) without its inflation: none is preempted, none is tried again, and
no task ends, unless it is said when. What is asked for is measured in devices where there are any, else in
what is scarcest.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from borgish.cell.model import Machine
from borgish.resources import Resources
from borgish.scheduler.plan import Refusal
from borgish.sim.pack.packing import (
    DEVICE,
    Arrival,
    Note,
    OnPlacement,
    PackedCell,
    Times,
    ignore_placement,
    nothing,
    specs_of,
)

NOTED_TASKS = 500


class Step(msgspec.Struct, frozen=True):
    """Means over all arrivals at which a whole percent of the cell was asked for: shares from 0 to 1."""

    requested_percent: int
    allocated: float  # of the resource that is measured
    cpu_allocated: float
    ram_allocated: float


class Arrived(msgspec.Struct, frozen=True):
    """What came of it. ``pending`` counts tasks by the reason that rules out the most machines."""

    measured: str  # devices, cpu or ram
    tasks: int
    placed: int
    left: int  # of these, before the last one came
    pending: dict[str, int]
    steps: tuple[Step, ...]


class _Sums:
    """What tasks ask for and what is allocated to them, as shares of the cell, until they leave."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._whole = [max(1, sum(_amounts(each.capacity)[kind] for each in machines)) for kind in range(3)]
        self.has_devices = any(DEVICE in each.capacity.devices for each in machines)
        self._asked = [0, 0, 0]
        self._given = [0, 0, 0]

    def ask(self, needs: Resources, *, is_given: bool, tasks: int = 1) -> None:
        """Add what so many tasks need; below 0, as many leave."""
        for kind, amount in enumerate(_amounts(needs)):
            self._asked[kind] += amount * tasks
            self._given[kind] += amount * tasks * is_given

    def asked(self, kind: int) -> float:
        return self._asked[kind] / self._whole[kind]

    def given(self, kind: int) -> float:
        return self._given[kind] / self._whole[kind]


KINDS = ("cpu", "ram", "devices")


def _amounts(resources: Resources) -> tuple[int, int, int]:
    return resources.cpu_millis, resources.ram_bytes, resources.devices.get(DEVICE, 0)


def arrive(
    machines: Sequence[Machine],
    arrivals: Sequence[Arrival],
    policy: str,
    seed: int,
    note: Note = nothing,
    times: Times | None = None,
    on_placement: OnPlacement = ignore_placement,
) -> Arrived:
    """Let the tasks come in their order, and leave when ``times`` say so; the seed decides ties."""
    measured = _measured(machines, arrivals)
    cell, sums = PackedCell(machines, specs_of(arrivals), policy, seed), _Sums(machines)
    pending: Counter[str] = Counter()
    leaving: list[tuple[float, int, int]] = []  # when, which arrival, and its index; -1: it has no place
    placed = left = 0
    by_percent: dict[int, list[tuple[float, float, float]]] = {}
    for number, arrival in enumerate(arrivals):
        if number % NOTED_TASKS == 0:
            note(f"{number:,} of {len(arrivals):,} tasks")
        while times is not None and leaving and leaving[0][0] <= times.comes[number]:
            _, gone, index = heappop(leaving)
            sums.ask(arrivals[gone].needs, is_given=index >= 0, tasks=-1)
            if index >= 0:
                cell.remove(arrivals[gone].key, index)
                left += 1
        plan = cell.add(arrival.key)
        sums.ask(arrival.needs, is_given=bool(plan.placements))
        pending.update(map(_reason, plan.refusals.get(arrival.key, ())))
        placement = next(iter(plan.placements), None)
        if placement is None:
            index = -1
            on_placement(number, "", ())
        else:
            index = placement.indexes[0]
            devices = placement.devices[0] if placement.devices else ()
            on_placement(number, placement.machines[0], devices)
            placed += 1
        if times is not None:
            heappush(leaving, (times.leaves[number], number, index))
        percent = round(100 * sums.asked(measured))
        by_percent.setdefault(percent, []).append((sums.given(measured), sums.given(0), sums.given(1)))
    steps = [
        Step(percent, *(sum(column) / len(values) for column in zip(*values, strict=True)))
        for percent, values in sorted(by_percent.items())
    ]
    counts = dict(pending.most_common())
    return Arrived(KINDS[measured], len(arrivals), placed, left, counts, tuple(steps))


def _measured(machines: Sequence[Machine], arrivals: Sequence[Arrival]) -> int:
    """Return the kind of resource to measure by."""
    sums = _Sums(machines)
    if sums.has_devices:
        return KINDS.index("devices")
    for arrival in arrivals:
        sums.ask(arrival.needs, is_given=False)
    return max(range(2), key=sums.asked)


def _reason(refusal: Refusal) -> str:
    return max(refusal.reasons, key=lambda reason: (refusal.reasons[reason], reason), default="no machine")
