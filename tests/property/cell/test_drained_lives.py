"""Whoever drains what, whenever, and whichever master leads: no job is ever below its budget by that."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from borgish.cell.command import Command
from borgish.cell.commands import (
    CancelMaintenance,
    CordonMachine,
    DrainMachines,
    MaintainMachines,
    SubmitJob,
    UncordonMachine,
    UndrainMachines,
)
from borgish.cell.machines.drains import is_drained
from borgish.cell.model import Cell
from borgish.master.core import Core
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import Disruption, JobSpec, Restart
from borgish.spec.shares import Share
from borgish.vocabulary import JobKind, RestartPolicy
from tests.profiles import examples
from tests.unit.cell.lived import GIB, Lived, spec

NAMES = ("m1", "m2", "m3")
ALL = "present(machine)"

some = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)
one = st.sampled_from(NAMES)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(DrainMachines, some, deadline_seconds=st.sampled_from([0.0, 3.0, 3600.0])),
    st.just(DrainMachines(where=ALL, deadline_seconds=0.0)),
    st.builds(UndrainMachines, some),
    st.builds(
        MaintainMachines,
        some,
        begins=st.sampled_from([1010.0, 1020.0]),
        ends=st.sampled_from([1030.0, 9000.0]),
        lead_seconds=st.sampled_from([0.0, 10.0]),
    ),
    st.builds(CancelMaintenance, some),
    st.builds(CordonMachine, one),
    st.builds(UncordonMachine, one),
)
moves = st.lists(st.one_of(commands, st.just("new master"), st.integers(1, 4)), max_size=25)


@st.composite
def jobs(draw: st.DrawFn, number: int) -> JobSpec:
    return spec(
        f"j{number}",
        draw(st.integers(1, 12)),
        resources=Resources(draw(st.sampled_from([100, 300])), GIB // 64),
        disruption=Disruption(draw(st.sampled_from([Share(1), Share(2), Share(percent=34)]))),
        restart=Restart(draw(st.sampled_from([RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE]))),
        kind=JobKind.ALLOC_SET if number == 2 else JobKind.JOB,
    )


def check_budgets(lived: Lived) -> None:
    for job in lived.cell.jobs.values():
        allowed = job.spec.disruption.max_unavailable.of(job.spec.tasks)
        assert job.running >= job.spec.tasks - allowed, f"{job.key}: {job.running} of {job.spec.tasks} run"


@settings(max_examples=examples(40))
@given(st.tuples(*(jobs(number) for number in range(3))), moves)
def test_drains_never_take_more_down_than_the_budgets(
    specs: tuple[JobSpec, ...], moves: list[Command | str | int]
) -> None:
    lived = Lived(NAMES)
    for each in specs:
        lived.step(SubmitJob(each))
    lived.settle()
    for move in moves:
        match move:
            case int():
                for _ in range(move):
                    lived.step()
                    check_budgets(lived)
            case str():
                event("new master")
                lived.core = Core(Cell(lived.cell.snapshot()), ReconcileSettings(), lived.now)
                lived.entries += lived.core.begin(lived.cell.epoch + 1, "me", lived.now).entries
            case _:
                lived.step(move)
        check_budgets(lived)
    lived.step(UndrainMachines(NAMES), CancelMaintenance(NAMES), *map(UncordonMachine, NAMES))
    lived.step(DrainMachines(("m1",), deadline_seconds=0.0))
    for _ in range(40):
        lived.step()
        check_budgets(lived)
    assert is_drained(lived.cell, lived.core.observed, lived.cell.machines["m1"]) or not _has_reported(lived)


def _has_reported(lived: Lived) -> bool:
    """A machine on which nothing is placed has nothing to report here."""
    return bool(lived.core.observed.machines["m1"].instance)
