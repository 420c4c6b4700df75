"""What is decided about crons, and what begins when one is due (section 2.3 of the Borg paper has no such
thing; Kubernetes' CronJob and Aurora's cron jobs do).

That an instant was dealt with and the run that begins for it are one entry of the journal: whichever master
decides it, and however often it is asked, each begins once or not at all. No run begins for what was due
before the entry that it was last dealt with, or set, or resumed.

All jobs of a run come in that entry, or none of them. A run that goes on keeps others from beginning as
``overlap`` says; one that has failed, and of which the rest only waits, ends where the next begins.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from borgish.cell.apps.order import check_order
from borgish.cell.commands import (
    Decision,
    FireCron,
    PauseCron,
    RemoveCron,
    ResumeCron,
    RunCron,
    SetCron,
)
from borgish.cell.crons.model import Cron
from borgish.cell.crons.runs import Run, begun, holding, is_stuck, jobs_of, only_waits, runs, stages_of
from borgish.cell.events import (
    AnyEvent,
    CronFired,
    CronPaused,
    CronRemoved,
    CronResumed,
    CronSet,
    JobSubmitted,
    TasksEnded,
)
from borgish.cell.lifecycle import TaskEvent, movable
from borgish.cell.limits.admission import admit_together, check_footprint, job_warnings
from borgish.cell.lookup import find_cron
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import check_inside
from borgish.clock import Now
from borgish.errors import Conflict, Refused
from borgish.spec.app import Document
from borgish.spec.cron import RUNS_MISSED_MAX, CronSpec, next_times_text, same_times
from borgish.spec.job import JobSpec
from borgish.text import instant
from borgish.vocabulary import Ending, Missed, Overlap, job_key

SKIPPED_AFTER_SECONDS = 60.0
"""With ``missed: skip``, what was due longer ago than this does not run any more."""


def set_cron(cell: Cell, _o: Observed, command: SetCron, actor: str, now: Now) -> Decision:
    """Set a cron, whether or not there is one of that name. What was dealt with stays dealt with."""
    return decide_set(cell, command, actor, now)


def decide_set(
    cell: Cell, command: SetCron, actor: str, now: Now, beside: Iterable[Document] | None = None
) -> Decision:
    """Set a cron. ``beside``: the documents of the application that it runs, where that comes with it."""
    spec, before = command.spec, cell.crons.get(command.spec.key)
    if before is not None and before.spec == spec:
        return Decision((), spec.key, f"{spec.key} is there already, exactly like this")
    if spec.job.inside in cell.jobs:  # one that is not there may come before the first run
        check_inside(cell, spec.job)
    if before is None:
        cron = Cron(spec, now.wall, actor, next=spec.times.after(now.wall))
    else:
        cron = again(before, spec, now.wall, actor)
    text = f"{spec.key} is {'set' if before is None else 'changed'}"
    notes = tuple(_warnings(cell, spec, now.wall, beside))
    return Decision((CronSet(cron),), spec.key, f"{text}; {next_text(cron, now.wall)}", notes)


def _warnings(cell: Cell, spec: CronSpec, wall: float, beside: Iterable[Document] | None) -> Iterator[str]:
    """Yield the warnings about a cron. Raises Conflict where jobs of its runs by hand, whose names are the
    longest, would have none that is allowed."""
    if not spec.app:
        yield from job_warnings(cell, spec.job)
        return
    try:
        found = stages_of(cell, spec, beside)
    except Refused as refused:  # it may come before the first run
        yield refused.message
        return
    jobs_of(spec, spec.run_by_hand(wall), found)


def again(before: Cron, spec: CronSpec, at: float, by: str) -> Cron:
    """Return a cron with another specification. What is due already is dealt with by it where it is due at
    the same times; by another schedule it is due from now on."""
    if same_times(before.spec, spec):
        return msgspec.structs.replace(before, spec=spec, at=at, by=by)
    following = 0.0 if before.paused else spec.times.after(max(at, before.last))
    return msgspec.structs.replace(before, spec=spec, at=at, by=by, next=following)


def next_text(cron: Cron, at: float) -> str:
    """Say when a cron is due next."""
    if cron.paused:
        return f"it stays paused, as {cron.paused} wanted, until `borgctl cron resume {cron.key}`"
    return next_times_text(cron.spec, max(at, cron.last))


def remove_cron(cell: Cell, _o: Observed, command: RemoveCron, _actor: str, _now: Now) -> Decision:
    """Remove a cron. Raises NotFound."""
    cron = find_cron(cell, command.cron)
    live = len(_live(cell, cron))
    text = f"there is no cron {cron.key} any more"
    goes_on = f"; {live} of its runs go{'es' * (live == 1)} on" if live else ""
    return Decision((CronRemoved(cron.key),), cron.key, f"{text}{goes_on}")


def pause_cron(cell: Cell, _o: Observed, command: PauseCron, _actor: str, _now: Now) -> Decision:
    """Let no runs of a cron begin. Raises NotFound."""
    cron = find_cron(cell, command.cron)
    if cron.paused:
        return Decision((), cron.key, f"{cron.key} is {cron.state} already")
    return Decision((CronPaused(cron.key),), cron.key, f"{cron.key} is paused: no run begins")


def resume_cron(cell: Cell, _o: Observed, command: ResumeCron, _actor: str, now: Now) -> Decision:
    """Let runs of a cron begin again, of what is due from now on. Raises NotFound."""
    cron = find_cron(cell, command.cron)
    if not cron.paused:
        return Decision((), cron.key, f"{cron.key} is not paused")
    following = cron.spec.times.after(max(now.wall, cron.last))
    resumed = msgspec.structs.replace(cron, paused="")
    text = f"{cron.key} goes on; {next_text(resumed, now.wall)}"
    return Decision((CronResumed(cron.key, following),), cron.key, text)


def run_cron(cell: Cell, _o: Observed, command: RunCron, actor: str, now: Now) -> Decision:
    """Begin a run now. Raises NotFound, Conflict while another goes on that it may not overlap, and what the
    job of a run is refused with."""
    cron = find_cron(cell, command.cron)
    going, stuck = _going_and_stuck(cell, cron)
    if going and cron.spec.overlap is Overlap.FORBID:
        job = holding(cell, going[0])
        raise Conflict(
            f"{job.key} still {_goes_on(cell, job)}, and {cron.key} forbids that runs overlap",
            f"end it with `borgctl job kill {job.key}`, or wait for it",
        )
    due = float(now.wall // 1)
    run = cron.spec.run_by_hand(due)
    jobs = jobs_of(cron.spec, run, stages_of(cell, cron.spec))
    key = job_key(cron.spec.user, run)
    if any(job.key in cell.jobs for job in jobs):
        raise Conflict(f"{key} has begun already", "ask again in a second for another one")
    ending = _ending(cron, going, stuck)
    _admit(cell, jobs, ending, now.wall)
    ended = _ended(ending, f"{run}, which {actor} asked for")
    submitted = (JobSubmitted(job, cron=cron.key, due=due) for job in jobs)
    return Decision((*ended, *submitted), cron.key, f"{key} begins")


def fire(cell: Cell, _o: Observed, command: FireCron, _actor: str, now: Now) -> Decision:
    """Deal with what is due of a cron: begin the runs that are to begin, and note why others do not."""
    cron, until = cell.crons.get(command.cron), command.until
    if cron is None or not cron.next or cron.next > until:
        return Decision((), command.cron, f"{command.cron} is not due")
    spec = cron.spec
    # The instant that was promised counts also where the rules of its time zone have changed since.
    due = spec.times.latest(cron.next - 1, until, RUNS_MISSED_MAX) or [cron.next]
    events, note = _begin(cell, cron, due, until, now.wall)
    last = due[-1]
    fired = CronFired(
        cron.key, last, spec.times.after(max(last, until)), note, max(0.0, until - last), command.among
    )
    keys = list(begun(cron, (event.spec for event in events if isinstance(event, JobSubmitted))))
    text = f"{', '.join(keys)} begin{'s' * (len(keys) == 1)}" if keys else f"{cron.key}: no run: {note}"
    return Decision((fired, *events), cron.key, text)


def _begin(
    cell: Cell, cron: Cron, due: Sequence[float], until: float, wall: float
) -> tuple[tuple[AnyEvent, ...], str]:
    """Return the events by which runs begin for these instants, and why not for all that were due."""
    spec, (going, stuck) = cron.spec, _going_and_stuck(cell, cron)
    chosen = _chosen(spec, due, until)
    notes = []
    if not chosen or chosen[0] > cron.next:
        notes.append(f"what was due since {instant(cron.next)} was missed")
    if going and chosen and spec.overlap is Overlap.FORBID:
        job = holding(cell, going[0])
        notes.append(f"{job.spec.name} still {'waited' if only_waits(cell, job) else 'went on'}")
        chosen = []
    if not chosen:
        return (), "; ".join(notes)
    try:
        found = stages_of(cell, spec)
        jobs = {each: jobs_of(spec, spec.run_at(each), found) for each in chosen}
    except Refused as refused:
        return (), "; ".join([*notes, refused.message])
    taken = {each: job.name for each in chosen for job in jobs[each] if job.key in cell.jobs}
    if taken:
        notes.append(f"there is a job {taken[max(taken)]} already")
        jobs = {each: run for each, run in jobs.items() if each not in taken}
    ending = _ending(cron, going, stuck)
    why_less = ""
    while jobs:
        try:
            _admit(cell, [job for run in jobs.values() for job in run], ending, wall)
            break
        except Refused as refused:
            del jobs[min(jobs)]  # of several the last ones count
            why_less = refused.message
    if why_less:
        notes.append(why_less)
    if not jobs:
        return (), "; ".join(notes)
    ended = _ended(ending, spec.run_at(max(jobs)))
    submitted = (JobSubmitted(job, cron=cron.key, due=each) for each, run in jobs.items() for job in run)
    return (*ended, *submitted), "; ".join(notes)


def _chosen(spec: CronSpec, due: Sequence[float], until: float) -> list[float]:
    """Return the instants for which a run is to begin."""
    match spec.missed:
        case Missed.SKIP:
            return [each for each in due if each > until - SKIPPED_AFTER_SECONDS][-_at_once(spec) :]
        case Missed.ONCE:
            return [due[-1]]
        case Missed.ALL:
            return list(due[-_at_once(spec) :])


def _at_once(spec: CronSpec) -> int:
    return RUNS_MISSED_MAX if spec.overlap is Overlap.ALLOW else 1


def _live(cell: Cell, cron: Cron) -> list[Run]:
    """Return the runs of a cron that are not over, by when they were due."""
    return [run for run in runs(cell, cron.key) if not run.is_over]


def _going_and_stuck(cell: Cell, cron: Cron) -> tuple[list[Run], list[Run]]:
    """Return the runs that go on, and those that have failed and of which the rest only waits."""
    going, stuck = list[Run](), list[Run]()
    for run in _live(cell, cron):
        (stuck if is_stuck(cell, run) else going).append(run)
    return going, stuck


def _ending(cron: Cron, going: Sequence[Run], stuck: Sequence[Run]) -> list[tuple[Job, str]]:
    """Return the jobs that end where another run begins, and why: as it replaces theirs, or theirs is stuck
    and would stay for ever."""
    replaced = going if cron.spec.overlap is Overlap.REPLACE else ()
    ending = [(job, "replaced by") for run in replaced for job in run.jobs]
    return ending + [(job, f"{run.name} has failed, and is followed by") for run in stuck for job in run.jobs]


def _ended(ending: Iterable[tuple[Job, str]], by: str) -> Iterator[AnyEvent]:
    for job, why in ending:
        chosen = movable(job, range(len(job.tasks)), TaskEvent.KILL)
        if chosen:
            yield TasksEnded(job.key, chosen, Ending.KILL, (f"{why} {by}",) * len(chosen))


def _goes_on(cell: Cell, job: Job) -> str:
    return "waits" if only_waits(cell, job) else "goes on"


def _admit(cell: Cell, specs: Sequence[JobSpec], ending: Iterable[tuple[Job, str]], wall: float) -> None:
    """Raise what these jobs would be refused with, all together. What ends with it asks for no more."""
    beside = {spec.key: spec for spec in specs}
    for spec in specs:
        check_inside(cell, spec, beside)
    check_order(cell, beside)
    freed = [(job, job.spec, ()) for job, _ in ending]
    admit_together(cell, [*freed, *((None, spec, range(spec.tasks)) for spec in specs)], wall)
    # As of every decision, but here a run for which there is no room is noted, and what is due goes on.
    check_footprint(cell, specs[0].key, map(JobSubmitted, specs))
