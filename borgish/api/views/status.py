"""The whole cell at one glance, and cut to what fits a screen."""

import heapq
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain, islice

import msgspec

import borgish
from borgish.api.views.jobs import job_view
from borgish.api.views.machines import drained_text, machine_rank, machine_view, silent
from borgish.api.views.sums import DEAD, FAILED, FINISHED, PENDING, RUNNING, TASKS
from borgish.api.views.tally import Tally
from borgish.cell.apps.members import members
from borgish.cell.free_space import AMPLE, FreeSpace, refusing
from borgish.cell.machines.drains import Drains
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.text import instant
from borgish.vocabulary import Band
from borgish.wire.api import (
    AppSummary,
    BandUse,
    CheckpointView,
    EventView,
    RefusalView,
    StatusView,
    SummaryView,
)
from borgish.wire.api_certificates import CertificatesView

MACHINES_SHOWN = 100
JOBS_SHOWN = 100
REFUSALS_SHOWN = 50
EVENTS_SHOWN = 50
PAUSED_SHOWN = 10
UNCERTIFIED_SHOWN = 20
CRON_APPS_SHOWN = 20


class Daemon(msgspec.Struct, frozen=True):
    """What the status says of the daemon itself."""

    started_at: float  # seconds since 1970
    store: str  # sqlite, postgresql or memory
    last_checkpoint: CheckpointView | None = None
    free_space: FreeSpace = AMPLE  # for the store
    refused: str = ""  # why the machines' refusal lets no command be accepted; "" when they obey
    certificates: tuple[CertificatesView, ...] = ()
    uncertified: tuple[str, ...] = ()  # machines without a certificate of the cell's authority
    busy: tuple[str, ...] = ()  # of whom no more is taken in, or lately was not, and why

    @property
    def refusing(self) -> tuple[str, ...]:
        """Which commands are refused now, a sentence for each reason."""
        return tuple(words for words in (self.refused, refusing(self.free_space)) if words)


def status_view(cell: Cell, observed: Observed, tally: Tally, daemon: Daemon, now: Now) -> StatusView:
    """Return the cell at one glance."""
    tally.fill(cell, observed)
    sums = tally.sums
    counts = sums.counts
    draining = [cell.machines[name] for name in sorted(sums.draining)]
    return StatusView(
        cell=cell.name,
        version=borgish.__version__,
        position=cell.position,
        timeline=cell.timeline,
        epoch=cell.epoch,
        started_at=instant(daemon.started_at),
        now=instant(now.wall),
        machines=len(cell.machines),
        machines_up=sums.machines_up,
        jobs=len(cell.jobs),
        tasks=counts[TASKS],
        pending=counts[PENDING],
        running=counts[RUNNING],
        up=tally.all_up if observed.known else None,
        dead=counts[DEAD],
        capacity=sums.capacity,
        bands=tuple(BandUse(band, *sums.band(band)) for band in Band),
        store=daemon.store,
        last_checkpoint=daemon.last_checkpoint,
        to_change=sum(len(rollout.attempts) for key in cell.rolling if (rollout := cell.jobs[key].rollout)),
        refusing=daemon.refusing,
        busy=daemon.busy,
        store_free_bytes=daemon.free_space.free_bytes,
        machines_silent=sum(map(sums.is_up, silent(observed))),
        finished=counts[FINISHED],
        failed=counts[FAILED],
        killed=counts[DEAD] - counts[FINISHED] - counts[FAILED],
        rollbacks_paused=tuple(islice(_paused(cell), PAUSED_SHOWN)),
        frozen=str(cell.freeze or ""),
        machines_draining=len(draining),
        waiting=sum(map(len, cell.deferred.values())),
        draining=tuple(f"{each.name}: {drained_text(cell, each)}" for each in draining[:PAUSED_SHOWN]),
        certificates=daemon.certificates,
        uncertified=daemon.uncertified[:UNCERTIFIED_SHOWN],
        machines_uncertified=len(daemon.uncertified),
    )


def _paused(cell: Cell) -> Iterator[str]:
    for key in sorted(cell.rolling):
        rollout = cell.jobs[key].rollout
        if rollout is not None and rollout.paused:
            yield f"{key}: {rollout.paused}"


def summary_view(
    cell: Cell,
    observed: Observed,
    tally: Tally,
    status: StatusView,
    refusals: Mapping[str, tuple[RefusalView, ...]],
    events: Sequence[EventView],
    now: Now,
) -> SummaryView:
    """Return what the dashboard shows; ``events`` are the latest, in order."""
    tally.fill(cell, observed)
    drains = Drains(cell, observed, now)
    machines = heapq.nsmallest(
        MACHINES_SHOWN, cell.machines.values(), lambda m: machine_rank(observed, tally, m)
    )
    jobs = [cell.jobs[key] for key in tally.jobs(JOBS_SHOWN)]
    return SummaryView(
        status=status,
        machines=tuple(machine_view(cell, observed, tally, m, now, drains) for m in machines),
        jobs=tuple(
            job_view(cell, observed, job, refusals.get(job.key, ()), tally.up(job.key)) for job in jobs
        ),
        pending=tuple(islice(chain.from_iterable(refusals.values()), REFUSALS_SHOWN)),
        events=tuple(events[-EVENTS_SHOWN:]),
        apps=tuple(_apps(cell, tally, {job.app for job in jobs if job.app}.union(_of_crons(cell)))),
    )


def _of_crons(cell: Cell) -> Iterator[str]:
    """Yield applications of crons alone, whose line is that of none of their jobs."""
    found = (key for key, app in cell.apps.items() if app.present.crons and not app.present.documents)
    return islice(found, CRON_APPS_SHOWN)


def _apps(cell: Cell, tally: Tally, chosen: Set[str]) -> Iterator[AppSummary]:
    for key in sorted(chosen):
        jobs = members(cell, key)
        yield AppSummary(
            name=key,
            version=cell.apps[key].version,
            jobs=len(jobs),
            tasks=sum(len(job.tasks) for job in jobs),
            up=sum(tally.up(job.key) + job.finished for job in jobs),
            pending=sum(job.pending for job in jobs),
            failed=sum(job.failed for job in jobs),
            crons=sum(spec.key in cell.crons for spec in cell.apps[key].present.crons),
        )
