"""Checkpoints as files: copies beside an SQLite database, and files that are imported.

What is in the database is lost with it, and all of a young one may be in the write-ahead log alone. So copies
are kept beside it, in the format of exports. A file is written after its position is durable, so a database
whose journal ends before that position has lost something.

A master starts from the newest checkpoint and the journal after it. One of another history, of a database
that was restored from a backup, say, would make a cell that never was. So what is imported is compared with
this cell as it was at that position, or else what follows from it with the next good checkpoint.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from borgish.cell.model import Cell, Snapshot
from borgish.durable import open_private, sync
from borgish.errors import BorgishError, Conflict, Gone, Invalid, StoreDamaged, UnsafeConfiguration
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import RestorePoint, info_of, is_good, verified_snapshot
from borgish.store.replay import HistorySource, cell_at, roll_forward
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint, unpack_checkpoint

FILES_KEPT = 3
NOT_REPLAYED = "history after it is not kept"
_SUFFIX, _DRAFT = ".checkpoint", ".draft"


class CheckpointFiles:
    """The copies beside one database, in the folder ``cell.checkpoints`` for ``cell.db``."""

    def __init__(self, database: Path, cell: str) -> None:
        self.folder = database.with_suffix(".checkpoints")
        self._cell = cell

    def positions(self) -> list[int]:
        """Return the positions of the files that exist, newest first; they are not read."""
        found = (path.stem for path in self.folder.glob(f"*{_SUFFIX}"))
        return sorted((int(stem) for stem in found if stem.isascii() and stem.isdecimal()), reverse=True)

    def path(self, position: int) -> Path:
        """Return the file of a position."""
        return self.folder / f"{position}{_SUFFIX}"

    def good(self, after: int = 0) -> Iterator[RestorePoint]:
        """Yield the good ones above a position, newest first. Only as many are read as are taken."""
        for position in self.positions():
            if position <= after:
                return
            path = self.path(position)
            try:
                header, stored = unpack_checkpoint(path.read_bytes())
                info = info_of(header)
                verified_snapshot(self._cell, info, stored)
            except (OSError, BorgishError):
                continue
            yield RestorePoint(header.position, stored, info, str(path))

    def write(self, info: CheckpointInfo, stored: bytes) -> None:
        """Write a checkpoint's file, durably, and remove all but the newest ``FILES_KEPT``.

        It gets its name when it is complete and was read back. Raises OSError, and StoreDamaged when it does
        not read back as written; the files from before are kept then.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for abandoned in self.folder.glob(f"*{_DRAFT}"):  # by a master that was killed
            abandoned.unlink()
        draft = self.path(info.position).with_suffix(_DRAFT)
        header = CheckpointHeader(
            self._cell, info.position, info.at, info.reason, info.name, info.bytes, info.sha256
        )
        try:
            with open(draft, "wb", opener=open_private) as file:
                file.write(pack_checkpoint(header, stored))
                file.flush()
                os.fsync(file.fileno())
            unpack_checkpoint(draft.read_bytes())
            draft.replace(self.path(info.position))
        finally:
            draft.unlink(missing_ok=True)
        sync(self.folder)
        sync(self.folder.parent)
        for position in self.positions()[FILES_KEPT:]:
            self.path(position).unlink()


def check_import(source: HistorySource, cell: str, info: CheckpointInfo, stored: bytes, head: int) -> str:
    """Check that a checkpoint from outside is of this cell's own history; return ``NOT_REPLAYED`` or "".

    ``head`` is the journal's last position. Blocks; may run in a thread. Raises Invalid for what is no good
    checkpoint, and Conflict for one of another version, another cell or another history, or with which
    nothing here can be compared.
    """
    try:
        snapshot = verified_snapshot(cell, info, stored)
    except StoreDamaged as error:
        raise Invalid(error.message, error.hint) from error
    except UnsafeConfiguration as error:
        raise Conflict(error.message, error.hint) from error
    if info.position > head:
        raise Conflict(
            f"The checkpoint is at position {info.position}, and this journal ends at {head}",
            "It is of a history that this cell does not have: `fauxmaster show FILE` opens it",
        )
    try:
        _check_same(snapshot, cell_at(source, cell, info.position).cell.snapshot())
    except Gone:
        return _compare_with_next(source, cell, snapshot)
    return ""


def _compare_with_next(source: HistorySource, cell: str, snapshot: Snapshot) -> str:
    """Compare what follows from the checkpoint with the next good one, where the journal goes on from it."""
    first = next(iter(source.entries(0, 1)))  # without any, nothing would be gone
    if first.position > snapshot.position + 1:
        return NOT_REPLAYED
    for later in reversed(source.checkpoints()):
        if later.position > snapshot.position:
            stored = source.checkpoint_body(later.position)[1]
            if is_good(cell, later, stored):
                found = roll_forward(source, Cell(snapshot), later.position)
                _check_same(found.snapshot(), verified_snapshot(cell, later, stored))
                return ""
    raise Conflict(
        f"Nothing kept here can be compared with the checkpoint at {snapshot.position}",
        "`borgctl checkpoint create` makes one that can; then import it again",
    )


def _check_same(imported: Snapshot, known: Snapshot) -> None:
    """Compare a record at a time, so that other threads run in between. Raises Conflict."""
    same = all(_same(getattr(imported, name), getattr(known, name)) for name in Snapshot.__struct_fields__)
    if not same:
        raise Conflict(
            f"The checkpoint at {imported.position} is of another history: this cell was different then",
            "Its database may have been restored from a backup since: `fauxmaster show FILE` opens it",
        )


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(value == other[key] for key, value in one.items())
    return one == other
