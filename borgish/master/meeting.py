"""Begins to poll the machines of a cell that has a new master, a few at a time.

To make what all of them are to run takes seconds in a large cell, so turns and questions come between: were
all asked together, most answers would come too late to count, and be asked for again. Who was not asked yet
was not silent.
"""

import asyncio

from borgish.cell.state import Cell
from borgish.clock import Clock
from borgish.link.link import Link
from borgish.master.inbox import Inbox
from borgish.master.turn import Turn

AT_ONCE = 20
PAUSE_SECONDS = 0.01
TOLD_SECONDS = 1.0  # far below any silence that counts


async def meet_machines(cell: Cell, link: Link, turn: Turn, inbox: Inbox, clock: Clock) -> None:
    """Return when every machine is polled, or was removed meanwhile."""
    names = sorted(cell.machines, reverse=True)
    told_at = -TOLD_SECONDS
    while names:
        await turn.durable()
        if clock.now().mono >= told_at + TOLD_SECONDS:
            told_at = clock.now().mono
            inbox.unasked(tuple(names))
        some = [names.pop() for _ in range(min(AT_ONCE, len(names)))]
        link.sync([name for name in some if name in cell.machines])
        await asyncio.sleep(PAUSE_SECONDS)
