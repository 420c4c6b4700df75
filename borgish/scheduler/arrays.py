"""The kinds of array the scheduler works on, and how one grows.

Amounts are float64: whole numbers up to 2**53 are exact in it (a petabyte is 2**50 bytes), and
feasibility and scores then need no conversion.
"""

from collections.abc import Iterable
from copy import copy
from typing import TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
BitArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.integer]
"""Numbers of values, in the narrowest type that holds them: sorting these is faster."""
Rows = slice | IntArray
"""Which machines: all of them, or some by row."""

ALL = slice(None)

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Thing = TypeVar("_Thing")


def widened(array: npt.NDArray[_Scalar], size: int, axis: int = -1) -> npt.NDArray[_Scalar]:
    """Return a copy of an array of any shape with zeros added along one axis, up to ``size``."""
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, max(0, size - array.shape[axis]))
    return np.pad(array, padding)


def widen(thing: object, names: Iterable[str], size: int, axis: int = -1) -> None:
    """Widen arrays of an object, by their names."""
    for name in names:
        setattr(thing, name, widened(getattr(thing, name), size, axis))


def copied(thing: _Thing) -> _Thing:
    """Return an object with arrays and containers of its own. What is in its containers stays shared."""
    other = copy(thing)
    for name, value in vars(other).items():
        if isinstance(value, np.ndarray | list | dict | set):
            setattr(other, name, value.copy())
    return other
