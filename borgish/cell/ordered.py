"""Keys in an order that is kept, so that the first of many are found without looking at the others."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec


class Comparable(Protocol):
    """What can be put in order."""

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Comparable)

_SHARE_SORTED = 0.02
"""Where more of the keys come or go at once, to sort them all takes less than to find the place of each."""


class Ordered(msgspec.Struct, Generic[K]):
    """Names, each with the key by which it stands in order. Keys are distinct."""

    _keys: list[K] = []  # in order
    _of: dict[str, K] = {}  # by name

    def change(self, keys: Mapping[str, K | None]) -> None:
        """Give names these keys; None takes a name out."""
        changes = {name: key for name, key in keys.items() if self._of.get(name) != key}
        is_large = len(changes) > len(self._of) * _SHARE_SORTED
        for name, key in changes.items():
            before = self._of.pop(name, None)
            if before is not None and not is_large:
                del self._keys[bisect_left(self._keys, before)]
            if key is not None:
                self._of[name] = key
                if not is_large:
                    insort(self._keys, key)
        if is_large:
            self._keys = sorted(self._of.values())

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in order. Nothing may change meanwhile."""
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def after(self, key: K) -> Iterator[K]:
        """Yield the keys above one, in order. Nothing may change meanwhile."""
        return (self._keys[place] for place in range(bisect_right(self._keys, key), len(self._keys)))

    def last_first(self) -> Iterator[K]:
        """Yield the keys from the last on. Nothing may change meanwhile."""
        return reversed(self._keys)
