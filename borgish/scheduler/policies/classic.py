"""Policies that see one machine at a time and nothing of other tasks: best fit, worst fit,
and two that are there to compare with.

The published forms are those of the FGD simulator (ATC 2023): cpu and devices on a machine that has
any, cpu and memory on the others.
"""

from copy import deepcopy
from typing import Self

import numpy as np

from borgish.scheduler.arrays import BoolArray, FloatArray, Rows
from borgish.scheduler.fleet import CPU, RAM, Fleet
from borgish.scheduler.policies.policy import Demand, Number, Policy
from borgish.scheduler.task_class import TaskClass


class BestFit(Policy):
    """Fill what is nearly full: the least that is left, as a fraction of the largest machine."""

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        cpu_left = (fleet.free[CPU][rows] - kind.cpu) / units.cpu
        ram_left = (fleet.free[RAM][rows] - kind.ram) / units.ram
        if not fleet.devices:
            return self._of(cpu_left, ram_left)
        devices_left = (devices_free(fleet, rows) - devices_needed(kind)) / units.devices
        return self._of(cpu_left, np.where(has_devices(fleet, rows), devices_left, ram_left))

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        if fleet.devices:
            return super().cost(fleet, kind, row)
        units = self.units(fleet)
        return self._of(
            (fleet.free.item(CPU, row) - kind.cpu) / units.cpu,
            (fleet.free.item(RAM, row) - kind.ram) / units.ram,
        )

    def _of(self, cpu_left: Number, other_left: Number) -> Number:
        return (cpu_left + other_left) * 0.5


class WorstFit(Policy):
    """E-PVM: the least rise of a cost that grows steeply with use, which spreads the load (section 3.2).

    A machine costs, for each resource, the number of machines to the power of the share in use; divided
    by that number here, so that a full one costs 1.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._base = 2.0

    def learn(self, fleet: Fleet, demand: Demand) -> None:
        super().learn(fleet, demand)
        base = float(max(2, len(fleet)))
        if base != self._base:
            self._base = base
            self.version += 1

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        risen = np.zeros(fleet.up[rows].shape)
        for number, asked in ((CPU, kind.cpu), (RAM, kind.ram)):
            share = fleet.inverse[number][rows]
            free = fleet.free[number][rows] * share
            risen += self._base ** (asked * share - free) - self._base**-free
        return risen


class DotProduct(Policy):
    """Little free of what a task asks for much of: for comparison. In steps of a hundredth, as published."""

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        cpu = fleet.free[CPU][rows] * kind.cpu / units.cpu**2
        other = fleet.free[RAM][rows] * kind.ram / units.ram**2
        if fleet.devices:
            devices = devices_free(fleet, rows) * devices_needed(kind) / units.devices**2
            other = np.where(has_devices(fleet, rows), devices, other)
        found: FloatArray = np.ceil((cpu + other) * 50.0) / 100.0
        return found


class Random(Policy):
    """Any machine, and any device: for comparison. Costs are drawn anew each time."""

    kept = False

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._chance = np.random.default_rng(seed)

    def copy(self) -> Self:
        other = super().copy()
        other._chance = deepcopy(self._chance)
        return other

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:  # noqa: ARG002
        return self._chance.random(fleet.up[rows].shape)

    def choose_device(self, fleet: Fleet, kind: TaskClass, row: int, device: str) -> int:
        free = fleet.device(device).free[:, row]
        return int(self._chance.choice(np.flatnonzero(free >= dict(kind.devices)[device])))


def devices_free(fleet: Fleet, rows: Rows) -> FloatArray:
    """Return how much of all devices together is free, by row, in thousandths."""
    found: FloatArray = np.sum([fleet.free[kind][rows] for kind in fleet.device_kinds()], axis=0)
    return found


def has_devices(fleet: Fleet, rows: Rows) -> BoolArray:
    """Return which rows have devices, free or not."""
    found: BoolArray = np.sum([fleet.capacity[kind][rows] for kind in fleet.device_kinds()], axis=0) > 0
    return found


def devices_needed(kind: TaskClass) -> float:
    """Return the thousandths of devices that a task needs, of all kinds together."""
    return float(sum(millis for _, millis in kind.devices))
