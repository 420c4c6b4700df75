"""What a run of a cron is: a job, or a copy of the stages of an application, which come and go together.

A run is over when all its jobs are. One of which a stage ended without having finished, while the others only
wait, has failed, and goes no further by itself: it may be mended until the next run begins, which ends it.
"""

from collections.abc import Iterable, Iterator, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

from borgish.cell.crons.model import Cron
from borgish.cell.model import Cell, Job
from borgish.errors import Conflict, NotFound
from borgish.spec.app import Document, to_completion
from borgish.spec.cron import JOB_NAME_CHARACTERS_MAX, CronSpec, run_key
from borgish.spec.job import JobSpec
from borgish.vocabulary import State


class Run(NamedTuple):
    """A run of a cron, with its jobs in the order in which they wait for each other."""

    key: str  # user/nightly-20261122t0200
    due: float  # seconds since 1970; of one by hand when somebody asked for it
    jobs: tuple[Job, ...]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def is_over(self) -> bool:
        return all(job.state is State.DEAD for job in self.jobs)

    @property
    def has_failed(self) -> bool:
        """Whether a stage of it ended without having finished."""
        return any(job.state is State.DEAD and job.finished < job.dead for job in self.jobs)


def runs(cell: Cell, cron: str) -> list[Run]:
    """Return the runs of a cron that there are, by when they were due."""
    found = []
    for key, jobs in cell.runs.get(cron, {}).items():
        ordered = _in_order([cell.jobs[each] for each in jobs])
        found.append(Run(key, ordered[0].due, ordered))
    return sorted(found, key=lambda run: (run.due, run.key))


def _in_order(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs of a run, each after those that it waits for."""
    there = {job.key: job for job in sorted(jobs, key=lambda job: job.key)}
    before = {key: [each.job for each in job.spec.after if each.job in there] for key, job in there.items()}
    return tuple(there[key] for key in TopologicalSorter(before).static_order())  # circles are refused


def only_waits(cell: Cell, job: Job) -> bool:
    """Return whether all of a job that is not over waits for other jobs."""
    return not job.running and job.pending > 0 and len(cell.deferred.get(job.key, ())) == job.pending


def is_stuck(cell: Cell, run: Run) -> bool:
    """Return whether a run has failed, and the rest of it only waits."""
    return run.has_failed and all(job.state is State.DEAD or only_waits(cell, job) for job in run.jobs)


def holding(cell: Cell, run: Run) -> Job:
    """Return the job of a run that is not over for which the others, if any, wait."""
    live = [job for job in run.jobs if job.state is not State.DEAD]
    return next((job for job in live if not only_waits(cell, job)), live[0])


def stages_of(cell: Cell, spec: CronSpec, beside: Iterable[Document] | None = None) -> tuple[JobSpec, ...]:
    """Return what each run of a cron is a copy of, as it is now. Raises NotFound and Conflict where there is
    nothing. ``beside``: the documents of the application, where it is applied with the cron."""
    if not spec.app:
        return ()
    app = cell.apps.get(spec.app_key)
    if app is None and beside is None:
        raise NotFound(f"there is no application {spec.app_key}", "`borgctl apply` of its files makes it")
    documents = app.present.documents if beside is None and app is not None else beside or ()
    found = tuple(document.spec for document in to_completion(documents))
    if not found:
        raise Conflict(
            f"{spec.app_key} has no job that runs to completion",
            "its services run until they are killed: there is nothing that a run of a cron could be",
        )
    return found


def jobs_of(spec: CronSpec, run: str, found: Sequence[JobSpec]) -> tuple[JobSpec, ...]:
    """Return the jobs of a run of this name. Raises Conflict where the name of one would be too long."""
    jobs = spec.jobs_of(run, found)
    for job in jobs:
        if len(job.name) > JOB_NAME_CHARACTERS_MAX:
            raise Conflict(
                f"{job.name} would be a name of {len(job.name)} characters, and a job's has at most "
                f"{JOB_NAME_CHARACTERS_MAX}",
                "give the cron or the stage a shorter name",
            )
    return jobs


def begun(cron: Cron, specs: Iterable[JobSpec]) -> Iterator[str]:
    """Yield the keys of the runs that these jobs are of, each once."""
    yield from dict.fromkeys(run_key(cron.key, spec.key) for spec in specs)
