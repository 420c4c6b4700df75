"""The words of ``/v1`` about the past: history, differences, checkpoints. The rest is in ``api``."""

from typing import Annotated

import msgspec

from borgish.vocabulary import CHECKPOINT_NAME_PATTERN, JOB_PATTERN
from borgish.wire.api import (
    AsOf,
    CheckpointView,
    EventView,
    JobView,
    MachineView,
    MaxAffected,
    Page,
    SummaryView,
    documented,
)


class HistoryView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the journal: who asked for what, and what happened by it."""

    position: int
    at: str
    timeline: int
    epoch: int
    actor: str  # a user, a machine, or the part of borgish that decided
    asked: str  # submit, scale, kill, place, report ...
    subject: str = ""  # the job, machine or master it was about
    text: str = ""  # the answer given
    events: tuple[EventView, ...] = ()  # only those of what was asked about


class PastStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the journal, and of what it changed, as much as a screen has room for, as it was then."""

    entry: HistoryView
    pending: int  # tasks of the whole cell, by their state
    running: int
    dead: int
    machines_up: int
    jobs: tuple[JobView, ...] = ()
    jobs_gone: tuple[str, ...] = ()
    machines: tuple[MachineView, ...] = ()  # not those whose tasks alone are others
    machines_gone: tuple[str, ...] = ()


class PastWindow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive entries of the journal, and the cell before the first of them: so the cell after each is
    known. ``earliest`` and ``head`` are the first and the last position of which the cell can be shown."""

    first: SummaryView
    steps: tuple[PastStep, ...]
    position: int  # of the moment that was asked for
    earliest: int
    head: int
    as_of: AsOf | None = None


class ChangeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record that differs between two moments, or tasks of one job that differ alike."""

    kind: str  # added, removed, changed
    name: str  # bands, quota, freeze; machine, user/band, budget, user/job
    lines: tuple[str, ...]  # what differs: "state: running -> dead"; of a new or former one, what it is
    indexes: str = ""  # 0-4,7: of the tasks
    tasks: int = 0  # how many


class DiffView(msgspec.Struct, frozen=True):
    """What differs between two moments, of what is journalled."""

    old: AsOf
    new: AsOf
    changes: dict[
        str, tuple[ChangeView, ...]
    ]  # by section, all of them: rules, machines, quotas, budgets, apps, crons, jobs, tasks


class CheckpointContents(msgspec.Struct, frozen=True):
    """What a checkpoint holds, in numbers; tasks by their state, ``finished`` being some of the dead."""

    timeline: int
    epoch: int
    machines: int
    machines_up: int
    jobs: int
    tasks: int
    pending: int
    running: int
    dead: int
    finished: int


class CheckpointDetail(msgspec.Struct, frozen=True):
    """One checkpoint, looked into. Either ``contents`` are there, or ``problem`` says why they are not."""

    checkpoint: CheckpointView
    contents: CheckpointContents | None
    problem: str = ""


class CheckpointVerdict(msgspec.Struct, frozen=True):
    """Whether a cell can be started from a checkpoint."""

    position: int
    name: str
    good: bool
    text: str  # what it holds, or what is wrong


class HistoryList(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest entries of the journal that match, in order. ``page.next`` is the ``before`` of older ones.

    ``cut_short``: so many entries were looked at that the rest was left; it may hold older ones.
    """

    items: tuple[HistoryView, ...]
    page: Page = Page()
    looked_at: int = 0  # entries of the journal, matching or not
    reached: str = ""  # when the oldest of those was
    cut_short: bool = False
    begins: str = ""  # the journal was pruned, this is back to where it begins: older ones are not kept
    as_of: AsOf | None = None  # of a standby: nothing after it is shown


class CheckpointList(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[CheckpointView, ...]
    as_of: AsOf | None = None


class Imported(msgspec.Struct, frozen=True):
    """A checkpoint that was taken in."""

    checkpoint: CheckpointView
    text: str = ""  # what it cannot be used for; "" when there is nothing to say


class CheckpointRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new checkpoint. One with a name stays until it is deleted."""

    name: Annotated[str, documented(pattern=f"^({CHECKPOINT_NAME_PATTERN})?$")] = ""


class JobRollback(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rollback does to one job."""

    name: str  # user/job
    change: str  # returns, changes, vanishes
    lines: tuple[str, ...] = ()  # what differs of its specification: "tasks: 5 -> 3"
    stopped: int = 0  # running tasks that end or run anew
    started: int = 0
    kept: int = 0  # running tasks that go on untouched
    results_kept: int = 0  # tasks that have finished or failed since, and do not run again


IS_REMOVED = " is removed"
"""So the words end about what a rollback removes, but for jobs, which have a ``change``."""


class RollbackPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rollback would do, done now. ``refusal`` says why it would not be done as it was asked for."""

    to: AsOf
    stopped: int  # running tasks of the whole cell, as those below
    started: int
    kept: int
    results_kept: int
    jobs: tuple[JobRollback, ...] = ()
    machines: tuple[str, ...] = ()  # in words: "m1 is cordoned again"
    quotas: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    crons: tuple[str, ...] = ()  # in words, as the others
    runs: str = ""  # where there are runs of crons: they stay as they are
    freeze: str = ""  # where the cell is frozen: it stays so
    machines_missing: tuple[str, ...] = ()  # there then and not now; they do not come back by themselves
    refusal: str = ""
    hint: str = ""


JobNames = Annotated[
    tuple[Annotated[str, documented(pattern=f"^{JOB_PATTERN}$")], ...], documented(maxItems=1000)
]
Moment = Annotated[str, documented(pattern=r"^(now|[0-9]{1,18}|[0-9]{1,6}[smhd])$")]  # more is understood
Count = Annotated[int, documented(minimum=0)]


class RollbackRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Back to a moment: a time, an age, a position of the journal, or a checkpoint's name."""

    to: Moment
    only: JobNames = ()  # these jobs, as user/job; none: the whole cell
    now: bool = False  # stop at once what is to stop, rather than a few tasks a second
    max_affected: MaxAffected | None = None  # so many running tasks may be stopped; none: a small share
