"""Words of the API about applications."""

from typing import Annotated

import msgspec

from borgish.vocabulary import Outcome, State
from borgish.wire.api import AsOf, JobView, MaxAffected, Page, documented
from borgish.wire.api_crons import CronView

SOURCES_MAX = 1000

Variables = Annotated[dict[str, str], documented(maxProperties=1000)]


class SourceText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file, as it was written or as Jsonnet gave it. ``name`` is for messages."""

    name: str
    text: str


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of an application: YAML or JSON, with several documents each.

    ``app`` names it where no document does; ``user`` owns it where none says so. ``variables``: what
    ``{{var.NAME}}`` is. ``prune``: jobs without a document end. ``take_over``: also what others have set.
    """

    sources: Annotated[tuple[SourceText, ...], documented(minItems=1, maxItems=SOURCES_MAX)]
    app: str = ""
    user: str = ""
    variables: Variables = {}
    prune: bool = False
    take_over: bool = False
    max_affected: MaxAffected | None = None


class AppUndoRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``version`` 0: the one before the present one."""

    version: int = 0
    take_over: bool = False
    max_affected: MaxAffected | None = None


class AppRunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``stage``: a job, from which on it runs; "": all of them."""

    stage: str = ""


class AppKillRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``max_affected``: so many running tasks may be stopped, rather than a share of the cell."""

    max_affected: MaxAffected | None = None


class AppChangeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an application's files mean for one of its jobs."""

    job: str
    what: str  # created, updated, scaled, started again, unchanged, ended
    changes: tuple[str, ...] = ()  # against what is there
    tasks: dict[str, str] = {}  # of a job that runs: what becomes of which tasks, by their indexes
    notes: tuple[str, ...] = ()


class AppCronChangeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an application's files mean for one of its crons."""

    cron: str
    what: str  # created, updated, unchanged, removed
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # against what is there


class AppPlanView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What would follow if an application were applied now. ``generation`` is that of what is there (its
    ``ETag``); 0: nothing."""

    app: str
    text: str  # one sentence
    generation: int
    version: int  # that it would have
    changes: tuple[AppChangeView, ...] = ()
    orphans: tuple[str, ...] = ()  # its jobs and crons that have no document, and would stay
    changed: bool = True  # false: it is so already
    crons: tuple[AppCronChangeView, ...] = ()
    followers: tuple[str, ...] = ()  # its jobs that do not change, and wait for those that do


class AppView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An application in a list. Tasks are those of all of its jobs; ``up`` as of a job, None of the past."""

    name: str  # user/app
    user: str
    state: State
    version: int
    jobs: int
    tasks: int
    up: int | None
    pending: int
    running: int
    finished: int
    failed: int
    killed: int
    applied_at: str
    applied_by: str
    generation: int
    labels: dict[str, str] = {}
    outcome: Outcome | None = None  # of one that is dead
    reason: str = ""  # the first thing in the way, with its job
    crons: int = 0
    absent: int = 0  # jobs and crons of its documents that are none of it


class AppList(msgspec.Struct, frozen=True):
    """Applications, by name."""

    items: tuple[AppView, ...]
    page: Page = Page()
    as_of: AsOf | None = None


class AppDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """An application with its jobs. ``missing``: documents whose jobs are not in the cell any more;
    ``orphans``: its jobs that have no document; ``run_by``: crons that run it and are no part of it;
    ``absent``: by job or cron of its documents that is none of it, why, in words."""

    app: AppView
    jobs: tuple[JobView, ...]
    stages: tuple[str, ...] = ()  # of its jobs those that run to completion, in their order
    missing: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    as_of: AsOf | None = None
    crons: tuple[CronView, ...] = ()
    run_by: tuple[CronView, ...] = ()
    absent: dict[str, str] = {}


class AppVersionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an application was by one apply. ``changes``: against the version before, where that is kept."""

    version: int
    at: str
    by: str
    jobs: int
    present: bool
    changes: tuple[str, ...] = ()


class AppVersionList(msgspec.Struct, frozen=True):
    """The versions of an application that are kept, in order; the present one is the last."""

    items: tuple[AppVersionView, ...]
    as_of: AsOf | None = None
