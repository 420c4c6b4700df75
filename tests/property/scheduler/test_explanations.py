"""What refusals say on random cells, held against the plain answers: every figure and every name is true."""

import re

import msgspec
from hypothesis import event, given, settings

from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.resources import Resources, parse_bytes, parse_cpu_millis, parse_device_millis
from borgish.scheduler.plan import Refusal
from borgish.scheduler.schedule import Scheduler
from borgish.spec.constraints import contradiction, matches
from borgish.spec.job import JobSpec
from tests.profiles import examples
from tests.property.scheduler.random_cells import cells, fits, over, suits
from tests.unit.scheduler.cells import NOW, carry_out

LESS = re.compile(r"fits ([\d,]+) machines? with ((?:\w+ <= [^ ;]+(?: and )?)+)")
WITHOUT = re.compile(r"fits ([\d,]+) machines? without the constraint ([^;]+)")
THAT_IS = re.compile(r"would fit ([\d,]+) machines? that (?:is|are) (down|cordoned|drained)")


class Refused:
    """One refusal and the cell it was made in, the rest of the plan carried out."""

    def __init__(self, cell: Cell, observed: Observed, refusal: Refusal) -> None:
        self.cell, self.observed, self.refusal = cell, observed, refusal
        self.job = cell.jobs[refusal.job]
        self.index = refusal.indexes[0]
        self.needs = self.job.spec.needs(self.index)

    def fitting(self, spec: JobSpec) -> int:
        """Return how many machines would take the task if its job were like this."""
        job = msgspec.structs.replace(self.job, spec=spec)
        names = self.cell.machines
        return sum(fits(self.cell, self.observed, name, job, self.index, NOW.mono) for name in names)

    def with_needs(self, needs: Resources) -> JobSpec:
        return msgspec.structs.replace(self.job.spec, resources=needs, overrides={})


@settings(max_examples=examples(150))
@given(cells())
def test_what_is_said_is_true(drawn: tuple[Cell, Observed]) -> None:
    cell, observed = drawn
    plan = Scheduler().schedule(cell, observed, NOW)
    if plan.preemptions:  # the words are of after the pass, before anybody has left
        return
    carry_out(cell, plan)
    for refusal in (refusal for found in plan.refusals.values() for refusal in found):
        refused = Refused(cell, observed, refusal)
        check_possible(refused)
        check_less(refused)
        check_conditions(refused)
        check_waiting(refused)


def could_ever(cell: Cell, job: Job, needs: Resources, name: str) -> bool:
    """Return whether an empty machine that is up would take the task."""
    there = cell.machines[name]
    return (
        job.spec.runtime in there.runtimes
        and all(matches(each, there.attributes) for each in job.spec.constraints)
        and not over(there, needs, needs)
        and len(job.spec.ports) - len(job.spec.fixed_ports) <= there.ports_high - there.ports_low + 1
    )


def check_possible(refused: Refused) -> None:
    cell = refused.cell
    ever = any(could_ever(cell, refused.job, refused.needs, name) for name in cell.machines)
    contradictory = bool(contradiction(refused.job.spec.constraints))
    assert refused.refusal.impossible == (contradictory or (not ever and bool(cell.machines)))


def check_less(refused: Refused) -> None:
    for count, words in LESS.findall(refused.refusal.hint):
        event("less")
        changes: dict[str, int] = {}
        named, devices = dict(refused.needs.named), dict(refused.needs.devices)
        for part in words.split(" and "):
            name, amount = part.split(" <= ")
            match name:
                case "cpu":
                    changes["cpu_millis"] = parse_cpu_millis(amount)
                case "ram" | "disk":
                    changes[f"{name}_bytes"] = parse_bytes(amount)
                case "ports":
                    return
                case "tpu":
                    devices[name] = parse_device_millis(amount)
                case _:
                    named[name] = int(amount)
        needs = msgspec.structs.replace(refused.needs, named=named, devices=devices, **changes)
        assert refused.fitting(refused.with_needs(needs)) == int(count.replace(",", ""))


def check_conditions(refused: Refused) -> None:
    hint, spec = refused.refusal.hint, refused.job.spec
    for count, constraint in WITHOUT.findall(hint):
        event("without")
        others = tuple(each for each in spec.constraints if str(each) != constraint)
        assert refused.fitting(msgspec.structs.replace(spec, constraints=others)) == int(count)
    for count, _ in THAT_IS.findall(hint):
        event("that is")
        assert (
            0
            < int(count)
            <= sum(refused.refusal.reasons.get(word, 0) for word in ("down", "cordoned", "drained"))
        )


def check_waiting(refused: Refused) -> None:
    waits = refused.refusal.waits_for
    if not waits:
        return
    event("waits")
    assert not refused.refusal.impossible
    names = re.findall(r"m\d+", waits)
    assert names
    for name in names:
        assert suits(refused.cell, refused.observed, name, refused.job)
        assert could_ever(refused.cell, refused.job, refused.needs, name)
    more = re.search(r"(\d+) more", waits)
    waited = [
        name
        for name in refused.cell.machines
        if suits(refused.cell, refused.observed, name, refused.job)
        and could_ever(refused.cell, refused.job, refused.needs, name)
    ]
    assert len(names) + (int(more[1]) if more else 0) == len(waited)
