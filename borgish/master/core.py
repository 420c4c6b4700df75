"""One step of the master: decide each input, reconcile, schedule. Pure; see ``turn`` for the rest.

No clock, no socket, no disk, no log: the entries are the log. The same cell, the same inputs and the
same times give the same entries, bit for bit.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from borgish.audit import AuditNote
from borgish.cell.access.authorization import authorize
from borgish.cell.access.commands import AdmitTokens
from borgish.cell.access.model import BY_HOST, HOST, ID_CHARACTERS, Asker
from borgish.cell.apply import apply_entry
from borgish.cell.apps.order import plan_words
from borgish.cell.command import Command
from borgish.cell.commands import (
    BeginEpoch,
    Decision,
    EvictTasks,
    Observe,
    PlaceTasks,
    PromisePlaces,
    Seen,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.events import (
    AnyEvent,
    EntriesLost,
    Entry,
    MachineJoined,
    MachineRemoved,
    MachineUp,
    Recorded,
    RolledBack,
    TasksPlaced,
)
from borgish.cell.free_space import AMPLE, ASKS_FOR_MORE, FreeSpace, Level, check_space, store_full
from borgish.cell.generations import check_generation
from borgish.cell.lifecycle import Moved, check_transitions
from borgish.cell.limits.availability import keep_availability, note_tasks, note_touched
from borgish.cell.limits.disruption import Gate
from borgish.cell.model import Cell, Rules
from borgish.cell.observed import (
    ORPHAN_SECONDS,
    Observed,
    forget_machine,
    leaving_attempts,
    mark_returned,
    record_answers,
    record_misses,
    record_report,
    record_usage,
    watch,
)
from borgish.cell.recorded import record, recorded_of
from borgish.cell.tasks.leases import record_over
from borgish.clock import Now
from borgish.errors import CellBroken, Conflict, Refused
from borgish.master.planning import (
    DryRun,
    check_token,
    check_unchanged,
    coming_back,
    dry_run,
    is_new,
)
from borgish.master.quarantine import FailureLog, QuarantiningScheduler, broken_by, failed_at, refuse_repeated
from borgish.master.step import (
    CommandRequest,
    Input,
    Noted,
    NotPolled,
    PollsAnswered,
    PollsMissed,
    Step,
    UsageSeen,
)
from borgish.reconcilers import RECONCILERS, Reconcile
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.plan import Placement, Plan, Preemption, Promise, Refusal
from borgish.scheduler.schedule import TASKS_MAX, Scheduler, SchedulerSettings
from borgish.spec.job import JobSpec
from borgish.text import first_line
from borgish.vocabulary import Eviction, split_task_name
from borgish.wire.api import Accepted

RESYNC_SECONDS = 1.0
READ_MAX = 4_000
"""Machines and tasks on them that one of the first steps reads for the scheduler: some 10 ms."""
STALE_MAX = 200
"""Machines that changed and are left unread while nothing waits."""
STALL_SECONDS = 3.0
"""A step that comes so long after the one before was held up, by a slow commit or with its process, and
so were the polls: machines could not be heard meanwhile, and are not counted as silent."""


class Core:
    """The cell, what is seen of it, and the step that moves both on."""

    def __init__(
        self,
        cell: Cell,
        settings: ReconcileSettings,
        now: Now,
        seed: int = 0,
        poison: Mapping[str, str] | None = None,
        scheduling: SchedulerSettings | None = None,
    ) -> None:
        """``poison``: by digest, the requests that broke a master before, and its error message."""
        self.cell = cell
        self._poison = poison or {}
        self.observed = Observed()
        self.refusals: Mapping[str, tuple[Refusal, ...]] = {}
        self._settings = msgspec.structs.replace(settings, led_since=now.mono, led_since_wall=now.wall)
        self._failures = FailureLog()
        self._free_space = AMPLE
        self._scheduler = QuarantiningScheduler(Scheduler(seed, scheduling), self._failures)
        self._resync_at = self._stepped_at = now.mono
        self._is_resync = False  # this step
        self._has_more = False  # for the scheduler, after its last pass
        self._stale: set[str] = set(cell.machines)  # machines the scheduler has to look at again
        self._never_read: list[str] = []  # those of a large cell that it has never looked at
        if sum(map(self._read_cost, self._stale)) > READ_MAX:
            self._never_read, self._stale = sorted(self._stale, reverse=True), set()
        self._read: set[str] = set()  # those that it has read in this step, as they are since
        self._entries: list[Entry] = []
        self._audit: list[tuple[AuditNote, int]] = []  # with positions of journal entries
        self._reported: set[str] = set()
        self._seen: dict[str, set[int]] = {}
        self._exclusive: set[str] = set()  # jobs with leases that the step before changed something of
        watch(self.observed, cell.machines, now)
        keep_availability(cell, self.observed)
        record_over(cell, self.observed, cell.leases, now)

    def change(self, settings: ReconcileSettings) -> None:
        """Reconcile by other times and numbers from the next step on."""
        known = self._settings
        self._settings = msgspec.structs.replace(
            settings, led_since=known.led_since, led_since_wall=known.led_since_wall
        )

    def begin(
        self,
        epoch: int,
        holder: str,
        now: Now,
        rules: Rules | None = None,
        seen: Seen | None = None,
        admitted: AdmitTokens | None = None,
    ) -> Step:
        """Return the step that opens this master's epoch; the first of its life.

        Each start of a master is an epoch of its own (raft's term): assignment generations begin anew with
        it, so borglets compare (timeline, epoch) first.

        ``rules`` are the configuration's; ``seen`` is what machines have seen and the store has not, where
        such a store is taken over; ``admitted`` is what the host's administrators let in. Raises
        UnsafeConfiguration where the rules do not go with the cell.
        """
        self._record(BeginEpoch(epoch, holder, rules, seen), "election", now)
        if self._never_read:
            self._scheduler.begin(self.cell)  # by the bands of these rules
        if admitted is not None:
            self._audited(BY_HOST, admitted, self._record(admitted, HOST, now), now)
        return self._finish((), frozenset(self.cell.machines), more=False)

    def step(
        self,
        inputs: Iterable[Input],
        now: Now,
        free_space: FreeSpace = AMPLE,
        tasks_max: int = TASKS_MAX,
    ) -> Step:
        """Take in what arrived, mend what differs, place what waits.

        ``free_space`` is what the store has left; where that is nothing, no entry comes of a step. Of what
        waits about ``tasks_max`` tasks are tried, and the others in the next steps.
        """
        self._restart_silence_after_stall(now)
        record_over(self.cell, self.observed, sorted(self._exclusive), now)
        if self._free_space.level is Level.FULL and free_space.level is not Level.FULL:
            # A machine that came back at another address could not join: its silence is counted anew.
            watch(self.observed, self.cell.machines, now)
        self._free_space = free_space
        timeline = self.cell.timeline
        replies: list[tuple[int, Accepted | Refused]] = []
        for given in inputs:
            match given:
                case CommandRequest():
                    replies.append((given.handle, self._answer(given, now)))
                case Noted(handle, note):
                    replies.append((handle, self._noted(note, now)))
                case PollsAnswered(machines):
                    self._stale |= record_answers(self.observed, machines)
                case NotPolled(machines):
                    watch(self.observed, [name for name in machines if name in self.cell.machines], now)
                case PollsMissed(machines):
                    self._stale |= record_misses(self.observed, machines)
                case UsageSeen(machine, usage):
                    record_usage(self.observed, machine, usage)
        more = False
        if free_space.level is not Level.FULL:
            self._reconcile(now)
            more = self._schedule(now, tasks_max)
        # Of this step's reports those that have something to stop.
        superseded = {
            name
            for name in sorted(self._reported)
            if (seen := self.observed.machines.get(name)) is not None
            and any(leaving_attempts(self.cell, name, seen))
        }
        assignments = self.cell.touched.placements | superseded
        if self.cell.timeline != timeline:
            assignments |= self.cell.machines.keys()  # everyone is to hear of the new one
        return self._finish(replies, assignments, more=more)

    def _finish(
        self,
        replies: Sequence[tuple[int, Accepted | Refused]],
        assignments: Iterable[str],
        *,
        more: bool,
    ) -> Step:
        touched = self.cell.take_touched()
        self._stale |= (touched.machines | touched.placements | touched.machines_gone) - self._read
        self._read = set()
        changed = touched.changed_jobs()
        self._exclusive = {key for key in changed if key in self.cell.leases or key in self.observed.leases}
        entries, self._entries = tuple(self._entries), []
        audit, self._audit = tuple(self._audit), []
        seen, self._seen, self._reported = self._seen, {}, set()
        return Step(
            entries,
            touched,
            tuple(replies),
            frozenset(assignments),
            {job: frozenset(indexes) for job, indexes in seen.items()},
            more,
            audit,
            self._failures.take(),
            reads=bool(self._never_read),
        )

    def _restart_silence_after_stall(self, now: Now) -> None:
        if now.mono - self._stepped_at > STALL_SECONDS:
            watch(self.observed, self.cell.machines, now)
        self._stepped_at = now.mono

    # Inputs

    def _answer(self, ask: CommandRequest, now: Now) -> Accepted | Refused:
        try:
            if known := self._known(ask):
                return known
            if ask.digest in self._poison:
                raise refuse_repeated(self._poison[ask.digest])
            if self._free_space.level is not Level.AMPLE:
                check_space(self._free_space, ask.command)
            if ask.expected is not None:
                check_generation(self.cell, ask.command, ask.expected)
            if ask.asker is not None:
                authorize(self.cell, ask.command, ask.asker.principal)
            if isinstance(ask.command, SubmitJob) and ask.command.plan:
                accepted = self._submit_as_planned(ask, ask.command, now)
            else:
                accepted = self._record(ask.command, ask.actor, now, ask)
            if ask.asker is not None:
                self._audited(ask.asker, ask.command, accepted, now)
            return accepted
        except Refused as refused:
            return refused
        except CellBroken:
            raise
        except Exception as error:  # it must not end the master, and the next one when it is asked again
            cause, position = _cause(ask.command), self.cell.position
            what = f"{cause} of {ask.actor}, request id '{ask.request_id}'"
            self._failures.add(what, position, error, always=True)
            return failed_at(cause, position)

    def _audited(self, asker: Asker, command: Command, accepted: Accepted, now: Now) -> None:
        who, outcome = asker.principal, first_line(accepted.text)
        what = (_cause(command), accepted.subject, outcome)
        note = AuditNote(now.wall, who.name, who.role, who.token[:ID_CHARACTERS], asker.source, *what)
        self._audit.append((note, accepted.position))

    def _noted(self, note: AuditNote, now: Now) -> Accepted | Refused:
        if self._free_space.level is Level.FULL:
            return store_full(self._free_space)  # nothing is done that could not be noted
        self._audit.append((msgspec.structs.replace(note, at=now.wall), 0))
        return _accepted(self.cell.position, note.object, "noted")

    def dry_run(self, spec: JobSpec, actor: str, now: Now) -> DryRun:
        """Return what would follow if a job were submitted now. Changes nothing.

        Raises what the submission would be refused with.
        """
        decision = decide(self.cell, self.observed, SubmitJob(spec), actor, now)
        plan, again = Plan(), coming_back(decision)
        if again or is_new(decision):
            # In the first second of a large cell that is many, and holds up others as long as all of them do.
            unread = sorted(self._unread().union(self._never_read))
            plan = self._scheduler.dry_run(self.cell, self.observed, spec, unread, now, again)
        waits = plan_words(self.cell, self.observed, spec, now)
        return dry_run(self.cell, spec, decision, plan, waits, self.refusals.get(spec.key, ()))

    def _submit_as_planned(self, ask: CommandRequest, command: SubmitJob, now: Now) -> Accepted:
        """Submit a job and place it as planned, before anything else is placed. Raises Refused."""
        token = check_token(command.plan, self.cell, command.spec)
        planned = self.dry_run(command.spec, ask.actor, now)
        check_unchanged(token, planned)
        accepted = self._record(command, ask.actor, now, ask)
        self._carry_out(planned.plan, now, is_trial=True)
        return accepted

    def _known(self, ask: CommandRequest) -> Accepted | None:
        answer = self.cell.answer_to(ask.actor, ask.request_id)
        if answer is None:
            return None
        if answer.digest != ask.digest:
            raise Conflict(
                f"request id {ask.request_id} was already used for another request",
                "use a new Idempotency-Key for each request",
            )
        return _accepted(answer.position, answer.subject, answer.text, replayed=True)

    def _record(self, command: Command, actor: str, now: Now, ask: CommandRequest | None = None) -> Accepted:
        """Decide a command and apply what follows. Raises Refused, with nothing changed."""
        decision = decide(self.cell, self.observed, command, actor, now, ask.target if ask else None)
        if decision.events and self._free_space.level is Level.FULL:
            raise store_full(self._free_space)  # of a report: all else was refused before
        if decision.events or (ask is not None and ask.request_id):
            # Also when nothing follows, as from a job that is submitted twice: answered and not remembered,
            # the same request asked again after a kill would bring the job back.
            recorded = recorded_of(self.observed, command, decision.events, now)
            self._enter(decision, _cause(command), actor, now, ask, recorded)
        if isinstance(command, Observe) and command.machine in self.cell.machines:
            self._absorb(command, now)
        return _accepted(self.cell.position, decision.subject, _answer_text(decision))

    def _enter(
        self,
        decision: Decision,
        cause: str,
        actor: str,
        now: Now,
        ask: CommandRequest | None,
        recorded: Recorded,
    ) -> None:
        position, timeline = self.cell.position + 1, self.cell.timeline
        for event in decision.events:
            if isinstance(event, RolledBack | EntriesLost):
                timeline = event.timeline  # what begins a timeline is the first on it
            if isinstance(event, EntriesLost):
                position = event.last + 1  # the positions of what was lost are left out
        entry = Entry(
            position=position,
            at=now.wall,
            timeline=timeline,
            epoch=self.cell.epoch,
            actor=actor,
            cause=cause,
            events=decision.events,
            request_id=ask.request_id if ask else "",
            digest=ask.digest if ask else "",
            subject=decision.subject,
            text=_answer_text(decision),
            command=recorded,
        )
        self._take_in(entry, now)
        self._entries.append(entry)

    def _take_in(self, entry: Entry, now: Now) -> None:
        """Apply an entry, and let follow what is kept beside the cell. Raises CellBroken."""
        there = self.cell.machines
        returned = []
        for event in entry.events:
            match event:
                case MachineUp(name):
                    returned.append(name)
                case MachineJoined(machine) if machine.name in there and not there[machine.name].up:
                    returned.append(machine.name)
        before = self.cell.take_touched()
        try:
            apply_entry(self.cell, entry)
        except Exception as error:  # of what nobody foresaw, half may have been applied
            raise broken_by(entry, error) from error
        note_touched(self.cell, self.observed, self.cell.touched)
        before.add(self.cell.touched)
        self.cell.touched = before
        if returned:
            mark_returned(self.observed, returned, now)
        for event in entry.events:
            if isinstance(event, MachineRemoved):
                forget_machine(self.observed, event.machine)

    def _absorb(self, report: Observe, now: Now) -> None:
        before = self.observed.machines.get(report.machine)
        gone = [*before.attempts] if before and report.whole else report.gone
        if record_report(self.cell, self.observed, report, now):
            self._stale.add(report.machine)
        self._reported.add(report.machine)
        for name, _attempt in [*gone, *((a.task, a.attempt) for a in report.changed)]:
            job, index = split_task_name(name)
            self._seen.setdefault(job, set()).add(index)
            note_tasks(self.observed, job, (index,))

    # Deciding by itself. What wakes it here, and what it sees then, is otherwise in labs (``sim/lab``).

    def _in_sight(self) -> Cell:
        return self.cell

    def _reconcile(self, now: Now) -> None:
        is_resync = self._is_resync = now.mono >= self._resync_at
        if is_resync:
            self._resync_at = now.mono + RESYNC_SECONDS
            self._reported |= self._with_old_orphans(now)
        for actor, at_resync, between in RECONCILERS:
            if reconcile := at_resync if is_resync else between:
                for command in self._wanted(actor, reconcile, now):
                    if self._free_space.level is not Level.AMPLE and isinstance(command, ASKS_FOR_MORE):
                        continue  # as from anybody; it is asked for again
                    try:
                        self._record(command, actor, now)
                    except CellBroken:
                        raise
                    except Exception as error:  # one command must not end the others
                        self._failures.add(f"{_cause(command)} of {actor}", self.cell.position, error)

    def _wanted(self, actor: str, reconcile: Reconcile, now: Now) -> list[Command]:
        """Return what a reconciler asks for: of one that fails, what it asked for before."""
        commands: list[Command] = []
        try:
            for command in reconcile(self._in_sight(), self.observed, self._settings, now):
                commands.append(command)  # noqa: PERF402 - one by one, to have those before a failure
            self._failures.succeeded(actor)
        except Exception as error:  # one loop must not end the others
            self._failures.add(actor, self.cell.position, error)
        return commands

    def _schedule(self, now: Now, tasks_max: int) -> bool:
        self._scheduler.note(self.cell.touched.changed_jobs())
        # Not "- keys()", which walks all machines at each step.
        if new := [name for name in self.cell.touched.machines if name not in self.observed.machines]:
            watch(self.observed, new, now)
        first = self._first_read()
        # Where nothing waits nobody asks, and a machine that is heard of several times is read once; but when
        # ten thousand come back they are not all left to one step.
        if self.cell.waiting or self._is_resync or first or len(self._stale) > STALE_MAX:
            self._read, self._stale = self._unread() | first, set()
            self._scheduler.refresh(self.cell, self.observed, sorted(self._read))
        if self._never_read:
            return True
        if not self.cell.waiting:
            self.refusals, self.observed.refused, self._has_more = {}, {}, False
            return False
        # Where nothing has changed a pass would find what the last one did.
        if not (self._is_resync or self._read or self.cell.touched or self._has_more):
            return False
        plan = self._scheduler.schedule(self._in_sight(), self.observed, now, tasks_max)
        self.refusals = plan.refusals
        self.observed.refused = {
            key: found[0].text for key in sorted(self.cell.rolling) if (found := plan.refusals.get(key))
        }
        self._carry_out(plan, now)
        self._has_more = plan.more
        return plan.more

    def _first_read(self) -> set[str]:
        """Return machines that the scheduler has not read yet, as many as one step reads."""
        found, left = set[str](), READ_MAX
        while self._never_read and left > 0:
            found.add(name := self._never_read.pop())
            left -= self._read_cost(name)
        return found

    def _read_cost(self, machine: str) -> int:
        """Return what it takes to read a machine, in machines and tasks."""
        return 1 + len(self.cell.placed.get(machine, ()))

    def _unread(self) -> set[str]:
        """Return the machines that changed since the scheduler read them."""
        return self._stale | ((self.cell.touched.machines | self.cell.touched.placements) - self._read)

    def _carry_out(self, plan: Plan, now: Now, *, is_trial: bool = False) -> None:
        """Enter one pass: an attempt's id is the position of its entry. Victims go first. ``is_trial``: the
        rows that the scheduler keeps know nothing of it."""
        before = self.cell.take_touched()
        self._decide_all("preempt", (evict_command(each) for each in plan.preemptions), now)
        self._decide_all("promise", (promise_command(each) for each in plan.promises), now)
        placed = self._decide_all("place", (place_command(each) for each in plan.placements), now)
        touched = self.cell.touched
        self._scheduler.note(touched.changed_jobs())
        is_done = sum(map(_count_placed, placed)) == sum(len(each.indexes) for each in plan.placements)
        in_rows = is_done and not is_trial
        as_planned = self._scheduler.carried_out(self.cell, plan) if in_rows else frozenset[str]()
        others = touched.machines | (touched.placements - as_planned)
        self._read = (self._read | as_planned) - others
        self._stale |= others
        before.add(touched)
        self.cell.touched = before

    def _decide_all(self, cause: str, commands: Iterable[Command], now: Now) -> Sequence[AnyEvent]:
        """Enter what the scheduler planned as one decision; return what happened by it."""
        decided: list[tuple[Command, tuple[AnyEvent, ...]]] = []
        moved: Moved = {}
        gate = Gate(self.cell, self.observed, now)
        for command in commands:
            try:
                events = decide(self.cell, self.observed, command, "scheduler", now, gate=gate).events
                # Each was decided as if it were alone. An entry of two that move one task would break off
                # half-way, and end the process.
                check_transitions(self.cell, events, moved)
            except Exception as error:  # one command must not end the others
                self._failures.add(f"{_cause(command)} of scheduler", self.cell.position, error)
            else:
                if events:
                    decided.append((command, events))
        if not decided:
            return ()
        decision = Decision(tuple(chain.from_iterable(events for _, events in decided)), "", "")
        self._enter(decision, cause, "scheduler", now, None, record(decided))
        return decision.events

    def _with_old_orphans(self, now: Now) -> set[str]:
        return {
            name
            for name, seen in self.observed.machines.items()
            if seen.orphans and min(seen.orphans.values()) <= now.mono - ORPHAN_SECONDS
        }


def place_command(planned: Placement) -> PlaceTasks:
    """Return the command that puts tasks where they are planned."""
    return PlaceTasks(
        planned.job, planned.indexes, planned.machines, planned.ports, planned.devices, planned.allocs
    )


def evict_command(planned: Preemption) -> EvictTasks:
    """Return the command that sends victims back to pending."""
    return EvictTasks(
        planned.job,
        planned.indexes,
        Eviction.PREEMPTED,
        planned.reason,
        planned.notice_seconds,
        planned.preemptor,
    )


def promise_command(planned: Promise) -> PromisePlaces:
    """Return the command that keeps places."""
    return PromisePlaces(planned.job, planned.indexes, planned.machines)


def _count_placed(event: AnyEvent) -> int:
    return len(event.indexes) if isinstance(event, TasksPlaced) else 0


def _answer_text(decision: Decision) -> str:
    """Return all that is answered, a line each, as it is journalled."""
    return "\n".join((decision.text, *decision.notes))


def _accepted(position: int, subject: str, text: str, *, replayed: bool = False) -> Accepted:
    done, *notes = text.split("\n")
    return Accepted(position, subject, done, replayed, tuple(notes))


def _cause(command: Command) -> str:
    return type(command).__name__
