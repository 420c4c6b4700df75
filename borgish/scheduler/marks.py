"""What else is known of machines before a task is looked at: their taints, and the images they have.

Machines with the same taints share a number, so that a job's tolerations are asked once for each set.
"""

from collections.abc import Callable, Mapping

import numpy as np

from borgish.cell.model import Taint
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, Rows, copied, widened

TaintSet = tuple[Taint, ...]
"""Taints in order of their keys, all with ``since`` 0: since when does not matter here."""


class Marks:
    """Taints and images by row."""

    def __init__(self) -> None:
        self.codes: IntArray = np.zeros(0, dtype=np.int64)
        self._sets: list[TaintSet] = [()]
        self._numbers: dict[TaintSet, int] = {(): 0}
        self._images: list[Mapping[str, str]] = []
        self._having: dict[str, BoolArray] = {}  # by image that was asked for
        self._archs: dict[str, dict[str, int]] = {}  # by image: on how many machines it is of which

    def copy(self) -> "Marks":
        """Return the same, to be changed apart from this."""
        other = copied(self)
        other._archs = {image: dict(archs) for image, archs in self._archs.items()}
        return other

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self.codes = widened(self.codes, rows)
        self._images += [{}] * (rows - len(self._images))
        self._having.clear()

    def read(self, row: int, taints: TaintSet, images: Mapping[str, str]) -> None:
        """Note one machine's taints and images."""
        plain = tuple([Taint(taint.key, taint.value, taint.effect, 0.0) for taint in taints])
        number = self._numbers.get(plain)
        if number is None:
            number = self._numbers[plain] = len(self._sets)
            self._sets.append(plain)
        self.codes[row] = number
        if self._images[row] != images:
            self._note_images(row, images)

    def _note_images(self, row: int, images: Mapping[str, str]) -> None:
        for image, arch in self._images[row].items():
            self._archs[image][arch] -= 1
        for image, arch in images.items():
            archs = self._archs.setdefault(image, {})
            archs[arch] = archs.get(arch, 0) + 1
        self._images[row] = dict(images)
        self._having.clear()

    @property
    def tainted(self) -> bool:
        """Whether any machine ever had a taint."""
        return len(self._sets) > 1

    def all(self) -> list[Taint]:
        """Return every taint that some machine has, or had."""
        return sorted({taint for taints in self._sets for taint in taints})

    def of_sets(self, answer: Callable[[TaintSet], float], rows: Rows) -> FloatArray:
        """Return an answer about the taints of each of the rows; it is asked once for each set."""
        answers = np.array([answer(taints) for taints in self._sets], dtype=np.float64)
        found: FloatArray = answers[self.codes[rows]]
        return found

    def having(self, image: str) -> BoolArray:
        """Return which machines have an image."""
        found = self._having.get(image)
        if found is None:
            found = np.array([image in images for images in self._images], dtype=np.bool_)
            self._having[image] = found
        return found

    def archs(self, image: str) -> tuple[str, ...]:
        """Return the architectures an image is known to be for, where some machine has it."""
        return tuple(
            sorted(arch for arch, machines in self._archs.get(image, {}).items() if machines and arch)
        )
