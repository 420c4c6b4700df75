"""Whether a task may stay on its machine: constraints and attributes, tolerations and taints. Pure rules of
scheduler, reconcilers and views.

A task is placed where its hard constraints hold; the attributes of a machine can change after that.
"""

from collections.abc import Iterator

from borgish.cell.model import Machine, Taint
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec, Toleration
from borgish.vocabulary import TaintEffect

_FOR_GOOD = float("inf")


def unmet_constraints(spec: JobSpec, machine: Machine) -> Iterator[Constraint]:
    """Yield the hard constraints of a job that a machine does not meet."""
    return (each for each in spec.constraints if not matches(each, machine.attributes))


def why_unsuitable(spec: JobSpec, machine: Machine) -> str:
    """Return why tasks of a job should not stay on a machine, in words; "" when they may."""
    if not spec.constraints:
        return ""
    unmet = ", ".join(map(str, unmet_constraints(spec, machine)))
    return f"{machine.name} no longer meets {unmet}" if unmet else ""


def untolerated(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> Iterator[Taint]:
    """Yield the taints, of any effect, that none of the tolerations is for.

    A toleration that ends (``for_seconds``) counts; see ``evict_at`` for when it does.
    """
    for taint in taints:
        if not any(_is_for(toleration, taint) for toleration in tolerations):
            yield taint


def evict_at(
    tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...], placed_at: float = 0.0
) -> float | None:
    """Return when a task has to leave a machine with these taints, in seconds since 1970; None: never.

    What it tolerates for a while it tolerates from when taint and task are both there: one that is placed
    beside a taint long after that came may stay as long as any other.
    """
    evicting = (taint for taint in taints if taint.effect is TaintEffect.EVICT)
    ends = (_stays_until(tolerations, taint, placed_at) for taint in evicting)
    at = min(ends, default=_FOR_GOOD)
    return None if at == _FOR_GOOD else at


def _stays_until(tolerations: tuple[Toleration, ...], taint: Taint, placed_at: float) -> float:
    """Return until when the most patient of the tolerations lets a task stay beside a taint."""
    limits = [toleration.for_seconds for toleration in tolerations if _is_for(toleration, taint)]
    if not limits:
        return taint.since
    return max(taint.since, placed_at) + max(_FOR_GOOD if s is None else s for s in limits)


def _is_for(toleration: Toleration, taint: Taint) -> bool:
    return toleration.taint == taint.key and toleration.value in ("", taint.value)
