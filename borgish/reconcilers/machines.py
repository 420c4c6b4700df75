"""A machine that missed polls for too long is down, and one that is heard again is up (Kubernetes' NotReady,
Nomad's missed heartbeats).

Silence is judged on this master's own clock and only from the time that this master began to ask. A
report says at once that its machine is up (``cell/decide_machines.py``); here it is seen as well when there
is nothing new to report.

A host that refuses connections is alive: only its borglet is dead, and its tasks run. Such a machine is given
longer, for a borglet that is started again goes on with them. Each refusal is a sign of life of the host, so
when refusals turn to silence, the time of silence begins with the last of them. How long to wait is set for
the whole cell; Nomad sets it for each group (``max_client_disconnect``).

A step that comes late, by a slow commit or a stopped process, begins the count anew (``STALL_SECONDS`` of the
core): who judges silence has to doubt itself first.
"""

from collections.abc import Iterator

from borgish.cell.commands import Command, SetMachineDown, SetMachineUp
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Set machines down and up."""
    for name, machine in sorted(cell.machines.items()):
        seen = observed.machines.get(name)
        if seen is None:
            continue
        if machine.up and settings.is_gone(seen, now):
            why = f" ({seen.trouble})" if seen.trouble else ""
            yield SetMachineDown(name, f"no answer for {now.mono - seen.answered:.0f} s{why}")
        elif not machine.up and seen.heard and now.mono - seen.heard < settings.down_after_seconds:
            yield SetMachineUp(name)
