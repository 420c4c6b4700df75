"""The attributes of all machines as columns of numbers, so that a constraint is one look-up for all.

A constraint names one attribute. The machines' values of it are numbered, the constraint is asked
once for each value, and its answers are spread over the machines. Only attributes that some
constraint names get a column.
"""

from collections.abc import Iterable

import numpy as np

from borgish.scheduler.arrays import BoolArray, IntArray, Rows, copied, widened
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint

VALUES_MAX = 100_000  # numbered values of one attribute, before those no longer in use are dropped


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
