"""How machines that gave no answer were treated, judged by what truly happened: who was moved, and when.

From the journal as it is on the disk, when its entries were committed, and what machines and programs did.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from borgish.bands import DEFAULT_BANDS
from borgish.cell.events import (
    AnyEvent,
    Entry,
    JobChanged,
    JobSubmitted,
    MachineJoined,
    MachineRemoved,
    RolledBack,
    RolloutWentOn,
    TasksEnded,
    TasksEvicted,
    TasksHandedOver,
    TasksPlaced,
    TasksResubmitted,
    follows,
)
from borgish.sim.machines import Machine
from borgish.vocabulary import Ending, Eviction, RolloutKind, split_task_name, task_name

SILENT_SECONDS = 10.0
"""Nobody is moved whose host gave a sign of life in so long,"""
UNANSWERED_SECONDS = 60.0
"""unless its borglet gave no answer for so long."""
RATE_SECONDS = 10.0
RATE_SHARE = 0.02
MISSED_SECONDS = 15.0
"""A machine without an answer for so long has missed two polls, whatever else was polled for."""
GRACE_SECONDS = 60.0
"""So long after an election nothing is given up unless half of the machines have answered."""
PREEMPTED_SHARE = 0.05
PREEMPTED_MIN = 10
"""A pass preempts no more than the larger of these, unless the first who preempts alone needs more."""
SLOW_SECONDS = 4.0
"""No message is under way for longer."""
HEARD_SECONDS = 10.0
"""What a machine reported is durable so long after, unless the master died or was held up."""

Attempt = tuple[str, int]  # the task's name, and the attempt


class Loss(msgspec.Struct, frozen=True):
    """Tasks were moved from a machine that was taken for lost."""

    at: float  # monotonic
    machine: str


class Record:
    """What the journal records, entry by entry."""

    def __init__(
        self,
        entries: Sequence[Entry],
        decided_at: Mapping[int, float],
        began_at: Sequence[float],
        held_up: Sequence[tuple[float, float]],
        machines: Mapping[str, Machine],
    ) -> None:
        """``decided_at``: by position, monotonic. ``began_at``: when each master began to lead; ``held_up``:
        from when to when one could write nothing."""
        self.losses: list[Loss] = []
        self.problems: list[str] = []
        self._began_at = began_at
        self._held_up = held_up
        self._priority: dict[str, int] = {}  # of each job, as it was last submitted
        self._machines = machines
        self._members: set[str] = set()
        self._joined: dict[str, float] = {}  # when a machine last joined, also one that is no more
        self._on: dict[str, str] = {}  # by task: where its last attempt was placed
        self._attempt: dict[str, int] = {}  # by task: its last attempt
        self._incoming: dict[str, tuple[int, str]] = {}  # by task: its last incoming attempt, and where
        self._lost_on: dict[tuple[str, int], str] = {}  # every attempt that was lost, and where
        self._lost: dict[str, list[tuple[int, str]]] = {}  # by task: those of which a result is awaited
        self._rolled_back = 0  # position of the last rollback
        self._changed_at: dict[str, int] = {}  # by job: position of its last update
        self._finished: set[str] = set()  # tasks that are never to run again, unless somebody asks for it
        before: Entry | None = None
        for entry in entries:
            self._judge_order(before, entry)
            before = entry
            at = decided_at[entry.position]
            for machine in sorted(set(self._lost_from(entry))):
                self._judge_loss(Loss(at, machine))
            self._judge_pass(
                [each for each in entry.events if isinstance(each, TasksEvicted) and each.preemptor]
            )
            for event in entry.events:
                self._take(event, entry, at)

    def _judge_order(self, before: Entry | None, entry: Entry) -> None:
        """Positions have no gap, and after the first entry of a later term none of an earlier one follows."""
        if before is None:
            return
        if not follows(entry, before.position):
            self.problems.append(f"entry {entry.position} follows {before.position}")
        if (entry.timeline, entry.epoch) < (before.timeline, before.epoch):
            self.problems.append(f"entry {entry.position} is of epoch {entry.epoch}, after {before.epoch}")

    # Who is moved

    def _lost_from(self, entry: Entry) -> Iterator[str]:
        """Yield where tasks are moved from; what clients remove is their own decision."""
        for event in entry.events:
            is_loss = isinstance(event, TasksEvicted) and event.cause is Eviction.MACHINE_LOST
            if isinstance(event, TasksEvicted) and is_loss and entry.cause != "RemoveMachine":
                yield from (self._on[task_name(event.job, index)] for index in event.indexes)

    def _judge_loss(self, loss: Loss) -> None:
        self.losses.append(loss)
        machine = self._machines[loss.machine]
        answered = _since_last(machine.answered_at, loss.at)
        alive = min(answered, _since_last(machine.refused_at, loss.at))
        if answered < UNANSWERED_SECONDS and alive < SILENT_SECONDS:
            self.problems.append(f"{loss.machine} lost its tasks {alive:.1f} s after its host was alive")
        most = max(1, int(RATE_SHARE * len(self._members)))
        recent = [each for each in self.losses if each.at > loss.at - RATE_SECONDS]
        if len(recent) > most:
            self.problems.append(f"{len(recent)} machines lost their tasks within {RATE_SECONDS:g} s")
        away = [
            name
            for name in self._members
            # Who joins again is asked anew.
            if min(self._unanswered(name, loss.at), loss.at - self._joined[name]) > MISSED_SECONDS
        ]
        if len(away) >= 3 and 2 * len(away) >= len(self._members):
            self.problems.append(f"{loss.machine} lost its tasks while {', '.join(sorted(away))} were away")

        since = max((at for at in self._began_at if at <= loss.at), default=0.0)
        if loss.at - since < GRACE_SECONDS:
            heard = sum(since <= loss.at - self._unanswered(name, loss.at) for name in self._members)
            if 2 * heard < len(self._members):
                new = f"{heard} of {len(self._members)} machines had answered the new master"
                self.problems.append(f"{loss.machine} lost its tasks when {new}")

    def _unanswered(self, name: str, at: float) -> float:
        return _since_last(self._machines[name].answered_at, at)

    # What is done twice

    def _take(self, event: AnyEvent, entry: Entry, at: float) -> None:
        match event:
            case MachineJoined():
                self._members.add(event.machine.name)
                self._joined[event.machine.name] = at
            case MachineRemoved():
                self._members.discard(event.machine)
            case TasksPlaced():
                self._place(event, entry.position)
            case TasksHandedOver(job, indexes):
                self._take_over(job, indexes)
            case TasksEvicted(job, indexes, cause):
                if cause is Eviction.PREEMPTED:
                    self._judge_preemption(job, event.preemptor)
                for index in indexes:
                    self._evicted(task_name(job, index), cause)
                self._take_over(job, event.taken_over)
            case TasksEnded():
                self._judge_end(event, at)
            case RolledBack():
                self._rolled_back = entry.position
                self._lost.clear()
                self._finished.clear()
            case _:
                if isinstance(event, JobChanged) and event.version:
                    self._changed_at[event.job] = entry.position
                self._run_anew(event)

    def _place(self, event: TasksPlaced, attempt: int) -> None:
        for index, machine in zip(event.indexes, event.machines, strict=True):
            name = task_name(event.job, index)
            if attempt <= self._attempt.get(name, 0):
                self.problems.append(f"attempt {attempt} of {name} comes after {self._attempt[name]}")
            if name in self._finished:
                self.problems.append(f"{name} had finished and is placed on {machine}")
            if index in event.incoming:
                self._incoming[name] = attempt, machine
            else:
                self._on[name], self._attempt[name] = machine, attempt

    def _take_over(self, job: str, indexes: Iterable[int]) -> None:
        for name in (task_name(job, index) for index in indexes):
            self._attempt[name], self._on[name] = self._incoming.pop(name)

    def _judge_pass(self, preempting: Sequence[TasksEvicted]) -> None:
        """Few leave in one pass, and nobody both leaves and has others leave."""
        victims = [task_name(each.job, index) for each in preempting for index in each.indexes]
        preemptors = {each.preemptor for each in preempting}
        most = max(PREEMPTED_MIN, int(PREEMPTED_SHARE * len(self._on)))
        if len(victims) > most and len(preemptors) > 1:
            self.problems.append(f"{len(victims)} tasks were preempted in one pass")
        if chained := sorted(preemptors.intersection(victims)):
            self.problems.append(f"{', '.join(chained)} preempted others and was preempted in one pass")

    def _judge_preemption(self, job: str, preemptor: str) -> None:
        priority = self._priority.get(job, 0)
        if priority >= DEFAULT_BANDS.production:
            self.problems.append(f"{job} is production and was preempted")
        if preemptor and self._priority.get(split_task_name(preemptor)[0], 0) <= priority:
            self.problems.append(f"{job} was preempted for {preemptor}, which is not of a higher priority")

    def _run_anew(self, event: AnyEvent) -> None:
        """Await no results of before where something is to run anew, or to run something else."""
        match event:
            case TasksResubmitted(job, indexes):
                for index in indexes:
                    self._lost.pop(task_name(job, index), None)
                    self._finished.discard(task_name(job, index))
            case RolloutWentOn(job, reached, pending, kind=kind):
                # Of those that a rollback ends some may be too many for the job, which may have them anew.
                anew = reached if kind is RolloutKind.ROLLBACK else pending
                self._finished -= {task_name(job, index) for index in anew}
                if kind is RolloutKind.RESTART:
                    for index in pending:
                        self._lost.pop(task_name(job, index), None)
            case JobSubmitted():
                self._priority[event.spec.key] = event.spec.priority
                self._forget(event.spec.key, 0)
            case JobChanged():
                self._forget(event.job, event.spec.tasks)
                if event.version:  # another program may have other results
                    self._forget_lost(event.job)

    def _forget_lost(self, job: str) -> None:
        self._lost = {name: lost for name, lost in self._lost.items() if split_task_name(name)[0] != job}

    def _evicted(self, name: str, cause: Eviction) -> None:
        if cause is Eviction.MACHINE_LOST:
            self._lost_on[name, self._attempt[name]] = self._on[name]
            # What was placed before may be another program.
            changed_at = max(self._rolled_back, self._changed_at.get(split_task_name(name)[0], 0))
            if self._attempt[name] > changed_at:
                self._lost.setdefault(name, []).append((self._attempt[name], self._on[name]))
        elif cause is Eviction.RESTART:
            self._lost.pop(name, None)

    def _forget(self, job: str, tasks: int) -> None:
        """Of the tasks of a job from this index on nothing is awaited any more."""
        for name in list(self._lost):
            key, index = split_task_name(name)
            if key == job and index >= tasks:
                del self._lost[name]
        self._finished = {
            name for name in self._finished if (at := split_task_name(name))[0] != job or at[1] < tasks
        }

    def _judge_end(self, event: TasksEnded, at: float) -> None:
        """A late result is a true one; and no later attempt has one when an earlier one's could be heard."""
        for row, index in enumerate(event.indexes):
            name = task_name(event.job, index)
            lost = self._lost.pop(name, [])
            if event.ending is Ending.FINISH:
                self._finished.add(name)
            if event.attempts:
                code = event.exit_codes[row] if event.exit_codes else None
                self._judge_late(name, event.attempts[row], code)
            elif event.ending in (Ending.FINISH, Ending.FAIL):
                for attempt, machine in lost:
                    if self._could_be_heard(self._machines[machine], (name, attempt), at):
                        self.problems.append(
                            f"{name} has a result of attempt {self._attempt[name]}, and attempt {attempt} "
                            f"had finished on {machine}, which reported it before"
                        )

    def _judge_late(self, name: str, attempt: int, code: int | None) -> None:
        machine = self._lost_on.get((name, attempt))
        true = self._machines[machine].programs.results.get((name, attempt)) if machine else None
        if true is None or true[1] != code:
            self.problems.append(f"{name} has the result {code} of attempt {attempt}, which ended as {true}")

    def _could_be_heard(self, machine: Machine, attempt: Attempt, before: float) -> bool:
        """Whether a master heard from a machine after an attempt had finished there, and lived on, and so
        the result had to count."""
        result = machine.programs.results.get(attempt)
        if result is None or result[1] != 0 or machine.booted_at > result[0]:
            return False
        stops = (until for since, until in machine.stopped if since - SLOW_SECONDS <= result[0] <= until)
        reported = max(stops, default=result[0]) + SLOW_SECONDS
        heard = machine.answered_at[bisect_left(machine.answered_at, reported) :]
        return any(at + HEARD_SECONDS < before and not self._died(at, at + HEARD_SECONDS) for at in heard)

    def _died(self, since: float, until: float) -> bool:
        """Whether a master died in that time, or was held up."""
        held_up = any(begin <= until and since <= end for begin, end in self._held_up)
        return held_up or any(since <= at <= until for at in self._began_at)


def _since_last(times: Sequence[float], at: float) -> float:
    """Return how long before a moment the last of these was."""
    place = bisect_right(times, at)
    return at - times[place - 1] if place else float("inf")
