"""Checkpoints of the running cell: how they are made, what is kept of them, and the journal behind them.

``Checkpointer`` makes them: encoded between turns, a few records at a time, and written beside them. On
SQLite the newest are in files as well (``store.checkpoint_files``), and a young cell is kept in files alone
each time that its journal has doubled: all of it may be in SQLite's log still. One that is large already, as
after an import, waits for some more entries each time.

``CheckpointReader`` lists and shows them, on a standby, too; ``CheckpointKeeper`` verifies, exports, imports
and deletes them as well, and prunes the journal up to one. All of it is done beside the loop and beside the
store's own thread, one at a time, and what is in a checkpoint is read in a process of its own
(``checkpoint_contents.py``) or a record at a time: turns go on meanwhile.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from borgish.cell.events import Entry, follows
from borgish.cell.free_space import Level, check_ample
from borgish.clock import Clock
from borgish.errors import BorgishError, Conflict, Gone, Invalid, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.master.core import Core
from borgish.master.past.checkpoint_contents import inspect_checkpoint, packed
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.store.base import CheckpointInfo, Store
from borgish.store.checkpoint_files import CheckpointFiles, check_import
from borgish.store.codec import compress_pieces, pack_entries, sha256_of
from borgish.store.replay import earliest_position, entries_between
from borgish.store.sliced import ROUNDS_MAX, SlicedSnapshot
from borgish.text import instant
from borgish.vocabulary import CHECKPOINT_FILE_BYTES_MAX, CHECKPOINT_NAME_PATTERN
from borgish.wire.api import CheckpointView
from borgish.wire.api_past import CheckpointDetail, CheckpointVerdict, Imported
from borgish.wire.checkpoint_file import CheckpointHeader, unpack_checkpoint

T = TypeVar("T")
log = logging.getLogger("borgmaster")

SLICE_SECONDS = 0.003
"""A request takes several rounds of the loop, and waits for a slice in each."""
RECORDS_PER_ENTRY = 1_000
"""A file of a young cell waits for one entry more for each so many records of the cell."""
PRUNED_AT_ONCE = 1000
"""Entries; the store is held for them."""
GIVE_BACK_PAUSE_SECONDS = 0.02  # twice as long as a piece holds the store: it takes as long as it takes
_HEADER_BYTES_MAX = 4096
_NAME = re.compile(CHECKPOINT_NAME_PATTERN, re.ASCII)
_REASON_CHARACTERS_MAX = 200
_AT_MAX = 250_000_000_000.0  # seconds since 1970; the end of what a calendar can tell


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
        self._sliced: SlicedSnapshot | None = None  # while one is encoded
        # So that `latest` never goes back, and nobody removes the file that another is writing.
        self._one_at_a_time = asyncio.Lock()

    @property
    def has_room(self) -> bool:
        """Whether the store has room for what can wait."""
        return self._turn.free_space.level is Level.AMPLE

    def is_due(self, every_entries: int) -> bool:
        """Return whether the journal has grown so much since the last one that another is wanted."""
        return self._core.cell.position - self._tried >= every_entries and self.has_room

    @property
    def is_file_due(self) -> bool:
        """Whether the journal is twice as long as at the newest file, and worth what a file takes."""
        # From the first entry on, until a checkpoint is due: as many files as 50,000 has binary digits.
        cell = self._core.cell
        more = max(self._filed, (len(cell.jobs) + len(cell.machines)) // RECORDS_PER_ENTRY)
        is_grown = cell.position >= (self._filed + more if self._filed else 1)
        return self._files is not None and is_grown and self.has_room

    async def make(self, reason: str, name: str = "") -> CheckpointView:
        """Keep the cell as it is now, under a name if one is given.

        Turns wait while some records are encoded and while its row is written, not while these are put
        together and compressed.
        Raises Conflict for a name that is taken, and StoreFull.
        """
        async with self._one_at_a_time:
            return await self._made(reason, name)

    async def _made(self, reason: str, name: str = "") -> CheckpointView:
        check_ample(self._turn.free_space)
        reach("checkpoint.begin")
        body, position, at = await self._encoded()
        reach("checkpoint.encoded")
        self._tried = position
        stored = await asyncio.to_thread(compress_pieces, body)
        info = await asyncio.to_thread(self._store.save_checkpoint, stored, position, at, reason, name)
        made = self.latest = checkpoint_view(info)
        reach("checkpoint.noted")
        if self._files is not None:
            self._filed = position
            await asyncio.to_thread(_write, self._files, info, stored)
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

    async def _encoded(self) -> tuple[Iterator[bytes], int, float]:
        sliced = self._sliced = SlicedSnapshot(self._core.cell)
        try:
            most, rounds = 0, 0
            while rounds < ROUNDS_MAX:
                sliced.encode_some(partial(self._is_before, self._clock.now().mono + SLICE_SECONDS))
                if sliced.is_nearly_done:
                    break
                rounds += sliced.reached <= most
                most = max(most, sliced.reached)
                await asyncio.sleep(0)
            await self._turn.durable()
            return sliced.finish(), self._core.cell.position, self._clock.now().wall
        finally:
            self._sliced = None

    def _is_before(self, mono: float) -> bool:
        return self._clock.now().mono <= mono

    def released(self, step: Step) -> None:
        """Take notice of a step that is durable."""
        if self._sliced is not None:
            self._sliced.note(step.entries, step.touched)

    def _file_young(self, files: CheckpointFiles, body: Iterator[bytes], position: int, at: float) -> None:
        stored = compress_pieces(body)
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


class CheckpointReader:
    """Looks at the checkpoints of one cell in one store, of a running master or of one that stands by."""

    def __init__(self, cell: str, store: Store) -> None:
        self._cell = cell
        self._store = store
        self._one_at_a_time = asyncio.Lock()
        self._logged_damaged: set[str] = set()  # the damaged that the log has named

    async def listed(self) -> list[CheckpointView]:
        """Return what is kept, newest first, and of each whether its body is as it was written."""
        return await self._beside(lambda: [self._compared(info) for info in self._store.checkpoints()])

    def _compared(self, info: CheckpointInfo) -> CheckpointView:
        try:
            found, stored = self._store.checkpoint_body(info.position)
        except NotFound:  # it went meanwhile
            return checkpoint_view(info)
        if sha256_of(stored) == found.sha256:
            return checkpoint_view(found)
        problem = "its SHA-256 does not match: it was torn or altered"
        self._name(found, problem)
        return checkpoint_view(found, problem)

    def _name(self, info: CheckpointInfo, problem: str) -> None:
        if info.sha256 not in self._logged_damaged:
            self._logged_damaged.add(info.sha256)
            log.warning("the checkpoint at %d cannot be used: %s", info.position, problem)

    async def detail(self, position: int) -> CheckpointDetail:
        """Look into a checkpoint; one that is not good says what is wrong. Raises NotFound, as all here."""
        return await self._beside(lambda: self._inspect(position))

    async def _beside(self, work: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            return await asyncio.to_thread(work)

    def _inspect(self, position: int) -> CheckpointDetail:
        info, stored = self._store.checkpoint_body(position)
        found = inspect_checkpoint(self._cell, info, stored)
        if found.problem:
            self._name(info, found.problem)
        return CheckpointDetail(checkpoint_view(info), found.contents, found.problem)


class CheckpointKeeper(CheckpointReader):
    """Looks after the checkpoints of a running master's cell."""

    def __init__(self, cell: str, store: Store, checkpointer: Checkpointer) -> None:
        super().__init__(cell, store)
        self._checkpointer = checkpointer

    async def listed(self) -> list[CheckpointView]:
        """Return what is kept; see ``CheckpointReader``."""
        await self._checkpointer.kept()
        return await super().listed()

    async def verify(self, position: int) -> CheckpointVerdict:
        """Say whether a checkpoint is good."""
        return verdict(await self.detail(position))

    async def file(self, position: int, until: int = 0) -> bytes:
        """Return a checkpoint as it is kept outside of the cell, with the journal from there ``until`` a
        position; 0: without. Raises Gone where the journal does not go on from it, and TooLarge."""
        return await self._beside(lambda: self._packed(position, until))

    async def delete(self, position: int, actor: str) -> CheckpointView:
        """Let go of a checkpoint. Raises Conflict for the last good one."""
        gone = await self._beside(lambda: self._store.delete_checkpoint(position, self._is_good))
        log.info("%s deleted the checkpoint at %d, sha256 %s", actor, gone.position, gone.sha256)
        await self._checkpointer.kept()
        return checkpoint_view(gone)

    async def take_in(self, file: bytes, name: str, head: int, actor: str) -> Imported:
        """Keep a checkpoint that was exported, under a name. Raises Invalid and Conflict.

        ``head`` is the last position of the journal. Without a name it has the one it was exported with.
        """
        header, stored = _unpacked(file)
        if header.cell != self._cell:
            raise Conflict(
                f"The checkpoint is of cell '{header.cell}', not of '{self._cell}'",
                "Ask that cell's master; `fauxmaster show FILE` opens it anywhere",
            )
        info = _info_of(header, name)
        text = await self._beside(lambda: self._take_in(info, stored, head))
        log.info("%s imported the checkpoint at %d, sha256 %s", actor, info.position, info.sha256)
        await self._checkpointer.kept()
        return Imported(checkpoint_view(info), text)

    def _take_in(self, info: CheckpointInfo, stored: bytes, head: int) -> str:
        try:
            text = check_import(self._store, self._cell, info, stored, head)
        except StoreDamaged as error:
            raise Conflict(error.message, error.hint) from error
        self._store.import_checkpoint(info, stored)
        return text

    async def prune(self, until: float) -> int:
        """Let go of the journal up to a moment (seconds since 1970), but only below the newest good
        checkpoint of before.

        Returns how many entries went.
        """
        base = await self._beside(lambda: self._base(until))
        if base is None:
            return 0
        gone = 0
        while pruned := await self._beside(partial(self._store.prune_journal, base.position, PRUNED_AT_ONCE)):
            gone += pruned
            await self._beside(self._store.give_back)  # now, while few pages are free: each costs less then
        log.info("the journal begins at %d now: %d entries before it were pruned", base.position, gone)
        return gone

    async def give_back(self) -> int:
        """Shorten the database where much of it lies free; return by how many bytes."""
        given = 0
        while piece := await self._beside(self._store.give_back):
            given += piece
            await asyncio.sleep(GIVE_BACK_PAUSE_SECONDS)
        if given:
            log.info("the database is shorter by %.0f MiB, which lay free in it", given / 2**20)
        return given

    def _base(self, until: float) -> CheckpointInfo | None:
        """Return the checkpoint up to which the journal may go; None when nothing may."""
        first = next(iter(self._store.entries(0, 1)), None)
        for info in self._store.checkpoints():
            if first is None or info.position <= first.position:
                return None
            if self._written(info) <= until and self._is_good(*self._store.checkpoint_body(info.position)):
                return info
        return None

    def _written(self, info: CheckpointInfo) -> float:
        """Return when the last entry in it was written; what an imported one says is not trusted."""
        entry = next(iter(self._store.entries(info.position - 1, 1)), None)
        return entry.at if entry is not None else info.at

    def _is_good(self, info: CheckpointInfo, stored: bytes) -> bool:
        return inspect_checkpoint(self._cell, info, stored).contents is not None

    def _packed(self, position: int, until: int) -> bytes:
        info, stored = self._store.checkpoint_body(position)
        if not until:
            return packed(self._cell, info, stored)
        bytes_max = CHECKPOINT_FILE_BYTES_MAX - info.bytes - _HEADER_BYTES_MAX
        return packed(self._cell, info, stored, pack_entries(self._after(position, until), bytes_max))

    def _after(self, position: int, until: int) -> Iterator[Entry]:
        """Yield the journal after a position, a page at a time: the store is held no longer."""
        at = position
        for entry in entries_between(self._store, position, until):
            if not follows(entry, at):
                raise Gone(
                    f"the journal after the checkpoint at {position} is no longer kept",
                    f"The earliest position is {earliest_position(self._store)}; or export it without",
                )
            at = entry.position
            yield entry


def _unpacked(file: bytes) -> tuple[CheckpointHeader, bytes]:
    try:
        return unpack_checkpoint(file)
    except StoreDamaged as error:
        raise Invalid(error.message, error.hint) from error
    except UnsafeConfiguration as error:
        raise Conflict(error.message, error.hint) from error


def _info_of(header: CheckpointHeader, name: str) -> CheckpointInfo:
    """Return what is kept of an imported one. What it says of itself was not checked by any hash."""
    name = name or (header.name if _NAME.fullmatch(header.name) else "") or f"imported-{header.position}"
    if header.position < 0 or not 0 <= header.at < _AT_MAX:
        raise Invalid("The checkpoint's header is invalid", "Export it again")
    reason = f"imported: {header.reason}"[:_REASON_CHARACTERS_MAX]
    return CheckpointInfo(header.position, header.at, reason, header.sha256, header.bytes, name)


def verdict(detail: CheckpointDetail) -> CheckpointVerdict:
    """Return in a sentence what was found in a checkpoint."""
    kept, found = detail.checkpoint, detail.contents
    if found is None:
        return CheckpointVerdict(kept.position, kept.name, good=False, text=detail.problem)
    text = f"good: machines {found.machines}, jobs {found.jobs}, tasks {found.tasks}"
    return CheckpointVerdict(kept.position, kept.name, good=True, text=text)
