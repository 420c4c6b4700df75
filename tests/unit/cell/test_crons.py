"""Crons through the core: what begins when, once and for good, whatever clocks and masters do."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    ForgetJob,
    KillTasks,
    PauseCron,
    RemoveCron,
    ResumeCron,
    RunCron,
    SetCron,
    SetQuota,
    SubmitJob,
)
from borgish.cell.crons.model import OUTPUT_SECONDS_MAX, Cron, output_seconds
from borgish.cell.decide import decide
from borgish.cell.events import CronFired, JobSubmitted
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import Conflict, NotFound
from borgish.master.core import Core
from borgish.master.step import CommandRequest
from borgish.reconcilers.crons import CRON_STARTS_MAX
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.vocabulary import Band, Missed, Overlap, State
from borgish.wire.api import Accepted
from tests.sentences import check_refusal, check_sentence
from tests.unit.cell.crons import cron
from tests.unit.cell.lived import Lived, spec

KEY = "ann/nightly"
BEGIN = 1_800_000_000.0  # a full minute: Fri 2027-01-15 08:00 UTC


class Days:
    """A master without machines, whose clock is ours."""

    def __init__(self, cell: Cell | None = None, wall: float = BEGIN) -> None:
        self.now = Now(wall, 10.0)
        self.core = Core(cell or Cell(Snapshot("test")), ReconcileSettings(), self.now)
        self.fired: list[CronFired] = []
        self.begun: list[JobSubmitted] = []
        self.core.begin((cell.epoch if cell else 0) + 1, "me", self.now)

    @property
    def cell(self) -> Cell:
        return self.core.cell

    def step(self, *commands: Command, seconds: float = 0.0) -> list[Any]:
        """Take one step after so many seconds."""
        self.now = self.now.later(seconds)
        asked = [CommandRequest(number, command, "ann") for number, command in enumerate(commands)]
        step = self.core.step(asked, self.now)
        assert step.failures == (), step.failures
        assert violations(self.cell) == []
        for entry in step.entries:
            if entry.text:
                check_sentence(entry.text.partition("\n")[0])
            fired = [event for event in entry.events if isinstance(event, CronFired)]
            self.fired += fired
            begun = [event for event in entry.events if isinstance(event, JobSubmitted) and event.cron]
            self.begun += begun
        return [reply for _, reply in step.replies]

    def ask(self, command: Command) -> Accepted:
        """Ask for something that is accepted."""
        (reply,) = self.step(command)
        assert isinstance(reply, Accepted), reply
        return reply

    def past(self, seconds: float, each: float = 0.5) -> None:
        """Let time pass, a step each half second as in a turn at rest."""
        for _ in range(int(seconds / each)):
            self.step(seconds=each)

    def runs(self) -> list[str]:
        """Return what began, by name, in order."""
        return [event.spec.name for event in self.begun]

    @property
    def cron(self) -> Cron:
        return self.cell.crons[KEY]


@pytest.fixture
def days() -> Days:
    return Days()


MINUTELY = cron(schedule="* * * * *", overlap=Overlap.ALLOW)


def test_each_time_begins_one_run(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    days.past(180.0)
    assert days.runs() == ["nightly-20270115t0801", "nightly-20270115t0802", "nightly-20270115t0803"]
    assert [event.due for event in days.begun] == [BEGIN + 60 * each for each in (1, 2, 3)]
    assert all(event.late_seconds <= 0.5 for event in days.fired)
    assert (days.cron.last, days.cron.next, days.cron.note) == (BEGIN + 180, BEGIN + 240, "")
    assert {job.cron for job in days.cell.jobs.values()} == {KEY}


@pytest.mark.parametrize(
    ("overlap", "runs", "live", "note"),
    [
        (Overlap.FORBID, 1, 1, "nightly-20270115t0801 still went on"),
        (Overlap.ALLOW, 3, 3, ""),
        (Overlap.REPLACE, 3, 1, ""),
    ],
)
def test_runs_that_overlap(days: Days, overlap: Overlap, runs: int, live: int, note: str) -> None:
    days.ask(SetCron(cron(schedule="* * * * *", overlap=overlap)))
    days.past(180.0)
    assert (len(days.runs()), days.cron.note) == (runs, note)
    assert sum(job.state is not State.DEAD for job in days.cell.jobs.values()) == live
    if overlap is Overlap.REPLACE:
        first = days.cell.jobs["ann/nightly-20270115t0801"].tasks[0]
        assert first.reason == "replaced by nightly-20270115t0802"


@pytest.mark.parametrize(
    ("missed", "overlap", "runs"),
    [
        (Missed.SKIP, Overlap.ALLOW, ["t0900"]),
        (Missed.ONCE, Overlap.ALLOW, ["t0900"]),
        (Missed.ALL, Overlap.ALLOW, [f"t085{each}" for each in range(1, 10)] + ["t0900"]),
        (Missed.ONCE, Overlap.REPLACE, ["t0900"]),
    ],
)
def test_a_master_was_away(days: Days, missed: Missed, overlap: Overlap, runs: list[str]) -> None:
    """For an hour: of what was due in it all, the last, or what is of this minute."""
    days.ask(SetCron(cron(schedule="* * * * *", missed=missed, overlap=overlap)))
    after = Days(days.cell, BEGIN + 3600.0)
    after.step(seconds=1.0)
    assert [name[-5:] for name in after.runs()] == runs
    assert after.cron.last == BEGIN + 3600.0
    after.past(30.0)
    assert len(after.runs()) == len(runs)
    assert after.cron.note == "what was due since 2027-01-15T08:01:00.000Z was missed"


def test_what_was_due_long_ago_is_left_out_where_it_is_to_be(days: Days) -> None:
    days.ask(SetCron(cron(schedule="0 * * * *", missed=Missed.SKIP)))
    after = Days(days.cell, BEGIN + 3600.0 * 5 + 120.0)
    after.step(seconds=1.0)
    assert after.runs() == []
    assert after.cron.note == "what was due since 2027-01-15T09:00:00.000Z was missed"
    assert (after.cron.last, after.cron.next) == (BEGIN + 3600.0 * 5, BEGIN + 3600.0 * 6)


def test_another_master_deals_with_what_the_one_before_has_not_and_with_nothing_twice(days: Days) -> None:
    """Whether it failed before the entry or after it: it is there or it is not."""
    days.ask(SetCron(MINUTELY))
    days.past(59.5)
    before = Days(days.cell, BEGIN + 60.0)
    before.step(seconds=0.2)
    assert before.runs() == ["nightly-20270115t0801"]
    again = Days(before.cell, BEGIN + 60.4)
    again.past(5.0)
    assert again.runs() == []


def test_a_wall_clock_that_leaps_ahead_begins_nothing(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    days.now = Now(days.now.wall + 10 * 366 * 86400.0, days.now.mono + 1.0)
    days.past(10.0)
    assert days.runs() == []
    days.past(60.0)  # a minute is a minute all the same
    assert days.runs() == ["nightly-20270115t0801"]
    days.now = Now(BEGIN + 75.0, days.now.mono)
    days.past(50.0)
    assert days.runs() == ["nightly-20270115t0801", "nightly-20270115t0802"]


def test_a_wall_clock_that_is_set_back_begins_nothing_twice(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    days.past(125.0)
    assert len(days.runs()) == 2
    days.now = Now(days.now.wall - 86400.0, days.now.mono)
    days.past(300.0)
    assert len(days.runs()) == 2
    days.now = Now(BEGIN + 130.0, days.now.mono)
    days.past(60.0)
    assert len(set(days.runs())) == len(days.runs()) == 3


def test_what_is_paused_is_not_missed(days: Days) -> None:
    days.ask(SetCron(cron(schedule="* * * * *", missed=Missed.ALL, overlap=Overlap.ALLOW)))
    assert days.ask(PauseCron(KEY)).text == "ann/nightly is paused: no run begins"
    assert days.ask(PauseCron(KEY)).text == "ann/nightly is paused by ann already"
    set_again = days.ask(SetCron(cron(schedule="* * * * *", overlap=Overlap.ALLOW)))
    assert set_again.notes == ()
    assert set_again.text == (
        "ann/nightly is changed; it stays paused, as ann wanted, until `borgctl cron resume ann/nightly`"
    )
    days.ask(SetCron(cron(schedule="* * * * *", missed=Missed.ALL, overlap=Overlap.ALLOW)))
    days.past(150.0)
    assert (days.runs(), days.cron.next) == ([], 0.0)
    days.ask(ResumeCron(KEY))
    assert days.ask(ResumeCron(KEY)).text == "ann/nightly is not paused"
    days.past(60.0)
    assert days.runs() == ["nightly-20270115t0803"]


def test_another_schedule_holds_from_now_on_and_all_else_at_once(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    days.step(seconds=59.0)
    days.step(SetCron(cron(schedule="* * * * *", overlap=Overlap.ALLOW, keep=2)), seconds=1.5)
    assert days.runs() == ["nightly-20270115t0801"], "what is due already is not lost by another number"
    assert days.ask(SetCron(days.cron.spec)).text == "ann/nightly is there already, exactly like this"
    changed = days.ask(SetCron(cron(schedule="0 9 * * *")))
    assert changed.text.startswith("ann/nightly is changed; next: Fri 2027-01-15 09:00:00 UTC, Sat")
    days.past(120.0)
    assert len(days.runs()) == 1


def test_runs_are_kept_by_their_number(days: Days) -> None:
    days.ask(SetCron(cron(schedule="* * * * *", keep=2, overlap=Overlap.REPLACE)))
    days.past(60.0 * 5 + 5)
    runs = sorted(days.cell.runs[KEY])
    assert runs == [f"ann/nightly-20270115t080{each}" for each in (3, 4, 5)], "two that are over, one lives"
    days.ask(RemoveCron(KEY))
    days.past(5.0)
    assert sorted(days.cell.jobs) == runs
    days.ask(KillTasks(runs[-1]))
    days.step(seconds=86400.0)
    days.step(seconds=86400.0)
    assert days.cell.jobs == {}
    assert days.cell.runs == {}


def test_a_run_by_hand(days: Days) -> None:
    days.ask(SetCron(cron()))
    assert days.ask(RunCron(KEY)).text == "ann/nightly-hand-20270115t080000 begins"
    (refused,) = days.step(RunCron(KEY), seconds=5.0)
    assert isinstance(refused, Conflict)
    assert "still goes on, and ann/nightly forbids that runs overlap" in refused.message
    check_refusal(refused)
    days.ask(PauseCron(KEY))
    days.ask(KillTasks("ann/nightly-hand-20270115t080000"))
    days.ask(RunCron(KEY))
    assert days.runs() == ["nightly-hand-20270115t080000", "nightly-hand-20270115t080005"]
    assert days.cron.last == 0.0


def test_by_hand_another_takes_the_place_of_one_that_goes_on(days: Days) -> None:
    days.ask(SetCron(cron(overlap=Overlap.REPLACE)))
    days.ask(RunCron(KEY))
    (refused,) = days.step(RunCron(KEY))
    assert isinstance(refused, Conflict), "in the same second it has the same name"
    days.step(RunCron(KEY), seconds=1.0)
    states = [days.cell.jobs[f"ann/{name}"].state for name in days.runs()]
    assert states == [State.DEAD, State.PENDING]


def test_what_a_run_is_refused_with_is_noted(days: Days) -> None:
    """And holds up nothing: the next has another try."""
    needs = Resources(100, 1024**2)
    days.ask(SetQuota("ann", Band.BATCH, Resources(50, 1024**3)))
    days.ask(SetCron(minutely(priority=100, resources=needs)))
    days.past(60.0)
    assert days.runs() == []
    assert "quota" in days.cron.note
    days.ask(SetQuota("ann", Band.BATCH, Resources(150, 1024**3)))
    days.past(60.0)
    assert days.runs() == ["nightly-20270115t0802"]
    days.past(60.0)  # what it takes the place of asks for nothing more
    assert days.runs()[1:] == ["nightly-20270115t0803"]
    assert days.cron.note == ""


def minutely(**job: Any) -> Any:
    """Return a cron of each minute, whose runs replace each other."""
    made = cron(schedule="* * * * *", overlap=Overlap.REPLACE)
    return msgspec.structs.replace(made, job=msgspec.structs.replace(made.job, **job))


def test_a_job_of_that_name_is_left_alone(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    days.ask(SubmitJob(spec("nightly-20270115t0801")))
    days.past(60.0)
    assert days.runs() == []
    assert days.cron.note == "there is a job nightly-20270115t0801 already"
    assert days.cell.jobs["ann/nightly-20270115t0801"].cron == ""


def test_a_run_that_is_submitted_again_is_a_job_like_any(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    days.past(60.0)
    name = "ann/nightly-20270115t0801"
    days.ask(KillTasks(name))
    days.ask(SubmitJob(spec("nightly-20270115t0801")))
    assert days.cell.jobs[name].cron == ""
    assert days.cell.runs == {}


def test_thousands_at_once_are_spread(days: Days) -> None:
    for number in range(1000):
        days.step(SetCron(cron(f"c{number}", "* * * * *")))
    days.past(59.0)
    assert days.begun == []
    seconds: list[int] = []
    for _ in range(14):
        before = len(days.begun)
        days.step(seconds=0.5)
        seconds.append(len(days.begun) - before)
    assert sum(seconds) == 1000
    assert max(a + b for a, b in pairwise(seconds)) <= CRON_STARTS_MAX
    late = [event for event in days.fired if event.late_seconds > 1.0]
    assert late
    assert all(event.among > CRON_STARTS_MAX for event in late if event.late_seconds < 4.0)


def test_a_hundred_at_once_begin_within_a_second(days: Days) -> None:
    for number in range(100):
        days.step(SetCron(cron(f"c{number}", "* * * * *")))
    days.past(62.0)
    assert len(days.begun) == 100
    assert max(event.late_seconds for event in days.fired) <= 0.5


def test_nothing_is_asked_for_at_rest(days: Days) -> None:
    days.ask(SetCron(MINUTELY))
    position = days.cell.position
    days.past(50.0)
    assert days.cell.position == position


def test_what_is_not_there(days: Days) -> None:
    for command in (RemoveCron(KEY), PauseCron(KEY), ResumeCron(KEY), RunCron(KEY)):
        with pytest.raises(NotFound, match="there is no cron ann/nightly") as caught:
            decide(days.cell, Observed(), command, "ann", days.now)
        check_refusal(caught.value)


# Rollbacks


def test_a_rollback_takes_back_what_a_cron_is_and_nothing_that_was_due() -> None:
    lived = Lived()
    lived.do(SetCron(cron(schedule="* * * * *", overlap=Overlap.ALLOW, keep=3)))
    at = lived.position
    while len(lived.cell.runs.get(KEY, ())) < 2:
        lived.step()
    lived.do(SetCron(cron(schedule="0 0 * * *", keep=9)))
    last, runs = lived.cell.crons[KEY].last, set(lived.cell.runs[KEY])
    lived.roll_back(at)
    back = lived.cell.crons[KEY]
    assert (back.spec.schedule, back.spec.keep, back.last) == ("* * * * *", 3, last)
    assert lived.now.wall < back.next <= lived.now.wall + 60.0
    assert set(lived.cell.runs[KEY]) == runs, "its runs go on"
    assert all(lived.cell.jobs[key].state is not State.DEAD for key in runs)


def test_a_rollback_brings_no_run_back_and_removes_what_came() -> None:
    lived = Lived()
    before = lived.position
    lived.do(SetCron(cron(schedule="* * * * *", overlap=Overlap.ALLOW)))
    while not lived.cell.runs:
        lived.step()
    (run,) = lived.cell.runs[KEY]
    there = lived.position
    lived.do(KillTasks(run))
    lived.do(RemoveCron(KEY))
    lived.do(ForgetJob(run))
    lived.roll_back(there)
    assert lived.cell.jobs == {}
    assert lived.cell.crons[KEY].last < lived.cell.crons[KEY].next
    lived.roll_back(before)
    assert lived.cell.crons == {}


def test_a_paused_cron_comes_back_paused() -> None:
    lived = Lived()
    lived.do(SetCron(cron()))
    lived.do(PauseCron(KEY))
    at = lived.position
    lived.do(ResumeCron(KEY))
    lived.roll_back(at)
    assert (lived.cell.crons[KEY].paused, lived.cell.crons[KEY].next) == ("ann", 0.0)


DAY_SECONDS = 86400.0


@pytest.mark.parametrize(
    ("schedule", "time_zone", "keep", "seconds"),
    [
        # BEGIN is a Friday, 08:00 UTC
        ("0 8 * * *", "UTC", 5, 6 * DAY_SECONDS),
        ("0 8 * * *", "UTC", 1, 2 * DAY_SECONDS),
        ("0 8 * * fri", "UTC", 5, 42 * DAY_SECONDS),
        ("0 8 * * mon-fri", "UTC", 2, 5 * DAY_SECONDS),
        ("*/10 * * * * *", "UTC", 2, 30.0),
        ("0 9 * * *", "Europe/Berlin", 100, 101 * DAY_SECONDS - 3600.0),  # over the change of the clocks
        ("0 8 15 * *", "UTC", 100, OUTPUT_SECONDS_MAX),
        ("0 0 29 2 *", "UTC", 1, OUTPUT_SECONDS_MAX),
    ],
)
def test_output_is_wanted_until_so_many_runs_have_followed(
    schedule: str, time_zone: str, keep: int, seconds: float
) -> None:
    spec = cron(schedule=schedule, time_zone=time_zone, keep=keep)
    assert output_seconds(spec, BEGIN) == seconds


def test_output_of_the_last_runs_of_a_schedule_is_wanted_for_a_year() -> None:
    at_the_end = datetime(2199, 12, 31, tzinfo=UTC).timestamp()
    assert output_seconds(cron(schedule="0 0 * * *"), at_the_end) == OUTPUT_SECONDS_MAX


def test_output_of_a_run_by_hand_is_wanted_as_that_of_one_that_was_due() -> None:
    assert output_seconds(cron(schedule="0 8 * * fri", keep=1), BEGIN + 1.5) == 14 * DAY_SECONDS - 1.5
