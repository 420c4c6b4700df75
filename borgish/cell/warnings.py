"""Warnings about a job that is accepted all the same, for whoever submits it.

Machines and other jobs come and go, so that an attribute that no machine has, or a place that no task can
have, may be right tomorrow. Most often it is a mistake. Warnings are journalled with the answer, each on a
line of its own, so that the same request gets them again.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from borgish.cell.state import Cell
from borgish.spec.constraints import contradiction, contradiction_words
from borgish.spec.job import MACHINE, Affinity, Constraint, JobSpec
from borgish.spec.mistakes import resource_typos

_ATTRIBUTES_SHOWN = 8
_MET_WITHOUT = ("!=", "not in", "not present")  # a machine without the attribute meets these


def job_warnings(cell: Cell, spec: JobSpec) -> tuple[str, ...]:
    """Return the warnings, a sentence without its full stop each."""
    return tuple(_warnings(cell, spec))


def unknown_attribute(attribute: str, known: Iterable[str]) -> str:
    """Return that no machine has an attribute, and which is meant, or which there are."""
    names = sorted(known)
    near = get_close_matches(attribute, names, 1)
    more = ", ..." * (len(names) > _ATTRIBUTES_SHOWN)
    there = f"there are {', '.join(names[:_ATTRIBUTES_SHOWN])}{more}" if names else "there are none at all"
    return f"no machine has the attribute '{attribute}'; {f'did you mean {near[0]}?' if near else there}"


def _warnings(cell: Cell, spec: JobSpec) -> Iterator[str]:
    if words := contradiction_words(spec.constraints):
        yield words
    for term in (*spec.near, *spec.apart):
        if contradictory := contradiction(term.labels):
            yield f"no labels can match {' and '.join(map(str, contradictory))}"
    machines = cell.machines.values()
    for name in dict.fromkeys(_attributes_of(spec)):
        if machines and not any(name in machine.attributes for machine in machines):
            yield unknown_attribute(name, {each for machine in machines for each in machine.attributes})
    for name, text in resource_typos(spec):
        if not any(name in machine.capacity.named for machine in machines):
            yield text


def _attributes_of(spec: JobSpec) -> Iterator[str]:
    """Yield the attributes that some machine should have for the job to mean what it says."""
    conditions: list[Constraint] = [*spec.constraints, *(each.when for each in spec.prefer)]
    yield from (each.attribute for each in conditions if each.op not in _MET_WITHOUT)
    terms: list[Affinity] = [*spec.near, *spec.apart]
    over = [*(each.over for each in spec.spread), *(each.over for each in terms)]
    yield from (name for name in over if name != MACHINE)
