"""How a rollout goes on after it was decided (an update, a restart, a rollback of the cell): what it has left
to do, what it waits for, and each next part.

It waits before it stops more tasks of a job: what it changed has to be up, and to stay so. That is read from
what is seen now and not remembered, so a new master comes to the same answer, and a rollback goes on by
itself as soon as the reason is gone. An update whose tasks fail is held, or undone (``decide.py``).
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from borgish.cell.apps.order import is_paused_for_update
from borgish.cell.commands import (
    AdvanceRollouts,
    Decision,
    FinishRollouts,
    PauseRollouts,
    SeenAttempt,
)
from borgish.cell.events import (
    AnyEvent,
    PlacesPromised,
    RolloutFinished,
    RolloutPaused,
    RolloutWentOn,
    TasksEvicted,
)
from borgish.cell.limits.availability import is_settled
from borgish.cell.limits.disruption import Gate
from borgish.cell.machines.room import Room, free_on
from borgish.cell.machines.suitability import unmet_constraints
from borgish.cell.model import Cell, Job, Machine, Rollout, Task, exit_text
from borgish.cell.observed import KnownRollout, Observed, Remaining
from borgish.cell.tasks.allocs import evicted_with, priority_of
from borgish.cell.updates.handover import handover_words, is_late
from borgish.clock import Now
from borgish.resources import Resources, show_seconds
from borgish.spec.changes import SpecChange, TaskChange
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, JobKind, Phase, RolloutKind, State, task_name

STEADY_SECONDS = 5.0
"""A task counts as up when it has been so long without a break: what crashes is up for a moment, too."""

TRY_ON_SECONDS = 60.0
"""So long what has failed gets to come up, and to stay so, when somebody lets it go on all the same."""

PAUSED_AFTER_SECONDS = 30.0
"""A rollout is paused when what it waits for is not up so long after it was placed or sent back; sooner when
that has failed."""


def remaining(job: Job) -> Remaining:
    """Return what a rollout has yet to do about a job."""
    found = Remaining()
    if (rollout := job.rollout) is None:
        return found
    for index, attempt in rollout.attempts.items():
        task, ends = job.tasks[index], rollout.ends(index)
        match task.state:
            case State.RUNNING if ends or task.attempt == attempt:
                found.to_stop.append(index)
            case State.PENDING if ends:
                found.to_end.append(index)
            case State.DEAD if not ends and task.attempt == attempt and task.ending is not Ending.KILL:
                found.to_rerun.append(index)
            case _:
                found.done.append(index)
    return found


def known_remaining(observed: Observed, job: Job) -> Remaining:
    """Return the same, looking at the tasks only where something of them has changed."""
    there = _known(observed, job)
    if there is None:
        return remaining(job)
    if there.remaining is None:
        there.remaining = remaining(job)
    return there.remaining


def _known(observed: Observed, job: Job) -> KnownRollout | None:
    known, rollout = observed.availability, job.rollout
    if known is None or rollout is None:
        return None
    there = known.rollouts.get(job.key)
    if there is None or there.job is not job or there.rollout is not rollout:
        there = known.rollouts[job.key] = KnownRollout(job, rollout)
    return there


def decide_advance(
    cell: Cell, observed: Observed, command: AdvanceRollouts, _actor: str, now: Now
) -> Decision:
    """Return what follows for each job named: tasks named are stopped, if they are still to be reached and
    the gate lets them go.

    With an alloc leaves what runs in it.
    """
    gate = Gate(cell, observed, now)
    stopped: dict[str, list[int]] = {}
    advanced: list[AnyEvent] = []
    for key, named in command.stop.items():
        job = cell.jobs.get(key)
        if job is None or (rollout := job.rollout) is None:
            continue
        ends, found, wanted = rollout.ends, known_remaining(observed, job), set(named)
        stopped[key], _ = let_go(job, gate, [index for index in found.to_stop if index in wanted])
        disrupted = sum((key, index) not in command.down for index in stopped[key])
        pending = sorted([*found.to_rerun, *(index for index in stopped[key] if not ends(index))])
        ended = sorted([*found.to_end, *(index for index in stopped[key] if ends(index))])
        if reached := sorted([*pending, *ended, *found.done]):
            advanced.append(
                RolloutWentOn(key, tuple(reached), tuple(pending), tuple(ended), disrupted, rollout.kind)
            )
        advanced += _kept_places(cell, job, [index for index in stopped[key] if not ends(index)])
    evicted: list[TasksEvicted] = []
    for key, indexes in stopped.items():
        rollout = cell.jobs[key].rollout
        for event in evicted_with(cell, cell.jobs[key], indexes, rollout.reason if rollout else ""):
            # What runs in an alloc may be stopped itself.
            left = tuple(index for index in event.indexes if index not in stopped.get(event.job, ()))
            if left:
                evicted.append(msgspec.structs.replace(event, indexes=left))
    return Decision((*advanced, *evicted), "", "rollouts went on")


def let_go(job: Job, gate: Gate, indexes: Sequence[int]) -> tuple[list[int], str]:
    """Return those of the tasks, in their order, that the gate lets be stopped by the job's rollout, and why
    it does not let others; they are taken. Of a gang all or none, since it changes as a whole."""
    rollout = job.rollout
    if rollout is None or rollout.hurried:
        return list(indexes), ""
    limit, chosen, why = max_at_a_time(job), [], ""
    for index in indexes:
        if refused := gate.refused(job.key, index, at_a_time=limit):
            why = why or refused
            if job.spec.gang:
                return [], why
            continue
        gate.take(job.key, index)
        chosen.append(index)
    return chosen, why


def max_at_a_time(job: Job) -> int:
    """Return how many tasks of a job its rollout may have down, or not settled, at once."""
    tasks = max(1, job.tasks_wanted)
    if job.spec.gang:
        return tasks
    rollout, update = job.rollout, job.spec.update
    if rollout is not None and rollout.kind is not RolloutKind.ROLLBACK and update.at_a_time is not None:
        return update.at_a_time.of(tasks)
    # Who is replaced before is never down, so there is always one to go on with.
    return max(int(update.handover), job.spec.disruption.max_unavailable.of(tasks))


def _kept_places(cell: Cell, job: Job, indexes: Iterable[int]) -> Iterator[PlacesPromised]:
    """Yield that those of the stopped tasks which an update only restarts have their places kept for them."""
    rollout = job.rollout
    if rollout is None or rollout.kind is not RolloutKind.UPDATE or job.spec.inside:
        return
    pairs, changes = [], Changes(cell, job)
    for index in indexes:
        task = job.tasks[index]
        machine = cell.machines[task.machine]
        stays = changes.of(task) <= TaskChange.RESTART
        if stays and machine.up and machine.takes_tasks:
            pairs.append((index, machine.name))
    if pairs:
        yield PlacesPromised(job.key, tuple(i for i, _ in pairs), tuple(m for _, m in pairs))


class Changes:
    """What a job's specification, or another one, means for each of its tasks that run, where they run."""

    def __init__(self, cell: Cell, job: Job, spec: JobSpec | None = None) -> None:
        self._cell, self._job, self._spec = cell, job, spec or job.spec
        self._of: dict[int, SpecChange] = {}  # by version
        self._moves: dict[str, bool] = {}  # by machine: whether a task that stays the same may not stay
        self._free: dict[str, Resources] = {}  # by machine: what no task at least as important has

    def of(self, task: Task) -> TaskChange:
        """Return what becomes of one."""
        change = self.of_program(task)
        if change is TaskChange.NONE or change is TaskChange.MOVE:
            return change
        if task.machine not in self._moves:
            self._moves[task.machine] = self._suits_no_more(self._cell.machines[task.machine])
        if self._moves[task.machine] or (change is TaskChange.RESTART and not self._fits_still(task)):
            return TaskChange.MOVE
        return change

    def of_program(self, task: Task) -> TaskChange:
        """Return what it means for what one runs or ran last, wherever that is."""
        if task.version not in self._of:
            self._of[task.version] = SpecChange(self._job.spec_of_last(task), self._spec)
        return self._of[task.version].of(task.index)

    def _fits_still(self, task: Task) -> bool:
        """Return whether a task finds room for its new limits where it is, as far as that is known."""
        before, needs = self._job.spec_of(task).needs(task.index), self._spec.needs(task.index)
        if task.alloc >= 0 or needs.within(before):
            return True
        if task.machine not in self._free:
            least = min(
                priority_of(self._cell, self._job, task.index), self._cell.rules.bands.production
            )  # it may preempt the others
            self._free[task.machine] = free_on(self._cell, self._cell.machines[task.machine], least)
        return needs.within(self._free[task.machine].plus(before))

    def _suits_no_more(self, machine: Machine) -> bool:
        unmet = next(unmet_constraints(self._spec, machine), None)
        return unmet is not None or self._spec.runtime not in machine.runtimes


def decide_pause(cell: Cell, _o: Observed, command: PauseRollouts, _actor: str, _now: Now) -> Decision:
    """Return what follows: it is noted once, for history and for those who look at the job, and again only
    after the rollout went on."""
    paused = tuple(
        RolloutPaused(key, reason, command.hold, rollout.kind)
        for key, reason in command.reasons.items()
        if key in cell.rolling
        and (rollout := cell.jobs[key].rollout) is not None
        and (rollout.hold is None if command.hold else may_pause(rollout, reason))
    )
    return Decision(paused, "", "a rollout is paused")


def may_pause(rollout: Rollout, reason: str) -> bool:
    """Return whether it is news that a rollout waits for this. For what other jobs it waits, may change."""
    return not rollout.paused or (is_paused_for_update(rollout.paused) and rollout.paused != reason)


def decide_finish(cell: Cell, _o: Observed, command: FinishRollouts, _actor: str, _now: Now) -> Decision:
    """Return what follows: what is left of these rollouts stays as it is."""
    finished = tuple(
        RolloutFinished(key, outcome, rollout.kind)
        for key, outcome in command.outcomes.items()
        if key in cell.rolling
        and (rollout := cell.jobs[key].rollout) is not None
        and rollout.kind is not RolloutKind.ROLLBACK
    )
    return Decision(finished, "", "a rollout is over")


# What it waits for


class NotReady(msgspec.Struct, frozen=True):
    """What a rollout waits for in one job."""

    reason: str  # task 3 was restarted 2 times on m1 (exit code 1)
    failed: bool  # it has run and failed, rather than not run yet
    since: float  # of the task's state; seconds since 1970
    tasks: int = 1  # how many are not up
    fatal: bool = False  # it will not come up by itself, or has not for too long

    def pauses(self, now: Now) -> bool:
        """Return whether this is worth a report, rather than the time that a start takes."""
        return self.failed or now.wall - self.since >= PAUSED_AFTER_SECONDS


def not_ready(cell: Cell, observed: Observed, job: Job, now: Now) -> NotReady | None:
    """Return what the rollout of a job waits for, None when all that it changed is up.

    Of several tasks the first that failed is reported, or else the first. Walks the tasks of the job where
    it has changed itself.
    """
    rollout = job.rollout
    if rollout is None or rollout.hurried:
        return None
    known, unsettled, tasks = _known(observed, job), [], job.tasks
    if known is not None:
        if known.unsettled is not None:
            again = sorted(known.seen.union(known.unsettled))
            tasks = [job.tasks[index] for index in again if index < len(job.tasks)]
        known.seen.clear()
    first: NotReady | None = None
    for task in tasks:
        found = _task_not_ready(cell, observed, job, rollout, task, now)
        if found is None:
            continue
        unsettled.append(task.index)
        if first is None or (found.fatal, found.failed) > (first.fatal, first.failed):
            first = found
    if known is not None:
        known.unsettled = unsettled
    count = len(unsettled)
    if first is None:
        return _all_unreachable(cell, observed, job)
    more = f"; {count - 1} more {'is' if count == 2 else 'are'} not up" if count > 1 else ""
    return msgspec.structs.replace(first, reason=f"{first.reason}{more}", tasks=count)


def changed_tasks(job: Job) -> int:
    """Return how many of a job's tasks its rollout has reached, or were placed since it began, or will be."""
    rollout = job.rollout
    assert rollout is not None
    return sum(
        rollout.attempts.get(task.index) != task.attempt
        and (task.state is State.PENDING or (task.state is State.RUNNING and task.attempt > rollout.position))
        for task in job.tasks[: rollout.tasks]
    )


def stoppable(cell: Cell, job: Job, running: list[int]) -> list[int]:
    """Return those of the tasks still to be stopped that can be stopped: those whose machine is up.

    The others are left to ``reconcilers/stranded.py``, or decided on when their machine is back.
    """
    return [index for index in running if cell.machines[job.tasks[index].machine].up]


def _all_unreachable(cell: Cell, observed: Observed, job: Job) -> NotReady | None:
    to_stop = known_remaining(observed, job).to_stop
    if not to_stop or stoppable(cell, job, to_stop):
        return None
    task = job.tasks[to_stop[0]]
    reason = f"task {task.index} is to be stopped, and {task.machine}, where it runs, is down"
    return NotReady(reason, failed=False, since=task.since)


def _task_not_ready(
    cell: Cell, observed: Observed, job: Job, rollout: Rollout, task: Task, now: Now
) -> NotReady | None:
    deadline = show_seconds(job.spec.update.deadline_seconds)
    is_reached = rollout.attempts.get(task.index) != task.attempt
    handover = None if is_reached else cell.handover(job.key, task.index)
    if rollout.ends(task.index) or (handover is None and not is_reached):
        return None
    if handover is not None:
        words = f"task {task.index}: {handover_words(observed, job, task.index, handover)}"
        has_failed = bool(handover.failed)
        if not handover.attempt:
            is_over = is_late(job, handover, now) and not makes_room(cell, job, task, now)
            words = f"{words}, for more than {deadline}" if is_over else words
            return NotReady(words, has_failed, handover.since, fatal=has_failed or is_over)
        task = handover.task(task.index)
    who = f"task {task.index}" if handover is None else f"the incoming attempt of task {task.index}"
    found = _not_settled(cell, observed, job, rollout, task, now, who)
    if found is None and handover is not None:
        return NotReady(words, failed=False, since=task.since)  # it is about to take over
    if found is None or rollout.kind is RolloutKind.ROLLBACK:
        return found
    since = max(found.since, rollout.at, rollout.resumed)
    is_tried_on = task.since < rollout.resumed and now.wall - rollout.resumed < TRY_ON_SECONDS
    if found.fatal and is_tried_on and task.state is State.RUNNING:
        return msgspec.structs.replace(found, fatal=False)
    late_seconds = now.wall - since - job.spec.update.deadline_seconds
    if late_seconds < 0 or found.fatal:
        return found
    return msgspec.structs.replace(found, reason=f"{found.reason}, for more than {deadline}", fatal=True)


def makes_room(cell: Cell, job: Job, task: Task, now: Now) -> bool:
    """Return whether a task that waits for room to be replaced would find some if it were stopped first: it
    only restarts where it is, or there is room elsewhere, as far as that is known."""
    return Changes(cell, job).of(task) <= TaskChange.RESTART or Room(cell, now).take(job, task.index)


def _settle_seconds(job: Job, rollout: Rollout) -> float:
    return STEADY_SECONDS if rollout.kind is RolloutKind.ROLLBACK else job.spec.update.settle_seconds


def unsettled_first(observed: Observed, job: Job, running: Sequence[int], now: Now) -> list[int]:
    """Return tasks that a rollout has yet to reach with those first that one before it has changed and that
    have not settled since: to stop others beside them would be beyond what may be unsettled at once."""
    rollout = job.rollout
    if rollout is None or not rollout.replaces:
        return list(running)
    seconds = _settle_seconds(job, rollout)

    def has_settled(index: int) -> bool:
        task = job.tasks[index]
        if task.attempt <= rollout.replaces:
            return True
        seen = observed.attempt(task.machine, task_name(job.key, index), task.attempt)
        return seen is not None and is_settled(job, seen, seconds, now)

    return sorted(running, key=has_settled)


def _not_settled(
    cell: Cell, observed: Observed, job: Job, rollout: Rollout, task: Task, now: Now, who: str
) -> NotReady | None:
    if task.state is State.PENDING:
        if task.index in cell.deferred.get(job.key, ()):
            return None  # nothing is learned from what starts after other jobs
        refused = observed.refused.get(job.key, "")
        if task.failed:
            last = task.failed[-1]
            return NotReady(f"{who} failed on {last.machine}", True, task.since, fatal=True)
        reason = f"{who} waits for a machine{refused and f': {refused}'}"
        return NotReady(reason, failed=False, since=task.since)
    if task.attempt <= rollout.changed_since:
        return None  # not changed by this rollout, so nothing is learned from it
    if task.state is State.DEAD:
        if task.ending in (Ending.FINISH, Ending.KILL):
            return None
        how = exit_text(task.exit_code, task.signal) or task.reason
        reason = f"{who} failed{how and f' ({how})'}"
        return NotReady(reason, failed=True, since=task.since, fatal=True)
    if not cell.machines[task.machine].up:
        reason = f"{who} was placed on {task.machine}, which is down"
        return NotReady(reason, failed=False, since=task.since)
    if job.spec.kind is JobKind.ALLOC_SET:
        return None  # reserved; there is nothing to come up
    seen = observed.attempt(task.machine, task_name(job.key, task.index), task.attempt)
    if seen is not None and is_settled(job, seen, _settle_seconds(job, rollout), now):
        return None
    failed = seen is not None and (seen.restarts > 0 or seen.phase is Phase.UNHEALTHY)
    # It is given one restart in place; the next end is one too many.
    fatal = seen is not None and (
        seen.restarts > 1 or seen.early_ends > 1 or seen.phase is Phase.CRASH_LOOPING
    )
    return NotReady(f"{who} {_trouble(job, task, seen)}", failed, since=task.since, fatal=fatal)


def _trouble(job: Job, task: Task, seen: SeenAttempt | None) -> str:
    if seen is None:
        return f"was placed on {task.machine}, which has not reported it yet"
    how = seen.exit_reason or exit_text(seen.exit_code, seen.signal)  # that it was unhealthy, say
    if seen.restarts:
        times = "once" if seen.restarts == 1 else f"{seen.restarts} times"
        return f"was restarted {times} on {task.machine}{how and f' ({how})'}"
    if seen.phase is Phase.UP and job.spec.health is not None:
        return f"runs on {task.machine} and its probe has not answered yet"
    if seen.phase in (Phase.UP, Phase.HEALTHY):
        return f"has only just come up on {task.machine}"
    return f"is {seen.phase} on {task.machine}{seen.reason and f': {seen.reason}'}"
