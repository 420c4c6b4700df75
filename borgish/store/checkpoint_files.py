"""Checkpoints as files beside an SQLite database, in the format of exports: they outlive it and its log.

What is in the database is lost with it, and all of a young one may be in the log that SQLite writes first.
Each file is complete and read back before it has its name, and the older ones go only then.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from borgish.durable import sync
from borgish.errors import BorgishError
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import Start, info_of, verified_snapshot
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint, unpack_checkpoint

KEPT = 3
_SUFFIX, _DRAFT = ".checkpoint", ".draft"


class CheckpointFiles:
    """Those of one database."""

    def __init__(self, database: Path, cell: str) -> None:
        self.folder = database.with_suffix(".checkpoints")
        self._cell = cell

    def positions(self) -> list[int]:
        """Return the positions of those that are there, newest first; what is in them was not looked at."""
        found = (path.stem for path in self.folder.glob(f"*{_SUFFIX}"))
        return sorted((int(stem) for stem in found if stem.isascii() and stem.isdecimal()), reverse=True)

    def path(self, position: int) -> Path:
        """Return the file of a position."""
        return self.folder / f"{position}{_SUFFIX}"

    def good(self, after: int = 0) -> Iterator[Start]:
        """Yield those above a position that are good, newest first, to go on from; only these are read."""
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
            yield Start(header.position, stored, info, str(path))

    def write(self, info: CheckpointInfo, stored: bytes) -> None:
        """Keep a checkpoint, durably, and let go of all but the newest. Raises OSError, and StoreDamaged
        when it does not read back as it was; those that were there are kept then."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for left in self.folder.glob(f"*{_DRAFT}"):  # by one that was killed
            left.unlink()
        draft = self.path(info.position).with_suffix(_DRAFT)
        header = CheckpointHeader(
            self._cell, info.position, info.at, info.reason, info.name, info.bytes, info.sha256
        )
        try:
            with open(draft, "wb", opener=_for_its_user) as file:
                file.write(pack_checkpoint(header, stored))
                file.flush()
                os.fsync(file.fileno())
            unpack_checkpoint(draft.read_bytes())
            draft.replace(self.path(info.position))
        finally:
            draft.unlink(missing_ok=True)
        sync(self.folder)
        sync(self.folder.parent)
        for position in self.positions()[KEPT:]:
            self.path(position).unlink()


def _for_its_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
