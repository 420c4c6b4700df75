"""A task is replaced by one that is up before it is stopped: ``update: {handover: true}``. Pure.

A running task has one current attempt and at most one *incoming* (``model.Handover``): what Kubernetes does
with ``maxSurge``, for each task by itself and with its index kept. Where a rollout is to reach the task, or
it has to leave its machine, a handover begins instead of a stop. The scheduler places the incoming attempt
like a pending task, but it preempts nobody. When it has settled it *takes over* in one event: from then on
the task is about it, whoever follows the watch goes there, and the former attempt, which is wanted no longer,
is stopped after ``stop.deregister``. So nobody is down for it, and no budget is used up.

What else may happen while a handover goes on:

- the current attempt is lost, fails or is evicted: the incoming one takes over at once, if it has a machine
  that is up; else the task is pending, as any.
- the task is killed, or is no longer to run, or its job has another specification: the incoming attempt ends.
- the incoming attempt is lost, fails, or does not come up by ``update.deadline``: another is looked for, and
  not where one failed (``cell.failing``). Of a rollout that is its failure (``cell.rollout``).
- no machine has room: it waits and, after ``update.deadline``, the task may be taken down within its budgets
  (``cell.disruption``), as if it had no handover. A rollout whose task would find no room then either fails
  instead, with nothing stopped (``cell.rollout.makes_room``).
- what it was for is over (a drain that was taken back): the incoming attempt ends.

A freeze holds back handovers as it does disruptions; what has begun goes on.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum, auto
from typing import NamedTuple

import msgspec

from borgish.cell.commands import (
    BeginHandovers,
    Decision,
    EndHandovers,
    EndIncoming,
    HandOverTasks,
    Observe,
    SeenAttempt,
)
from borgish.cell.events import (
    AnyEvent,
    HandoversBegan,
    HandoversEnded,
    IncomingEnded,
    TasksEvicted,
    TasksHandedOver,
)
from borgish.cell.limits.availability import down_of, has_reported, is_settled, live_tasks
from borgish.cell.limits.disruption import Gate
from borgish.cell.lookup import find_job
from borgish.cell.machines.suitability import evict_at, why_unsuitable
from borgish.cell.model import Cell, Handover, Job, Machine, Task, exit_text, task_count
from borgish.cell.observed import Observed
from borgish.cell.tasks.failing import failed_on, why_moved
from borgish.clock import Now
from borgish.resources import show_seconds
from borgish.vocabulary import HandoverCause, Hold, Phase, Recheck, State, split_task_name, task_name


def is_late(job: Job, handover: Handover, now: Now) -> bool:
    """Return whether a handover has waited for room so long that the task may be taken down instead. Where an
    incoming attempt has failed the next one may, too: then the task is better off as it is."""
    waits = not handover.attempt and not handover.failed
    return waits and now.wall - handover.since >= job.spec.update.deadline_seconds


def incoming_of(observed: Observed, job: Job, index: int, handover: Handover) -> SeenAttempt | None:
    """Return what was last seen of an incoming attempt."""
    return observed.attempt(handover.machine, task_name(job.key, index), handover.attempt)


def is_up(cell: Cell, observed: Observed, job: Job, index: int, handover: Handover, now: Now) -> bool:
    """Return whether an incoming attempt has settled, and may take over: as its machine says, which has to
    answer for that."""
    machine, heard = cell.machines.get(handover.machine), observed.machines.get(handover.machine)
    if machine is None or not machine.up or heard is None or not heard.is_answering:
        return False
    seen = incoming_of(observed, job, index, handover)
    return seen is not None and is_settled(job, seen, job.spec.update.settle_seconds, now)


def handover_words(observed: Observed, job: Job, index: int, handover: Handover) -> str:
    """Return what a handover waits for."""
    if not handover.attempt:
        if handover.failed:
            return (
                f"an incoming attempt failed on {handover.failed[-1].machine}, and another has no machine yet"
            )
        refused = observed.refused.get(job.key, "")
        return f"its incoming attempt waits for a machine{refused and f': {refused}'}"
    seen = incoming_of(observed, job, index, handover)
    phase = f"is {seen.phase}" if seen is not None else "has not been reported yet"
    if seen is not None and seen.phase is Phase.UP and job.spec.health is not None:
        phase = "is up and its probe has not answered yet"
    elif seen is not None and seen.phase in (Phase.UP, Phase.HEALTHY):
        phase = f"{phase} and takes over when it was so for {show_seconds(job.spec.update.settle_seconds)}"
    return f"its incoming attempt {handover.attempt} on {handover.machine} {phase}"


def handover_cause(handover: Handover) -> str:
    """Return why a task is replaced, in words."""
    if handover.cause is HandoverCause.ROLLOUT:
        return f"its job was {handover.reason}"
    return handover.reason or str(handover.cause)


# Leaving a machine

NOT_HEARD = "its machine has not reported to this borgmaster yet"


class Way(StrEnum):
    """How a task leaves its machine on purpose."""

    STAYS = auto()
    TAKEN_DOWN = auto()  # and placed anew
    REPLACED = auto()  # an incoming attempt is to be looked for


class Departure(NamedTuple):
    """How a task that is to leave may do so now, and why it stays."""

    way: Way
    why: str = ""


class Departures:
    """Says how tasks leave on purpose: replaced first where their job says so, else through the gate. What is
    replaced counts for whoever is asked about later."""

    def __init__(self, cell: Cell, observed: Observed, now: Now, steady: Now | None = None) -> None:
        """``steady``: now, by a wall clock that nobody steps, where who asks has one."""
        self._cell, self._observed, self._steady = cell, observed, steady or now
        self.gate = Gate(cell, observed, now)
        self._begun: dict[str, int] = {}  # by job

    def of(self, job: Job, index: int) -> Departure:
        """Return how a running task may leave. One that may be taken down is not taken through the gate."""
        is_down = index in down_of(self._cell, self._observed, job)
        if job.spec.update.handover and is_down and not self._is_known_down(job.tasks[index]):
            return Departure(Way.STAYS, NOT_HEARD)
        if job.spec.update.handover and not is_down:
            handover = self._cell.handover(job.key, index)
            if handover is None:
                if why := self._why_none_begins(job):
                    return Departure(Way.STAYS, why)
                self._begun[job.key] = self._begun.get(job.key, 0) + 1
                return Departure(Way.REPLACED)
            if not is_late(job, handover, self._steady):
                words = handover_words(self._observed, job, index, handover)
                if not may_take_over(job, handover):
                    words = f"{words}, and `borgctl job update undo {job.key}` ends that"
                return Departure(Way.STAYS, words)
        why = self.gate.refused(job.key, index)
        return Departure(Way.STAYS if why else Way.TAKEN_DOWN, why)

    def split(self, job: str, indexes: Iterable[int], most: int) -> tuple[list[int], list[int]]:
        """Return those of a job's tasks that are taken down, which are taken through the gate, and those that
        are replaced; so many at most of both."""
        down, replaced = list[int](), list[int]()
        for index in indexes:
            if len(down) + len(replaced) >= most:
                break
            way, _ = self.of(self._cell.jobs[job], index)
            if way is Way.TAKEN_DOWN:
                self.gate.take(job, index)
                down.append(index)
            elif way is Way.REPLACED:
                replaced.append(index)
        return down, replaced

    def _is_known_down(self, task: Task) -> bool:
        """Return whether a task that counts as down is so: what a new master has not heard of may be up."""
        machine = self._cell.machines.get(task.machine)
        return machine is None or not machine.up or has_reported(self._observed, task.machine)

    def _why_none_begins(self, job: Job) -> str:
        if self._cell.freeze is not None:
            return f"the cell is {self._cell.freeze}"
        # As many at a time as may be down: a machine with all of a job would else have it all twice at once.
        most = max(1, job.spec.disruption.max_unavailable.of(live_tasks(job)))
        handovers = self._cell.handovers.get(job.key, {}).values()  # those that somebody decides about wait
        under_way = sum(may_take_over(job, each) for each in handovers) + self._begun.get(job.key, 0)
        if under_way < most:
            return ""
        are = "is" if under_way == 1 else "are"
        return f"{task_count(under_way)} of {job.key} {are} being replaced, at most {most} at a time"


def why_not_there(job: Job, machine: Machine) -> str:
    """Return why an attempt of a job that takes over on a machine would have to leave it again."""
    if machine.is_draining:
        return f"{machine.name} is to be empty"
    if evict_at(job.spec.tolerations, machine.taints) is not None:
        return f"{machine.name} is tainted {', '.join(map(str, machine.taints))}"
    return why_unsuitable(job.spec, machine) if job.spec.recheck is Recheck.EVICT else ""


def is_still_wanted(cell: Cell, job: Job, task: Task, handover: Handover) -> bool:
    """Return whether what a handover is for is so still."""
    machine = cell.machines[task.machine]
    match handover.cause:
        case HandoverCause.ROLLOUT:
            rollout = job.rollout
            return rollout is not None and rollout.attempts.get(task.index) == task.attempt
        case HandoverCause.DRAIN | HandoverCause.TAINTED | HandoverCause.UNSUITABLE:
            return bool(why_not_there(job, machine))


def may_take_over(job: Job, handover: Handover) -> bool:
    """Return whether an incoming attempt that is up takes over. Not while somebody is to decide about the
    update that it belongs to, since it has failed."""
    is_held = job.rollout is not None and job.rollout.hold is Hold.FAILED
    return handover.cause is not HandoverCause.ROLLOUT or not is_held


def why_given_up(observed: Observed, job: Job, index: int, handover: Handover, now: Now) -> str:
    """Return why an incoming attempt does not come up; "" while it may. That of an update is the update's to
    judge (``cell.rollout.not_ready``)."""
    late = now.wall - handover.placed_at >= job.spec.update.deadline_seconds
    if not handover.attempt or handover.cause is HandoverCause.ROLLOUT or not late:
        return ""
    deadline = show_seconds(job.spec.update.deadline_seconds)
    return f"{handover_words(observed, job, index, handover)}, for more than {deadline}"


# Deciding


def decide_begin(cell: Cell, _o: Observed, command: BeginHandovers, _actor: str, _now: Now) -> Decision:
    """Let running tasks be replaced, where their job wants that and nothing holds it. Raises NotFound."""
    job = find_job(cell, command.job)
    there = cell.handovers.get(job.key, {})
    may = job.spec.update.handover and cell.freeze is None
    indexes = tuple(
        index
        for index in command.indexes
        if may and index < len(job.tasks) and job.tasks[index].state is State.RUNNING and index not in there
    )
    text = f"{task_count(len(indexes))} of {job.key} to be replaced: {command.reason or command.cause}"
    events = (HandoversBegan(job.key, indexes, command.cause, command.reason),) * bool(indexes)
    return Decision(events, job.key, text)


def decide_hand_over(cell: Cell, _o: Observed, command: HandOverTasks, _actor: str, _now: Now) -> Decision:
    """Let incoming attempts take over that are still the ones meant. Raises NotFound."""
    job = find_job(cell, command.job)
    indexes = tuple(_meant(cell, job, command.indexes, command.attempts))
    rows = dict(zip(command.indexes, command.restarts, strict=False))
    restarts = tuple(rows.get(index, 0) for index in indexes) if any(command.restarts) else ()
    events = (TasksHandedOver(job.key, indexes, restarts),) * bool(indexes)
    return Decision(events, job.key, f"{task_count(len(indexes))} of {job.key} handed over")


def decide_end_incoming(cell: Cell, _o: Observed, command: EndIncoming, _actor: str, now: Now) -> Decision:
    """Look for other incoming attempts than those named. Raises NotFound."""
    job = find_job(cell, command.job)
    indexes = tuple(_meant(cell, job, command.indexes, command.attempts))
    there = cell.handovers.get(job.key, {})
    failed = tuple(failed_on(there[index].task(index), now.wall) for index in indexes)
    event = IncomingEnded(job.key, indexes, command.reason, failed if command.has_failed else ())
    return Decision((event,) * bool(indexes), job.key, f"other incoming attempts of {job.key} are looked for")


def decide_end(cell: Cell, _o: Observed, command: EndHandovers, _actor: str, _now: Now) -> Decision:
    """Let running tasks be as they are. Raises NotFound."""
    job = find_job(cell, command.job)
    there = cell.handovers.get(job.key, {})
    indexes = tuple(index for index in command.indexes if index in there)
    events = (HandoversEnded(job.key, indexes, command.reason),) * bool(indexes)
    return Decision(events, job.key, f"{task_count(len(indexes))} of {job.key} not to be replaced")


def _meant(cell: Cell, job: Job, indexes: Iterable[int], attempts: Iterable[int]) -> Iterator[int]:
    there = cell.handovers.get(job.key, {})
    for index, attempt in zip(indexes, attempts, strict=True):
        if attempt and index in there and there[index].attempt == attempt:
            yield index


def with_successors(cell: Cell, events: Iterable[AnyEvent]) -> tuple[AnyEvent, ...]:
    """Return events in which the incoming attempts of evicted tasks take over at once, where they have a
    machine that is up. Whether they are up themselves is no matter: a fresh attempt would be no better."""
    over: set[tuple[str, int]] = set()  # by the events so far
    found: list[AnyEvent] = []
    for event in events:
        if isinstance(event, TasksEvicted):
            there = cell.handovers.get(event.job, {})
            taken_over = tuple(
                index
                for index in event.indexes
                if index in there and (event.job, index) not in over and _has_place(cell, there[index])
            )
            over.update((event.job, index) for index in taken_over)
            found.append(msgspec.structs.replace(event, taken_over=taken_over) if taken_over else event)
            continue
        if isinstance(event, IncomingEnded | HandoversEnded):
            left = {(event.job, index) for index in event.indexes} - over
            over |= left
            if len(left) < len(event.indexes):
                continue
        found.append(event)
    return tuple(found)


def _has_place(cell: Cell, handover: Handover) -> bool:
    machine = cell.machines.get(handover.machine)
    return machine is not None and machine.up and not machine.is_draining


# Reports


def ends_of_incoming(cell: Cell, report: Observe, now: Now) -> Iterator[IncomingEnded]:
    """Yield what a machine's report brings about of the incoming attempts there: those that are over or have
    failed, and those that it no longer has."""
    for seen in sorted(report.changed, key=lambda each: each.task):
        if not cell.is_incoming(report.machine, seen.task, seen.attempt):
            continue
        key, index = split_task_name(seen.task)
        job = cell.jobs[key]
        task = cell.handovers[key][index].task(index)
        if why := _why_over(job, task, seen):
            has_failed = not seen.port_in_use
            failed = (failed_on(task, now.wall),) if has_failed else ()
            yield IncomingEnded(key, (index,), f"on {report.machine}: {why}", failed)
    for name, attempt in report.gone:
        if cell.is_incoming(report.machine, name, attempt):
            key, index = split_task_name(name)
            yield IncomingEnded(key, (index,), f"{report.machine} no longer has it")


def _why_over(job: Job, task: Task, seen: SeenAttempt) -> str:
    how = seen.reason or seen.exit_reason or exit_text(seen.exit_code, seen.signal)
    if seen.ended is not None:
        return how or str(seen.ended)
    if seen.port_in_use:
        return f"port {seen.port_in_use} is held by another program"
    if seen.phase is Phase.UNKILLABLE:
        return how or str(seen.phase)
    return why_moved(job, task, seen)


def lost_with(cell: Cell, machine: str, reason: str) -> Iterator[IncomingEnded]:
    """Yield the ends of the incoming attempts that were to run on a machine that is given up."""
    by_job: dict[str, list[int]] = {}
    for key, index in sorted(cell.arriving.get(machine, ())):
        by_job.setdefault(key, []).append(index)
    for key, indexes in by_job.items():
        yield IncomingEnded(key, tuple(indexes), f"{machine} is down: {reason}")
