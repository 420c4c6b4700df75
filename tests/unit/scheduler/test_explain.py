"""Refusals as people read them."""

import pytest

from borgish.cell.model import Drain, Machine
from borgish.resources import Resources
from borgish.scheduler.plan import Refusal
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import Constraint, JobSpec
from borgish.vocabulary import Runtime
from tests.unit.scheduler.cells import GIB, NOW, cell_of, machine, observed_of, spec

ARM = (Constraint("arch", "==", ("arm64",)),)


def refusal(machines: list[Machine], wanted: JobSpec) -> Refusal:
    cell = cell_of(machines, [wanted])
    (found,) = Scheduler().schedule(cell, observed_of(cell), NOW).refusals[wanted.key]
    return found


def test_every_reason_is_counted_and_said() -> None:
    machines = [machine("m1", ram=3 * GIB), machine("m2", ram=2 * GIB), machine("m3", ram=16 * GIB, up=False)]
    found = refusal(machines, spec("ann/big", 2, 1000, 8 * GIB))
    assert found.indexes == (0, 1)
    assert found.machines == 3
    assert found.reasons == {"down": 1, "ram": 2}
    assert (
        found.text
        == "0 of 3 machines fit: 2 have too little ram free (needs 8GiB, most free 3GiB), 1 is down"
    )
    assert found.hint == "fits 1 machine with ram <= 3GiB; would fit 1 machine that is down"
    assert not found.impossible  # m3 would do, were it up


def test_where_no_machine_takes_tasks_the_most_free_is_what_they_would_have() -> None:
    drained, little = (Drain("ann", 1.0, 2.0),), spec("ann/big", ram=16 * GIB)
    machines = [machine("m1", ram=3 * GIB, drains=drained), machine("m2", ram=2 * GIB, drains=drained)]
    text = "0 of 2 machines fit: 2 are drained, 2 have too little ram free (needs 16GiB, most free 3GiB)"
    assert refusal(machines, little).text == text
    # Where one does, what it has counts.
    machines[1].drains = ()
    assert "most free 2GiB)" in refusal(machines, little).text


def test_a_machine_counts_under_each_of_its_reasons() -> None:
    machines = [machine("m1", 500, GIB, up=False, cordoned=True), machine("m2", 8000, 8 * GIB, up=False)]
    found = refusal(machines, spec("ann/big", 1, 1000, 8 * GIB, constraints=ARM))
    assert found.reasons == {"down": 2, "cordoned": 1, "constraint arch == arm64": 2, "cpu": 1, "ram": 1}


@pytest.mark.parametrize(
    ("machines", "wanted", "hint"),
    [
        ([], spec("ann/j"), "start a borglet that joins this cell"),
        ([machine("m1", up=False)], spec("ann/j"), "no machine is up"),
        (
            [machine("m1", 2000)],
            spec("ann/j", cpu=3000),
            "can never fit: no machine has 3 of cpu (the largest has 2); fits 1 machine with cpu <= 2",
        ),
        (
            [machine("m1", 2000), machine("m2", 2003), machine("m3", 700)],
            spec("ann/j", cpu=3000),
            "can never fit: no machine has 3 of cpu (the largest has 2.003); fits 2 machines with cpu <= 2",
        ),
        (
            [machine("m1", 2000, 2 * GIB)],
            spec("ann/j", cpu=3000, ram=3 * GIB),
            (
                "can never fit: no machine has 3 of cpu (the largest has 2); "
                "fits 1 machine with cpu <= 2 and ram <= 2GiB"
            ),
        ),
        (
            [machine("m1")],
            spec("ann/j", constraints=ARM),
            (
                "can never fit: no machine has the attribute 'arch'; there are none at all; "
                "fits 1 machine without the constraint arch == arm64"
            ),
        ),
        (
            [machine("m1")],
            spec("ann/j", runtime=Runtime.DOCKER),
            "can never fit: no machine has the docker runtime",
        ),
        (
            [machine("m1")],
            spec("ann/j", resources=Resources(1, 1, 0, {"gpu": 2})),
            "can never fit: no machine has 2 of gpu (the largest has 0)",
        ),
        (
            [machine("m1", attributes={"arch": "arm64"}), machine("m2", runtimes=(Runtime.DOCKER,))],
            spec("ann/j", constraints=ARM, runtime=Runtime.DOCKER),
            (
                "can never fit: no machine has all of this at once, even when empty; "
                "would fit 1 machine that has no docker runtime; "
                "fits 1 machine without the constraint arch == arm64"
            ),
        ),
        (
            [machine("m1"), machine("m2", attributes={"arch": "arm64"}, cordoned=True)],
            spec("ann/j", constraints=ARM),
            "would fit 1 machine that is cordoned; fits 1 machine without the constraint arch == arm64",
        ),
    ],
)
def test_hints(machines: list[Machine], wanted: JobSpec, hint: str) -> None:
    assert refusal(machines, wanted).hint == hint


def test_a_cell_without_machines_says_so() -> None:
    assert refusal([], spec("ann/j")).text == "the cell has no machines"
