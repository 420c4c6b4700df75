"""Which entries and events belong to what is asked about, and in which words."""

import math

import pytest

from borgish.api.moments import moment
from borgish.api.views.history import COMMAND_WORDS, HistoryFilter, history_view
from borgish.cell import events as happened
from borgish.cell.command import Command
from borgish.cell.decide import decide
from borgish.cell.events import AnyEvent, Entry
from borgish.errors import Invalid
from borgish.reconcilers import stranded
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Eviction
from tests.unit.api.cells import NOW, machine, small_cell, small_observed

JOB = "ann/web"
SPEC = JobSpec("web", "ann", 3, ("true",))
PLACED = happened.TasksPlaced(JOB, (0, 1, 2), ("m1", "m2", "m1"), ((1,), (2,), (3,)))


def entry(*events: AnyEvent, cause: str = "Observe", actor: str = "m1", subject: str = "") -> Entry:
    return Entry(7, 1e9, 2, 3, actor, cause, events, "r1", "d", subject, "an answer")


def words(found: Entry, wanted: HistoryFilter) -> list[str] | None:
    view = history_view(found, wanted)
    return None if view is None else [event.text for event in view.events]


def test_every_command_has_its_word() -> None:
    assert set(COMMAND_WORDS) == {command.__name__ for command in Command.__subclasses__()}
    assert len(set(COMMAND_WORDS.values())) == len(COMMAND_WORDS)


def test_a_cause_that_is_a_word_already_stays() -> None:
    view = history_view(entry(PLACED, cause="place", actor="scheduler"), HistoryFilter())
    assert view is not None
    assert (view.asked, view.actor) == ("place", "scheduler")


def test_an_entry_is_shown_complete() -> None:
    view = history_view(entry(PLACED, cause="RestartTasks", actor="ann", subject=JOB), HistoryFilter())
    assert view is not None
    assert (view.position, view.at, view.timeline, view.epoch) == (7, "2001-09-09T01:46:40.000Z", 2, 3)
    assert (view.actor, view.asked, view.subject, view.text) == ("ann", "restart", JOB, "an answer")
    assert [event.text for event in view.events] == ["ann/web tasks 0-2 placed on m1, m2"]


def test_of_a_job_only_its_own_events() -> None:
    other = happened.TasksPlaced("bob/db", (0,), ("m1",))
    assert words(entry(other, PLACED), HistoryFilter("bob/db")) == ["bob/db/0 placed on m1"]
    assert words(entry(other), HistoryFilter(JOB)) is None
    assert words(entry(happened.JobSubmitted(SPEC), actor="ann"), HistoryFilter(JOB)) == [
        "ann submitted ann/web: 3 tasks"
    ]


def test_of_a_task_its_own_row_of_each_event() -> None:
    ended = happened.TasksEnded(JOB, (1, 2), Ending.FAIL, ("", "oom"), (1, None), (None, 9))
    found = entry(PLACED, ended)
    assert words(found, HistoryFilter(JOB, 2)) == [
        "ann/web/2 placed on m1",
        "ann/web/2 failed: oom (signal 9)",
    ]
    assert words(found, HistoryFilter(JOB, 0)) == ["ann/web/0 placed on m1"]
    assert words(found, HistoryFilter(JOB, 3)) is None
    placed = history_view(entry(PLACED), HistoryFilter(JOB, 1))
    assert placed is not None
    assert (placed.events[0].machine, placed.events[0].indexes) == ("m2", (1,))


def test_what_no_tuple_holds_is_left_out_of_a_row() -> None:
    killed = happened.TasksEnded(JOB, (0, 1), Ending.KILL, ("", "by ann"))
    assert words(entry(killed), HistoryFilter(JOB, 1)) == ["ann/web/1 killed: by ann"]


def test_what_is_about_the_whole_job_is_about_each_task() -> None:
    assert words(entry(happened.JobChanged(JOB, SPEC), actor="ann"), HistoryFilter(JOB, 0)) == [
        "ann changed ann/web: 3 tasks"
    ]


def test_of_a_machine_what_is_placed_there_and_what_it_reports() -> None:
    assert words(entry(PLACED), HistoryFilter(machine="m2")) == ["ann/web/1 placed on m2"]
    assert words(entry(PLACED), HistoryFilter(machine="m3")) is None
    failed = happened.TasksEnded(JOB, (0,), Ending.FAIL, ("",), (1,), (None,))
    assert words(entry(failed, subject="m1"), HistoryFilter(machine="m1")) == [
        "ann/web/0 failed: exit code 1"
    ]
    assert words(entry(failed, subject="m1"), HistoryFilter(machine="m2")) is None
    assert words(entry(happened.MachineJoined(machine("m2"))), HistoryFilter(machine="m2")) is not None
    assert words(entry(happened.MachineDown("m2", "silent")), HistoryFilter(machine="m2")) == [
        "m2 is down: silent"
    ]
    assert words(entry(happened.MachineDown("m2", "silent")), HistoryFilter(machine="m1")) is None


def test_of_a_machine_the_tasks_that_were_lost_with_it() -> None:
    cell, observed = small_cell(), small_observed()
    cell.machines["m1"].up = False
    for seen in observed.machines.values():
        seen.heard = 1.0
    observed.machines["m2"].heard = NOW.mono
    settings = ReconcileSettings(recently_back_seconds=0.0, led_since=-math.inf)
    cell.machines["m3"].up = True
    (lose,) = stranded.reconcile(cell, observed, settings, NOW)
    lost = decide(cell, observed, lose, "stranded", NOW)
    evicted = next(event for event in lost.events if isinstance(event, happened.TasksEvicted))
    found = entry(evicted, cause="EvictTasks", actor="stranded", subject=evicted.job)
    assert words(found, HistoryFilter(machine="m1")) is not None
    assert words(found, HistoryFilter(machine="m")) is None
    drained = happened.TasksEvicted(evicted.job, evicted.indexes, Eviction.DRAIN, "m1 is down")
    assert words(entry(drained), HistoryFilter(machine="m1")) is None


def test_a_request_that_changed_nothing_belongs_to_what_it_was_about() -> None:
    nothing = entry(cause="KillTasks", actor="ann", subject=JOB)
    assert words(nothing, HistoryFilter()) == []
    assert words(nothing, HistoryFilter(JOB)) == []
    assert words(nothing, HistoryFilter("bob/db")) is None
    assert words(nothing, HistoryFilter(JOB, 0)) is None
    assert words(nothing, HistoryFilter(machine="m1")) is None


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (None, None, True),
        (1e9, 1e9, True),
        (1e9 + 1, None, False),
        (None, 1e9 - 1, False),
    ],
)
def test_only_what_is_in_the_time(since: float | None, until: float | None, found: bool) -> None:
    assert (history_view(entry(PLACED), HistoryFilter(since=since, until=until)) is not None) is found


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", None),
        ("2001-09-09T01:46:40Z", 1e9),
        ("2001-09-09T03:46:40+02:00", 1e9),
        ("2001-09-09T01:46:40", 1e9),
        ("2001-09-09", 1e9 - 6400),
        ("30m", 2e9 - 1800),
        ("1.5h", 2e9 - 5400),
        ("1000d", 2e9 - 86_400_000),
        ("500ms", 2e9 - 0.5),
    ],
)
def test_moments(text: str, at: float | None) -> None:
    assert moment(text, "since", 2e9) == at


@pytest.mark.parametrize("text", ["yesterday", "2h before", "+2h", "12", "2001-13-01", "5 w", "1..2h", "\0"])
def test_what_is_no_moment_is_refused_by_name(text: str) -> None:
    with pytest.raises(Invalid, match=r"since: .* is neither a time nor an age") as caught:
        moment(text, "since", 2e9)
    assert "2h" in caught.value.hint
