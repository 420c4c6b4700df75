"""Which constraints a machine meets, which taints a job tolerates, and how long its tasks may stay."""

from borgish.cell.machines.suitability import evict_at, unmet_constraints, untolerated, why_unsuitable
from borgish.cell.model import Taint
from borgish.spec.job import Constraint, Toleration
from borgish.vocabulary import TaintEffect
from tests.unit.cell.lived import machine, spec

REPAIR = Taint("repair", "disk", TaintEffect.EVICT, since=1000.0)
ML = Taint("dedicated", "ml", TaintEffect.REFUSE, since=500.0)
OLD = Taint("old", "", TaintEffect.AVOID, since=100.0)


def test_without_tolerations_every_taint_is_untolerated() -> None:
    assert list(untolerated((), (REPAIR, ML, OLD))) == [REPAIR, ML, OLD]


def test_a_toleration_without_a_value_is_for_all_values_of_its_key() -> None:
    assert list(untolerated((Toleration("dedicated"),), (REPAIR, ML))) == [REPAIR]


def test_a_toleration_with_a_value_is_for_that_value_alone() -> None:
    assert list(untolerated((Toleration("dedicated", "web"),), (ML,))) == [ML]
    assert list(untolerated((Toleration("dedicated", "ml"),), (ML,))) == []


def test_a_toleration_that_ends_counts_as_one() -> None:
    assert list(untolerated((Toleration("repair", for_seconds=0.0),), (REPAIR,))) == []


def test_nobody_has_to_leave_for_a_taint_that_only_keeps_away() -> None:
    assert evict_at((), (ML, OLD)) is None


def test_who_does_not_tolerate_an_evicting_taint_leaves_when_it_comes() -> None:
    assert evict_at((Toleration("dedicated"),), (REPAIR, ML)) == 1000.0


def test_who_tolerates_it_for_good_stays() -> None:
    assert evict_at((Toleration("repair", for_seconds=60.0), Toleration("repair", "disk")), (REPAIR,)) is None


def test_who_tolerates_it_for_a_while_leaves_after_that() -> None:
    brief, longer = Toleration("repair", for_seconds=60.0), Toleration("repair", "disk", 3600.0)
    assert evict_at((brief,), (REPAIR,)) == 1060.0
    assert evict_at((brief, longer), (REPAIR,)) == 4600.0


def test_the_first_taint_to_evict_counts() -> None:
    later = Taint("power", "", TaintEffect.EVICT, since=2000.0)
    assert evict_at((Toleration("repair", for_seconds=5000.0),), (REPAIR, later)) == 2000.0


def test_who_came_after_the_taint_may_stay_as_long_as_any_other() -> None:
    tolerates = (Toleration("repair", for_seconds=60.0),)
    assert evict_at(tolerates, (REPAIR,), placed_at=5000.0) == 5060.0
    assert evict_at(tolerates, (REPAIR,), placed_at=10.0) == 1060.0
    assert evict_at((), (REPAIR,), placed_at=5000.0) == 1000.0


def test_a_machine_is_unsuitable_for_the_constraints_that_it_no_longer_meets() -> None:
    arm, ssd, amd = (
        Constraint("arch", "==", ("arm64",)),
        Constraint("disk", "==", ("ssd",)),
        Constraint("arch", "==", ("amd64",)),
    )
    job = spec(constraints=(arm, amd, ssd))
    assert list(unmet_constraints(job, machine("m1"))) == [arm, ssd]
    assert why_unsuitable(job, machine("m1")) == f"m1 no longer meets {arm}, {ssd}"
    assert why_unsuitable(spec(constraints=(amd,)), machine("m1")) == ""
