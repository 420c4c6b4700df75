import typing

import pytest

from borgish.api.views.events import _LINES, event_views
from borgish.bands import Bands
from borgish.cell import events as happened
from borgish.cell.events import AnyEvent, Entry
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Drain, Rules, TaskLease, Window
from borgish.resources import Resources
from borgish.spec.job import Constraint, JobSpec
from borgish.spec.shares import Share
from borgish.vocabulary import Band, Ending, Eviction, HandoverCause
from borgish.wire.api import EventView
from tests.unit.api.cells import machine

DRAINS = (
    Drain("ann", 1.0, 2.0, "disk"),
    Drain("bob", 1.0, 2.0, window=Window(3600.0, 7200.0, 0.0), begun=False),
)
QUOTA = Quota("bob", Band.BATCH, Resources(2000, devices={"gpu": 1000}), 1e9)
BUDGET = Budget("web", (Constraint("app", "==", ("web",)),), Share())


def lines(*events: AnyEvent) -> list[EventView]:
    return event_views(Entry(7, 1e9, 1, 1, "ann", "x", events))


def test_every_event_has_its_words() -> None:
    assert set(_LINES) == set(typing.get_args(AnyEvent))


def test_lines_carry_position_time_and_what_they_are_about() -> None:
    (line,) = lines(happened.TasksPlaced("ann/web", (0, 1), ("m1", "m1")))
    assert (line.position, line.at, line.kind) == (7, "2001-09-09T01:46:40.000Z", "placed")
    assert (line.job, line.indexes, line.machine, line.bad) == ("ann/web", (0, 1), "m1", False)
    assert line.text == "ann/web tasks 0-1 placed on m1"


def test_many_machines_are_cut() -> None:
    (line,) = lines(happened.TasksPlaced("ann/web", (0, 1, 2, 3, 4), ("a", "b", "c", "d", "e")))
    assert line.text.endswith("placed on a, b, c and 2 more")
    assert line.machine == ""


def test_ends_are_told_by_how_they_ended() -> None:
    ended = happened.TasksEnded(
        "ann/x", (0, 1, 2), Ending.FAIL, ("", "", "oom"), (1, 1, None), (None, None, 9)
    )
    assert [line.text for line in lines(ended)] == [
        "ann/x tasks 0-1 failed: exit code 1",
        "ann/x/2 failed: oom (signal 9)",
    ]
    assert all(line.bad for line in lines(ended))


@pytest.mark.parametrize(
    ("cause", "drains", "words"),
    [
        (
            "CancelMaintenance",
            DRAINS[:1],
            "maintenance of m1 is cancelled by ann; it is to be empty: drained by ann: disk",
        ),
        ("CancelMaintenance", (), "maintenance of m1 is cancelled by ann"),
        ("DrainMachines", DRAINS[:1], "m1 is to be empty: drained by ann: disk"),
        ("UndrainMachines", (), "m1 is not drained, by ann"),
        (
            "UndrainMachines",
            DRAINS[1:],
            "m1 is planned for maintenance 1970-01-01 01:00 UTC to 1970-01-01 02:00 UTC by bob, by ann",
        ),
    ],
)
def test_drains_and_windows_name_once_who_did_it(cause: str, drains: tuple[Drain, ...], words: str) -> None:
    entry = Entry(7, 1e9, 1, 1, "ann", cause, (happened.MachineDrained("m1", drains),))
    assert [(line.machine, line.text) for line in event_views(entry)] == [("m1", words)]


def test_too_many_ways_to_end_become_one_line() -> None:
    count = 40
    restarted = happened.TasksRestarted(
        "ann/x", tuple(range(count)), (1,) * count, tuple(range(count)), (None,) * count, ("",) * count
    )
    (line,) = lines(restarted)
    assert line.indexes == tuple(range(count))
    assert "in different ways" in line.text


LATE = happened.TasksEnded("ann/x", (0,), Ending.FINISH, ("",), (0,), (None,), attempts=(7,))


@pytest.mark.parametrize(
    ("event", "kind", "words", "bad"),
    [
        (happened.Elected(2, 1, "host"), "master", "host leads the cell", False),
        (happened.JobSubmitted(JobSpec("x", "ann", 1, ("x",))), "submitted", "submitted ann/x: 1", False),
        (happened.JobChanged("ann/x", JobSpec("x", "ann", 3, ("x",))), "changed", "3 tasks", False),
        (happened.JobForgotten("ann/x"), "forgotten", "no longer kept", False),
        (happened.TasksEnded("ann/x", (0,), Ending.FINISH, ("",), (0,), (None,)), "ended", "finished", False),
        (happened.TasksEnded("ann/x", (0,), Ending.KILL, ("killed by ann",)), "killed", "0 killed by", False),
        (
            happened.TasksPlaced("ann/x", (0, 1), ("m1", "m2"), incoming=(0, 1)),
            *("placed", "incoming attempt of ann/x tasks 0-1 placed on m1, m2", False),
        ),
        (
            happened.TasksEvicted("ann/x", (0,), Eviction.DRAIN, taken_over=(0,)),
            *("evicted", "ann/x/0 taken over by the incoming attempt, drain", True),
        ),
        (
            happened.HandoversBegan("ann/x", (0,), HandoverCause.DRAIN, "m1 is to be empty"),
            *("handover", "ann/x/0 to be replaced by an incoming attempt: m1 is to be empty", False),
        ),
        (happened.TasksHandedOver("ann/x", (0,)), "handover", "ann/x/0 handed over to the", False),
        (
            happened.IncomingEnded("ann/x", (0,), "m2 is down: silent"),
            *("handover", "attempt of ann/x/0 is given up: m2 is down: silent", True),
        ),
        (
            happened.HandoversEnded("ann/x", (0,), "it need not be replaced any more"),
            *("handover", "ann/x/0 no longer to be replaced: it need not", False),
        ),
        (LATE, "ended", "ann/x/0 finished: exit code 0 (by attempt 7, presumed lost)", False),
        (happened.MachineTainted("m3", ()), "machine", "has no taints any more, by", False),
        (happened.TasksEvicted("ann/x", (0,), Eviction.RESTART), "evicted", "restart", False),
        (happened.TasksEvicted("ann/x", (0,), Eviction.MACHINE_LOST, "m1 is down"), "evicted", "down", True),
        (happened.TasksResubmitted("ann/x", (0,)), "submitted", "ann submitted ann/x/0 again", False),
        (happened.LeasesEnded("ann/x", (0,), (7,), "lapsed"), "lease", "no longer runs as at", False),
        (happened.LeasesFound("ann/x", (0,), (TaskLease(7, "m1"),)), "lease", "may run on m1 still", True),
        (happened.MachineJoined(machine("m1")), "machine", "m1 joined with 4 cpu, 8GiB ram", False),
        (happened.MachineDown("m1", "silent"), "machine", "m1 is down: silent", True),
        (happened.MachineLost("m1", 5.0), "machine", "m1 is given up, and its tasks", True),
        (happened.MachineUp("m1"), "machine", "m1 is up again", False),
        (happened.MachineCordoned("m1", "disk"), "machine", "m1 was cordoned by ann: disk", False),
        (happened.MachineDrained("m1", DRAINS), "machine", "is to be empty: drained by ann: disk;", False),
        (happened.MachineDrained("m1", ()), "machine", "m1 is not drained, by ann", False),
        (happened.QuotaSet(QUOTA), "quota", "ann set the quota bob/batch to 2 cpu, 1 gpu until 2001", False),
        (happened.QuotaRemoved("bob/batch"), "quota", "ann removed the quota bob/batch", False),
        (happened.BudgetSet(BUDGET), "budget", "ann set the budget web to at most 1 of app == web", False),
        (happened.BudgetRemoved("web"), "budget", "ann deleted the budget web", False),
        (happened.CellFrozen("holidays"), "freeze", "taken down on purpose: holidays", False),
        (happened.CellUnfrozen(), "freeze", "ann unfroze the cell", False),
        (happened.RulesSet(Rules(Bands(batch=90))), "rules", "batch from 90", False),
        (happened.RulesSet(Rules(quota_required=True)), "rules", "quotas are required", False),
        (happened.MachineUncordoned("m1"), "machine", "takes new tasks again", False),
        (happened.MachineRemoved("m1"), "machine", "m1 was removed from the cell by ann", False),
        (happened.RolledBack(2, 41, 1.0, "why"), "rollback", "ann rolled back to position 41", False),
        (happened.RolloutWentOn("ann/x", (0,), (0,)), "rollback", "ann/x/0 sent back to pending", False),
        (happened.RolloutWentOn("ann/x", (0,), (), (0,)), "rollback", "ann/x/0 ended by", False),
    ],
)  # fmt: skip
def test_each_event_in_words(event: AnyEvent, kind: str, words: str, bad: bool) -> None:
    (line,) = lines(event)
    assert (line.kind, line.bad) == (kind, bad)
    assert words in line.text
