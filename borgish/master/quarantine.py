"""Quarantine: goes on without what the master fails at: one request, one loop, one job. Pure.

What nobody foresaw must not end a master, for it would end the next one too, at every retry. What is here
contains it where nothing was changed yet: a request that cannot be decided is answered 500, and a job at
which the scheduler fails waits, says so, and is tried again when it is changed. Where an entry was applied by
half nothing in memory can be trusted any more: that is ``CellBroken``, which ends the process with 70. Its
request is noted (``daemon.PoisonFile``), so that its retry does not end the next master, and the one after.
"""

import traceback
from collections.abc import Callable, Iterable, Sequence
from copy import copy

import msgspec

from borgish.cell.events import Entry
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import CellBroken, Poison
from borgish.scheduler.plan import Plan, Refusal, RefusalsByJob
from borgish.scheduler.schedule import TASKS_MAX, Scheduler
from borgish.spec.job import JobSpec

PAUSE_SECONDS = 10.0
"""A scheduler that fails at no job in particular is asked again so much later."""


class Failure(msgspec.Struct, frozen=True):
    """What the master failed at, and went on without. ``trace`` is for the log."""

    what: str
    position: int  # of the journal, when it happened
    trace: str


def failure_of(what: str, position: int, error: Exception) -> Failure:
    """Return a failure with the traceback of its error."""
    return Failure(what, position, "".join(traceback.format_exception(error)))


def failed_at(cause: str, position: int) -> Poison:
    """Return the reply to a request that could not be decided; nothing was changed."""
    return Poison(
        f"internal error while handling {cause}; nothing was changed",
        f"The borgmaster's log has details, at position {position}; please report it",
    )


def refuse_repeated(said: str) -> Poison:
    """Return the reply to a request that broke a master before."""
    return Poison(
        f"this request made a borgmaster fail, and is not tried again: {said}",
        "Please report it; a newer borgish will try it again",
    )


def broken_by(entry: Entry, error: Exception) -> CellBroken:
    """Return what ends a master whose memory holds half of an entry; nothing of that is stored."""
    asked = f", request id '{entry.request_id}'" if entry.request_id else ""
    what = f"{entry.cause} of {entry.actor} at position {entry.position}{asked}"
    return CellBroken(
        f"{what} broke the cell in memory: {error!r}",
        "Nothing of it is stored. Start again; if it ends like this again, report it",
        entry.digest,
    )


class FailureLog:
    """Those of one step. The same thing failing again and again is reported once, until it did not."""

    def __init__(self) -> None:
        self._new: list[Failure] = []
        self._reported: set[str] = set()

    def add(self, what: str, position: int, error: Exception, *, always: bool = False) -> None:
        """Note that something failed."""
        if always or what not in self._reported:
            self._reported.add(what)
            self._new.append(failure_of(what, position, error))

    def succeeded(self, what: str) -> None:
        """Note that something did not fail."""
        self._reported.discard(what)

    def take(self) -> tuple[Failure, ...]:
        """Return those since the last call."""
        taken, self._new = tuple(self._new), []
        return taken


class QuarantiningScheduler:
    """The scheduler, without the jobs that it fails at. They are left out until they are changed."""

    def __init__(self, scheduler: Scheduler, failures: FailureLog) -> None:
        self._scheduler = scheduler
        self._failures = failures
        self._quarantined: dict[str, tuple[int, int, int]] = {}  # by job: its version, and where it failed
        self._paused_until = 0.0

    def begin(self, cell: Cell) -> None:
        """See ``Scheduler.begin``."""
        self._scheduler.begin(cell)

    def refresh(self, cell: Cell, observed: Observed, machines: Iterable[str]) -> None:
        """Read these machines again."""
        try:
            self._scheduler.refresh(cell, observed, machines)
        except Exception as error:  # whatever it was: read all of them again
            self._failures.add("reading machines again", cell.position, error)
            self._scheduler.forget()

    def note(self, jobs: Iterable[str]) -> None:
        """See ``Scheduler.note``."""
        self._scheduler.note(jobs)

    def read_anew(self) -> None:
        """Read all that waits in the next pass."""
        self._scheduler.read_anew()

    def schedule(self, cell: Cell, observed: Observed, now: Now, budget: int = TASKS_MAX) -> Plan:
        """Plan a pass over all that waits and does not make it fail; ``budget`` is how many tasks are
        tried."""
        if self._quarantined:
            self._quarantined = {
                key: found for key, found in self._quarantined.items() if _version(cell, key) == found[:2]
            }
        if now.mono < self._paused_until:
            return Plan()
        try:
            sound = cell.waiting.keys() - self._quarantined.keys() if self._quarantined else None
            plan = self._pass(cell, observed, now, sound, budget)
        except Exception as error:  # one job must not keep all others waiting
            plan = self._without_culprits(cell, observed, now, error)
        refusals = {
            key: (_refusal(cell, key, position),)
            for key, (_, _, position) in sorted(self._quarantined.items())
            if cell.waiting.get(key)
        }
        if not refusals:
            return plan
        return msgspec.structs.replace(plan, refusals=RefusalsByJob(refusals, plan.refusals))

    def carried_out(self, cell: Cell, plan: Plan) -> frozenset[str]:
        """See ``Scheduler.carried_out``."""
        return self._scheduler.carried_out(cell, plan)

    def dry_run(
        self,
        cell: Cell,
        observed: Observed,
        spec: JobSpec,
        unread: Iterable[str],
        now: Now,
        again: Sequence[int] = (),
    ) -> Plan:
        """Return the pass that would follow if a job were submitted now. Raises whatever it fails with."""
        return self._scheduler.dry_run(cell, observed, spec, unread, now, again)

    def _pass(
        self,
        cell: Cell,
        observed: Observed,
        now: Now,
        jobs: Iterable[str] | None,
        budget: int = TASKS_MAX,
    ) -> Plan:
        """Plan for all jobs, or for these only; after a failure nothing that was kept is trusted."""
        try:
            if jobs is None:
                return self._scheduler.schedule(cell, observed, now, budget)
            seen, wanted = copy(cell), frozenset(jobs)
            seen.waiting = {key: cell.waiting[key] for key in cell.waiting if key in wanted}
            # No pass after this one, nor this one, goes on with what another chose from.
            self._scheduler.read_anew()
            plan = self._scheduler.schedule(seen, observed, now, budget)
            self._scheduler.read_anew()
            return plan
        except Exception:  # raised again: the callers find whose fault it is
            self._scheduler.forget()
            raise

    def _without_culprits(self, cell: Cell, observed: Observed, now: Now, error: Exception) -> Plan:
        def fails(jobs: Sequence[str]) -> bool:
            try:
                self._pass(cell, observed, now, jobs)
            except Exception:  # that it fails is what is asked
                return True
            return False

        sound = sorted(cell.waiting.keys() - self._quarantined.keys())
        for key in culprits(fails, sound):
            self._quarantined[key] = (*_version(cell, key), cell.position)
            self._failures.add(f"scheduling {key}", cell.position, error, always=True)
        try:
            return self._pass(cell, observed, now, set(sound) - self._quarantined.keys())
        except Exception as still:  # at no job in particular
            self._failures.add("scheduling", cell.position, still)
            self._paused_until = now.mono + PAUSE_SECONDS
            return Plan()


def culprits(fails: Callable[[Sequence[str]], bool], jobs: Sequence[str]) -> list[str]:
    """Return the jobs that fail by themselves, found by halves; none when only several together do."""
    if not jobs or not fails(jobs):
        return []
    if len(jobs) == 1:
        return list(jobs)
    half = len(jobs) // 2
    return culprits(fails, jobs[:half]) + culprits(fails, jobs[half:])


def _version(cell: Cell, key: str) -> tuple[int, int]:
    job: Job | None = cell.jobs.get(key)
    return (job.uid, job.generation) if job else (0, 0)


def _refusal(cell: Cell, key: str, position: int) -> Refusal:
    why = "the scheduler fails at this job"
    return Refusal(
        key,
        tuple(sorted(cell.waiting[key])),
        len(cell.machines),
        {why: len(cell.machines)},
        f"{why}; all others go on",
        f"The master's log says more, at position {position}; please report it. A job that is changed is "
        f"tried again",
    )
