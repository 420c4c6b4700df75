"""Jobs that start after others, and jobs that end with another (section 2.3 of the Borg paper: "defer the
start of a job until a prior one finishes"). Pure.

``after`` of a job is about starting. What is submitted waits: a new job, one that was dead, and killed tasks
that come back. Its tasks are pending, and nobody places them (``Cell.deferred``), until each job that is
named is as it is to be, all of them at one moment. Then the wait is over for good: tasks that are evicted
later do not wait again. A restart ends it too, for who wants to start without the others.

A job is *up* when all its tasks are; a program that nothing probes counts after ``UP_SECONDS``, since what
crashes is up for a moment, too. It is *healthy* when its tasks answer their probe, and as up where it has
none. It is *finished* when it ran to completion and every task finished. A task that has finished is as good
as one that is up. Nobody is let go on old news: what runs on a machine that missed its last polls, or was not
heard again since it came back or since this master was held up itself, counts as up once that is heard.

An update waits likewise: it reaches no task while an update of a job that is named in ``after`` is under way.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from borgish.cell.commands import (
    Decision,
    EndChildren,
    EndWaits,
    FailWaits,
)
from borgish.cell.events import AnyEvent, JobReady, TasksEnded
from borgish.cell.limits.availability import RECOVERED_SECONDS, down_of, why_down
from borgish.cell.model import Cell, Job, Task, exit_text
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import evicted_with
from borgish.clock import Now
from borgish.errors import Conflict, NotFound, Refused
from borgish.resources import show_seconds
from borgish.spec.job import After, JobSpec
from borgish.vocabulary import OUTCOMES, Ending, JobKind, Phase, RolloutKind, State, Until, task_name

UP_SECONDS = 3.0
"""A program that nothing probes is up when it has been so long without a break."""
PARENTS_MAX = 8
"""So many jobs, one the parent of the other, at most."""
WORDS_MAX = 3
"""Jobs that are named in a line."""
NAMED_MAX = 8
"""Jobs that are named of a circle."""

_WAITS_FOR_UPDATE = "waits for the update of "


# Whether it holds


def until_of(cell: Cell, after: After) -> Until | None:
    """Return what is waited for; None where that depends on a job that is not there."""
    if after.until is not None:
        return after.until
    job = cell.jobs.get(after.job)
    return _until_by(job.spec) if job is not None else None


def _until_by(spec: JobSpec) -> Until:
    if not spec.is_service and spec.kind is not JobKind.ALLOC_SET:
        return Until.FINISHED
    return Until.HEALTHY if spec.health is not None else Until.UP


def is_met(cell: Cell, observed: Observed, after: After, now: Now) -> bool:
    """Return whether a job that is waited for is as it is to be. Walks its tasks where all of them may be."""
    job = cell.jobs.get(after.job)
    if job is None:
        return False
    finished, running = _counts(job)
    if finished + running < job.tasks_wanted:
        return False
    if until_of(cell, after) is Until.FINISHED:
        return finished == job.tasks_wanted
    probed = after.until is not Until.UP
    if probed and down_of(cell, observed, job):
        return False
    return not any(_why_not_up(cell, observed, job, task, now, probed=probed) for task in _wanted(job))


def is_settling(cell: Cell, key: str, until: Until | None) -> bool:
    """Return whether a job may become what others wait for by time alone."""
    job = cell.jobs.get(key)
    if job is None or not job.running or sum(_counts(job)) < job.tasks_wanted:
        return False
    return until_of(cell, After(key, until)) is not Until.FINISHED


def _counts(job: Job) -> tuple[int, int]:
    """Return how many tasks of a job have finished, and how many run, of those that it is to have."""
    if job.rollout is None:
        return job.finished, job.running
    # While a rollback goes on there may be more, which are to end.
    wanted = _wanted(job)
    finished = sum(task.ending is Ending.FINISH for task in wanted)
    return finished, sum(task.state is State.RUNNING for task in wanted)


def _wanted(job: Job) -> list[Task]:
    return job.tasks[: job.tasks_wanted]


def _why_not_up(cell: Cell, observed: Observed, job: Job, task: Task, now: Now, *, probed: bool) -> str:
    """Return why a task does not count as up, in words; "" where it does."""
    if task.state is State.DEAD:
        return "" if task.ending is Ending.FINISH else _how_over(task)
    if task.state is State.PENDING:
        return str(State.PENDING)
    spec = job.spec_of(task)
    if spec.kind is JobKind.ALLOC_SET:
        return why_down(cell, observed, job, task)
    seen = observed.attempt(task.machine, task_name(job.key, task.index), task.attempt)
    is_up = seen is not None and seen.ended is None and seen.phase in (Phase.UP, Phase.HEALTHY)
    if (probed or not is_up) and (why := why_down(cell, observed, job, task)):
        return why
    if why := _why_not_heard(cell, observed, task.machine):
        return why
    if seen is None or seen.phase is Phase.HEALTHY:
        return ""
    seconds = RECOVERED_SECONDS if seen.restarts else UP_SECONDS
    return "" if now.mono - seen.since >= seconds else "just came up"


def _why_not_heard(cell: Cell, observed: Observed, machine: str) -> str:
    """Return why what was last seen on a machine may be so no more, in words; "" where it was just heard."""
    there = cell.machines.get(machine)
    if there is None or not there.up:
        return f"{machine} is down"
    return "" if _is_heard(observed, machine) else f"{machine} does not answer"


def _is_heard(observed: Observed, machine: str) -> bool:
    seen = observed.machines.get(machine)
    return seen is not None and seen.is_answering and seen.heard >= seen.watched_since


def is_unheard(cell: Cell, observed: Observed, after: After) -> bool:
    """Return whether a job that is waited for runs on a machine not heard lately: perhaps it is as it
    is to be. Such a machine answers or is down in a while."""
    job = cell.jobs.get(after.job)
    machines = {task.machine for task in _wanted(job) if task.state is State.RUNNING} if job else set()
    return any(cell.machines[each].up and not _is_heard(observed, each) for each in machines)


def _how_over(task: Task) -> str:
    word = OUTCOMES[task.ending] if task.ending is not None else "over"
    how = exit_text(task.exit_code, task.signal) if task.ending is Ending.FAIL else ""
    return f"{word} ({how})" if how else str(word)


def why_unmet(cell: Cell, observed: Observed, after: After, now: Now) -> str:
    """Return why a job that is waited for is not as it is to be, in words; "" where it is."""
    job = cell.jobs.get(after.job)
    if job is None:
        return f"there is no job {after.job}"
    until = until_of(cell, after)
    if until is Until.FINISHED and job.spec.is_service:
        return f"{job.key} is a service, and never finishes"
    if not observed.known and until is not Until.FINISHED:
        return ""
    if until is not Until.FINISHED and is_met(cell, observed, after, now):
        return ""
    found: list[tuple[bool, str]] = []  # whether it is over, and why it does not count
    for task in _wanted(job):
        is_over = task.state is State.DEAD
        if until is not Until.FINISHED:
            why = _why_not_up(cell, observed, job, task, now, probed=after.until is not Until.UP)
        elif task.ending is Ending.FINISH:
            why = ""
        else:
            why = _how_over(task) if is_over else str(task.state)
        if why:
            found.append((is_over, f"task {task.index} of {job.key}: {why}"))
    first = next((words for is_over, words in found if is_over), found[0][1] if found else "")
    return f"{first}; {len(found) - 1} more not {until}" if len(found) > 1 else first


def after_words(cell: Cell, after: After, beside: Mapping[str, JobSpec] | None = None) -> str:
    """Return what is waited for: ``alice/db (up)``. ``beside``: as of ``order_notes``."""
    spec = beside.get(after.job) if beside else None
    until = after.until or (_until_by(spec) if spec is not None else until_of(cell, after))
    return f"{after.job} ({until})" if until is not None else after.job


LATER = Now(inf, inf)
"""When all has settled that is up now: for words, which are read a moment later anyhow."""


def unmet(cell: Cell, observed: Observed, job: Job) -> list[After]:
    """Return what a job waits for still, as far as that is known: of the past only how tasks ended is."""
    return [
        each
        for each in job.spec.after
        if not (observed.known or until_of(cell, each) is Until.FINISHED)
        or not is_met(cell, observed, each, LATER)
    ]


def wait_line(cell: Cell, observed: Observed, job: Job) -> str:
    """Return what a job waits for, and why it has to, in short: ``after ann/db (up): there is no ...``."""
    left = unmet(cell, observed, job) or list(job.spec.after)
    words = ", ".join(after_words(cell, each) for each in left[:WORDS_MAX])
    more = f" and {len(left) - WORDS_MAX} more" if len(left) > WORDS_MAX else ""
    why = why_unmet(cell, observed, left[0], LATER)
    return f"after {words}{more}{why and f': {why}'}"


def plan_words(cell: Cell, observed: Observed, spec: JobSpec, now: Now) -> str:
    """Return after what a job would start if it were submitted now; "" where it would start at once."""
    left = [each for each in spec.after if not is_met(cell, observed, each, now)]
    return f"after {', '.join(after_words(cell, each) for each in left)}" if left else ""


def needs_somebody(cell: Cell, after: After) -> bool:
    """Return whether a job that is waited for, and is not as it is to be, does not become so by itself."""
    job = cell.jobs.get(after.job)
    if job is None or job.state is State.DEAD:
        return True
    return until_of(cell, after) is Until.FINISHED and (job.spec.is_service or job.dead > job.finished)


def ways_on(cell: Cell, job: Job, left: Iterable[After]) -> str:
    """Return how a job that waits goes on."""
    anyhow = f"`borgctl job restart {job.key}` starts it"
    for each in left:
        if not needs_somebody(cell, each):
            continue
        before = cell.jobs.get(each.job)
        if before is None:
            return f"submit {each.job}, or {anyhow} without"
        if each.until is Until.FINISHED and before.spec.is_service:
            return f"wait until {each.job} is up instead, or {anyhow} without"
        return f"it goes on by itself when {each.job} is mended and run again; {anyhow} without"
    return f"it goes on by itself; {anyhow} at once"


# At submit


def order_notes(cell: Cell, spec: JobSpec, beside: Mapping[str, JobSpec] | None = None) -> Iterator[str]:
    """Say after what a job starts, and what of that cannot come by itself. ``beside``: jobs that are
    submitted with it, by key."""
    if spec.after:
        words = ", ".join(after_words(cell, each, beside) for each in spec.after)
        yield f"it starts after {words}"
    for each in spec.after:
        if beside and each.job in beside:
            continue
        job = cell.jobs.get(each.job)
        bound = f", and fails after {show_seconds(each.within_seconds)}" if each.within_seconds else ""
        if job is None:
            yield f"there is no job {each.job} yet: it waits until that is submitted{bound}"
        elif each.until is Until.FINISHED and job.spec.is_service:
            yield f"{each.job} is a service and never finishes: it waits until that is another job{bound}"


def check_order(cell: Cell, specs: Mapping[str, JobSpec]) -> None:
    """Raise the first of ``order_refusals``."""
    for refused in order_refusals(cell, specs):
        raise refused


def order_refusals(cell: Cell, specs: Mapping[str, JobSpec]) -> Iterator[Refused]:
    """Yield Conflict for jobs that would wait for themselves in the end, or end with themselves; NotFound and
    Conflict for a parent that is not there.

    ``specs``: those to be submitted together, by key. Walks what they wait for, over all jobs of the cell.
    """
    yield from circle_refusals(cell, specs, "take one of them out of its after: nobody would ever start")
    for key in sorted(specs):
        if specs[key].parent:
            try:
                _check_parent(cell, specs, specs[key])
            except Refused as refused:
                yield refused


def circle_refusals(cell: Cell, specs: Mapping[str, JobSpec | None], hint: str) -> Iterator[Conflict]:
    """Yield Conflict, with this hint, for jobs that would wait for themselves in the end, each once.

    ``specs``: what becomes of jobs of the cell, None of those that go.
    """
    named: set[str] = set()
    for key in sorted(specs):
        spec = specs[key]
        if spec is None or not spec.after or key in named:
            continue
        if circle := _circle(key, _specs_of(cell, specs)):
            named.update(circle)
            yield Conflict(_circle_words(circle), hint)


def _specs_of(cell: Cell, specs: Mapping[str, JobSpec | None]) -> Callable[[str], JobSpec | None]:
    def spec_of(key: str) -> JobSpec | None:
        if key in specs:
            return specs[key]
        job = cell.jobs.get(key)
        return job.spec if job is not None else None

    return spec_of


def _circle(start: str, spec_of: Callable[[str], JobSpec | None]) -> list[str]:
    """Return the shortest way from a job back to itself, both ends included; empty where there is none."""
    came_from: dict[str, str] = {}
    queue = [start]
    for key in queue:  # it grows: breadth first
        spec = spec_of(key)
        for after in spec.after if spec is not None else ():
            if after.job == start:
                way = [start, key]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1] if key != start else [start, start]
            if after.job not in came_from:
                came_from[after.job] = key
                queue.append(after.job)
    return []


def _circle_words(circle: list[str]) -> str:
    first, *others = circle
    steps = [f"{first} waits for {others[0]}", *(f"which waits for {each}" for each in others[1:])]
    if len(steps) > NAMED_MAX:
        left = len(steps) - NAMED_MAX
        steps = [*steps[: NAMED_MAX - 1], f"and so on over {left} more", steps[-1]]
    return ", ".join(steps)


def _check_parent(cell: Cell, specs: Mapping[str, JobSpec], spec: JobSpec) -> None:
    parent, spec_of = spec.parent, _specs_of(cell, specs)
    if spec_of(parent) is None:
        raise NotFound(
            f"{spec.key} would end with {parent}, and there is no such job", "submit that first, or with it"
        )
    if parent not in specs and cell.jobs[parent].state is State.DEAD:
        raise Conflict(
            f"{spec.key} would end with {parent}, and that is dead", f"submit {parent} again first"
        )
    for after in spec.after:
        of_parent = spec_of(parent)
        until = after.until or (Until.UP if of_parent is None or of_parent.is_service else Until.FINISHED)
        if after.job == parent and until is Until.FINISHED:
            raise Conflict(
                f"{spec.key} would start when {parent} has finished, and end with it",
                "leave out parent, or wait until it is up",
            )
    line = [spec.key]
    while parent:
        line.append(parent)
        if parent == spec.key:
            raise Conflict(
                f"{', which ends with '.join(line).replace(', which', '', 1)}",
                "leave out the parent of one of them",
            )
        if len(line) > PARENTS_MAX:
            raise Conflict(
                f"{spec.key} would be the child of {PARENTS_MAX} jobs, one the child of the other",
                f"at most {PARENTS_MAX - 1} are allowed; name one further up as parent",
            )
        found = spec_of(parent)
        parent = found.parent if found is not None else ""


def descendants(cell: Cell, keys: frozenset[str]) -> frozenset[str]:
    """Return jobs with their children, and those of these."""
    found, queue = set(keys), list(keys)
    for key in queue:
        fresh = cell.links.children.get(key, set()) - found
        found |= fresh
        queue += fresh
    return frozenset(found)


# Updates


def waits_for_update(cell: Cell, job: Job) -> str:
    """Return why the update of a job reaches no task now: one of a job that it comes after is under way."""
    rollout = job.rollout
    if rollout is None or rollout.kind is not RolloutKind.UPDATE or rollout.hurried:
        return ""
    for each in job.spec.after:
        other = cell.jobs.get(each.job)
        going = other.rollout if other is not None else None
        if going is not None and going.kind is RolloutKind.UPDATE:
            held = f", which waits for somebody: {going.paused}" if going.hold is not None else ""
            return f"{_WAITS_FOR_UPDATE}{each.job}{held}"
    return ""


def is_paused_for_update(reason: str) -> bool:
    """Return whether a rollout was paused for that."""
    return reason.startswith(_WAITS_FOR_UPDATE)


# Deciding


def deferred(cell: Cell, job: Job) -> tuple[int, ...]:
    """Return the tasks of a job that wait for other jobs."""
    return tuple(sorted(cell.deferred.get(job.key, ())))


def decide_end(cell: Cell, _o: Observed, command: EndWaits, _actor: str, _now: Now) -> Decision:
    """Let these jobs wait no longer."""
    ready = tuple(
        JobReady(key, deferred(cell, cell.jobs[key]), reason)
        for key, reason in command.reasons.items()
        if key in cell.deferred
    )
    return Decision(ready, "", "jobs start")


def decide_fail(cell: Cell, _o: Observed, command: FailWaits, _actor: str, _now: Now) -> Decision:
    """Let what waits of these jobs end as failed."""
    ended: list[AnyEvent] = []
    for key, reason in command.reasons.items():
        if key in cell.deferred:
            indexes = deferred(cell, cell.jobs[key])
            ended.append(TasksEnded(key, indexes, Ending.FAIL, (reason,) * len(indexes)))
    return Decision(tuple(ended), "", "jobs have waited too long")


def decide_end_children(cell: Cell, _o: Observed, command: EndChildren, _actor: str, _now: Now) -> Decision:
    """Let jobs end with their parents, where these are still over."""
    ended: list[AnyEvent] = []
    for key, parent in command.parents.items():
        job, over = cell.jobs.get(key), cell.jobs.get(parent)
        if job is None or job.spec.parent != parent or (over is not None and over.state is not State.DEAD):
            continue
        live = tuple(task.index for task in job.tasks if task.state is not State.DEAD)
        if live:
            reason = parent_words(cell, parent)
            ended.append(TasksEnded(key, live, Ending.KILL, (reason,) * len(live)))
            ended += evicted_with(cell, job, live, reason)
    return Decision(tuple(ended), "", "jobs end with their parents")


def parent_words(cell: Cell, parent: str) -> str:
    """Return why a child ends."""
    return f"its parent {parent} {'ended' if parent in cell.jobs else 'is gone'}"


def overdue_words(cell: Cell, observed: Observed, after: After, now: Now) -> str:
    """Return why what waits of a job fails."""
    why = why_unmet(cell, observed, after, now)
    waited = f"waited {show_seconds(after.within_seconds)} for {after_words(cell, after)}"
    return f"{waited}: {why}" if why else waited
