"""Crons in the API; see ``wire.api``."""

import msgspec

from borgish.spec.job import JobSpec
from borgish.vocabulary import Missed, Outcome, Overlap, State
from borgish.wire.api import AsOf, Page


class CronStageView(msgspec.Struct, frozen=True):
    """A stage of a run of a cron: a job of its own."""

    name: str  # user/job
    state: State
    outcome: Outcome | None  # of a dead one


class CronRunView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of a cron: a job of its own, or a copy of the stages of an application."""

    name: str  # user/job
    due: str  # of one by hand: when somebody asked for it
    began: str
    state: State
    outcome: Outcome | None  # of a dead one; failed also where a stage did and the others go on or wait
    stages: tuple[CronStageView, ...] = ()  # in the order in which they wait for each other


class CronView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that runs on time. ``note`` says why no run began for ``last``, or fewer than were due."""

    name: str  # user/cron
    user: str
    schedule: str
    time_zone: str
    next: str | None  # when it is due; null: it is paused, or never
    last: str | None  # when it was last due, whatever came of it
    run: CronRunView | None  # the latest that is kept
    runs: int  # that are kept, those that go on among them
    live: int  # of these, those that go on
    keep: int
    paused: str = ""  # by whom
    note: str = ""
    late_seconds: float = 0.0  # so long after ``last`` it was dealt with; 0: within a second
    among: int = 0  # so many crons were due then, more than begin in a second; 0: as many as do
    generation: int = 0  # when somebody last decided about it; see ``JobView``
    app: str = ""  # user/application, of whose stages each run is a copy; "": each run is a job
    times: tuple[str, ...] = ()  # when it is due, ``next`` first; in a list that was asked for with them


class CronDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of a cron. ``spec`` is each of its runs, but for the name; of one that runs an application it is
    nothing but name and user."""

    cron: CronView
    overlap: Overlap
    missed: Missed
    times: tuple[str, ...]  # the next at which it is due
    runs: tuple[CronRunView, ...]  # those that are kept, the latest first
    spec: JobSpec
    set_at: str
    set_by: str
    as_of: AsOf | None = None


class CronList(msgspec.Struct, frozen=True):
    items: tuple[CronView, ...]
    page: Page = Page()
    as_of: AsOf | None = None
