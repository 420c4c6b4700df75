"""What is decided about crons, and what begins when one is due (section 2.3 of the Borg paper has no such
thing; Kubernetes' CronJob and Aurora's cron jobs do).

That an instant was dealt with and the run that begins for it are one entry of the journal: whichever master
decides it, and however often it is asked, each begins once or not at all. No run begins for what was due
before the entry that it was last dealt with, or set, or resumed.
"""

from collections.abc import Sequence

import msgspec

from borgish.cell.admission import admit, asked_by, job_warnings
from borgish.cell.allocs import check_inside
from borgish.cell.commands import (
    Decision,
    FireCron,
    PauseCron,
    RemoveCron,
    ResumeCron,
    RunCron,
    SetCron,
)
from borgish.cell.crons import Cron
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
from borgish.cell.lookup import find_cron
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.order import check_order
from borgish.cell.quotas import NOTHING
from borgish.clock import Now
from borgish.errors import Conflict, Refused
from borgish.resources import Resources
from borgish.spec.cron import RUNS_MISSED_MAX, CronSpec, next_times_text, same_times
from borgish.spec.job import JobSpec
from borgish.text import instant
from borgish.vocabulary import Ending, Missed, Overlap, State

SKIPPED_AFTER_SECONDS = 60.0
"""With ``missed: skip``, what was due longer ago than this does not run any more."""


def set_cron(cell: Cell, _o: Observed, command: SetCron, actor: str, now: Now) -> Decision:
    """Set a cron, whether or not there is one of that name. What was dealt with stays dealt with."""
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
    notes = tuple(job_warnings(cell, spec.job))
    if before is not None and before.paused:
        notes += (f"it stays paused until `borgctl cron resume {spec.key}`",)
    return Decision((CronSet(cron),), spec.key, f"{text}; {next_text(cron, now.wall)}", notes)


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
        return f"it is paused by {cron.paused}"
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
    live = _live(cell, cron)
    if live and cron.spec.overlap is Overlap.FORBID:
        raise Conflict(
            f"{live[0].key} still goes on, and {cron.key} forbids that runs overlap",
            f"end it with `borgctl job kill {live[0].key}`, or wait for it",
        )
    due = float(now.wall // 1)
    run = cron.spec.run_by_hand(due)
    if run.key in cell.jobs:
        raise Conflict(f"{run.key} has begun already", "ask again in a second for another one")
    ended, freed = _replaced(cell, cron, live, f"replaced by {run.name}, which {actor} asked for")
    _admit(cell, run, 1, now.wall, freed)
    events = (*ended, JobSubmitted(run, cron=cron.key, due=due))
    return Decision(events, cron.key, f"{run.key} begins")


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
    begun = [event.spec.key for event in events if isinstance(event, JobSubmitted)]
    text = f"{', '.join(begun)} begin{'s' * (len(begun) == 1)}" if begun else f"{cron.key}: no run: {note}"
    return Decision((fired, *events), cron.key, text)


def _begin(
    cell: Cell, cron: Cron, due: Sequence[float], until: float, wall: float
) -> tuple[tuple[AnyEvent, ...], str]:
    """Return the events by which runs begin for these instants, and why not for all that were due."""
    spec, live = cron.spec, _live(cell, cron)
    chosen = _chosen(spec, due, until)
    notes = []
    if not chosen or chosen[0] > cron.next:
        notes.append(f"what was due since {instant(cron.next)} was missed")
    if live and chosen and spec.overlap is Overlap.FORBID:
        notes.append(f"{live[0].spec.name} still went on")
        chosen = []
    runs = {each: spec.run_at(each) for each in chosen}
    taken = [run.name for run in runs.values() if run.key in cell.jobs]
    if taken:
        notes.append(f"there is a job {taken[-1]} already")
        runs = {each: run for each, run in runs.items() if run.key not in cell.jobs}
    if not runs:
        return (), "; ".join(notes)
    latest = list(runs.values())[-1].name
    ended, freed = _replaced(cell, cron, live, f"replaced by {latest}")
    why_less = ""
    while runs:
        try:
            _admit(cell, spec.job, len(runs), wall, freed)
            break
        except Refused as refused:
            del runs[next(iter(runs))]  # of several the last ones count
            why_less = refused.message
    if why_less:
        notes.append(why_less)
    begun = (JobSubmitted(run, cron=cron.key, due=each) for each, run in runs.items())
    return (*ended, *begun) if runs else (), "; ".join(notes)


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


def _live(cell: Cell, cron: Cron) -> list[Job]:
    """Return the runs of a cron that are not over, by when they were due."""
    runs = [cell.jobs[key] for key in cell.runs.get(cron.key, ())]
    return sorted((job for job in runs if job.state is not State.DEAD), key=lambda job: (job.due, job.key))


def _replaced(
    cell: Cell, cron: Cron, live: Sequence[Job], reason: str
) -> tuple[tuple[AnyEvent, ...], Resources]:
    """Return what ends the runs that another takes the place of, and what they ask for no more."""
    events: list[AnyEvent] = []
    freed = NOTHING
    if cron.spec.overlap is not Overlap.REPLACE:
        return (), freed
    bands = cell.rules.bands
    for job in live:
        chosen = movable(job, range(len(job.tasks)), TaskEvent.KILL)
        events.append(TasksEnded(job.key, chosen, Ending.KILL, (reason,) * len(chosen)))
        if bands.of(job.spec.priority) is bands.of(cron.spec.job.priority):
            freed = freed.plus(asked_by(job.spec, chosen))
    return tuple(events), freed


def _admit(cell: Cell, spec: JobSpec, runs: int, wall: float, freed: Resources) -> None:
    """Raise what so many runs would be refused with."""
    check_inside(cell, spec)
    check_order(cell, {spec.key: spec})
    admit(cell, spec, list(range(spec.tasks)) * runs, wall, freed)
