"""An exported checkpoint, and the journal after it where the file has that, read as a store is."""

from collections.abc import Iterable, Sequence

from borgish.cell.events import Entry
from borgish.errors import NotFound
from borgish.store.base import CheckpointInfo


class Exported:
    """One checkpoint and what followed. See ``store.moment.Source``."""

    def __init__(self, info: CheckpointInfo, stored: bytes, after: Sequence[Entry] = ()) -> None:
        self._info = info
        self._stored = stored
        self._after = after

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]:
        """Return entries above a position, in order."""
        found = [entry for entry in self._after if entry.position > after]
        return found[:limit] if limit else found

    def entries_before(self, before: int, limit: int) -> Iterable[Entry]:
        """Return entries next below a position, newest first."""
        return [entry for entry in reversed(self._after) if entry.position < before][:limit]

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the one there is."""
        return [self._info]

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return it with its body. Raises NotFound."""
        if position != self._info.position:
            raise NotFound(f"no checkpoint is at position {position}", f"The file's is {self._info.position}")
        return self._info, self._stored
