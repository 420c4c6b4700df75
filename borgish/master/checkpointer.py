"""Makes checkpoints of the running cell: encoded between two turns, written beside them.

On SQLite the newest are in files as well (``store.checkpoint_files``), and a young cell is kept in files
alone each time that its journal has doubled: all of it may be in SQLite's log still.
"""

import asyncio
import logging

from borgish.cell.room import Level, check_ample
from borgish.clock import Clock
from borgish.errors import BorgishError
from borgish.failpoints import reach
from borgish.master.core import Core
from borgish.master.turn import Turn
from borgish.store.base import CheckpointInfo, Store
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.codec import compress, encode_snapshot, sha256_of
from borgish.text import instant
from borgish.wire.api import CheckpointView

log = logging.getLogger("borgmaster")


class Checkpointer:
    """Knows the latest checkpoint, and makes the next."""

    def __init__(
        self, core: Core, turn: Turn, store: Store, clock: Clock, files: CheckpointFiles | None = None
    ) -> None:
        self._core = core
        self._turn = turn
        self._store = store
        self._clock = clock
        self._files = files
        kept = [checkpoint_view(info) for info in store.checkpoints()]
        self.latest = kept[0] if kept else None
        self._tried = kept[0].position if kept else 0  # where one was last made, or could not be
        self._filed = next(iter(files.positions()), 0) if files is not None else 0  # likewise in a file
        # So that `latest` never goes back, and nobody removes the file that another is writing.
        self._one_at_a_time = asyncio.Lock()

    @property
    def has_room(self) -> bool:
        """Whether the store has room for what can wait."""
        return self._turn.room.level is Level.AMPLE

    def is_due(self, every_entries: int) -> bool:
        """Return whether the journal has grown so much since the last one that another is wanted."""
        return self._core.cell.position - self._tried >= every_entries and self.has_room

    @property
    def is_file_due(self) -> bool:
        """Whether the journal is twice as long as at the newest file."""
        grown = self._core.cell.position >= max(1, 2 * self._filed)
        return self._files is not None and grown and self.has_room

    async def make(self, reason: str, name: str = "") -> CheckpointView:
        """Keep the cell as it is now, under a name if one is given.

        A turn waits while it is encoded and while its row is written, not while it is compressed.
        Raises Conflict for a name that is taken, and StoreFull.
        """
        async with self._one_at_a_time:
            return await self._made(reason, name)

    async def _made(self, reason: str, name: str = "") -> CheckpointView:
        check_ample(self._turn.room)
        reach("checkpoint.begin")
        body, position, at = await self._encoded()
        reach("checkpoint.encoded")
        self._tried = position
        info = await asyncio.to_thread(self._store.save_checkpoint, body, position, at, reason, name)
        made = self.latest = checkpoint_view(info)
        reach("checkpoint.noted")
        if self._files is not None:
            self._filed = position
            await asyncio.to_thread(self._file_kept, self._files, position)
        return made

    async def make_file(self) -> None:
        """Keep the cell as it is now in a file alone. What is in the way is logged."""
        if self._files is None:
            return
        async with self._one_at_a_time:
            body, position, at = await self._encoded()
            self._filed = position
            await asyncio.to_thread(self._file_young, self._files, body, position, at)

    async def make_if_changed(self, reason: str) -> None:
        """Keep the cell unless the latest checkpoint is of this very position, or there is no room for it."""
        async with self._one_at_a_time:
            if self.has_room and (self.latest is None or self.latest.position != self._core.cell.position):
                await self._made(reason)

    async def kept(self) -> list[CheckpointView]:
        """Return what is kept, newest first."""
        views = [checkpoint_view(info) for info in await self._turn.in_store(self._store.checkpoints)]
        self.latest = views[0] if views else None
        return views

    async def _encoded(self) -> tuple[bytearray, int, float]:
        await self._turn.durable()
        body = encode_snapshot(self._core.cell.snapshot())
        return body, self._core.cell.position, self._clock.now().wall

    def _file_kept(self, files: CheckpointFiles, position: int) -> None:
        try:
            info, stored = self._store.checkpoint_body(position)
        except BorgishError as error:  # it may have been deleted meanwhile
            log.warning("the checkpoint at %d is in no file: %s", position, error)
        else:
            _write(files, info, stored)

    def _file_young(self, files: CheckpointFiles, body: bytearray, position: int, at: float) -> None:
        stored = compress(body)
        _write(files, CheckpointInfo(position, at, "a young cell", sha256_of(stored), len(stored)), stored)


def _write(files: CheckpointFiles, info: CheckpointInfo, stored: bytes) -> None:
    try:
        files.write(info, stored)
    except (OSError, BorgishError) as error:  # those of before stay, and the next one is due in time
        log.error("the checkpoint at %d cannot be kept in %s: %s", info.position, files.folder, error)


def checkpoint_view(info: CheckpointInfo, problem: str = "") -> CheckpointView:
    """Return a checkpoint as it is shown."""
    at = instant(info.at)
    return CheckpointView(info.position, at, info.reason, info.bytes, info.sha256, info.name, problem)
