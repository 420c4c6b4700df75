"""What small change would let refused tasks fit, and what they wait for."""

from typing import Any

import pytest

from borgish.cell.events import JobSubmitted, TasksEnded
from borgish.cell.model import Cell, Machine, Taint
from borgish.cell.observed import Observed
from borgish.resources import Resources
from borgish.scheduler.plan import Plan, Refusal
from borgish.scheduler.schedule import Scheduler
from borgish.spec.constraints import parse_constraint
from borgish.spec.job import Affinity, Constraint, JobSpec, Spread, Toleration
from borgish.vocabulary import Ending, Runtime, TaintEffect
from tests.unit.scheduler.cells import (
    GIB,
    NOW,
    carry_out,
    cell_of,
    happen,
    machine,
    observed_of,
    spec,
    touched,
)


class Passes:
    """A cell that goes from pass to pass, its plans carried out."""

    def __init__(self, machines: list[Machine], *specs: JobSpec) -> None:
        self.cell: Cell = cell_of(machines, list(specs))
        self.observed: Observed = observed_of(self.cell)
        self._scheduler = Scheduler()

    def pass_once(self) -> Plan:
        self._scheduler.refresh(self.cell, self.observed, touched(self.cell))
        plan = self._scheduler.schedule(self.cell, self.observed, NOW)
        carry_out(self.cell, plan)
        return plan

    def refusal(self, *wanted: JobSpec) -> Refusal:
        """Place what there is, then these; return the refusal of the last."""
        if self.cell.waiting:
            self.pass_once()
        for each in wanted:
            happen(self.cell, JobSubmitted(each))
        (found,) = self.pass_once().refusals[wanted[-1].key]
        return found


def racks(*names: str, **more: Any) -> list[Machine]:
    return [machine(f"m{n}", attributes={"rack": rack}, **more) for n, rack in enumerate(names, 1)]


def labels(*texts: str) -> tuple[Constraint, ...]:
    return tuple(map(parse_constraint, texts))


def taint(key: str, value: str = "", effect: TaintEffect = TaintEffect.REFUSE) -> Taint:
    return Taint(key, value, effect, 0.0)


# Conditions


def test_a_taint_that_is_not_tolerated() -> None:
    found = Passes([machine("m1", taints=(taint("maintenance"),))]).refusal(spec("ann/j"))
    assert found.reasons == {"taint maintenance:refuse": 1}
    assert "1 has the taint maintenance:refuse, which is not tolerated" in found.text
    assert found.hint == "fits 1 machine if the taint maintenance were tolerated"
    assert (found.impossible, found.waits_for) == (False, "")


def test_each_taint_counts_where_it_is() -> None:
    both = (taint("dedicated", "ml"), taint("maintenance", effect=TaintEffect.EVICT))
    machines = [machine("m1", taints=both[:1]), machine("m2", taints=both), machine("m3", taints=both[:1])]
    found = Passes(machines).refusal(spec("ann/j", tolerations=(Toleration("maintenance", for_seconds=60),)))
    assert found.reasons == {"taint dedicated=ml:refuse": 3, "taint maintenance:evict": 1}
    assert found.hint == "fits 2 machines if the taint dedicated=ml were tolerated"


@pytest.mark.parametrize(
    ("keys", "values", "reasons"),
    [
        (1, 40, {"taint key0"}),
        (40, 1, {"taint of one of 40 keys"}),
        (4, 4, 16),
        (2, 20, {"taint key0", "taint key1"}),
    ],
)
def test_many_taints_are_told_by_key_or_as_one(keys: int, values: int, reasons: set[str] | int) -> None:
    taints = [taint(f"key{key}", f"v{value}") for key in range(keys) for value in range(values)]
    found = Passes([machine(f"m{n}", taints=(each,)) for n, each in enumerate(taints)]).refusal(spec("ann/j"))
    assert sum(found.reasons.values()) == len(taints)
    assert len(found.reasons) == reasons if isinstance(reasons, int) else set(found.reasons) == reasons


def test_the_one_constraint_that_rules_out_all() -> None:
    wanted = labels("rack == r9", "rack != r3")
    found = Passes(racks("r1", "r2", "r3")).refusal(spec("ann/j", constraints=wanted))
    assert found.reasons == {"constraint rack == r9": 3, "constraint rack != r3": 1}
    assert found.hint == (
        "can never fit: no machine matches rack == r9; fits 2 machines without the constraint rack == r9"
    )
    assert found.impossible


def test_an_attribute_that_no_machine_has() -> None:
    found = Passes(racks("r1")).refusal(spec("ann/j", constraints=labels("rakc == r1")))
    assert found.hint.startswith(
        "can never fit: no machine has the attribute 'rakc'; did you mean rack?; fits 1 machine without"
    )


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (("rack == r1", "rack == r2"), "no machine can match both rack == r1 and rack == r2"),
        (("disks < 3", "disks > 5"), "no machine can match both disks < 3 and disks > 5"),
        (
            ("rack in (r1, r2)", "rack != r1", "rack not in (r2, r3)"),
            "no machine can match all of rack in (r1, r2), rack != r1 and rack not in (r2, r3)",
        ),
    ],
)
def test_contradictory_constraints_are_called_so(constraints: tuple[str, ...], words: str) -> None:
    machines = [machine(f"m{n}", attributes={"rack": f"r{n}", "disks": str(n)}) for n in range(9)]
    found = Passes(machines).refusal(spec("ann/j", constraints=labels(*constraints)))
    assert found.hint.startswith(f"can never fit: {words}")
    assert found.impossible


def test_an_image_of_another_architecture() -> None:
    passes = Passes([machine("m1", attributes={"arch": "amd64"}, runtimes=(Runtime.DOCKER,), cpu=10)])
    passes.cell.machines["m2"] = machine("m2", attributes={"arch": "arm64"}, runtimes=(Runtime.DOCKER,))
    passes.cell.placed["m2"] = set()
    passes.observed.machines["m1"].images = {"web:1": "amd64"}
    found = passes.refusal(spec("ann/j", image="web:1", runtime=Runtime.DOCKER))
    assert found.reasons == {"image architecture": 1, "cpu": 1}
    assert "1 has another architecture than amd64, for which the image is" in found.text


def test_fixed_ports_that_are_taken() -> None:
    wanted: dict[str, Any] = {"ports": ("http",), "fixed_ports": {"http": 8080}, "cpu": 10}
    passes = Passes([machine("m1"), machine("m2")], spec("ann/a", 2, **wanted))
    found = passes.refusal(spec("ann/b", **wanted))
    assert found.reasons == {"port 8080": 2}
    assert found.hint == "fits 2 machines without the fixed port 8080"
    assert found.waits_for == "room on m1 and m2"


def test_what_fails_for_several_reasons_everywhere_names_the_nearest() -> None:
    machines = [
        machine("m1", cordoned=True, up=False, taints=(taint("a"),)),
        machine("m2", cordoned=True, taints=(taint("a"),)),
    ]
    found = Passes(machines).refusal(spec("ann/j"))
    assert found.hint == "the nearest, m2, is cordoned and has the taint a:refuse, which is not tolerated"


# Amounts and devices


def gpus(whole: int = 0, cpu: int = 100, part: int = 0) -> Resources:
    return Resources(cpu, 8 * GIB if cpu > 100 else GIB, 0, {}, {"gpu": part or 1000 * whole})


def test_fewer_whole_devices() -> None:
    machines = [machine("m1", capacity=gpus(4, 4000)), machine("m2", capacity=gpus(2, 4000)), machine("m3")]
    found = Passes(machines, spec("ann/a", resources=gpus(3))).refusal(spec("ann/j", resources=gpus(4)))
    assert found.reasons == {"device gpu": 3}
    assert found.hint == "fits 1 machine with gpu <= 2"
    assert found.waits_for == "room on m1"


def test_a_smaller_part_of_a_device() -> None:
    machines = [machine("m1", capacity=gpus(1, 4000))]
    passes = Passes(machines, spec("ann/a", resources=gpus(part=700)))
    found = passes.refusal(spec("ann/j", resources=gpus(part=500)))
    assert "1 has too little gpu free (needs 500m of one)" in found.text
    assert found.hint == "fits 1 machine with gpu <= 300m"


def test_more_devices_than_any_machine_has_can_never_fit() -> None:
    found = Passes([machine("m1", capacity=gpus(2, 4000))]).refusal(spec("ann/j", resources=gpus(3)))
    assert found.hint == "can never fit: no machine has 3 gpu; fits 1 machine with gpu <= 2"


def test_it_waits_for_room_on_the_nearest_machines_first() -> None:
    machines = [machine(f"m{n}", cpu=1000 + n) for n in range(6)]
    passes = Passes(machines, *(spec(f"ann/a{n}", cpu=900, priority=200) for n in range(6)))
    found = passes.refusal(spec("ann/j", cpu=1000))
    assert found.waits_for == "room on m5, m4, m3 and 3 more"
    assert not found.impossible


# Preemption


def test_what_it_could_preempt_with_a_higher_priority() -> None:
    machines = [machine("m1", 1000), machine("m2", 1000), machine("m3", 1000)]
    running = [spec("ann/a", priority=150), spec("ann/b", priority=120), spec("ann/c", priority=200)]
    found = Passes(machines, *running).refusal(spec("bob/j", priority=120))
    assert found.hint == "would fit 1 machine if it could preempt batch, by a priority above 120"


def test_production_is_never_offered_for_preemption() -> None:
    passes = Passes([machine("m1", 1000)], spec("ann/a", priority=200))
    found = passes.refusal(spec("bob/j", priority=300))
    assert found.hint == "waits for room on m1"
    assert found.waits_for == "room on m1"


# Spread and affinity


def test_a_larger_maximum_or_fewer_tasks() -> None:
    machines = racks("r1", "r1", "r2", "r2")
    found = Passes(machines).refusal(spec("ann/j", 6, 100, spread=(Spread("rack", 2),)))
    assert found.indexes == (4, 5)
    assert found.reasons == {"spread over rack, at most 2": 4}
    assert found.hint == (
        "can never fit: by spread over rack, at most 2, there is room for 4 of its 6 tasks; "
        "fits with at most 3 per rack instead of 2, or with 2 fewer tasks"
    )
    assert found.impossible


def test_a_maximum_that_has_room_only_on_some_values() -> None:
    machines = [*racks("r1", "r2"), machine("m3", 300, attributes={"rack": "r3"})]
    found = Passes(machines).refusal(spec("ann/j", 9, 100, spread=(Spread("rack", 1),)))
    assert "fits with at most 3 per rack instead of 1, or with 6 fewer tasks" in found.hint


def test_a_maximum_on_values_whose_machines_are_down_is_waited_for() -> None:
    machines = [*racks("r1"), machine("m2", attributes={"rack": "r2"}, up=False)]
    found = Passes(machines).refusal(spec("ann/j", 2, 100, spread=(Spread("rack", 1),)))
    assert not found.impossible
    assert found.hint == (
        "would fit 1 machine that is down; fits with at most 2 per rack instead of 1, or with 1 fewer task"
    )


def test_machines_without_the_attribute_of_a_spread() -> None:
    found = Passes([machine("m1")]).refusal(spec("ann/j", spread=(Spread("rakc", 1),)))
    assert found.hint.startswith("can never fit: no machine has the attribute 'rakc'")


def test_apart_from_others_and_from_itself() -> None:
    apart = (Affinity(labels("app == web")),)
    web = spec("ann/web", 2, 100, labels={"app": "web"}, apart=apart)
    passes = Passes([machine("m1"), machine("m2")], web)
    found = passes.refusal(spec("bob/web", 1, 100, labels={"app": "web"}))
    rule = "apart from what must be apart from app == web over machine"
    assert found.reasons == {rule: 2}
    assert found.hint == f"fits 2 machines if it need not be {rule}"
    found = passes.refusal(spec("cid/web", 3, 100, labels={"app": "web"}, apart=apart))
    assert "by apart from app == web over machine, there is room for 2 of its 3 tasks" in found.hint


# Near, and affinity cycles


DB = Affinity(labels("app == db"))


def near(key: str, own: str, *others: str, weight: int = 0) -> JobSpec:
    """A job with a label ``app`` that has to be near to the apps of others."""
    terms = tuple(Affinity(labels(f"app == {other}"), weight=weight) for other in others)
    return spec(key, 1, 100, labels={"app": own}, near=terms)


def test_near_to_what_does_not_run() -> None:
    found = Passes([machine("m1")]).refusal(spec("ann/web", near=(DB,)))
    assert found.reasons == {"near app == db over machine": 1}
    assert found.hint == (
        "nothing runs with app == db; fits 1 machine if it need not be near app == db over machine"
    )
    assert found.waits_for == "a task with app == db to run"
    assert not found.impossible


def test_near_to_what_runs_where_there_is_no_room() -> None:
    passes = Passes([machine("m1", 1000), machine("m2")], spec("ann/db", cpu=900, labels={"app": "db"}))
    passes.cell.machines["m2"].cordoned = True
    passes.pass_once()
    passes.cell.machines["m2"].cordoned = False
    passes.cell.touched.machines.add("m2")
    found = passes.refusal(spec("ann/web", near=(DB,)))
    assert found.reasons == {"cpu": 1, "near app == db over machine": 1}
    assert found.waits_for == "room on m1"


def test_two_jobs_that_wait_for_each_other() -> None:
    passes = Passes([machine("m1")])
    found = passes.refusal(near("ann/a", "a", "b"))
    assert found.hint.startswith("nothing runs with app == b; fits 1")
    passes.refusal(near("ann/b", "b", "a"))
    circle = "wait for each other: give one of them a weight in its near"
    refusals = passes.pass_once().refusals  # the first is told of the second, too
    assert f"; ann/a and ann/b {circle}" in refusals["ann/a"][0].hint
    assert f"; ann/b and ann/a {circle}" in refusals["ann/b"][0].hint


def test_a_circle_of_three_and_one_who_only_waits_for_it() -> None:
    jobs = (
        near("ann/a", "a", "b"),
        near("ann/b", "b", "c"),
        near("ann/c", "c", "a"),
        near("ann/d", "d", "a"),
    )
    passes = Passes([machine("m1")])
    found = passes.refusal(*jobs)
    assert "in a circle" not in found.hint
    hint = passes.pass_once().refusals["ann/b"][0].hint
    assert "ann/b, ann/c and ann/a wait for each other in a circle" in hint


def test_what_could_begin_makes_no_circle() -> None:
    large = spec("ann/large", 1, 9000, labels={"app": "b"})
    found = Passes([machine("m1")]).refusal(large, near("ann/b", "b", "a"), near("ann/a", "a", "b"))
    assert "wait for each other" not in found.hint


def test_a_circle_is_told_no_more_once_one_of_them_is_gone() -> None:
    passes = Passes([machine("m1")])
    passes.refusal(near("ann/a", "a", "b"), near("ann/b", "b", "a"))
    happen(passes.cell, TasksEnded("ann/b", (0,), Ending.KILL, ("",)))
    assert "wait for each other" not in passes.pass_once().refusals["ann/a"][0].hint


# Gangs


def test_a_gang_says_how_many_of_its_tasks_fit() -> None:
    passes = Passes([machine("m1", 2000), machine("m2", 1000)])
    found = passes.refusal(spec("ann/gang", 5, gang=True))
    assert found.indexes == (0, 1, 2, 3, 4)
    assert found.text.startswith(
        "3 of 5 tasks fit, and a gang is placed whole; for one more, 0 of 2 machines"
    )
    assert found.reasons == {"cpu": 2}
    assert passes.pass_once().refusals["ann/gang"] == (found,)


def test_a_gang_of_which_nothing_fits_is_explained_like_any_job() -> None:
    found = Passes([machine("m1", 500)]).refusal(spec("ann/gang", 2, gang=True))
    assert found.text.startswith("0 of 1 machine fits: ")
    assert "fits 1 machine with cpu <= 500m" in found.hint


def test_large_memory_is_rounded_down_in_its_unit() -> None:
    found = Passes([machine("m1", ram=3 * GIB + 5)]).refusal(spec("ann/j", ram=4 * GIB))
    assert found.hint.endswith("with ram <= 3GiB")


def test_a_maximum_helps_only_where_there_is_something_to_count_by() -> None:
    wanted = spec("ann/j", 4, 100, spread=(Spread("rack", 2),))
    some = Passes([*racks("r1"), machine("m2"), machine("m3")])
    assert some.refusal(wanted).hint.endswith(
        "fits with at most 4 per rack instead of 2, or with 2 fewer tasks"
    )
    none = Passes([machine("m1"), machine("m2")])
    assert (
        none.refusal(wanted).hint
        == "can never fit: no machine has the attribute 'rack'; there are none at all"
    )
