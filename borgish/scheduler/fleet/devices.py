"""The devices of all machines: how much of each single one is free, by kind, in thousandths.
Kubernetes has extended resources for them.

A task takes a part of one device or several whole ones; so what is free in sum does not tell
whether it fits. A part goes to the fullest device that has room, a whole to the first that is
untouched, so that whole devices stay whole.
"""

import numpy as np

from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, Rows, copied, widened

ABSENT = -1.0
"""What is free of a device that a machine does not have."""

Kept = tuple[int, tuple[int, ...]]
"""How many thousandths are kept for a task, and of which devices, by number."""


class Devices:
    """One kind of device on all machines. ``free`` is by device and row; ``ABSENT`` where there is none.

    ``most`` is the largest part that one device has free, by row; ``whole`` how many are untouched.
    """

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self.free: FloatArray = np.zeros((0, rows))
        self.most: FloatArray = np.zeros(rows)
        self.whole: IntArray = np.zeros(rows, dtype=np.int64)
        self.kept: dict[int, list[Kept]] = {}  # by row: devices kept for tasks until others have left
        self.let: dict[
            int, list[Kept]
        ] = {}  # by row: those let go while the task for which they are kept is tried

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        before = self.free.shape[1]
        self.free = widened(self.free, rows)
        self.free[:, before:] = ABSENT
        self.most, self.whole = widened(self.most, rows), widened(self.whole, rows)

    def read(self, row: int, count: int, used: dict[str, int]) -> None:
        """Write one machine's devices: how many, and what is used of single ones by name."""
        self.kept.pop(row, None)
        self.let.pop(row, None)
        self.write(row, dict.fromkeys(range(count), DEVICE_MILLIS), used)

    def write(self, row: int, there: dict[int, int], used: dict[str, int]) -> None:
        """Write what there is of which devices, by number, and what is used of them by name."""
        more = max(there, default=-1) + 1 - len(self.free)
        if more > 0:
            added = np.full((more, self.free.shape[1]), ABSENT)
            self.free = np.concatenate([self.free, added])
        self.free[:, row] = ABSENT
        for device, millis in there.items():
            self.free[device, row] = millis - used.get(f"{self.name}:{device}", 0)
        self.count(row)

    def count(self, row: int) -> None:
        """Count one machine anew after its devices changed."""
        column = self.free[:, row]
        self.most[row] = column.max(initial=0.0)
        self.whole[row] = np.count_nonzero(column == DEVICE_MILLIS)

    def mask(self, millis: int, rows: Rows) -> BoolArray:
        """Return which of the rows have room for a task that needs so much."""
        if millis < DEVICE_MILLIS:
            part: BoolArray = self.most[rows] >= millis
            return part
        whole: BoolArray = self.whole[rows] >= millis // DEVICE_MILLIS
        return whole

    def fits(self, row: int, millis: int) -> bool:
        """Return whether one machine has room."""
        if millis < DEVICE_MILLIS:
            return bool(self.most.item(row) >= millis)
        return bool(self.whole.item(row) >= millis // DEVICE_MILLIS)

    def fullest(self, row: int, millis: int) -> int:
        """Return the fullest device of one machine that has room for a part."""
        column = self.free[:, row]
        return int(np.where(column >= millis, column, np.inf).argmin())

    def take(self, row: int, millis: int, part: int = -1) -> tuple[str, ...]:
        """Take what a task needs, which must be there; return the devices by name.

        ``part`` is the device that gives a part of itself; below 0, the fullest.
        """
        column = self.free[:, row]
        if millis < DEVICE_MILLIS:
            chosen = [part if part >= 0 else self.fullest(row, millis)]
        else:
            chosen = np.flatnonzero(column == DEVICE_MILLIS)[: millis // DEVICE_MILLIS].tolist()
        for device in chosen:
            column[device] -= min(millis, DEVICE_MILLIS)
        self.count(row)
        return tuple([f"{self.name}:{device}" for device in chosen])

    def give_back(self, row: int, devices: tuple[str, ...], millis: int) -> None:
        """Undo ``take``; devices of other kinds are passed over."""
        for device in devices:
            kind, _, number = device.partition(":")
            if kind == self.name and int(number) < len(self.free):
                self.free[int(number), row] += min(millis, DEVICE_MILLIS)
        self.count(row)

    # Kept places

    def keep(self, row: int, millis: int, leaving: dict[str, int]) -> None:
        """Keep devices for a task that waits until others have left: what leaves counts as free.

        What is free already is chosen first. A device in use is below nothing then, until it is left.
        """
        column = self.free[:, row]
        coming = [leaving.get(f"{self.name}:{device}", 0) for device in range(len(column))]
        later = np.where(column == ABSENT, ABSENT, column + coming)
        part = min(millis, DEVICE_MILLIS)
        fitting = np.flatnonzero(later >= part)
        # Of those free now, a part goes to the fullest.
        order = np.lexsort((later[fitting], column[fitting] < part))
        self._keep(row, (millis, tuple(fitting[order][: max(1, millis // DEVICE_MILLIS)].tolist())))

    def release(self, row: int, millis: int) -> None:
        """Free what is kept for one task, to try whether the task can have it."""
        found = self.kept.get(row, [])
        for place in reversed(range(len(found))):
            if found[place][0] == millis:
                kept = found.pop(place)
                self.free[list(kept[1]), row] += min(millis, DEVICE_MILLIS)
                self.let.setdefault(row, []).append(kept)
                break
        self.count(row)

    def keep_again(self, row: int, millis: int) -> None:
        """Undo ``release``."""
        found = self.let.get(row, [])
        for place in reversed(range(len(found))):
            if found[place][0] == millis:
                self._keep(row, found.pop(place))
                break

    def _keep(self, row: int, kept: Kept) -> None:
        self.free[list(kept[1]), row] -= min(kept[0], DEVICE_MILLIS)
        self.kept.setdefault(row, []).append(kept)
        self.count(row)

    def copy(self) -> "Devices":
        """Return the same devices, to be changed apart from these."""
        other = copied(self)
        other.kept = {row: list(kept) for row, kept in self.kept.items()}
        other.let = {row: list(let) for row, let in self.let.items()}
        return other
