"""A machine that was silent too long is down, and one that is heard again is up.

Silence is judged on this master's own clock and only from the time that this master began to ask. A
report says at once that its machine is up (``decide_report``); here it is seen as well when there is
nothing new to report.
"""

from collections.abc import Iterator

from borgish.cell.commands import Command, SetMachineDown, SetMachineUp
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(
    cell: Cell, observed: Observed, names: frozenset[str] | None, settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Set machines down and up. Only a resync can find silence, so a wake-up by name is not looked at."""
    if names is not None:
        return
    for name, machine in sorted(cell.machines.items()):
        seen = observed.machines.get(name)
        if seen is None:
            continue
        silent_seconds = now.mono - max(seen.heard, seen.watched_since)
        if machine.up and silent_seconds > settings.down_after_seconds:
            why = f" ({seen.trouble})" if seen.trouble else ""
            yield SetMachineDown(name, f"no answer for {silent_seconds:.0f} s{why}")
        elif not machine.up and seen.heard and now.mono - seen.heard < settings.down_after_seconds:
            yield SetMachineUp(name)
