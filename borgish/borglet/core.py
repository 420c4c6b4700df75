"""The borglet without its machine: all attempts (Nomad's allocations, Kubernetes' pods), one step
at a time from desired x observed state.

The shell gives inputs (a poll, what the runtimes report, answers of probes), then calls ``step``, keeps
the records it returns in the ledger, does what it returns, and calls ``step`` again when the next
input comes or ``wake_at`` is reached. Inputs only record; whatever follows is decided in ``step``.
No clock, no disk, no network here: the simulator runs this same class.

    core = BorgletCore(machine, boot_id, instance, facts, ledger=entries, head=head, now=now)
    core.adopted(Runtime.PROCESS, runs, now)      # once a runtime is open; nothing starts before
    core.poll(request, now)                       # raises Conflict for a master that was superseded
    actions = core.step(now)
    reply = core.reply(usage)
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from borgish.borglet.actions import Action, Forget, Renew
from borgish.borglet.attempts import messages
from borgish.borglet.attempts.attempt import Attempt
from borgish.borglet.attempts.entry import Entry, Head, from_entry, to_entry
from borgish.borglet.attempts.group import Groups
from borgish.borglet.attempts.transitions import LIVE, Purpose, Stage
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.errors import Conflict
from borgish.vocabulary import LEASE_END_SECONDS, Runtime
from borgish.wire.changes import Changed, Digests, HeldAssignment
from borgish.wire.link import (
    UNKNOWN,
    Assignment,
    AttemptReport,
    AttemptSpec,
    Condition,
    Facts,
    HeadReply,
    Leader,
    PollReply,
    PollRequest,
    Report,
    StopOrder,
    Usage,
    attempt_key,
    main_key,
    split_attempt_key,
)

HOLD_SECONDS_MAX = 60.0
"""No poll is held for longer, whatever it asks for."""


class Actions(msgspec.Struct, frozen=True):
    """What one step wants done, in this order: ``records`` and ``head`` into the ledger, then ``todo``.

    A record of None takes the attempt out of the ledger. ``wake_at`` is the moment on the monotonic
    clock at which the next step is due at the latest; None when nothing is timed. ``news`` are the
    attempts whose report changed, for the log.
    """

    todo: tuple[Action, ...] = ()
    wake_at: float | None = None
    records: dict[str, Entry | None] = {}
    head: Head | None = None
    news: tuple[AttemptReport, ...] = ()


class BorgletCore:
    """All attempts on one machine. Not safe to share between threads; every call is quick."""

    def __init__(
        self,
        machine: str,
        boot_id: str,
        instance: str,
        facts: Facts,
        *,
        ledger: Iterable[Entry] = (),
        head: Head | None = None,
        now: Now,
    ) -> None:
        """Begin from the ledger of the borglet before (``ledger()`` and ``head`` of its core)."""
        self.machine, self.boot_id, self.instance = machine, boot_id, instance
        self.facts = facts
        self.conditions: tuple[Condition, ...] = ()
        self.head = head or Head(machine)
        self.report_generation = 1
        self._recorded = {entry.key: entry for entry in ledger}
        self._attempts = {key: from_entry(entry, now) for key, entry in self._recorded.items()}
        self._groups = Groups(self._attempts)
        for attempt in list(self._attempts.values()):
            self._groups.register(attempt.key)
            if attempt.spec is not None:
                self._groups.add_members(attempt.spec, now)
        self._recorded_head = self.head
        self._held: HeldAssignment | None = None  # obeyed by this instance
        self._open: dict[Runtime, None] = {}
        self._acknowledged = 0  # the report generation that the master has durably
        self._forgetting: dict[str, bool] = {}  # asked of the runtime; still in the ledger
        self._changed = False  # facts or conditions, since the last step
        self._touched: dict[str, None] = dict.fromkeys(self._attempts)
        self._timers: list[tuple[float, str]] = []  # a heap; one that is not in _wake_at is void
        self._wake_at: dict[str, float] = {}
        self._reports: dict[str, AttemptReport] = {}
        self._digests = Digests[str]()  # of these
        self._reports_changed = Changed[tuple[str, int]]()  # tasks and attempts
        self._reported_end: dict[str, int] = {}  # ended attempts: the report generation that has it
        self._renewed: dict[str, None] = {}  # attempts whose lease holds longer since the last step
        self._is_fresh = head is None or not head.epoch  # and has obeyed no assignment yet
        self._polls = 0  # that were obeyed
        self._poll_due = now.mono  # when the next one should be here

    # -- the master ---------------------------------------------------------------------------------

    def poll(self, request: PollRequest, now: Now) -> bool:
        """Handle a poll; return whether it brought an assignment that was not known yet.

        Raises Conflict as ``hear`` does.
        """
        self.hear(request.timeline, request.epoch, request.leader)
        self._polls += 1
        self._poll_due = now.mono + min(request.wait_seconds, HOLD_SECONDS_MAX)
        fresh = False
        if request.assignment is not None:
            fresh = self.assign(request.assignment, request.timeline, request.epoch, now)
        elif request.change is not None and self._held is not None and self._held.take(request.change):
            # What it leaves as it was has been obeyed already.
            self._follow(request.change.generation, request.change.run, request.change.stop, now)
            fresh = True
        self._renew(request, now)
        self.acknowledge(self._seen_by(request))
        return fresh

    def _renew(self, request: PollRequest, now: Now) -> None:
        """Renew the leases of what the newest assignment names, as of the answer that the master had when it
        sent this: it may be long ago, where the poll was held up or this process was."""
        held = self._held
        is_of_now = request.seen_instance == self.instance and 0 < request.echo <= now.boot
        if held is None or request.generation != held.generation or not is_of_now:
            return
        for key, attempt in self._attempts.items():
            if attempt.spec is None or not attempt.spec.lease_seconds or main_key(key) not in held:
                continue
            if attempt.renew(request.echo):
                self._renewed[key] = None
                if attempt.stage is Stage.WAITING:
                    self._touch((key,))

    def hear(self, timeline: int, epoch: int, leader: Leader = UNKNOWN) -> None:
        """Record who leads. Raises Conflict when (timeline, epoch) is lower than one heard before, or the
        same and another master's."""
        term, head = (timeline, epoch), self.head
        if term < head.term or (term == head.term and leader.is_another(head.leader)):
            where = f" of the borgmaster at {head.leader.address}" if head.leader.address else ""
            why = "is another's" if term == head.term else "was superseded"
            raise Conflict(
                f"machine {self.machine} obeys timeline {head.timeline}, epoch {head.epoch}{where}; "
                f"timeline {timeline}, epoch {epoch} {why}",
                "Another borgmaster has taken over this cell: stop the one that asks. If the cell was made "
                "anew, give this borglet an empty state folder.",
            )
        if term > head.term:
            self.head = Head(self.machine, timeline, epoch, leader=leader)
            self._held, self._acknowledged = None, 0
        elif leader.nonce and not head.leader.nonce:  # known from a borglet that did not keep who led
            self.head = msgspec.structs.replace(head, leader=leader)

    def assign(self, assignment: Assignment, timeline: int, epoch: int, now: Now) -> bool:
        """Handle an assignment; return whether it is obeyed anew. An older generation is ignored.

        Raises Conflict as ``hear`` does.
        """
        self.hear(timeline, epoch)
        if assignment.generation < self.head.generation:
            return False
        held = self._held
        if held is not None and held.generation == assignment.generation and held.digest is not None:
            return False
        self._held = HeldAssignment(assignment)
        self._follow(assignment.generation, assignment.run, assignment.stop, now)
        return True

    def _follow(
        self, generation: int, run: tuple[AttemptSpec, ...], stop: tuple[StopOrder, ...], now: Now
    ) -> None:
        self.head = msgspec.structs.replace(self.head, generation=generation)
        self._obey(run, stop, now)
        self._touch(self._reported_end)

    def acknowledge(self, report_generation: int) -> None:
        """Record which of this instance's reports the master has durably."""
        if report_generation > self._acknowledged:
            self._acknowledged = report_generation
            self._reports_changed.confirm(report_generation)
            self._touch(self._reported_end)

    def seen(self, now: Now, *, connected: bool) -> HeadReply:
        """Return who was heard so far, whether that one goes on polling, and the highest attempt known here.

        ``connected``: the connection of the last poll is open, as it is while its master lives.
        """
        return HeadReply(
            machine=self.machine,
            timeline=self.head.timeline,
            epoch=self.head.epoch,
            attempt=max((attempt.attempt for attempt in self._attempts.values()), default=0),
            leader=self.head.leader,
            polls=self._polls,
            polled=connected and self._polls > 0,
            overdue_seconds=max(0.0, now.mono - self._poll_due),
        )

    # -- the machine --------------------------------------------------------------------------------

    def adopted(self, kind: Runtime, runs: Iterable[RunState], now: Now) -> None:
        """Handle that a runtime is open, and the latest run of each attempt it knows."""
        self._open[kind] = None
        found = {state.key: state for state in runs}
        for key, attempt in self._attempts.items():
            if attempt.spec is not None and attempt.spec.runtime is kind:
                attempt.found(found.pop(key, None), now)
                self._touch((key,))
            elif attempt.spec is None and key in found:
                attempt.found(found.pop(key), now)
                self._touch((key,))
        for state in found.values():
            self._watch_unknown(state, now)
        if assignment := self.assignment:
            self._obey(assignment.run, assignment.stop, now)

    def ran(self, key: str, state: RunState, now: Now) -> None:
        """Handle what a runtime reports of a run: it began, it ended, it has a note."""
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.ran(state, now)
            self._touch((key,))
        elif state.exit is None:
            self._watch_unknown(state, now)

    def start_failed(
        self, key: str, run: int, text: str, now: Now, *, permanent: bool = False, port: int = 0
    ) -> None:
        """Handle a start that did not work; see ``runtimes.base.StartFailed`` for the fields."""
        if attempt := self._attempts.get(key):
            attempt.start_failed(run, text, permanent=permanent, port=port, now=now)
            self._touch((key,))

    def probed(self, key: str, run: int, text: str, now: Now, *, ok: bool) -> None:
        """Handle the answer to a Probe; ``text`` says what was wrong."""
        if attempt := self._attempts.get(key):
            attempt.probed(run, text, now, ok=ok)
            self._touch((key,))

    def forgotten(self, key: str) -> None:
        """Record that the runtime has let go of an attempt; now the ledger may, too."""
        if self._forgetting.pop(key, False):
            self._touch((key,))

    def lack(self, lacking: Mapping[str, str]) -> None:
        """Record which attempts wait for a secret, and for which, by the key of their main program; all
        others have theirs."""
        for key, attempt in self._attempts.items():
            why = lacking.get(main_key(key), "")
            if attempt.lacks != why:
                attempt.lacks = why
                self._touch((key,))

    def observe(self, facts: Facts, conditions: tuple[Condition, ...]) -> None:
        """Record what the machine is, and what is wrong with it."""
        if (facts, conditions) != (self.facts, self.conditions):
            self.facts, self.conditions = facts, conditions
            self._changed = True

    # -- the step -----------------------------------------------------------------------------------

    def step(self, now: Now) -> Actions:
        """Decide all that is due now. Calling it again at once gives nothing to do."""
        self._fire_due_timers(now)
        if not (self._touched or self._changed or self._renewed) and self.head is self._recorded_head:
            return Actions(wake_at=self._next_timer())  # an idle machine's polls come here
        todo: list[Action] = list(self._renewals())  # first: what starts needs its lease
        touched, self._touched = self._groups.with_members(self._touched), {}
        for key in touched:
            self._groups.follow(key, now)
            self._advance(key, now, todo)
        news = self._refresh(touched)
        todo += self._forget_known(touched)
        records = self._records(touched)
        head = self.head if self.head != self._recorded_head else None
        self._recorded_head = self.head
        return Actions(tuple(todo), self._next_timer(), records, head, news)

    def report(self) -> tuple[AttemptReport, ...]:
        """Return all attempts here, as of the last step."""
        return tuple(self._reports.values())

    def port_of(self, key: str, name: str) -> int:
        """Return the port that an attempt here has under a name; 0 where it has none."""
        report = self._reports.get(key)
        return report.ports.get(name, 0) if report else 0

    def differs(self, request: PollRequest) -> bool:
        """Whether the master that asks so has something to learn.

        That its newest assignment is not here is such a thing; that it made one that is ignored as
        outdated is not, or the two would ask and answer without a pause.
        """
        missing = request.generation > self.generation and request.generation >= self.head.generation
        return missing or self._seen_by(request) != self.report_generation

    @property
    def generation(self) -> int:
        """Return the assignment it works on; 0 for none that this instance got under this epoch."""
        return self._held.generation if self._held else 0

    @property
    def assignment(self) -> Assignment | None:
        """Return the whole of the assignment it works on."""
        return self._held.whole if self._held else None

    def reply(self, request: PollRequest, usage: tuple[Usage, ...] = (), stamp: float = 0.0) -> PollReply:
        """Return the answer to a poll, as of the last step. ``stamp`` is now, on the clock ``Now.boot``."""
        seen = self._seen_by(request)
        return PollReply(
            machine=self.machine,
            boot_id=self.boot_id,
            instance=self.instance,
            generation=self.generation,
            report_generation=self.report_generation,
            report=self._report_since(seen if request.takes_changes else 0)
            if seen != self.report_generation
            else None,
            usage=usage,
            stamp=stamp,
            digest=self._held.digest if self._held else None,
        )

    def _report_since(self, seen: int) -> Report:
        """Return what changed since a report that the master has, or the whole."""
        changed = self._reports_changed.since(seen) if seen else None
        if changed is None:
            return Report(self.facts, self.report(), self.conditions, digest=self._digests.whole)
        keys = [(attempt_key(*each), each) for each in changed]
        return Report(
            self.facts,
            tuple(self._reports[key] for key, _ in keys if key in self._reports),
            self.conditions,
            base=seen,
            gone=tuple(each for key, each in keys if key not in self._reports),
            digest=self._digests.whole,
        )

    def ledger(self) -> tuple[Entry, ...]:
        """Return what must outlive this borglet, besides ``head``; as of the last step."""
        return tuple(self._recorded.values())

    def attempts(self) -> Mapping[str, Attempt]:
        """Return the attempts by key, to be read only."""
        return self._attempts

    # -- inside -------------------------------------------------------------------------------------

    def _renewals(self) -> Iterator[Renew]:
        renewed, self._renewed = self._renewed, {}
        for key in renewed:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.spec is not None and self._is_open(attempt):
                yield Renew(attempt.spec, attempt.leased_until)

    def _seen_by(self, request: PollRequest) -> int:
        return request.seen if request.seen_instance == self.instance else 0

    def _touch(self, keys: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(keys))

    def _obey(self, run: tuple[AttemptSpec, ...], stop: tuple[StopOrder, ...], now: Now) -> None:
        """Stops before starts, so that what a stop and a start both want is let go of first.

        An attempt that is not named is left alone and goes on being reported, so a short or empty assignment
        kills nothing.

        What may have ended by itself while nobody watched is asked to stop only when its runtime is open and
        has reported so: else its result would be taken for that of the stop. ``adopted`` comes here again.
        """
        for order in stop:
            attempt = self._attempts.get(order.key)
            if attempt and (self._is_open(attempt) or attempt.stage not in LIVE):
                why = order.reason or "stopped as asked"
                bound = now.later(order.grace_seconds) if order.grace_seconds is not None else None
                seconds = order.deregister_seconds
                attempt.stop(why, Purpose.KILL, now, end_by=bound, deregister_seconds=seconds)
                self._touch((order.key,))
        stopped = {order.key for order in stop}
        for spec in run:
            if (attempt := self._attempts.get(spec.key)) is not None:
                attempt.learn(spec, now)
            elif spec.key not in stopped:
                due = now.later(self._rest_seconds(spec))
                self._attempts[spec.key] = Attempt(task=spec.task, attempt=spec.attempt, spec=spec, due=due)
            if spec.key in self._attempts:
                self._groups.add_members(spec, now)
            self._touch((spec.key,))
        self._is_fresh = False

    def _rest_seconds(self, spec: AttemptSpec) -> float:
        """Return how long an attempt with a lease has to wait: where the state folder was lost, what it ran
        before may run yet, unknown, until the end of its lease."""
        if not self._is_fresh or not spec.lease_seconds:
            return 0.0
        return spec.lease_seconds + spec.stop.grace_seconds + LEASE_END_SECONDS

    def _watch_unknown(self, state: RunState, now: Now) -> None:
        """A run of an attempt that the ledger does not know: watched and reported, not decided on."""
        who = split_attempt_key(state.key)
        if who is None:
            return
        task, number, program = who
        attempt = Attempt(task=task, attempt=number, program=program, spec=None)
        attempt.found(state, now)
        attempt.reason = attempt.reason or messages.UNKNOWN
        self._attempts[state.key] = attempt
        self._groups.register(state.key)
        self._touch((state.key,))

    def _is_open(self, attempt: Attempt) -> bool:
        return attempt.spec is None or attempt.spec.runtime in self._open

    def _fire_due_timers(self, now: Now) -> None:
        while self._timers and self._timers[0][0] <= now.mono:
            at, key = heapq.heappop(self._timers)
            if self._wake_at.get(key) == at:
                del self._wake_at[key]
                self._touch((key,))

    def _next_timer(self) -> float | None:
        while self._timers and self._wake_at.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _advance(self, key: str, now: Now, todo: list[Action]) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if not self._is_open(attempt):
            if attempt.stage is Stage.WAITING and attempt.spec is not None and not attempt.reason:
                attempt.reason = f"waits for the {attempt.spec.runtime} runtime of this machine"
            return
        todo += attempt.advance(now)
        at = attempt.wake_at()
        if at is None:
            self._wake_at.pop(key, None)
        elif self._wake_at.get(key) != at:
            self._wake_at[key] = at
            heapq.heappush(self._timers, (at, key))

    def _refresh(self, touched: Iterable[str]) -> tuple[AttemptReport, ...]:
        """Renew the reports of what was touched; one more report generation if any differs."""
        mains = [key for key in touched if key in self._attempts and not self._attempts[key].program]
        fresh = {key: self._groups.report(key) for key in mains}
        news = {key: r for key, r in fresh.items() if self._reports.get(key) != r}
        if news or self._changed:
            self.report_generation += 1
        self._changed = False
        self._reports.update(news)
        self._digests.follow(news)
        self._note_changed(news.values())
        for key, report in news.items():
            if report.ended:
                self._reported_end.setdefault(key, self.report_generation)
        return tuple(news.values())

    def _forget_known(self, touched: Iterable[str]) -> list[Action]:
        """Let go of ended attempts that the master knows to have ended and no longer wants to run."""
        if self._held is None:
            return []
        ends = self._reported_end
        known = [k for k in touched if k in ends and ends[k] <= self._acknowledged]
        gone: list[Attempt] = []
        forgotten = [k for k in known if k not in self._held]
        for main in forgotten:
            gone += self._groups.remove(main)
        for attempt in gone:
            self._forgetting[attempt.key] = True
            self._wake_at.pop(attempt.key, None)
        if forgotten:
            self.report_generation += 1
            self._digests.follow({}, forgotten)
            self._note_changed([self._reports.pop(main) for main in forgotten])
            for main in forgotten:
                del self._reported_end[main]
        return [Forget(each.key, each.spec.keep_output_seconds if each.spec else 0.0) for each in gone]

    def _note_changed(self, reports: Iterable[AttemptReport]) -> None:
        self._reports_changed.note(((each.task, each.attempt) for each in reports), self.report_generation)

    def _records(self, touched: Iterable[str]) -> dict[str, Entry | None]:
        records: dict[str, Entry | None] = {}
        for key in touched:
            if key not in self._attempts and key in self._forgetting:
                continue
            entry = to_entry(self._attempts[key]) if key in self._attempts else None
            if entry != self._recorded.get(key):
                records[key] = entry
        for key, entry in records.items():
            if entry is None:
                self._recorded.pop(key, None)
            else:
                self._recorded[key] = entry
        return records
