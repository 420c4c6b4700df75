"""What some machines hold, as columns: from many censuses at once, so that no number is written by itself."""

from collections.abc import Iterable, Sequence

import numpy as np

from borgish.scheduler.arrays import FloatArray
from borgish.scheduler.census import Amounts, Census

Lists = list[list[float]]


class Holdings:
    """Amounts by kind and census, of tasks and kept places by priority, and of what is leaving."""

    def __init__(self, censuses: Sequence[Census], kinds: int) -> None:
        self.shape = (kinds, len(censuses))
        lists: dict[int, Lists] = {}
        leaving: list[tuple[int, Amounts]] = []
        for place, census in enumerate(censuses):
            for priority, amounts in census.held.items():
                columns = lists.get(priority)
                if columns is None:
                    columns = lists[priority] = self._zeros()
                for kind, amount in amounts.items():
                    columns[kind][place] = amount
            if census.leaving:
                leaving.append((place, census.leaving))
        self.by_priority: dict[int, FloatArray] = {
            priority: np.array(columns, dtype=np.float64) for priority, columns in lists.items()
        }
        self.leaving = self._leaving(leaving)

    def total(self) -> FloatArray:
        """Return all that is held."""
        found = self.leaving.copy()
        for amounts in self.by_priority.values():
            found += amounts
        return found

    def of(self, priority: int) -> FloatArray:
        """Return what one priority holds; zeros when nobody has it."""
        found = self.by_priority.get(priority)
        return np.zeros(self.shape) if found is None else found

    def _zeros(self) -> Lists:
        kinds, censuses = self.shape
        return [[0.0] * censuses for _ in range(kinds)]

    def _leaving(self, found: Iterable[tuple[int, Amounts]]) -> FloatArray:
        amounts: FloatArray = np.zeros(self.shape)
        for place, leaving in found:
            for kind, amount in leaving.items():
                amounts[kind, place] = amount
        return amounts
