"""What some machines hold, as columns: from many censuses at once, so that no number is written by itself."""

from collections.abc import Sequence

import numpy as np

from borgish.scheduler.arrays import FloatArray
from borgish.scheduler.census import Amounts, Census

Lists = list[list[float]]


class Holdings:
    """Amounts by kind and census: of tasks and kept places by priority, and of what is leaving."""

    def __init__(self, censuses: Sequence[Census], kinds: int) -> None:
        self._shape = (kinds, len(censuses))
        lists: dict[int, Lists] = {}
        leaving = self._lists()
        for place, census in enumerate(censuses):
            for priority, amounts in census.held.items():
                if priority not in lists:
                    lists[priority] = self._lists()
                _write(lists[priority], place, amounts)
            _write(leaving, place, census.leaving)
        self.by_priority: dict[int, FloatArray] = {
            priority: np.array(columns) for priority, columns in lists.items()
        }
        self.leaving: FloatArray = np.array(leaving)

    def total(self) -> FloatArray:
        """Return all that is held."""
        found = self.leaving.copy()
        for amounts in self.by_priority.values():
            found += amounts
        return found

    def of(self, priority: int) -> FloatArray:
        """Return what one priority holds; zeros when nobody has it."""
        found = self.by_priority.get(priority)
        return np.zeros(self._shape) if found is None else found

    def _lists(self) -> Lists:
        kinds, censuses = self._shape
        return [[0.0] * censuses for _ in range(kinds)]


def _write(columns: Lists, place: int, amounts: Amounts) -> None:
    for kind, amount in amounts.items():
        columns[kind][place] = amount
