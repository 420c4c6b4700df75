"""An exported checkpoint, and the journal after it where the file has that, read as a store is."""

from bisect import bisect_left, bisect_right
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
        begin = bisect_right(self._after, after, key=lambda entry: entry.position)
        return self._after[begin : begin + limit if limit else None]

    def entries_before(self, before: int, limit: int) -> Iterable[Entry]:
        """Return entries next below a position, newest first."""
        end = bisect_left(self._after, before, key=lambda entry: entry.position)
        return self._after[max(0, end - limit) : end][::-1]

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the one there is."""
        return [self._info]

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return it with its body. Raises NotFound."""
        if position != self._info.position:
            raise NotFound(f"no checkpoint is at position {position}", f"The file's is {self._info.position}")
        return self._info, self._stored
