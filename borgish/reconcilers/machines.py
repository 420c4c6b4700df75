"""A machine that missed polls for too long is down, and one that is heard again is up (Kubernetes' NotReady,
Nomad's missed heartbeats).

Silence is judged on this master's own clock and only from the time that this master began to ask. A
report says at once that its machine is up (``cell/machines/decide.py``); here it is seen as well when there
is nothing new to report.

A host that refuses connections is alive: only its borglet is dead, and its tasks run. Such a machine is given
longer, for a borglet that is started again goes on with them. Each refusal is a sign of life of the host, so
when refusals turn to silence, the time of silence begins with the last of them. How long to wait is set for
the whole cell; Nomad sets it for each group (``max_client_disconnect``).

A machine that goes down again and again is quarantined for a time (``cell.flapping``), which ends here. While
half of the cell is unreachable, going down does not count towards that.

A step that comes late, by a slow commit or a stopped process, begins the count anew (``STALL_SECONDS`` of the
core): who judges silence has to doubt itself first.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    ReleaseMachine,
    SetMachineDown,
    SetMachineUp,
)
from borgish.cell.machines.flapping import is_over
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings, is_mass_failure


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Set machines down and up, and end quarantines."""
    at, recently = settings.steady_wall(now), now.mono - settings.down_after_seconds
    for name, machine in sorted(cell.machines.items()):
        seen = observed.machines.get(name)
        if machine.up and not machine.quarantined_until and seen is not None and seen.heard >= recently:
            continue  # most of them, which costs a tenth
        if machine.quarantined_until and is_over(machine, at):
            yield ReleaseMachine(name)
        if seen is None:
            continue
        if machine.up and settings.is_gone(seen, now):
            why = f" ({seen.trouble})" if seen.trouble else ""
            text = f"no answer for {now.mono - seen.answered:.0f} s{why}"
            yield SetMachineDown(name, text, 0.0 if is_mass_failure(cell, observed, settings, now) else at)
        elif not machine.up and seen.heard and now.mono - seen.heard < settings.down_after_seconds:
            yield SetMachineUp(name)
