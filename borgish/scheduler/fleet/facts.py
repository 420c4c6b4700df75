"""Facts of machines that do not depend on placements: attributes, taints, and the images they have.

Attributes are columns of numbers, so that a constraint is one look-up for all. A constraint names one
attribute. The machines' values of it are numbered, the constraint is evaluated once for each value, and its
answers are spread over the machines. Only attributes that some constraint names get a column.

Machines with the same taints share a number, so that a job's tolerations are compared once for each set.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np

from borgish.cell.model import Taint
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, Rows, copied, widened
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint
from borgish.vocabulary import Runtime

RUNTIME_BIT = {runtime: 1 << number for number, runtime in enumerate(Runtime)}

VALUES_MAX = 100_000  # numbered values of one attribute, before those no longer in use are dropped


@cache
def runtime_bits(runtimes: tuple[Runtime, ...], unhealthy: tuple[Runtime, ...]) -> tuple[int, int]:
    """Return which runtimes a machine has, and which of them work."""
    has = sum(RUNTIME_BIT[runtime] for runtime in set(runtimes))
    return has, sum(RUNTIME_BIT[runtime] for runtime in set(runtimes) - set(unhealthy))


class Column:
    """One attribute of all machines."""

    def __init__(self, attribute: str, rows: Iterable[dict[str, str]]) -> None:
        self.attribute = attribute
        self.numbers: dict[str | None, int] = {}
        self.codes: IntArray = np.array([self._code(row) for row in rows], dtype=np.int64)
        self.answers: dict[Constraint, list[bool]] = {}

    def copy(self) -> "Column":
        """Return the same numbers, without the answers."""
        other = copied(self)
        other.answers = {}
        return other

    def _code(self, attributes: dict[str, str]) -> int:
        return self.numbers.setdefault(attributes.get(self.attribute), len(self.numbers))

    def set(self, row: int, attributes: dict[str, str]) -> None:
        """Note one machine's attributes; the column grows to reach its row."""
        if row >= len(self.codes):
            self.codes = widened(self.codes, row + 1)
        self.codes[row] = self._code(attributes)

    def mask(self, constraint: Constraint, rows: Rows) -> BoolArray:
        """Return which of the rows meet the constraint."""
        answers = self.answers.setdefault(constraint, [])
        if len(answers) < len(self.numbers):
            answers += [self._answer(constraint, value) for value in list(self.numbers)[len(answers) :]]
        found: BoolArray = np.array(answers, dtype=np.bool_)[self.codes[rows]]
        return found

    def _answer(self, constraint: Constraint, value: str | None) -> bool:
        return matches(constraint, {} if value is None else {self.attribute: value})


class Attributes:
    """The attributes of all machines, by row."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []
        self._columns: dict[str, Column] = {}

    def copy(self) -> "Attributes":
        """Return the same, to be changed apart from this."""
        other = copied(self)
        other._columns = {name: column.copy() for name, column in self._columns.items()}
        return other

    def widen(self, size: int) -> None:
        """Make room for machines; a row not yet in use has no attributes."""
        for row in range(len(self.rows), size):
            self.rows.append({})
            for column in self._columns.values():
                column.set(row, {})

    def set(self, row: int, attributes: dict[str, str]) -> None:
        """Note one machine's attributes."""
        self.rows[row] = attributes
        for name, column in list(self._columns.items()):
            column.set(row, attributes)
            if len(column.numbers) > VALUES_MAX + len(self.rows):
                self._columns[name] = Column(name, self.rows)

    def has(self, attribute: str) -> bool:
        """Return whether any machine has an attribute."""
        return any(attribute in row for row in self.rows)

    def names(self) -> list[str]:
        """Return the attributes that machines have, in order."""
        return sorted({name for row in self.rows for name in row})

    def mask(self, constraint: Constraint, rows: Rows) -> BoolArray:
        """Return which of the rows meet the constraint."""
        return self._column(constraint.attribute).mask(constraint, rows)

    def codes(self, attribute: str) -> IntArray:
        """Return the number of each row's value; rows without the attribute share one."""
        return self._column(attribute).codes

    def absent(self, attribute: str) -> int:
        """Return the number that stands for no value of an attribute."""
        return self._column(attribute).numbers.setdefault(None, len(self._column(attribute).numbers))

    def _column(self, attribute: str) -> Column:
        column = self._columns.get(attribute)
        if column is None:
            column = self._columns[attribute] = Column(attribute, self.rows)
        return column


TaintSet = tuple[Taint, ...]
"""Taints in order of their keys, all with ``since`` 0: since when does not matter here."""


class Taints:
    """The taints of all machines: ``codes`` [row] are the numbers of their sets."""

    def __init__(self) -> None:
        self.codes: IntArray = np.zeros(0, dtype=np.int64)
        self._sets: list[TaintSet] = [()]
        self._numbers: dict[TaintSet, int] = {(): 0}
        self.any = False  # whether any machine ever had a taint

    def copy(self) -> "Taints":
        """Return the same, to be changed apart from this."""
        return copied(self)

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self.codes = widened(self.codes, rows)

    def set(self, row: int, taints: TaintSet) -> None:
        """Note one machine's taints."""
        plain = tuple([Taint(taint.key, taint.value, taint.effect, 0.0) for taint in taints])
        number = self._numbers.get(plain)
        if number is None:
            number = self._numbers[plain] = len(self._sets)
            self._sets.append(plain)
            self.any = True
        self.codes[row] = number

    def all(self) -> list[Taint]:
        """Return every taint that some machine has, or had."""
        return sorted({taint for taints in self._sets for taint in taints})

    def of_sets(self, answer: Callable[[TaintSet], float], rows: Rows) -> FloatArray:
        """Return an answer about the taints of each of the rows; it is computed once for each set."""
        answers = np.array([answer(taints) for taints in self._sets], dtype=np.float64)
        found: FloatArray = answers[self.codes[rows]]
        return found


class Images:
    """The container images that machines have, with the architectures that they are for."""

    def __init__(self) -> None:
        self._images: list[Mapping[str, str]] = []  # by row: architectures by image
        self._having: dict[str, BoolArray] = {}  # [row], by image that was asked for
        self._archs: dict[str, dict[str, int]] = {}  # by image: on how many machines it is of which

    def copy(self) -> "Images":
        """Return the same, to be changed apart from this."""
        other = copied(self)
        other._archs = {image: dict(archs) for image, archs in self._archs.items()}
        return other

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self._images += [{}] * (rows - len(self._images))
        self._having.clear()

    def set(self, row: int, images: Mapping[str, str]) -> None:
        """Note one machine's images."""
        if self._images[row] == images:
            return
        for image, arch in self._images[row].items():
            self._archs[image][arch] -= 1
        for image, arch in images.items():
            archs = self._archs.setdefault(image, {})
            archs[arch] = archs.get(arch, 0) + 1
        self._images[row] = dict(images)
        self._having.clear()

    def having(self, image: str) -> BoolArray:
        """Return which machines have an image, [row]."""
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
