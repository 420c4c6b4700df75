"""Whether a machine still is what the tasks on it asked for. Pure rules of reconcilers and views.

A task is placed where its hard constraints hold; the attributes of a machine can change after that.
"""

from collections.abc import Iterator

from borgish.cell.model import Machine
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec


def broken(spec: JobSpec, machine: Machine) -> Iterator[Constraint]:
    """Yield the hard constraints of a job that a machine does not meet."""
    return (each for each in spec.constraints if not matches(each, machine.attributes))


def objection(spec: JobSpec, machine: Machine) -> str:
    """Return why tasks of a job should not stay on a machine, in words; "" when they may."""
    unmet = ", ".join(map(str, broken(spec, machine)))
    return f"{machine.name} no longer meets {unmet}" if unmet else ""
