"""Garbage collection (Python's) of a process that holds a large cell: seldom, and never what was loaded."""

import gc

YOUNG_MAX = 50_000  # objects more than were freed, after which the young ones are looked through
"""A pass over a whole cell makes hundreds of thousands, few of them in circles: with Python's 700 it spends a
sixth of its time looking through them."""


def settle() -> None:
    """Take what there is now as there to stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)
