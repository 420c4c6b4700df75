"""Compare what is with what should be, and ask for what is missing. One loop a file.

Each is a pure function ``reconcile(cell, observed, names, settings, now) -> commands``. It acts on what
it reads, not on what changed: called again without a change it asks for nothing. ``names`` are those
woken by a change, jobs and machines alike; None, at each resync, means all.

The order matters: a machine's state is settled before the tasks on it are looked at, what a rollback wants
of tasks before they are placed, and tasks before the jobs they belong to. Of the reasons to leave a machine,
that it is down comes first.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from borgish.cell.commands import Command
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.reconcilers import jobs, machines, rollback, stranded, suitability, taints
from borgish.reconcilers.settings import ReconcileSettings

Reconciler: TypeAlias = Callable[
    [Cell, Observed, frozenset[str] | None, ReconcileSettings, Now], Iterable[Command]
]

RECONCILERS: tuple[tuple[str, Reconciler], ...] = (
    ("machines", machines.reconcile),
    ("stranded", stranded.reconcile),
    ("taints", taints.reconcile),
    ("suitability", suitability.reconcile),
    ("rollback", rollback.reconcile),
    ("jobs", jobs.reconcile),
)
"""In order, each with the name under which its decisions stand in the journal."""
