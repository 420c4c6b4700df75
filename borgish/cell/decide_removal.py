"""May a machine be taken out of the cell, and what becomes of what it holds."""

from borgish.cell.commands import RemoveMachine
from borgish.cell.decision import Decision
from borgish.cell.events import MachineRemoved
from borgish.cell.evicting import evicted_as_lost
from borgish.cell.model import Machine
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Conflict, NotFound

SILENT_SECONDS = 10.0
"""What a machine that is down holds is given up when it was silent for so long under this master."""


def decide_removal(cell: Cell, observed: Observed, command: RemoveMachine, now: Now) -> Decision:
    """Let go of a machine that is down, or that holds nothing. Raises NotFound and Conflict.

    What the cell still wants of a machine that is down runs elsewhere; what runs there nobody stops then.
    """
    machine = cell.machines.get(command.machine)
    if machine is None:
        raise NotFound(
            f"there is no machine {command.machine}", "`borgctl machine list` shows those there are"
        )
    placed = cell.placed[machine.name]
    if machine.up:
        _expect_empty(cell, observed, machine)
    elif placed:
        _expect_silent(observed, machine, now)
    evicted = evicted_as_lost(cell, machine.name, "it was removed from the cell")
    return Decision((*evicted, MachineRemoved(machine.name)), machine.name, _said(machine, len(placed)))


def _expect_empty(cell: Cell, observed: Observed, machine: Machine) -> None:
    way_out = "Move them elsewhere and ask again, or stop its borglet and wait until it counts as down"
    if placed := len(cell.placed[machine.name]):
        raise Conflict(f"{machine.name} is up and runs {placed} task{'s' * (placed != 1)}", way_out)
    seen = observed.machines.get(machine.name)
    ending = sum(attempt.ended is None for attempt in seen.attempts.values()) if seen else 0
    if ending:
        raise Conflict(
            f"{machine.name} is up, and programs that should not run there have not ended: {ending}",
            "Ask again in a moment; `borgctl machine show` says what is wrong when they stay",
        )


def _expect_silent(observed: Observed, machine: Machine, now: Now) -> None:
    """Who leads now must have found it silent: the one before may have set it down, and it be back."""
    seen = observed.machines.get(machine.name)
    if seen is None or now.mono - max(seen.heard, seen.watched_since) < SILENT_SECONDS:
        raise Conflict(
            f"{machine.name} counts as down and holds tasks, but was not silent for {SILENT_SECONDS:g} s",
            "Ask again in some seconds: if it is down its tasks are moved, if it is not it is up again",
        )


def _said(machine: Machine, placed: int) -> str:
    if machine.up:
        return f"{machine.name} is removed; stop its borglet, or it joins again within a minute"
    moved = f": {placed} task{'s' * (placed != 1)} of it run elsewhere" if placed else ""
    return f"{machine.name} is removed{moved}; it joins again when its borglet comes back"
