"""Who may have to leave one machine for one task, and how many of them it takes. ``preemption`` chooses."""

from collections.abc import Iterator
from math import ceil

import msgspec

from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.fleet import PORTS, Amounts, Fleet
from borgish.scheduler.task_class import TaskClass


class VictimGroup(msgspec.Struct, eq=False):
    """Tasks on one machine that may have to leave, alike in priority and needs; the first to leave first.

    ``amounts``, ``devices`` and ``ports`` are those of each. Where single devices or ports matter, a group is
    one task.
    """

    tasks: list[tuple[str, int]]  # job and index
    priority: int
    price: float
    amounts: Amounts
    devices: dict[str, int]
    ports: tuple[int, ...]


Victims = tuple[tuple[VictimGroup, int], ...]
"""Groups, and how many of each have to leave."""


class PreemptionOption(msgspec.Struct, frozen=True):
    """A machine for one task, and who has to leave for it, as of a version of the rows."""

    victims: Victims
    version: int

    @property
    def count(self) -> int:
        return sum(count for _, count in self.victims)


class PreemptionSearch(msgspec.Struct, eq=False):
    """The machines for tasks of one class: those whose options are known, and which to evaluate next."""

    candidates: list[int]
    evaluated: int = 0
    ranked: list[tuple[float, int]] = []  # a heap of price and row
    options: dict[int, PreemptionOption] = {}  # by row


class TrialMachine:
    """What one machine has for one task while victims are tried."""

    def __init__(self, fleet: Fleet, kind: TaskClass, row: int, coming: dict[int, float]) -> None:
        self._kind = kind
        self._free = {
            number: fleet.free.item(number, row) + coming.get(number, 0.0) for number, _ in kind.needs
        }
        if PORTS in self._free:
            self._free[PORTS] -= fleet.ports[row].count(kind.fixed_ports)
        self._devices = {
            name: {f"{name}:{d}": free for d, free in enumerate(fleet.device(name).free[:, row].tolist())}
            for name, _ in kind.devices
        }
        self._known = {name for devices in self._devices.values() for name in devices}
        self._taken = {port for port in kind.fixed_ports if fleet.fixed_ports.taken(port)[row]}

    def fits(self) -> bool:
        """Return whether the task has room."""
        for number, amount in self._kind.needs:
            if self._free[number] < amount:
                return False
        for name, millis in self._kind.devices:
            if not self._has_device(name, millis):
                return False
        return not self._taken

    def _has_device(self, name: str, millis: int) -> bool:
        free = list(self._devices[name].values())
        if millis < DEVICE_MILLIS:
            return max(free, default=0.0) >= millis
        return free.count(DEVICE_MILLIS) >= millis // DEVICE_MILLIS

    def helped_by(self, group: VictimGroup) -> float:
        """Return how much of what is short one of a group would leave, in shares of what is short."""
        return sum(
            [
                min(1.0, group.amounts.get(number, 0) / (amount - self._free[number]))
                for number, amount in self._kind.needs
                if self._free[number] < amount
            ]
        )

    def wanted_of(self, group: VictimGroup) -> int:
        """Return how many of a group would have to leave, as far as it helps; 0 when it does not."""
        wanted = 1 if group.devices.keys() & self._known or set(group.ports) & self._taken else 0
        for number, amount in self._kind.needs:
            if self._free[number] < amount and (each := group.amounts.get(number, 0)):
                wanted = max(wanted, ceil((amount - self._free[number]) / each))
        return min(wanted, len(group.tasks))

    def spared_of(self, group: VictimGroup, count: int) -> int:
        """Return how many of those of a group that were to leave may stay after all."""
        if group.devices or group.ports:
            self.change(group, -1)
            spared = int(self.fits())
            self.change(group, 1)
            return spared
        slack = [
            (self._free[number] - amount) // each
            for number, amount in self._kind.needs
            if (each := group.amounts.get(number, 0))
        ]
        return int(min([*slack, count]))

    def change(self, group: VictimGroup, count: int) -> None:
        """Let so many of a group leave; a negative number comes back."""
        for number in self._free:
            self._free[number] += count * group.amounts.get(number, 0)
        for name, millis in group.devices.items():
            of = self._devices.get(name.partition(":")[0])
            if of is not None and name in of:
                of[name] += count * millis
        ports = set(group.ports) & set(self._kind.fixed_ports)
        self._taken = self._taken - ports if count > 0 else self._taken | ports


def order_of(trial: TrialMachine, group: VictimGroup) -> tuple[int, float, float, tuple[str, int]]:
    """Return in which order groups have to leave: the lowest first, of these what helps most."""
    return group.priority, -trial.helped_by(group), group.price, group.tasks[0]


def needed(trial: TrialMachine, chosen: list[tuple[VictimGroup, int]]) -> Iterator[tuple[VictimGroup, int]]:
    """Yield who has to leave when all who may stay after all do, the highest first."""
    for group, count in reversed(chosen):
        spared = trial.spared_of(group, count)
        if spared:
            trial.change(group, -spared)
        if count > spared:
            yield group, count - spared
