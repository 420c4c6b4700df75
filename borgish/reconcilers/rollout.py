"""A rollout (an update, a restart, a rollback of the cell) reaches the tasks of a job a few at a time.

So many tasks a second at most, and of one job no more than the gate lets go (``cell/limits/disruption.py``)
and than are not settled at once. More are stopped as those before them come up and stay so
(``cell/updates/rollout.py``), and none while one has failed: a version that crashes costs a job that share
and no more. What is down already is changed first. Canaries come before all else and wait for somebody. Why
it waits is noted. A rollout that is ``hurried`` has none of this. A task whose machine is down is left to
``stranded``: it is either moved from there, or decided on when the machine is back.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from borgish.cell.apps.order import waits_for_update
from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    BeginHandovers,
    FailUpdate,
    FinishRollouts,
    PauseRollouts,
)
from borgish.cell.limits.availability import down_of, has_reported
from borgish.cell.limits.disruption import Gate
from borgish.cell.model import Cell, Job, Rollout, task_count
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import is_late
from borgish.cell.updates.rollout import (
    NotReady,
    changed_tasks,
    known_remaining,
    let_go,
    makes_room,
    max_at_a_time,
    may_pause,
    not_ready,
    stoppable,
    unsettled_first,
)
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import HandoverCause, Hold, RolloutKind


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Go on with every rollout; how often this is called, once a second, is its pace."""
    return _go_on(cell, observed, settings, now, is_resync=True)


def reconcile_hurried(
    cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Go on with the rollouts that have no pace or begin just now, and wherever nothing has to be stopped."""
    return _go_on(cell, observed, settings, now, is_resync=False)


class _Wanted(msgspec.Struct):
    """What is asked for, job by job."""

    stop: dict[str, tuple[int, ...]] = {}
    down: list[tuple[str, int]] = []
    pause: dict[str, str] = {}
    canary: dict[str, str] = {}
    finish: dict[str, str] = {}
    fail: dict[str, str] = {}
    hand_over: dict[str, tuple[tuple[int, ...], str]] = {}

    def commands(self) -> Iterator[Command]:
        if self.stop:
            yield AdvanceRollouts(self.stop, tuple(self.down))
        if self.pause:
            yield PauseRollouts(self.pause)
        if self.canary:
            yield PauseRollouts(self.canary, Hold.CANARY)
        if self.finish:
            yield FinishRollouts(self.finish)
        for key, reason in self.fail.items():
            yield FailUpdate(key, reason)
        for key, (indexes, reason) in self.hand_over.items():
            yield BeginHandovers(key, indexes, HandoverCause.ROLLOUT, reason)


def _go_on(
    cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now, *, is_resync: bool
) -> Iterator[Command]:
    judged = settings.judged(now)
    left = settings.rollout_stops_max
    wanted, gate, known = _Wanted(), Gate(cell, observed, now), observed.availability
    # A step comes with every report, and most jobs have nothing new in it.
    calm: set[str] = known.calm if known is not None else set()
    for key in sorted(cell.rolling if is_resync else cell.rolling - calm):
        job = cell.jobs[key]
        found = known_remaining(observed, job)
        rollout = job.rollout
        assert rollout is not None
        chosen: list[int] = []
        if rollout.hurried:
            chosen = stoppable(cell, job, found.to_stop)
        elif rollout.hold is None and (blocked := waits_for_update(cell, job)):
            if may_pause(rollout, blocked):
                wanted.pause[key] = blocked
        elif rollout.hold is None and (is_resync or (rollout.at == now.wall and not rollout.has_begun)):
            waits = not_ready(cell, observed, job, judged)
            running = stoppable(cell, job, found.to_stop)
            chosen = _next(cell, observed, job, running, waits, gate, left, wanted, judged)
            goes_on = chosen or key in wanted.hand_over
            is_stuck = not goes_on and key not in wanted.fail
            if is_stuck and waits is not None and waits.pauses(now) and may_pause(rollout, waits.reason):
                wanted.pause[key] = waits.reason
        left = max(0, left - len(chosen) - len(wanted.hand_over.get(key, ((), ""))[0]))
        if chosen or found.stops_nothing:
            wanted.stop[key] = tuple(chosen)
            down = down_of(cell, observed, job)
            wanted.down += [(key, index) for index in chosen if index in down]
        elif not rollout.hurried and rollout.at != now.wall:
            calm.add(key)
    return wanted.commands()


def _next(
    cell: Cell,
    observed: Observed,
    job: Job,
    running: Sequence[int],
    waits: NotReady | None,
    gate: Gate,
    left: int,
    wanted: _Wanted,
    now: Now,
) -> list[int]:
    """Return which of the running tasks are stopped next, at most ``left``; or ask for what else follows."""
    rollout, down = job.rollout, down_of(cell, observed, job)
    assert rollout is not None
    is_update = rollout.kind is not RolloutKind.ROLLBACK
    if is_update and waits is not None and waits.fatal:
        wanted.fail[job.key] = waits.reason
        return []
    if is_update and waits is None and not rollout.attempts:
        wanted.finish[job.key] = "complete"
        return []
    if waits is not None and waits.failed:
        return []
    # Those that end first, since they make room for the others; then what is down already, which is free.
    handovers = cell.handovers.get(job.key, {})
    free, update = _free(cell, observed, job, running), job.spec.update
    others = unsettled_first(observed, job, [index for index in running if index not in down], now)
    if rollout.records or rollout.tasks < len(job.tasks):
        others.sort(key=lambda index: not rollout.ends(index))
    room = _room(job, waits)
    if is_update and update.canaries and not rollout.promoted:
        canaries_left = _canaries_left(job, handovers)
        if not canaries_left and waits is None and running:
            wanted.canary[job.key] = f"{task_count(update.canaries)} of the new version up and well"
            return []
        free, room = free[:canaries_left], min(room, canaries_left - len(free[:canaries_left]))
    if update.handover:
        staying = [index for index in others if not rollout.ends(index)]
        _hand_over(cell, job, staying, min(room, left), wanted)
        late = _late(cell, job, staying, waits, gate, wanted, now)
        # What ends has nobody to hand over to.
        free, others = [*free, *late], [index for index in others if rollout.ends(index)]
    elif is_update and update.max_disruptions:
        room = min(room, update.max_disruptions - rollout.disruptions)
        if room <= 0 and not free and waits is None:
            wanted.finish[job.key] = _skipped(job, rollout)
            return []
    if job.spec.gang and room < len(others):
        return []
    asked = [*free, *others[: max(0, room)]]
    chosen, refused = let_go(job, gate, asked if job.spec.gang else asked[:left])
    if refused and not chosen and waits is None and not rollout.paused:
        wanted.pause[job.key] = refused
    return chosen


def _free(cell: Cell, observed: Observed, job: Job, running: Sequence[int]) -> list[int]:
    """Return those of the tasks that are down, so that it costs nothing to stop them; but not who is about to
    be replaced and, of a job that hands over, not what a new master has yet to hear of: it may be up."""
    down, handovers = down_of(cell, observed, job), cell.handovers.get(job.key, {})
    return [
        index
        for index in running
        if index in down
        and not (index in handovers and handovers[index].attempt)
        and not (job.spec.update.handover and not has_reported(observed, job.tasks[index].machine))
    ]


def _canaries_left(job: Job, handovers: Iterable[int]) -> int:
    """Return how many more tasks are to be changed, or begin to be, before somebody says so."""
    rollout = job.rollout
    assert rollout is not None
    changing = sum(rollout.attempts.get(index) == job.tasks[index].attempt for index in handovers)
    return max(0, job.spec.update.canaries - changed_tasks(job) - changing)


def _hand_over(cell: Cell, job: Job, staying: Sequence[int], most: int, wanted: _Wanted) -> None:
    """Ask for incoming attempts of so many more tasks at most."""
    rollout, handovers = job.rollout, cell.handovers.get(job.key, {})
    assert rollout is not None
    fresh = tuple([index for index in staying if index not in handovers][: max(0, most)])
    if fresh and cell.freeze is None:
        wanted.hand_over[job.key] = fresh, rollout.reason
    elif fresh and not rollout.paused:
        wanted.pause[job.key] = f"the cell is {cell.freeze}"


def _late(
    cell: Cell,
    job: Job,
    staying: Sequence[int],
    waits: NotReady | None,
    gate: Gate,
    wanted: _Wanted,
    now: Now,
) -> list[int]:
    """Return those for which no machine had room for so long that they are taken down within the budgets, as
    they would be without handover: where that makes room, and only as many as have settled before; or ask for
    what else follows."""
    rollout, update, handovers = job.rollout, job.spec.update, cell.handovers.get(job.key, {})
    assert rollout is not None
    waiting = [index for index in staying if index in handovers]
    late = [index for index in waiting if is_late(job, handovers[index], now)]
    late = [index for index in late if makes_room(cell, job, job.tasks[index], now)]
    changing = (waits.tasks if waits is not None else 0) - len(waiting)
    most = max(0, job.spec.disruption.max_unavailable.of(max(1, job.tasks_wanted)) - changing)
    if not late or changing:
        return late[:most]
    if update.max_disruptions and rollout.kind is not RolloutKind.ROLLBACK:
        most = min(most, update.max_disruptions - rollout.disruptions)
        if most <= 0 and len(waiting) == len(late):
            wanted.finish[job.key] = _skipped(job, rollout)
    if most <= 0 and job.key not in wanted.finish and not rollout.paused:
        wanted.pause[job.key] = gate.refused(job.key, late[0])
    return late[: max(0, most)]


def _skipped(job: Job, rollout: Rollout) -> str:
    left, most = task_count(len(rollout.attempts)), job.spec.update.max_disruptions
    return f"complete but for {left}: max_disruptions ({most}) reached"


def _room(job: Job, waits: NotReady | None) -> int:
    """Return how many more tasks of a job, of those that are up, may be stopped now."""
    if waits is None:
        return max_at_a_time(job)
    return 0 if waits.failed else max(0, max_at_a_time(job) - waits.tasks)
