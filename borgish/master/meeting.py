"""Begins to poll the machines of a cell that has a new master, a few at a time.

To make what all of them are to run takes seconds in a large cell, so turns and questions come between; and
who was not asked yet was not silent.
"""

import asyncio

from borgish.cell.state import Cell
from borgish.clock import Clock
from borgish.link.link import Link
from borgish.master.inbox import Inbox
from borgish.master.turn import Turn

STRETCH_SECONDS = 0.03


async def meet_machines(cell: Cell, link: Link, turn: Turn, inbox: Inbox, clock: Clock) -> None:
    """Return when every machine is polled, or was removed meanwhile."""
    names = sorted(cell.machines, reverse=True)
    while names:
        await turn.durable()
        inbox.unasked(tuple(names))
        end = clock.now().mono + STRETCH_SECONDS
        while names and clock.now().mono < end:
            name = names.pop()
            link.sync((name,) if name in cell.machines else ())
        await asyncio.sleep(0)
