"""The snapshot of a cell that goes on changing, encoded a few records at a time.

Its jobs and machines, which are nearly all of it, are encoded one by one, between turns; what is touched
after that, again. In the end little is left to be encoded while nothing may change, and the result is byte
for byte what ``codec.encode_snapshot`` makes of the cell at that moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from borgish.cell.events import Entry
from borgish.cell.model import Cell
from borgish.cell.touched import Touched
from borgish.store.codec import encode_record, encode_snapshot

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
        self._jobs: dict[str, msgspec.Raw] = {}
        self._machines: dict[str, msgspec.Raw] = {}
        # In order: what is touched often is left to the end. A dict would look through all that was taken out
        # of it, each time, for the first that is left.
        self._jobs_left = OrderedDict[str, None].fromkeys(cell.jobs)
        self._machines_left = OrderedDict[str, None].fromkeys(cell.machines)

    def note(self, entries: Sequence[Entry], touched: Touched) -> None:
        """Note a step: what it wrote to."""
        for entry in entries:
            if entry.position == self._position + 1:
                self._position = entry.position
        for keys in (touched.jobs, touched.tasks, touched.jobs_gone):
            self._jobs_left.update(dict.fromkeys(sorted(keys)))
        for names in (touched.machines, touched.machines_gone):
            self._machines_left.update(dict.fromkeys(sorted(names)))

    @property
    def is_nearly_done(self) -> bool:
        """Whether what is left takes no longer than somebody may be held up."""
        jobs, left = self._cell.jobs, len(self._machines_left)
        for key in self._jobs_left:
            left += 1 + (len(jobs[key].tasks) if key in jobs else 0)
            if left > LEFT_TASKS_MAX:
                return False
        return left <= LEFT_TASKS_MAX

    @property
    def reached(self) -> int:
        """How many records have been encoded at least once, and are still there as far as is known."""
        return len(self._jobs) + len(self._machines)

    def encode_some(self, has_time: Callable[[], bool]) -> None:
        """Encode records as long as there is time, and one at least."""
        for left, records, made in (
            (self._machines_left, self._cell.machines, self._machines),
            (self._jobs_left, self._cell.jobs, self._jobs),
        ):
            while left:
                _encode(left.popitem(last=False)[0], records, made)
                if not has_time():
                    return

    def finish(self) -> bytearray:
        """Return the cell as it is now, as bytes that are not yet compressed."""
        if self._position != self._cell.position:
            return encode_snapshot(self._cell.snapshot())
        self.encode_some(lambda: True)
        # In the order in which the cell has them, which is the order in which it is read again.
        jobs: Any = {key: self._jobs[key] for key in self._cell.jobs}
        machines: Any = {name: self._machines[name] for name in self._cell.machines}
        return encode_snapshot(msgspec.structs.replace(self._cell.snapshot(), jobs=jobs, machines=machines))


def _encode(key: str, records: Any, made: dict[str, msgspec.Raw]) -> None:
    record = records.get(key)
    if record is None:
        made.pop(key, None)
    else:
        made[key] = msgspec.Raw(encode_record(record))
