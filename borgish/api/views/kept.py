"""The place that is kept for a waiting task on a machine, and who has yet to leave it."""

from borgish.cell.model import Task
from borgish.cell.observed import Observed
from borgish.cell.state import Cell

LEAVING_SHOWN = 3


def place_kept(cell: Cell, observed: Observed, task: Task) -> str:
    """Return ``place kept on m3 until ann/x/0 has ended``."""
    kept = f"place kept on {task.promised}"
    if not observed.known:
        return f"{kept} while others left it"
    leaving = _leaving(cell, observed, task.promised)
    if not leaving:
        return f"{kept}, where nobody is left to leave: it goes there at the next look"
    more = len(leaving) - LEAVING_SHOWN
    shown = [*leaving[:LEAVING_SHOWN], *([f"{more} more"] if more > 0 else [])]
    names = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return f"{kept} until {names} {'has' if len(leaving) == 1 else 'have'} ended"


def _leaving(cell: Cell, observed: Observed, machine: str) -> list[str]:
    """Return the tasks with attempts that should not be on a machine any more, and are."""
    seen = observed.machines.get(machine)
    attempts = seen.attempts.items() if seen else ()
    return sorted(
        {name for (name, n), each in attempts if each.ended is None and not cell.is_current(machine, name, n)}
    )
