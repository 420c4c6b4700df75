"""Why a task or a job is as it is, in words, and what can be done about it: Borg's "why pending?" (section
2.6)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from borgish.api.views.jobs import count_not_up, job_outcome, tasks_not_up, worst_outcome
from borgish.api.views.order import deadline_sentence, order_sentences
from borgish.api.views.rollouts import ways_out
from borgish.api.views.tasks import last_exit, phase_of, seen_attempt, task_view_of
from borgish.cell.apps.members import absent, crons_of, members
from borgish.cell.apps.order import wait_line
from borgish.cell.commands import SeenAttempt
from borgish.cell.machines.drains import Drains, drain_words
from borgish.cell.machines.suitability import evict_at, why_unsuitable
from borgish.cell.model import App, Cell, Job, Machine, Task, exit_text, task_count
from borgish.cell.observed import Observed, leaving_attempts
from borgish.cell.tasks.failing import avoided, is_trial
from borgish.cell.tasks.max_failures import too_many_failed
from borgish.cell.updates.handover import Departures, Way, handover_cause, handover_words
from borgish.clock import Now
from borgish.text import begun, has_index, instant, show_indexes
from borgish.vocabulary import (
    FAILURES,
    HELD_BACK,
    OUTCOMES,
    Ending,
    JobKind,
    Phase,
    Recheck,
    RestartPolicy,
    RolloutKind,
    State,
    task_name,
)
from borgish.wire.api import EventView, RefusalView, WhyView

JOBS_SHOWN = 3
TASKS_SHOWN = 20
EVENTS_SHOWN = 20
KEPT_SHOWN = 3
LEAVING_SHOWN = 3


def why_task(
    cell: Cell,
    observed: Observed,
    job: Job,
    index: int,
    refusals: Sequence[RefusalView],
    events: Sequence[EventView],
    now: Now,
) -> WhyView:
    """Return why one task is as it is. ``refusals`` and ``events`` are those of its job."""
    task = job.tasks[index]
    mine = tuple(r for r in refusals if has_index(r.indexes, index)) if task.state is State.PENDING else ()
    about = [event for event in events if not event.indexes or index in event.indexes]
    return WhyView(
        name=task_name(job.key, index),
        state=task.state,
        text=" ".join(
            (
                _task_text(cell, observed, job, task, mine),
                *_avoided(task, now),
                *_held(cell, observed, job, task, now),
            )
        ),
        refusals=mine,
        tasks=(task_view_of(cell, observed, job, index, mine),),
        events=tuple(about[-EVENTS_SHOWN:]),
        outcome=OUTCOMES.get(task.ending) if task.ending else None,
    )


def why_job(
    cell: Cell,
    observed: Observed,
    job: Job,
    refusals: Sequence[RefusalView],
    events: Sequence[EventView],
    now: Now,
) -> WhyView:
    """Return why a job is as it is, with its first tasks in trouble."""
    sentences = [_counts(observed, job), *order_sentences(cell, observed, job)]
    if ended := too_many_failed(job):
        sentences.append(_sentence(ended))
    sentences += [*_rollout(job), *_held_job(job)]
    # Of what is held it is said already.
    sentences += _refused(
        [
            each
            for each in refusals
            if not each.in_order and (job.held is None or not each.text.startswith("held, "))
        ]
    )
    sentences += _unplaced(cell, observed, job, refusals)
    sentences += [_task_text(cell, observed, job, task, ()) for task in _examples(observed, job)]
    sentences += _held_on_drained(cell, observed, job, now)
    troubled = islice(_troubled(observed, job), TASKS_SHOWN)
    return WhyView(
        name=job.key,
        state=job.state,
        text=" ".join(sentences),
        refusals=tuple(refusals),
        tasks=tuple(task_view_of(cell, observed, job, task.index, refusals) for task in troubled),
        events=tuple(events[-EVENTS_SHOWN:]),
        outcome=job_outcome(job),
    )


def why_app(
    cell: Cell, observed: Observed, app: App, refusals: Mapping[str, Sequence[RefusalView]], now: Now
) -> WhyView:
    """Return why an application is as it is: which of its jobs are not as they are to be, and why."""
    jobs = members(cell, app.key)
    tasks = [task for job in jobs for task in job.tasks]
    states = {task.state for task in tasks}
    troubled = [job for job in jobs if any(_troubled(observed, job)) or job.held or job.rollout]
    troubled.sort(key=lambda job: (not job.failed, job.waits is not None))  # what others wait for comes first
    shown = [
        why_job(cell, observed, job, refusals.get(job.key, ()), (), now) for job in troubled[:JOBS_SHOWN]
    ]
    count = f"{len(jobs)} job{'' if len(jobs) == 1 else 's'} and {task_count(len(tasks))}"
    others = absent(cell, app)
    crons = [cron for cron in crons_of(cell, app.key) if cron.note]
    is_well = not (shown or others or crons)
    lines = [f"{app.key} is an application of {count}{'; nothing is in the way of them' if is_well else ''}."]
    lines += (f"{key} is in its files, and {why}." for key, why in others.items())
    lines += [each.text for each in shown]
    lines += [_sentence(f"the cron {cron.key}: {cron.note}") for cron in crons]
    if len(troubled) > len(shown):
        lines.append(f"{len(troubled) - len(shown)} more of its jobs are in trouble.")
    state = next((each for each in (State.RUNNING, State.PENDING) if each in states), State.DEAD)
    return WhyView(
        name=app.key,
        state=state,
        text="\n".join(lines),
        outcome=worst_outcome(map(job_outcome, jobs)) if state is State.DEAD else None,
        tasks=tuple(chain.from_iterable(each.tasks for each in shown))[:TASKS_SHOWN],
    )


def _rollout(job: Job) -> Iterator[str]:
    """Say how far an update, a restart or a rollback is, and what can be done about it."""
    if (rollout := job.rollout) is None:
        return
    behind = len(rollout.attempts)
    done = "replaced" if job.spec.update.handover else "stopped"
    left = f"{task_count(behind)} still to be {done}" if behind else "what it changed has yet to settle"
    yield f"It was {rollout.reason}: {left}."
    is_rollback = rollout.kind is RolloutKind.ROLLBACK
    if rollout.paused and rollout.hold is None:
        waits = "is paused" if is_rollback else "waits"
        yield f"That {waits}: {rollout.paused}. It goes on by itself when all that it changed is up."
    elif rollout.paused:
        yield f"That waits for somebody: {rollout.paused}."
    is_asked = is_rollback or rollout.hold is not None
    if rollout.paused and is_asked and (ways := list(ways_out(job, rollout))):
        yield f"{', and '.join(ways)}."


def _held_job(job: Job) -> Iterator[str]:
    """Say why a job is held, and what ends that."""
    if (held := job.held) is None:
        return
    yield f"It is held since {instant(held.since)}, for it fails wherever it is: {held.reason}."
    running = [task for task in job.tasks if task.state is State.RUNNING]
    for task in running:
        if is_trial(job, task):
            yield f"Task {task.index} has its trial on {task.machine}."
    if any(task.failed and task.state is State.PENDING for task in job.tasks):
        yield "What failed and waits for a machine is tried once a minute, while no trial is under way."
    if running:
        yield "What ends is restarted where it is, after waits that grow up to 5 minutes."
    yield (
        "What failed and runs well for half a minute ends it, or another version; "
        f"`borgctl job restart {job.key}` tries all of it now."
    )


def _avoided(task: Task, now: Now) -> Iterator[str]:
    """Say on which machines a task failed, and until when it avoids them."""
    avoids = avoided(task, now.wall)
    for each in task.failed:
        if each.machine not in avoids:
            continue
        times = {1: "once", 2: "twice"}.get(each.times, f"{each.times} times")
        yield f"It failed {times} on {each.machine}, which is avoided until {instant(each.until)}."


def _task_text(cell: Cell, observed: Observed, job: Job, task: Task, refusals: Sequence[RefusalView]) -> str:
    name = task_name(job.key, task.index)
    match task.state:
        case State.PENDING:
            return " ".join(_waiting(cell, observed, name, job, task, refusals))
        case State.RUNNING:
            seen = seen_attempt(observed, name, task)
            return " ".join(_running(cell, observed, name, job, task, seen))
        case State.DEAD:
            return " ".join(_dead(name, job, task))


def _waiting(
    cell: Cell, observed: Observed, name: str, job: Job, task: Task, refusals: Sequence[RefusalView]
) -> Iterator[str]:
    waits_in_order = task.index in cell.deferred.get(job.key, ())
    what = "other jobs" if waits_in_order else "a machine"
    yield f"{name} waits for {what} since {instant(task.since)}."
    if task.reason and not any(refusal.text.startswith(task.reason) for refusal in refusals):
        yield f"It was sent back from {task.machine or 'its machine'}: {task.reason}."
    if task.promised:
        yield _sentence(_place_kept(cell, observed, task))
    elif waits_in_order:
        yield from _refused(refusals) if refusals else (_sentence(wait_line(cell, observed, job)),)
        yield from deadline_sentence(cell, observed, job)
    elif refusals:
        yield from _refused(refusals)
    elif observed.known:
        yield "The scheduler has not evaluated it since; it will within a second."
    else:
        yield _NOT_KEPT


def _refused(refusals: Sequence[RefusalView]) -> Iterator[str]:
    for refusal in refusals:
        yield _sentence(refusal.text)
        if refusal.waits_for and refusal.waits_for not in refusal.hint:
            yield _sentence(f"it waits for {refusal.waits_for}")
        if refusal.hint:
            yield _sentence(refusal.hint)


def _unplaced(cell: Cell, observed: Observed, job: Job, refusals: Sequence[RefusalView]) -> Iterator[str]:
    kept = [task for task in job.tasks if task.promised] if job.pending else []
    for task in kept[:KEPT_SHOWN]:
        yield f"Task {task.index} has its {_place_kept(cell, observed, task)}."
    if len(kept) > KEPT_SHOWN:
        yield f"So have {len(kept) - KEPT_SHOWN} more."
    if job.pending and not observed.known and not kept:
        yield _NOT_KEPT
    elif job.pending and not refusals and not kept:
        yield "The scheduler has not evaluated the pending tasks yet; it will within a second."


_NOT_KEPT = "Why the scheduler refused it at that moment was not journalled."


_PHASES = {
    Phase.ASSIGNED: "was placed on {machine}, which has not reported it yet.",
    Phase.STARTING: "is being started on {machine}.",
    Phase.BACKING_OFF: "is backing off on {machine}: it ended again, and waits for its next start.",
    Phase.CRASH_LOOPING: "is crash-looping on {machine}: it ended early {early_ends} times in a row, "
    "and each time waits longer for its next start.",
    Phase.UP: "runs on {machine}.",
    Phase.HEALTHY: "runs on {machine} and answers its probe.",
    Phase.UNHEALTHY: "runs on {machine} but fails its probe, so it will be restarted there.",
    Phase.STOPPING: "was asked to stop on {machine} and has not ended yet.",
    Phase.UNKILLABLE: "was killed on {machine} and goes on, so that machine takes nothing new.",
}
_BEFORE_UP = HELD_BACK | {Phase.STARTING}
_NOT_STARTED = "has its place on {machine}, where it could not be started yet."
_RESERVED = "is reserved on {machine}, for the tasks of jobs that are submitted with `in`."


def _running(
    cell: Cell, observed: Observed, name: str, job: Job, task: Task, seen: SeenAttempt | None
) -> Iterator[str]:
    phase = phase_of(job, task, seen) or Phase.ASSIGNED
    if job.spec.kind is JobKind.ALLOC_SET:
        yield f"{name} {_RESERVED.format(machine=task.machine)}"
    elif not observed.known:
        yield f"{name} has its place on {task.machine}; its phase at that moment was not journalled."
    else:
        never = phase in _BEFORE_UP and seen is not None and seen.reason.startswith("cannot start")
        words = _NOT_STARTED if never else _PHASES[phase]
        yield f"{name} {words.format(machine=task.machine, early_ends=seen.early_ends if seen else 0)}"
    if task.alloc >= 0:
        yield f"It is in the alloc {task_name(job.spec_of(task).inside, task.alloc)}."
    if phase is Phase.UP and job.spec.health is not None:
        yield "Its probe has not answered yet."
    handover = cell.handover(job.key, task.index)
    if handover is not None:
        yield _sentence(f"it is being replaced: {handover_cause(handover)}")
        yield _sentence(handover_words(observed, job, task.index, handover))
        yield "It runs on until that is up."
    elif job.rollout is not None and job.rollout.attempts.get(task.index) == task.attempt:
        when = "when that goes on" if job.rollout.paused else "in a moment"
        yield f"Its job was {job.rollout.reason}, and it is to be stopped for that {when}."
    machine = cell.machines.get(task.machine)
    if machine is not None and not machine.up:
        yield f"{task.machine} is down: {machine.reason or 'not heard of'}."
    if machine is not None:
        yield from _staying(job, task, machine)
    if seen and seen.reason:
        yield _sentence(seen.reason)
    yield from _restarts(name, job, task, seen)


def _staying(job: Job, task: Task, machine: Machine) -> Iterator[str]:
    """Say why tasks of a job should not stay on a machine, or not for ever."""
    if why := why_unsuitable(job.spec, machine):
        follows = {Recheck.KEEP: "It stays, as its job says", Recheck.EVICT: "It will be moved"}
        yield f"It should not stay: {why}. {follows[job.spec.recheck]} (recheck: {job.spec.recheck})."
    at = evict_at(job.spec.tolerations, machine.taints, task.since)
    if at is not None:
        marks = ", ".join(map(str, machine.taints))
        yield f"{machine.name} is tainted {marks}: it may stay until {instant(at)}."


def _held(cell: Cell, observed: Observed, job: Job, task: Task, now: Now) -> Iterator[str]:
    """Say what holds back that a task leaves its machine, where it has to."""
    machine = cell.machines.get(task.machine)
    if task.state is not State.RUNNING or machine is None or not observed.known:
        return
    if machine.is_draining:
        leaving = Drains(cell, observed, now).leaving(machine)
        held = next((each.why for each in leaving if (each.job, each.index) == (job.key, task.index)), "")
        held = "" if cell.handover(job.key, task.index) is not None else held  # it is said already
        words = "; ".join(drain_words(drain) for drain in machine.drains if drain.begun)
        yield f"{machine.name} is to be empty: {words}.{f' It stays for now: {held}.' * bool(held)}"
    at = evict_at(job.spec.tolerations, machine.taints, task.since)
    has_to_leave = (at is not None and at <= now.wall) or (
        job.spec.recheck is Recheck.EVICT and why_unsuitable(job.spec, machine)
    )
    is_replaced = cell.handover(job.key, task.index) is not None
    departure = Departures(cell, observed, now).of(job, task.index) if has_to_leave else None
    if departure is not None and departure.way is Way.STAYS and not is_replaced:
        yield f"It is not taken down yet: {departure.why}."


def _held_on_drained(cell: Cell, observed: Observed, job: Job, now: Now) -> Iterator[str]:
    """Say of the tasks of a job that stay on drained machines why they do, those that stay alike together."""
    if not observed.known:
        return
    there = {task.machine for task in job.tasks if task.state is State.RUNNING}
    drains, alike = Drains(cell, observed, now), dict[str, list[int]]()
    for name in sorted(there & cell.machines.keys()):
        machine = cell.machines[name]
        for each in drains.leaving(machine) if machine.is_draining else ():
            if each.job == job.key and each.why:
                alike.setdefault(each.why, []).append(each.index)
    for why, indexes in islice(alike.items(), LEAVING_SHOWN):
        on = sorted({job.tasks[index].machine for index in indexes})
        more = f" and {len(on) - LEAVING_SHOWN} more" if len(on) > LEAVING_SHOWN else ""
        names = f"{', '.join(on[:LEAVING_SHOWN])}{more}"
        be = "is" if len(on) == 1 else "are"
        stay = "stays" if len(indexes) == 1 else "stay"
        yield f"{job.key}/{show_indexes(indexes)} {stay} for now on {names}, which {be} to be empty: {why}."
    if len(alike) > LEAVING_SHOWN:
        yield "`borgctl machine show` says of each machine what stays there, and why."


def _restarts(name: str, job: Job, task: Task, seen: SeenAttempt | None) -> Iterator[str]:
    restarts = max(task.restarts, seen.restarts) if seen else task.restarts
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        ended = exit_text(*last_exit(task, seen))
        last = f"; its program last ended with {ended}" if ended else ""
        yield f"It was restarted {times} there{last}."
        previous = " --previous" * (seen is None or seen.phase not in HELD_BACK)  # else nothing ran since
        yield f"See `borgctl task logs{previous} {name}`."
        if job.spec_of(task).is_service and last_exit(task, seen) == (0, None):
            way = f"`restart: {{policy: {RestartPolicy.ON_FAILURE}}}`"
            yield f"A service is to run on: a program that ends when it is done has {way}."


def _dead(name: str, job: Job, task: Task) -> Iterator[str]:
    ended = exit_text(task.exit_code, task.signal)
    why = "; ".join(part for part in (task.reason, ended and f"its program ended with {ended}") if part)
    tail = f": {why}." if why else "."
    at = instant(task.since)
    match task.ending:
        case Ending.FINISH:
            yield f"{name} finished at {at}{tail}"
        case Ending.KILL:
            yield f"{name} was killed at {at}{tail}"
            yield f"`borgctl job restart {job.key}` starts it again."
        case Ending.FAIL:
            yield f"{name} failed at {at}{tail}"
            yield f"See `borgctl task logs {name}`; `borgctl job restart {job.key}` starts it again."
        case _:
            yield f"{name} was lost at {at}{tail}"
            yield f"`borgctl job restart {job.key}` starts it again."


def _counts(observed: Observed, job: Job) -> str:
    """Return what the tasks of a job do, by count: ``3 tasks: 2 up, 1 pending.``"""
    not_up = count_not_up(observed, job)
    endings = Counter(task.ending for task in job.tasks if task.state is State.DEAD)
    well = "up" if observed.known else "running"
    parts = [(job.running - not_up.total(), well)]
    parts += [(n, "not healthy yet" if phase is Phase.UP else str(phase)) for phase, n in not_up.items()]
    parts += [(job.pending, "pending"), *((n, OUTCOMES[e]) for e, n in endings.items() if e)]
    shown = ", ".join(f"{count} {word}" for count, word in parts if count)
    return f"{job.key} has {task_count(len(job.tasks))}: {shown or 'nothing'}."


def _troubled(observed: Observed, job: Job) -> Iterator[Task]:
    """Yield tasks worth a look: not up, not placed, not well ended."""
    yield from tasks_not_up(observed, job)
    for task in job.tasks:
        if task.state is State.PENDING or (task.state is State.DEAD and task.ending is not Ending.FINISH):
            yield task


def _examples(observed: Observed, job: Job) -> Iterator[Task]:
    """Yield the first running task that is not up, and the first that failed."""
    yield from islice(tasks_not_up(observed, job), 1)
    failed = (task for task in job.tasks if task.ending in FAILURES)
    yield from islice(failed, 1)


def _sentence(text: str) -> str:
    text = begun(text.strip())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _place_kept(cell: Cell, observed: Observed, task: Task) -> str:
    """Return what is kept for a waiting task: ``place kept on m3 until ann/x/0 has ended``."""
    kept = f"place kept on {task.promised}"
    if not observed.known:
        return f"{kept} while others left it"
    leaving = _leaving(cell, observed, task.promised)
    if not leaving:
        return f"{kept}, where nobody is left to leave: it goes there in the next pass"
    more = len(leaving) - LEAVING_SHOWN
    shown = [*leaving[:LEAVING_SHOWN], *([f"{more} more"] if more > 0 else [])]
    names = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return f"{kept} until {names} {'has' if len(leaving) == 1 else 'have'} ended"


def _leaving(cell: Cell, observed: Observed, machine: str) -> list[str]:
    """Return the tasks with attempts that should not be on a machine any more, and are."""
    seen = observed.machines.get(machine)
    return sorted({each.task for each in leaving_attempts(cell, machine, seen)}) if seen else []
