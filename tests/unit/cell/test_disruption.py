"""Which tasks may be taken down on purpose, and what is said of the others."""

from typing import Any

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    EvictTasks,
    FreezeCell,
    KillTasks,
    PlaceTasks,
    RemoveBudget,
    RestartTasks,
    SeenAttempt,
    SetBudget,
    SetMachineDown,
    SubmitJob,
    UnfreezeCell,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry, TasksEvicted
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.disruption import Gate
from borgish.cell.observed import Observed
from borgish.cell.recorded import commands_of, observed_of, recorded_of
from borgish.errors import Invalid, NotFound
from borgish.resources import Resources
from borgish.spec.job import Constraint, Disruption, Health, Restart
from borgish.spec.shares import Rate, Share, parse_rate, parse_share
from borgish.vocabulary import Eviction, JobKind, Phase, RestartPolicy
from tests.unit.cell.test_decide import NOW, Desk, seen, spec


def up(desk: Desk, tasks: int, name: str = "web", **changes: Any) -> None:
    """Let a job run whose tasks are all up."""
    job = spec(name, tasks, resources=Resources(10, 1024), **changes)
    desk.submit_and_place(job)
    attempt = desk.cell.jobs[job.key].tasks[0].attempt
    desk.report(*(SeenAttempt(f"{job.key}/{index}", attempt, Phase.UP) for index in range(tasks)))


def gate(desk: Desk) -> Gate:
    return Gate(desk.cell, desk.observed, NOW)


@pytest.mark.parametrize(("tasks", "at_once"), [(1, 1), (9, 1), (19, 1), (20, 2), (100, 10)])
def test_one_task_or_a_tenth_whichever_is_more(tasks: int, at_once: int) -> None:
    desk = Desk()
    up(desk, tasks)
    asked, gone = gate(desk), 0
    for index in range(tasks):
        if not asked.refused("ann/web", index):
            asked.take("ann/web", index)
            gone += 1
    assert gone == at_once


def test_a_refusal_names_the_budget_and_who_uses_it() -> None:
    desk = Desk()
    up(desk, 10)
    desk.do(EvictTasks("ann/web", (3,), Eviction.MACHINE_LOST))
    assert gate(desk).refused("ann/web", 4) == (
        "of ann/web at most 1 of 10 tasks may be down (max_unavailable 10%), and down is task 3 (pending)"
    )


@pytest.mark.parametrize(
    "phase", sorted({*Phase} - {Phase.UP, Phase.HEALTHY, Phase.ASSIGNED, Phase.UNKILLABLE})
)
def test_what_is_down_for_any_reason_uses_the_budget_up_and_is_free_itself(phase: Phase) -> None:
    desk = Desk()
    up(desk, 3)
    desk.report(seen(desk, 1, phase=phase))
    assert f"down is task 1 ({phase})" in gate(desk).refused("ann/web", 0)
    assert gate(desk).refused("ann/web", 1) == ""


def test_who_was_not_heard_of_is_down() -> None:
    desk = Desk()
    desk.submit_and_place(spec(tasks=3))
    desk.report(seen(desk, 0))
    assert (
        gate(desk)
        .refused("ann/web", 0)
        .endswith("down are tasks 1 (not reported by m1 yet), 2 (not reported by m1 yet)")
    )


def test_on_a_machine_that_is_down_all_is_free() -> None:
    desk = Desk()
    up(desk, 3)
    desk.do(SetMachineDown("m1", "silent"))
    assert [gate(desk).refused("ann/web", index) for index in range(3)] == [""] * 3


@pytest.mark.parametrize(
    ("policy", "phase", "is_down"),
    [
        (RestartPolicy.ALWAYS, Phase.UP, True),
        (RestartPolicy.ALWAYS, Phase.HEALTHY, False),
        (RestartPolicy.ON_FAILURE, Phase.UP, False),
    ],
)
def test_a_service_that_is_probed_is_there_when_it_is_healthy(
    policy: RestartPolicy, phase: Phase, *, is_down: bool
) -> None:
    desk = Desk()
    up(desk, 2, health=Health(command=("true",)), restart=Restart(policy))
    desk.report(seen(desk, 0, phase=phase), seen(desk, 1, phase=Phase.HEALTHY))
    assert bool(gate(desk).refused("ann/web", 1)) is is_down


def test_dead_tasks_are_neither_wanted_nor_down() -> None:
    desk = Desk()
    up(desk, 20)
    desk.do(KillTasks("ann/web", tuple(range(15)), max_affected=15))
    asked = gate(desk)
    assert asked.refused("ann/web", 3) == ""
    asked.take("ann/web", 3)
    assert asked.refused("ann/web", 19) == ""  # nobody's place was used up
    asked.take("ann/web", 19)
    assert "at most 1 of 5 tasks may be down" in asked.refused("ann/web", 18)  # a tenth of those that live


def test_its_own_update_may_go_as_far_as_it_says() -> None:
    desk = Desk()
    up(desk, 5)
    asked = gate(desk)
    for index in range(3):
        assert asked.refused("ann/web", index, at_a_time=3) == ""
        asked.take("ann/web", index)
    assert asked.refused("ann/web", 3, at_a_time=3) == (
        "of ann/web at most 3 of 5 tasks may be down (at a time), and tasks 0, 1, 2 are about to leave"
    )
    asked = gate(desk)
    asked.take("ann/web", 0)
    assert asked.refused("ann/web", 3).endswith("(max_unavailable 10%), and task 0 is about to leave")
    assert asked.refused("ann/web", 0) == ""  # it is leaving already


def test_a_rate_bounds_how_many_go_in_a_time() -> None:
    desk = Desk()
    up(desk, 9, disruption=Disruption(Share(9), Rate(2, 600.0)))
    asked = gate(desk)
    for index in (0, 1):
        assert asked.refused("ann/web", index) == ""
        asked.take("ann/web", index)
    wait = "of ann/web at most 2 per 10m may be taken down on purpose (max_rate), and 2 were"
    assert asked.refused("ann/web", 2) == wait
    desk.do(EvictTasks("ann/web", (0, 1), Eviction.TAINTED))
    assert gate(desk).refused("ann/web", 2) == wait
    assert Gate(desk.cell, desk.observed, NOW.later(601.0)).refused("ann/web", 2) == ""


def test_losses_do_not_count_towards_a_rate() -> None:
    desk = Desk()
    up(desk, 9, disruption=Disruption(Share(9), Rate(1, 600.0)))
    desk.do(EvictTasks("ann/web", (0, 1), Eviction.MACHINE_LOST))
    assert gate(desk).refused("ann/web", 2) == ""


def test_with_an_alloc_goes_what_is_in_it() -> None:
    desk = Desk()
    desk.submit_and_place(spec("room", 10, resources=Resources(10, 1024), kind=JobKind.ALLOC_SET))
    inner = spec("inner", 2, inside="ann/room", resources=Resources(5, 512))
    desk.do(SubmitJob(inner))
    desk.do(PlaceTasks("ann/inner", (0, 1), ("m1", "m1"), allocs=(0, 0)))
    attempt = desk.cell.jobs["ann/inner"].tasks[0].attempt
    desk.report(*(SeenAttempt(f"ann/inner/{index}", attempt, Phase.UP) for index in range(2)), whole=True)
    assert gate(desk).refused("ann/room", 1) == ""
    assert gate(desk).refused("ann/room", 0) == (
        "of ann/inner at most 1 of 2 tasks may be down (max_unavailable 10%), and 2 would go down together"
    )


@pytest.mark.parametrize(
    ("commands", "counts"),
    [
        ([EvictTasks("ann/room", (0,), Eviction.DRAIN)], True),
        ([RestartTasks("ann/room", (0,)), AdvanceRollouts({"ann/room": (0,)})], True),
        ([EvictTasks("ann/room", (0,), Eviction.MACHINE_LOST)], False),
    ],
)
def test_what_is_in_an_alloc_counts_towards_its_rate_where_the_alloc_left_on_purpose(
    commands: list[Command], counts: bool
) -> None:
    desk = Desk()
    room = spec("room", 2, resources=Resources(10, 1024), kind=JobKind.ALLOC_SET)
    desk.submit_and_place(msgspec.structs.replace(room, disruption=Disruption(Share(2))))
    often = Disruption(Share(3), Rate(2, 600.0))
    desk.do(SubmitJob(spec("inner", 3, inside="ann/room", resources=Resources(1, 1), disruption=often)))
    desk.do(PlaceTasks("ann/inner", (0, 1, 2), ("m1",) * 3, allocs=(0, 0, 1)))
    attempt = desk.cell.jobs["ann/inner"].tasks[0].attempt
    desk.report(*(SeenAttempt(f"ann/inner/{index}", attempt, Phase.UP) for index in range(3)), whole=True)
    for command in commands:
        desk.do(command)
    wait = "of ann/inner at most 2 per 10m may be taken down on purpose (max_rate), and 2 were"
    assert gate(desk).refused("ann/room", 1) == (wait if counts else "")


def test_of_the_past_all_is_open_but_what_was_spared() -> None:
    desk = Desk()
    desk.submit_and_place(spec(tasks=3))
    past = Observed(known=False)
    past.spared = frozenset({"ann/web/1"})
    asked = Gate(desk.cell, past, NOW)
    assert [bool(asked.refused("ann/web", index)) for index in range(3)] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "share", "of_7"), [("1", Share(1), 1), ("10%", Share(1, 10), 1), ("30%", Share(1, 30), 2)]
)
def test_shares_read_as_they_are_written(text: str, share: Share, of_7: int) -> None:
    assert parse_share(text) == share
    assert str(share) == text
    assert share.of(7) == of_7


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "-1", "1.5", "10 %", "10001", "%", "a"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_share(text)


@pytest.mark.parametrize("text", ["", "5", "5 per", "0 per 1m", "5 per 10", "5 per 0s", "per 10m"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match=r"is|unit"):
        parse_rate(text)


def test_a_rate_reads_as_it_is_written() -> None:
    assert str(parse_rate("5 per 10m")) == "5 per 10m"


def test_what_was_spared_is_journalled_and_spared_again() -> None:
    desk = Desk()
    up(desk, 3)
    command = EvictTasks("ann/web", (2, 0, 1), Eviction.TAINTED, "m1 is tainted")
    events = decide(desk.cell, desk.observed, command, "taints", NOW).events
    assert events == (TasksEvicted("ann/web", (2,), Eviction.TAINTED, "m1 is tainted"),)
    kept = recorded_of(desk.observed, command, events, NOW)
    entry = Entry(desk.cell.position + 1, NOW.wall, 1, 1, "taints", "EvictTasks", events, command=kept)
    assert commands_of(desk.cell, entry) == (command,)
    assert (
        decide(desk.cell, observed_of(kept.observed, command, NOW), command, "taints", NOW).events == events
    )


def test_commands_that_are_decided_together_share_what_a_budget_has_left() -> None:
    desk = Desk()
    up(desk, 3)
    together = gate(desk)
    gone = [
        decide(
            desk.cell, desk.observed, EvictTasks("ann/web", (index,), cause), "x", NOW, gate=together
        ).events
        for index, cause in ((1, Eviction.TAINTED), (2, Eviction.TAINTED), (0, Eviction.MACHINE_LOST))
    ]
    assert [bool(events) for events in gone] == [True, False, True]


def budget(desk: Desk, most: Share, *where: tuple[str, str], name: str = "app") -> None:
    conditions = tuple(Constraint(label, "==", (value,)) for label, value in where)
    desk.do(SetBudget(Budget(name, conditions, most)))


def test_a_budget_across_jobs_holds_beside_their_own() -> None:
    desk = Desk()
    for name in ("web", "api"):
        up(desk, 5, name=name, labels={"app": "shop"}, disruption=Disruption(Share(5)))
    up(desk, 5, name="other")
    budget(desk, Share(1), ("app", "shop"))
    asked = gate(desk)
    assert asked.refused("ann/web", 0) == ""
    asked.take("ann/web", 0)
    assert asked.refused("ann/api", 3, at_a_time=5) == (
        "of the budget app (app == shop) at most 1 of 10 tasks may be down (max_unavailable 1), and "
        "ann/web/0 is about to leave"
    )
    assert asked.refused("ann/other", 3) == ""


def test_a_percentage_is_of_all_tasks_that_it_is_about() -> None:
    desk = Desk()
    for name in ("web", "api"):
        up(desk, 10, name=name, labels={"app": "shop"}, disruption=Disruption(Share(10)))
    budget(desk, Share(1, 20), ("app", "shop"))
    asked = gate(desk)
    assert len(asked.pass_through("ann/web", range(10))) == 4
    desk.do(KillTasks("ann/api"))  # of them fewer are to run now
    assert len(gate(desk).pass_through("ann/web", range(10))) == 2


def test_of_several_budgets_each_has_to_allow_it() -> None:
    desk = Desk()
    up(desk, 5, labels={"app": "shop", "tier": "front"}, disruption=Disruption(Share(5)))
    budget(desk, Share(3), ("app", "shop"))
    budget(desk, Share(2), ("tier", "front"), name="front")
    budget(desk, Share(1), ("tier", "back"), name="back")
    assert len(gate(desk).pass_through("ann/web", range(5))) == 2
    desk.do(RemoveBudget("front"))
    assert len(gate(desk).pass_through("ann/web", range(5))) == 3


def test_a_budget_about_no_labels_is_refused_and_about_nobody_is_noted() -> None:
    desk = Desk()
    with pytest.raises(Invalid, match="selects no labels"):
        budget(desk, Share(1))
    command = SetBudget(Budget("app", (Constraint("app", "==", ("shop",)),), Share()))
    decision = decide(desk.cell, desk.observed, command, "ann", NOW)
    assert decision.notes == ("no job has such labels now; app holds for those that come",)
    desk.do(command)
    assert desk.do(command)[1] == 0
    with pytest.raises(NotFound, match="no budget other"):
        desk.do(RemoveBudget("other"))


def test_while_it_is_frozen_nothing_goes_but_what_is_down() -> None:
    desk = Desk()
    up(desk, 3)
    desk.do(FreezeCell("holidays"))
    frozen = "the cell is frozen by ann since 1970-01-01T00:16:40.000Z: holidays"
    assert gate(desk).refused("ann/web", 0, at_a_time=3) == frozen
    assert desk.do(EvictTasks("ann/web", (0,), Eviction.TAINTED))[1] == 0
    assert desk.do(EvictTasks("ann/web", (0,), Eviction.MACHINE_LOST))[1] == 1
    assert gate(desk).refused("ann/web", 0) == ""
    desk.do(UnfreezeCell())
    assert desk.do(UnfreezeCell())[1] == 0
    assert desk.do(EvictTasks("ann/web", (0,), Eviction.TAINTED))[1] == 0  # the budget is used up by then
    assert gate(desk).refused("ann/web", 1).startswith("of ann/web at most 1")


def test_preemption_by_production_passes_a_freeze_and_by_others_does_not() -> None:
    desk = Desk()
    up(desk, 3)
    for name, priority in (("prod", 200), ("batch", 100)):
        desk.do(SubmitJob(spec(name, 1, priority=priority)))
    desk.do(FreezeCell())
    for name, goes in (("batch", False), ("prod", True)):
        command = EvictTasks("ann/web", (0,), Eviction.PREEMPTED, "why", preemptor=f"ann/{name}/0")
        assert bool(desk.do(command)[1]) is goes


def test_what_a_new_master_has_not_heard_of_counts_as_down_and_is_not_free() -> None:
    desk = Desk()
    up(desk, 3)
    heard = desk.observed
    desk.observed = Observed()
    silent = ", ".join(f"{index} (not reported by m1 yet)" for index in range(3))
    assert gate(desk).refused("ann/web", 0).endswith(f"and down are tasks {silent}")
    desk.observed = heard
    assert gate(desk).refused("ann/web", 0) == ""
