"""Tasks come one at a time to a cell that was empty, until all have come: how much of it can be used?

The experiment of the FGD paper (ATC 2023) without its inflation: no task ends, none is preempted, none
is tried again. What is asked for is measured in devices where there are any, else in what is scarcest.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from borgish.cell.model import Machine
from borgish.resources import Resources
from borgish.scheduler.plan import Refusal
from borgish.sim.packing import DEVICE, Arrival, Note, PackedCell, nothing, specs_of

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
    pending: dict[str, int]
    steps: tuple[Step, ...]


class _Sums:
    """What is asked for or allocated, as shares of the cell."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._whole = [max(1, sum(_amounts(each.capacity)[kind] for each in machines)) for kind in range(3)]
        self.has_devices = any(DEVICE in each.capacity.devices for each in machines)
        self._asked = [0, 0, 0]
        self._given = [0, 0, 0]

    def ask(self, needs: Resources, *, is_given: bool) -> None:
        for kind, amount in enumerate(_amounts(needs)):
            self._asked[kind] += amount
            self._given[kind] += amount * is_given

    def asked(self, kind: int) -> float:
        return self._asked[kind] / self._whole[kind]

    def given(self, kind: int) -> float:
        return self._given[kind] / self._whole[kind]


KINDS = ("cpu", "ram", "devices")


def _amounts(resources: Resources) -> tuple[int, int, int]:
    return resources.cpu_millis, resources.ram_bytes, resources.devices.get(DEVICE, 0)


def arrive(
    machines: Sequence[Machine], arrivals: Sequence[Arrival], policy: str, seed: int, note: Note = nothing
) -> Arrived:
    """Let the tasks come in their order; the seed decides ties."""
    measured = _measured(machines, arrivals)
    cell, sums = PackedCell(machines, specs_of(arrivals), policy, seed), _Sums(machines)
    pending: Counter[str] = Counter()
    by_percent: dict[int, list[tuple[float, float, float]]] = {}
    for number, arrival in enumerate(arrivals):
        if number % NOTED_TASKS == 0:
            note(f"{number:,} of {len(arrivals):,} tasks")
        plan = cell.add(arrival.key)
        sums.ask(arrival.needs, is_given=bool(plan.placements))
        pending.update(map(_reason, plan.refusals.get(arrival.key, ())))
        percent = round(100 * sums.asked(measured))
        by_percent.setdefault(percent, []).append((sums.given(measured), sums.given(0), sums.given(1)))
    steps = [
        Step(percent, *(sum(column) / len(values) for column in zip(*values, strict=True)))
        for percent, values in sorted(by_percent.items())
    ]
    placed = len(arrivals) - pending.total()
    return Arrived(KINDS[measured], len(arrivals), placed, dict(pending.most_common()), tuple(steps))


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
