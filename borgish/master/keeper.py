"""Looks after the kept checkpoints: looks into them, verifies them, hands them out, lets them go.

All of it is done beside the loop and beside the store's own thread, and what is in a checkpoint is read
in a process of its own (``looking``), one at a time: turns go on meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from borgish.master.checkpointer import Checkpointer, checkpoint_view
from borgish.master.looking import look, packed
from borgish.store.base import CheckpointInfo, Store
from borgish.wire.api import CheckpointDetail, CheckpointVerdict, CheckpointView

T = TypeVar("T")
log = logging.getLogger("borgmaster")


class Keeper:
    """The checkpoints of one cell in one store."""

    def __init__(self, cell: str, store: Store, checkpointer: Checkpointer) -> None:
        self._cell = cell
        self._store = store
        self._checkpointer = checkpointer
        self._one_at_a_time = asyncio.Lock()

    async def detail(self, position: int) -> CheckpointDetail:
        """Look into a checkpoint; one that is not good says what is wrong. Raises NotFound, as all here."""
        return await self._beside(lambda: self._looked_into(position))

    async def verify(self, position: int) -> CheckpointVerdict:
        """Say whether a checkpoint is good."""
        return verdict(await self.detail(position))

    async def file(self, position: int) -> bytes:
        """Return a checkpoint as it is kept outside of the cell."""
        return await self._beside(lambda: self._packed(position))

    async def delete(self, position: int, actor: str) -> CheckpointView:
        """Let go of a checkpoint. Raises Conflict for the last good one."""
        gone = await self._beside(lambda: self._store.delete_checkpoint(position, self._is_good))
        log.info("%s deleted the checkpoint at %d, sha256 %s", actor, gone.position, gone.sha256)
        await self._checkpointer.kept()
        return checkpoint_view(gone)

    async def _beside(self, work: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            return await asyncio.to_thread(work)

    def _looked_into(self, position: int) -> CheckpointDetail:
        info, stored = self._store.checkpoint_body(position)
        found = look(self._cell, info, stored)
        return CheckpointDetail(checkpoint_view(info), found.contents, found.problem)

    def _is_good(self, info: CheckpointInfo, stored: bytes) -> bool:
        return look(self._cell, info, stored).contents is not None

    def _packed(self, position: int) -> bytes:
        info, stored = self._store.checkpoint_body(position)
        return packed(self._cell, info, stored)


def verdict(detail: CheckpointDetail) -> CheckpointVerdict:
    """Return in a sentence what was found in a checkpoint."""
    kept, found = detail.checkpoint, detail.contents
    if found is None:
        return CheckpointVerdict(kept.position, kept.name, good=False, text=detail.problem)
    text = f"good: machines {found.machines}, jobs {found.jobs}, tasks {found.tasks}"
    return CheckpointVerdict(kept.position, kept.name, good=True, text=text)
