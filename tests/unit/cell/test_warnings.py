"""What is doubtful about a job, said at its submission and journalled with the answer."""

from typing import Any

import msgspec
import pytest

from borgish.cell.limits.admission import job_warnings
from borgish.resources import Resources
from borgish.spec.constraints import parse_constraint
from borgish.spec.job import Affinity, Preference, Program, Spread
from tests.unit.scheduler.cells import cell_of, machine, spec

RACKS = [machine(f"m{n}", attributes={"rack": f"r{n}", "arch": "amd64"}) for n in range(3)]


def said(**facts: Any) -> tuple[str, ...]:
    return tuple(job_warnings(cell_of(RACKS, []), spec("ann/web", **facts)))


def conditions(*texts: str) -> tuple[Any, ...]:
    return tuple(map(parse_constraint, texts))


RAKC = "no machine has the attribute 'rakc'; did you mean rack?"


@pytest.mark.parametrize(
    "facts",
    [
        {"constraints": conditions("rakc == r1")},
        {"constraints": conditions("rakc in (r1, r2)", "present(rakc)")},
        {"prefer": (Preference(*conditions("rakc > 3")),)},
        {"spread": (Spread("rakc"),)},
        {"near": (Affinity(conditions("app == db"), "rakc"),)},
        {"apart": (Affinity(conditions("app == db"), "rakc", 5),)},
    ],
)
def test_an_unknown_attribute_is_said_once(facts: dict[str, Any]) -> None:
    assert said(**facts) == (RAKC,)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {
            "constraints": conditions(
                "rack == r9", "not present(quarantine)", "gpu != a100", "zone not in (a)"
            )
        },
        {"spread": (Spread(),)},
        {"near": (Affinity(conditions("app == db")),)},
    ],
)
def test_what_is_in_order_is_not_doubted(facts: dict[str, Any]) -> None:
    assert said(**facts) == ()


def test_an_attribute_like_no_other_is_told_which_there_are() -> None:
    assert said(constraints=conditions("colour == red")) == (
        "no machine has the attribute 'colour'; there are arch, rack",
    )


def test_a_cell_without_machines_knows_no_attributes_yet() -> None:
    assert tuple(job_warnings(cell_of([], []), spec("ann/web", constraints=conditions("rack == r1")))) == ()


def test_contradictions_are_said() -> None:
    labels = conditions("app == a", "app == b")
    assert said(constraints=conditions("rack == r1", "rack == r2"), near=(Affinity(labels),)) == (
        "no machine can match both rack == r1 and rack == r2",
        "no labels can match app == a and app == b",
    )


def test_a_resource_that_looks_like_a_slip_is_said_unless_some_machine_has_it() -> None:
    asked = spec("ann/web", resources=Resources(100, named={"rma": 1}))
    assert tuple(job_warnings(cell_of(RACKS, []), asked)) == (
        "'rma' is taken as a named resource; did you mean ram?",
    )
    rma = machine("m1", capacity=Resources(4000, named={"rma": 3}))
    assert tuple(job_warnings(cell_of([rma], []), asked)) == ()


def in_folder(*parts: str) -> str:
    return "/" + "/".join(parts)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (("sh", in_folder("home", "bob", "serve")), "is in the home of somebody else"),
        (("serve", "--into", in_folder("tmp", "out")), ""),
    ],
)
def test_what_a_program_is_told_to_read(run: tuple[str, ...], words: str) -> None:
    beside = msgspec.structs.replace(spec("ann/web"), group=(Program("proxy", run),))
    for job in (msgspec.structs.replace(spec("ann/web"), run=run), beside):
        found = list(job_warnings(cell_of(RACKS, []), job))
        assert [words in line for line in found] == [True] * bool(words)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (("root", "serve"), "is in the home of somebody else, which tasks of ann"),
        (("home", "bob", "serve"), "is in the home of somebody else"),
        (("tmp", "serve"), "of which each task has its own"),
        (("home", "ann", "serve"), ""),
        (("usr", "bin", "serve"), ""),
    ],
)
def test_a_program_where_its_user_may_not_read_it(parts: tuple[str, ...], words: str) -> None:
    job = msgspec.structs.replace(spec("ann/web"), run=(in_folder(*parts),))
    found = list(job_warnings(cell_of(RACKS, []), job))
    assert [words in line for line in found] == [True] * bool(words)
