"""What the journal keeps of a command is what its events lack, and the command is read back from both."""

from typing import Any

import msgspec
import pytest

from borgish.bands import DEFAULT_BANDS
from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    BeginEpoch,
    CordonMachine,
    EvictTasks,
    JoinMachine,
    KillTasks,
    PlaceTasks,
    RemoveMachine,
    RollBack,
    Seen,
    SetQuota,
    SubmitJob,
)
from borgish.cell.events import (
    AnyEvent,
    Elected,
    Entry,
    Facts,
    JobSubmitted,
    MachineCordoned,
    MachineJoined,
    QuotaSet,
    Recorded,
    RolledBack,
    RolloutWentOn,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
)
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Rules
from borgish.cell.observed import Observed, SeenMachine
from borgish.cell.recorded import commands_of, facts_of, observed_of, record, recorded_of
from borgish.clock import Now
from borgish.errors import StoreDamaged
from borgish.resources import Resources
from borgish.vocabulary import Band, Ending, Eviction
from tests.anew import NO_CELL
from tests.sentences import check_refusal
from tests.unit.cell.lived import machine, spec

MANY = tuple(range(10_000))
PLACED = ("ann/web", MANY, ("m1",) * len(MANY), ((20_000,),) * len(MANY))
NOW = Now(1000.0, 50.0)


def entry(cause: str, recorded: Recorded | None, *events: AnyEvent) -> Entry:
    """Return it as a store gives it back."""
    made = Entry(7, 1.0, 1, 1, "ann", cause, events, command=recorded)
    return msgspec.json.decode(msgspec.json.encode(made), type=Entry)


CASES: tuple[tuple[Command, tuple[AnyEvent, ...], dict[str, Any]], ...] = (
    (SubmitJob(spec()), (JobSubmitted(spec()),), {}),
    (SubmitJob(spec(), "token"), (JobSubmitted(spec()),), {"plan": "token"}),
    (PlaceTasks(*PLACED), (TasksPlaced(*PLACED),), {}),
    (
        KillTasks("ann/web"),
        (TasksEnded("ann/web", MANY, Ending.KILL, ("x",) * len(MANY)),),
        {"indexes": None},
    ),
    (KillTasks("ann/web", (1,)), (TasksEnded("ann/web", (1,), Ending.KILL, ("x",)),), {}),
    (KillTasks("ann/web", (1,)), (), {"job": "ann/web", "indexes": [1]}),
    (CordonMachine("m1", "dust"), (MachineCordoned("m1", "dust"),), {}),
    (CordonMachine("m1"), (), {"machine": "m1"}),
    (
        JoinMachine(machine("m1"), "i", known=True),
        (MachineJoined(machine("m1")),),
        {"instance": "i", "known": True},
    ),
    (
        JoinMachine(machine("m1", boot_id="b2", capacity=Resources(1, 2, 3)), "i", known=True),
        (MachineJoined(machine("m1", capacity=Resources(7, 2, 3))),),
        {"machine": {"boot_id": "b2", "capacity": {"cpu_millis": 1}}, "instance": "i", "known": True},
    ),
    (
        BeginEpoch(3, "me", Rules(DEFAULT_BANDS), Seen(2, 2, 9)),
        (Elected(3, 1, "me"),),
        {
            "rules": msgspec.to_builtins(Rules(DEFAULT_BANDS)),
            "seen": {"timeline": 2, "epoch": 2, "attempt": 9, "reason": ""},
        },
    ),
    (
        RollBack(4, 1.5, frozenset({"b/b", "a/a", "c/c"}), hurried=True, max_affected=3),
        (RolledBack(2, 4, 1.5, "rolled back"),),
        {"only": ["a/a", "b/b", "c/c"], "hurried": True, "max_affected": 3},
    ),
    (
        AdvanceRollouts({"ann/web": (1, 2)}),
        (RolloutWentOn("ann/web", (1, 2, 3)),),
        {"stop": {"ann/web": [1, 2]}},
    ),
    (
        SetQuota("ann", Band.BATCH, Resources(1, 2), beyond_cell=True),
        (QuotaSet(Quota("ann", Band.BATCH, Resources(1, 2), 0.0)),),
        {
            "user": "ann",
            "band": "batch",
            "limits": msgspec.to_builtins(Resources(1, 2)),
            "beyond_cell": True,
        },
    ),
)


@pytest.mark.parametrize(("command", "events", "kept"), CASES)
def test_only_what_events_lack_is_kept(
    command: Command, events: tuple[AnyEvent, ...], kept: dict[str, Any]
) -> None:
    recorded = record([(command, events)])
    assert recorded.fields == ((kept,) if kept else ())
    assert commands_of(NO_CELL, entry(type(command).__name__, recorded, *events)) == (command,)


def test_the_commands_of_a_pass_are_told_apart() -> None:
    """What is in an alloc that is evicted has an event, and no command."""
    one = EvictTasks("ann/web", (1,), Eviction.PREEMPTED, "for room", 2.0, "ann/big/0")
    alloc = EvictTasks("ann/room", (0, 4), Eviction.PREEMPTED, "for room")
    went = TasksEvicted("ann/room", (0,), Eviction.PREEMPTED, "for room")  # 4 had ended
    events = TasksEvicted("ann/web", (1,), Eviction.PREEMPTED, "for room", 2.0, "ann/big/0"), went
    moved = TasksEvicted("ann/in", (3,), Eviction.ALLOC_MOVED, "its alloc left")
    recorded = record([(one, events[:1]), (alloc, (went, moved))])
    assert recorded.fields == ({}, {"indexes": [0, 4]})
    assert commands_of(NO_CELL, entry("preempt", recorded, *events, moved)) == (one, alloc)


def test_a_pass_of_thousands_is_not_kept_twice() -> None:
    decided = [(PlaceTasks(*PLACED), (TasksPlaced(*PLACED),)) for _ in range(3)]
    recorded = record(decided)
    assert msgspec.json.encode(recorded) == b"{}"
    events = [event for _, (event,) in decided]
    assert commands_of(NO_CELL, entry("place", recorded, *events)) == tuple(command for command, _ in decided)


def test_what_was_not_recorded_is_said_to_be() -> None:
    assert commands_of(NO_CELL, entry("CordonMachine", None, MachineCordoned("m1"))) is None


@pytest.mark.parametrize(
    ("cause", "recorded", "match"),
    [
        ("Reshuffle", Recorded(), "no command Reshuffle"),
        ("CordonMachine", Recorded(), "machine"),
        ("CordonMachine", Recorded(({"machine": 5},)), "str"),
        ("CordonMachine", Recorded(({"machine": "m1", "until": 5},)), "no field until"),
        ("place", Recorded(({}, {})), "shorter|longer"),
    ],
)
def test_what_this_version_cannot_read_names_the_entry(cause: str, recorded: Recorded, match: str) -> None:
    with pytest.raises(
        StoreDamaged, match=f"command of journal entry 7 cannot be read: .*({match})"
    ) as caught:
        commands_of(NO_CELL, entry(cause, recorded, *((TasksPlaced(*PLACED),) if cause == "place" else ())))
    check_refusal(caught.value)


def test_the_facts_by_which_something_is_decided_are_kept() -> None:
    observed = Observed()
    observed.machines["m1"] = SeenMachine(heard=20.0, watched_since=30.0, instance="other", boot_id="b")
    removed, joins = RemoveMachine("m1"), JoinMachine(machine("m1"), "i", known=False)
    assert facts_of(observed, removed, NOW) == Facts(silent_seconds=20.0)
    assert facts_of(observed, joins, NOW) == Facts(instance="other")
    assert recorded_of(observed, removed, (), NOW) == Recorded(
        ({"machine": "m1"},), Facts(silent_seconds=20.0)
    )
    for command in (removed, joins):
        facts = facts_of(observed, command, NOW)
        assert facts_of(observed_of(facts, command, Now(9.0, 0.0)), command, Now(9.0, 0.0)) == facts


def test_of_most_commands_nothing_observed_is_kept() -> None:
    observed = Observed()
    observed.machines["m1"] = SeenMachine(heard=20.0, instance="other")
    assert facts_of(observed, JoinMachine(machine("m1"), "i", known=True), NOW) is None
    assert facts_of(observed, JoinMachine(machine("m2"), "i", known=False), NOW) is None
    assert facts_of(observed, RemoveMachine("m2"), NOW) is None
    assert facts_of(observed, CordonMachine("m1"), NOW) is None
    assert observed_of(None, CordonMachine("m1"), NOW).machines == {}
