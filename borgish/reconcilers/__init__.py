"""Compare what is (observed state) with what should be (desired state), and ask for what is missing. One
control loop a file, as in Kubernetes' controller manager.

Each is a pure function ``reconcile(cell, observed, settings, now) -> commands``. It acts on what it reads,
not on what changed: called again without a change it asks for nothing.

``RECONCILERS`` says when each runs. What follows from time or silence wakes nobody, and what has a rate needs
a pace: both wait for a resync, once a second (``master/core.py: RESYNC_SECONDS``). Only what is urgent runs
at every step.

The order matters: a machine's state is settled before the tasks on it are evaluated, what a rollback wants of
tasks before they are placed, and tasks before the jobs they belong to. Of the reasons to leave a machine,
that it is down comes first. What fails is held before it is placed again. What ends with its parent does
not start, and what starts after other jobs is placed by the same step.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from borgish.cell.command import Command
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers import (
    crons,
    drains,
    failing,
    handovers,
    jobs,
    leases,
    machines,
    max_failures,
    order,
    parents,
    rollout,
    stranded,
    suitability,
    taints,
)
from borgish.reconcilers.settings import ReconcileSettings

Reconcile: TypeAlias = Callable[[Cell, Observed, ReconcileSettings, Now], Iterable[Command]]


class Reconciler(NamedTuple):
    """One loop: under ``name`` its decisions stand in the journal. It runs ``at_resync``, and what it does at
    the steps ``between`` two of them is None for most."""

    name: str
    at_resync: Reconcile
    between: Reconcile | None = None


RECONCILERS: tuple[Reconciler, ...] = (
    Reconciler("machines", machines.reconcile),
    Reconciler("stranded", stranded.reconcile),
    Reconciler("taints", taints.reconcile),
    Reconciler("drains", drains.reconcile),
    Reconciler("suitability", suitability.reconcile),
    Reconciler("rollout", rollout.reconcile, between=rollout.reconcile_hurried),
    Reconciler("handovers", handovers.reconcile),
    Reconciler("leases", leases.reconcile),
    Reconciler("failing", failing.reconcile),
    Reconciler("max_failures", max_failures.reconcile),
    Reconciler("parents", parents.reconcile, between=parents.reconcile),
    Reconciler("order", order.reconcile, between=order.reconcile_between),
    Reconciler("crons", crons.reconcile, between=crons.reconcile_between),
    Reconciler("jobs", jobs.reconcile),
)
"""In the order in which they run."""
