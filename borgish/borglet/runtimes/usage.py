"""What runs use: from their control groups, or added up over their processes where they have none."""

import msgspec

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.folders import Record
from borgish.borglet.runtimes.members import members
from borgish.borglet.runtimes.processes import TICKS_PER_SECOND, Process, private_bytes, snapshot


class Used(msgspec.Struct, frozen=True):
    """What a run has used up to a moment (``mono``, seconds), and the memory it holds."""

    mono: float
    cpu_seconds: float
    ram_bytes: int

    def cpu_millis_since(self, before: "Used") -> int:
        """Return the mean cpu use since then, in thousandths of a core."""
        seconds = self.mono - before.mono
        return max(0, round((self.cpu_seconds - before.cpu_seconds) * 1000 / seconds)) if seconds > 0 else 0


def measure(records: dict[str, Record], mono: float) -> dict[str, Used]:
    """Return what the runs have used, by attempt; those that are gone are left out. Reads files."""
    found = {}
    processes: dict[int, Process] | None = None
    for key, record in records.items():
        if record.groups:
            used = cgroups.used(folder for folder, _ in record.groups)
        else:
            processes = processes or snapshot()
            used = _added_up(record, processes)
        if used:
            found[key] = Used(mono, *used)
    return found


def _added_up(record: Record, processes: dict[int, Process]) -> tuple[float, int]:
    found = members(record, processes)
    ticks = sum(process.own_ticks + process.reaped_ticks for process in found.values())
    if shim := processes.get(record.shim):
        ticks += shim.reaped_ticks  # of programs that ended as its children
    return ticks / TICKS_PER_SECOND, sum(map(private_bytes, found))
