"""The snapshot of a cell that goes on changing, encoded a few records at a time.

Its jobs and machines, which are nearly all of it, are encoded one by one, between turns; what is touched
after that, again. In the end little is left to be encoded while nothing may change. What is put together
after that, beside the turns, is byte for byte what ``codec.encode_snapshot`` makes of the cell at that
moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any

from borgish.cell.events import Entry
from borgish.cell.model import Cell
from borgish.cell.touched import Touched
from borgish.store.codec import encode_in_pieces, encode_record, encode_snapshot

LEFT_TASKS_MAX = 5_000
"""What is left may be encoded at the end: some 2 ms."""
ROUNDS_MAX = 50
"""In which no further record was reached: where large jobs change all the time, the end is not waited for."""


class SlicedSnapshot:
    """Whoever makes one tells it of each step from then on, until ``finish``; who leaves one out has the cell
    encoded at once."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._position = cell.position  # up to which it has been told
        self._machines = _Encoded(cell.machines)
        self._jobs = _Encoded(cell.jobs)

    def note(self, entries: Sequence[Entry], touched: Touched) -> None:
        """Note a step: what it wrote to."""
        for entry in entries:
            if entry.position == self._position + 1:
                self._position = entry.position
        for keys in (touched.jobs, touched.tasks, touched.jobs_gone):
            self._jobs.note(keys)
        for names in (touched.machines, touched.machines_gone):
            self._machines.note(names)

    @property
    def is_nearly_done(self) -> bool:
        """Whether what is left takes no longer than somebody may be held up."""
        if self._machines.unreached + self._jobs.unreached > LEFT_TASKS_MAX:
            return False  # known at once, while that is asked after each slice
        jobs, left = self._cell.jobs, len(self._machines.left(LEFT_TASKS_MAX + 1))
        for key in self._jobs.left(LEFT_TASKS_MAX + 1):
            left += 1 + (len(jobs[key].tasks) if key in jobs else 0)
            if left > LEFT_TASKS_MAX:
                return False
        return left <= LEFT_TASKS_MAX

    @property
    def reached(self) -> int:
        """How many records have been encoded at least once, and are still there as far as is known."""
        return len(self._jobs.made) + len(self._machines.made)

    def encode_some(self, has_time: Callable[[], bool]) -> None:
        """Encode records as long as there is time, and one at least."""
        for encoded in (self._machines, self._jobs):
            while encoded.encode_next():
                if not has_time():
                    return

    def finish(self) -> Iterator[bytes]:
        """Return the cell as it is now, as bytes that are not yet compressed, in pieces.

        They may be taken later, and by another thread. This is over then: nothing is noted any more.
        """
        if self._position != self._cell.position:
            return iter([bytes(encode_snapshot(self._cell.snapshot()))])
        self.encode_some(lambda: True)
        # In the order in which the cell has them, which is the order in which it is read again.
        encoded = {"jobs": self._jobs.made, "machines": self._machines.made}
        return encode_in_pieces(self._cell.snapshot(), encoded)


class _Encoded:
    """Records of one kind by key, of which some are encoded."""

    def __init__(self, records: dict[str, Any]) -> None:
        self._records = records
        self._unreached = list(reversed(records))
        # In order: what is touched often is left to the end. A dict would look through all that was taken out
        # of it, each time, for the first that is left.
        self._touched = OrderedDict[str, None]()
        self.made: dict[str, bytes] = {}

    def note(self, keys: Collection[str]) -> None:
        self._touched.update(dict.fromkeys(sorted(keys)))

    @property
    def unreached(self) -> int:
        """How many keys were there from the first and have not been encoded."""
        return len(self._unreached)

    def left(self, most: int) -> list[str]:
        """Return keys of what is not encoded as it is now; of more than so many, so many."""
        return [*self._unreached[-most:], *islice(self._touched, most)]

    def encode_next(self) -> bool:
        """Encode one that is not as it is now; return whether there was one."""
        if self._unreached:
            key = self._unreached.pop()
        elif self._touched:
            key = self._touched.popitem(last=False)[0]
        else:
            return False
        record = self._records.get(key)
        if record is None:
            self.made.pop(key, None)
        else:
            self.made[key] = encode_record(record)
        return True
