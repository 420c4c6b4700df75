"""The default policy: strand as little as possible, of devices where there are any, else of cpu and ram.

What is stranded is what is free and of no use, since something else on its machine is short (section
3.2 of the Borg paper, which gives no formula): eight free devices with cpu for one task are one device. Of
devices it is mixed with the published measure of fragments, three to seven. Without devices, it is what is
left of cpu or ram beyond the proportion in which the tasks ask for them, a formula cheap enough for every
placement.
"""

import math

from borgish.scheduler.arrays import FloatArray, Rows
from borgish.scheduler.fleet import CPU, RAM, Fleet
from borgish.scheduler.policies.fragmentation import Fgd, States, TypicalShapes
from borgish.scheduler.policies.policy import Demand, Number, Policy
from borgish.scheduler.task_class import TaskClass

RATIO_STEP = math.log(1.05)
"""The proportion of cpu and ram is rounded to such steps, so that it seldom changes."""

BEST_FIT = 0.05
"""The part of best fit beside what is stranded: enough to decide between machines in balance."""


FRAGMENTS = 0.7
"""The part of the published measure of fragments beside what is stranded, where there are devices."""


class Balance(Policy):
    """Leave cpu and ram in the proportion in which the cell's tasks ask for them; else fill what is fuller.

    What is free of one beyond its proportion to the other is stranded.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._ratio = 1.0  # ram for each cpu, both in units of the largest machine

    def learn(self, fleet: Fleet, demand: Demand) -> None:
        super().learn(fleet, demand)
        units, (cpu, ram) = self.units(fleet), demand.totals()
        ratio = (ram / units.ram) / (cpu / units.cpu) if cpu > 0 and ram > 0 else 1.0
        rounded = math.exp(round(math.log(ratio) / RATIO_STEP) * RATIO_STEP)
        if rounded != self._ratio:
            self._ratio = rounded
            self.version += 1

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        return self._of(
            fleet.free[CPU][rows] / units.cpu,
            fleet.free[RAM][rows] / units.ram,
            kind.cpu / units.cpu,
            kind.ram / units.ram,
        )

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        units = self.units(fleet)
        return self._of(
            fleet.free.item(CPU, row) / units.cpu,
            fleet.free.item(RAM, row) / units.ram,
            kind.cpu / units.cpu,
            kind.ram / units.ram,
        )

    def _of(self, cpu: Number, ram: Number, cpu_asked: float, ram_asked: float) -> Number:
        """Return how much more would be stranded, half for all of either, and a part of best fit.

        ``short`` is what the ram that is free lacks for all the cpu that is free. Above 0, so much cpu is
        stranded: ``short * 0.5 / ratio``; below 0, so much ram: ``short * -0.5``. So what is stranded is a
        part of the size of ``short`` and a part of itself, whose change is the same on all machines.
        """
        ratio = self._ratio
        shift = cpu_asked * ratio - ram_asked
        same = shift * (0.25 - 0.25 / ratio) - (cpu_asked + ram_asked) * BEST_FIT
        short = cpu * ratio - ram
        grown = abs(short - shift) - abs(short)
        return grown * (0.25 + 0.25 / ratio) + (cpu + ram) * BEST_FIT + same


class Hybrid(Fgd):
    """Strand as little as possible.

    Of devices, in parts the published measure of fragments, with ram, and what is stranded when as many
    tasks of a shape as fit are placed together. Of cpu and ram, ``Balance``.
    """

    steps = 50
    with_ram = True
    plain = Balance

    def _of(self, fleet: Fleet, typical: TypicalShapes, states: States) -> FloatArray:
        fits = typical.fits(fleet, states)
        stranded = typical.stranded(fits, states)
        return stranded + (typical.fragments(fits) - stranded) * FRAGMENTS
