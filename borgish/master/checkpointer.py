"""Makes checkpoints of the running cell: encoded between two turns, written beside them."""

import asyncio

from borgish.api.views.instants import instant
from borgish.cell.room import Level, expect_ample
from borgish.clock import Clock
from borgish.failpoints import reach
from borgish.master.core import Core
from borgish.master.turn import Turn
from borgish.store.base import CheckpointInfo, Store
from borgish.store.codec import encode_snapshot
from borgish.wire.api import CheckpointView


class Checkpointer:
    """Knows the latest checkpoint, and makes the next."""

    def __init__(self, core: Core, turn: Turn, store: Store, clock: Clock) -> None:
        self._core = core
        self._turn = turn
        self._store = store
        self._clock = clock
        kept = [checkpoint_view(info) for info in store.checkpoints()]
        self.latest = kept[0] if kept else None
        self._tried = kept[0].position if kept else 0  # where one was last made, or could not be

    @property
    def has_room(self) -> bool:
        """Whether the store has room for what can wait."""
        return self._turn.room.level is Level.AMPLE

    def is_due(self, every_entries: int) -> bool:
        """Return whether the journal has grown so much since the last one that another is wanted."""
        return self._core.cell.position - self._tried >= every_entries and self.has_room

    async def make(self, reason: str, name: str = "") -> CheckpointView:
        """Keep the cell as it is now, under a name if one is given.

        A turn waits while it is encoded and while its row is written, not while it is compressed.
        Raises Conflict for a name that is taken, and StoreFull.
        """
        expect_ample(self._turn.room)
        reach("checkpoint.begin")
        await self._turn.durable()
        body = encode_snapshot(self._core.cell.snapshot())
        reach("checkpoint.encoded")
        position, at = self._core.cell.position, self._clock.now().wall
        self._tried = position
        info = await asyncio.to_thread(self._store.save_checkpoint, body, position, at, reason, name)
        self.latest = checkpoint_view(info)
        reach("checkpoint.noted")
        return self.latest

    async def make_if_changed(self, reason: str) -> None:
        """Keep the cell unless the latest checkpoint is of this very position, or there is no room for it."""
        if self.has_room and (self.latest is None or self.latest.position != self._core.cell.position):
            await self.make(reason)

    async def kept(self) -> list[CheckpointView]:
        """Return what is kept, newest first."""
        views = [checkpoint_view(info) for info in await self._turn.in_store(self._store.checkpoints)]
        self.latest = views[0] if views else None
        return views


def checkpoint_view(info: CheckpointInfo, problem: str = "") -> CheckpointView:
    """Return a checkpoint as it is shown."""
    at = instant(info.at)
    return CheckpointView(info.position, at, info.reason, info.bytes, info.sha256, info.name, problem)
