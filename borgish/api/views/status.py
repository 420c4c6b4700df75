"""The whole cell at one glance, and cut to what fits a screen."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice

import msgspec

import borgish
from borgish.api.views.jobs import job_view
from borgish.api.views.machines import drained_text, has_trouble, is_answering, machine_view
from borgish.api.views.tally import Tally, total
from borgish.bands import Bands
from borgish.cell.drains import Drains
from borgish.cell.free_space import AMPLE, FreeSpace, refusing
from borgish.cell.model import Cell, Job, Machine
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.resources import Resources
from borgish.text import instant
from borgish.vocabulary import Band, State
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
    refused: Sequence[str] = ()  # which commands are not accepted and why; "" for what is no reason now
    certificates: tuple[CertificatesView, ...] = ()
    uncertified: tuple[str, ...] = ()  # machines without a certificate of the cell's authority


def status_view(cell: Cell, observed: Observed, tally: Tally, daemon: Daemon, now: Now) -> StatusView:
    """Return the cell at one glance. Costs a walk over jobs and machines, and over the tasks of
    jobs of which some are dead and did not finish."""
    tally.fill(cell, observed)
    jobs = cell.jobs.values()
    machines_up = [machine for machine in cell.machines.values() if machine.up]
    draining = sorted((m for m in cell.machines.values() if m.is_draining), key=lambda machine: machine.name)
    dead, finished = sum(job.dead for job in jobs), sum(job.finished for job in jobs)
    failed = sum(job.failed for job in jobs)
    return StatusView(
        cell=cell.name,
        version=borgish.__version__,
        position=cell.position,
        timeline=cell.timeline,
        epoch=cell.epoch,
        started_at=instant(daemon.started_at),
        now=instant(now.wall),
        machines=len(cell.machines),
        machines_up=len(machines_up),
        jobs=len(cell.jobs),
        tasks=sum(len(job.tasks) for job in jobs),
        pending=sum(job.pending for job in jobs),
        running=sum(job.running for job in jobs),
        up=tally.all_up if observed.known else None,
        dead=dead,
        capacity=total((machine.capacity, 1) for machine in machines_up),
        bands=_bands(jobs, cell.rules.bands),
        store=daemon.store,
        last_checkpoint=daemon.last_checkpoint,
        to_change=sum(len(rollout.attempts) for key in cell.rolling if (rollout := cell.jobs[key].rollout)),
        refusing=tuple(words for words in (*daemon.refused, refusing(daemon.free_space)) if words),
        store_free_bytes=daemon.free_space.free_bytes,
        machines_silent=sum(not is_answering(machine, observed) for machine in machines_up),
        finished=finished,
        failed=failed,
        killed=dead - finished - failed,
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
        MACHINES_SHOWN, cell.machines.values(), lambda m: _machine_rank(observed, tally, m)
    )
    jobs = heapq.nsmallest(JOBS_SHOWN, cell.jobs.values(), lambda job: _job_rank(cell, tally, job))
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
    """Yield these applications. Walks over the jobs of the cell once."""
    members: dict[str, list[Job]] = {key: [] for key in sorted(chosen)}
    for job in cell.jobs.values() if chosen else ():
        if job.app in members:
            members[job.app].append(job)
    for key, jobs in members.items():
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


def _machine_rank(observed: Observed, tally: Tally, machine: Machine) -> tuple[bool, float]:
    return not has_trouble(machine, observed), -tally.fullness(machine.name)


def _job_rank(cell: Cell, tally: Tally, job: Job) -> tuple[bool, int]:
    pending = job.pending - len(cell.deferred.get(job.key, ()))
    trouble = pending or tally.up(job.key) < job.running or job.failed
    return not trouble, -job.uid


def _bands(jobs: Iterable[Job], bands: Bands) -> tuple[BandUse, ...]:
    uses = {band: [0, 0, 0] for band in Band}
    for job in jobs:
        if job.running:
            use, needs = uses[bands.of(job.spec.priority)], _running_needs(job)
            use[0] += needs.cpu_millis
            use[1] += needs.ram_bytes
            use[2] += job.running
    return tuple(BandUse(band, *use) for band, use in uses.items())


def _running_needs(job: Job) -> Resources:
    """Return the limits of all running tasks of a job; looks only at those with limits of their own.

    Nothing for a job that runs in allocs: its limits are in theirs.
    """
    if job.spec.inside:
        return Resources()
    if job.is_mixed:
        running = (task for task in job.tasks if task.state is State.RUNNING)
        return total((job.spec_of(task).needs(task.index), 1) for task in running)
    own = [
        override.resources
        for index, override in job.spec.overrides.items()
        if override.resources and index < len(job.tasks) and job.tasks[index].state is State.RUNNING
    ]
    return total([(job.spec.resources, job.running - len(own)), *((needs, 1) for needs in own)])
