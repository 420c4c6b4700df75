"""The borglet on its machine: brings inputs to the core, and does what the core says.

Every input is followed at once by a step (``_turn``), in the same turn of the event loop: a program
that died is started again with nothing between but one write to the ledger, unsynced. Polls are
held here; what they say is durable first. HTTP is the matter of ``server``.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Protocol

import msgspec

from borgish.borglet.actions import Action, Forget, Renew, Start
from borgish.borglet.attempts.entry import Entry, Head
from borgish.borglet.core import HOLD_SECONDS_MAX, Actions, BorgletCore
from borgish.borglet.facts import SAMPLE_SECONDS, conditions, free_bytes, sample, with_runtimes
from borgish.borglet.forwarding import forward
from borgish.borglet.opening import Factories, Opener
from borgish.borglet.ports import Connect, connect
from borgish.borglet.runner import Runner
from borgish.borglet.runtimes.base import Input, RunState, StartFailed, TaskRuntime, Write
from borgish.borglet.runtimes.secrets import NO_SECRETS, SecretFolders, has_secrets
from borgish.clock import Clock
from borgish.errors import BorgishError, Conflict, NotFound
from borgish.vocabulary import Runtime
from borgish.wire.link import (
    Assignment,
    AttemptReport,
    Condition,
    ConditionKind,
    ExecReply,
    ExecRequest,
    Facts,
    HeadReply,
    LogWanted,
    PollReply,
    PollRequest,
    Usage,
    attempt_key,
    main_key,
)

log = logging.getLogger("borglet.agent")

STOP_SECONDS = 1.0
Caller = tuple[str, int] | None
"""Where a connection comes from, host and port; None where nobody knows."""


class Ledger(Protocol):
    """What a borglet remembers; ``borglet.ledger`` keeps it on disk."""

    @property
    def entries(self) -> Mapping[str, Entry]: ...

    @property
    def head(self) -> Head: ...

    def append(self, records: Mapping[str, Entry | None], head: Head | None) -> None:
        """Write records. Raises OSError; what was to be written is written by the next ``append``."""
        ...

    @property
    def owes_sync(self) -> bool:
        """Whether the disk may lack something that must be durable before it is said."""
        ...

    def syncing(self) -> Callable[[], None]:
        """Return a call that makes all durable that was appended by now; it may be made in another thread,
        once, and raises OSError."""
        ...

    def close(self) -> None:
        """Make all durable and let go."""
        ...


class Agent:
    """One machine's borglet, without its HTTP. Everything runs in the event loop it was begun in.

    ``state`` is the folder whose disk is watched; ``free_bytes`` tells how much of it is free;
    ``connect`` reaches the ports of its tasks.
    """

    def __init__(
        self,
        machine: str,
        boot_id: str,
        instance: str,
        facts: Facts,
        *,
        state: Path,
        ledger: Ledger,
        factories: Factories,
        clock: Clock,
        free_bytes: Callable[[Path], int] = free_bytes,
        connect: Connect = connect,
        secrets: SecretFolders = NO_SECRETS,
    ) -> None:
        self._secrets = secrets
        self._free_bytes, self._connect = free_bytes, connect
        self._facts, self._state, self._ledger, self._clock = facts, state, ledger, clock
        entries = ledger.entries.values()
        now = clock.now()
        self.core = BorgletCore(machine, boot_id, instance, facts, ledger=entries, head=ledger.head, now=now)
        self.cell = ""  # whose polls alone are obeyed; "" before the first join
        self.heard = now.mono  # when the master last polled
        self.authorities = ""  # the hash of those that the cell trusts, as it last said; "": it has none
        self.trusted: Callable[[], str] = lambda: ""  # the hash of those that we trust, as a reply has it
        self.certificate_ends: Callable[[], float] = lambda: 0.0  # of ours, as a reply has it
        self._runtimes: dict[Runtime, TaskRuntime] = {}
        self._runner = Runner(self, connect)
        self._opener = Opener(factories, self)
        self._sampler: asyncio.Task[None] | None = None
        self._usage: tuple[Usage, ...] = ()
        self._conditions: tuple[Condition, ...] = ()
        self._ledger_fault = ""
        self._alarm: asyncio.TimerHandle | None = None
        self._wakeup: asyncio.Future[None] | None = (
            None  # what the newest poll waits for; older ones never wait
        )
        self._newest_poll = 0
        self._caller: Caller = None
        self._closing = False

    # -- its life -----------------------------------------------------------------------------------

    async def begin(self, cell: str) -> None:
        """Open the runtimes and take in what runs; from then on all goes by itself.

        ``cell`` is the one joined before; "" on a machine that never was in one.
        """
        self.cell = cell
        self._secrets.keep_only(main_key(key) for key in self.core.attempts())
        self._look_for_secrets()
        await self._opener.begin(cell)
        self._look_around()
        self._turn()
        self._sampler = asyncio.create_task(self._sample())

    def joined(self, cell: str) -> None:
        """Take in which cell the machine is in."""
        self.cell = cell
        self._opener.joined(cell)

    def end_polls(self) -> None:
        """Let all held polls be answered now, and hold none any more."""
        self._closing = True
        self._wake()

    async def close(self) -> None:
        """Let go of everything; what runs goes on running."""
        self.end_polls()
        self._opener.stop()
        if self._sampler:
            self._sampler.cancel()
        if self._alarm:
            self._alarm.cancel()
        await self._runner.stop(STOP_SECONDS)
        for runtime in self._runtimes.values():
            await runtime.close()
        self._ledger.close()

    # -- the master ---------------------------------------------------------------------------------

    async def poll(self, request: PollRequest, caller: Caller = None) -> PollReply:
        """Answer a poll: at once when there is something to say, else when it is, or time is over.

        Raises Conflict for a master that was superseded, or that of another cell.
        """
        if self.cell and request.cell != self.cell:
            raise Conflict(
                f"machine {self.core.machine} is in cell '{self.cell}', not in '{request.cell}'",
                "Give the borglet the other cell's master and join token, and start it again.",
            )
        fresh = self.core.poll(request, self._clock.now())
        self.heard, self.authorities = self._clock.now().mono, request.authorities
        if fresh and (assignment := self.core.assignment) is not None:
            self._hold_secrets(assignment)
        self._caller = caller
        self._newest_poll += 1
        number = self._newest_poll
        self._wake()
        self._turn()
        if fresh:
            self._log_assignment(request)
        else:
            await self._hold(request, number)
        await self._make_durable()
        reply = self.core.reply(request, self._usage, self._clock.now().boot)
        trusted, ends = self.trusted(), self.certificate_ends()
        if not (trusted or ends):
            return reply
        return msgspec.structs.replace(reply, authorities=trusted, certificate_ends=ends)

    def head(self, is_open: Callable[[Caller], bool]) -> HeadReply:
        """Return what was seen of masters. ``is_open`` tells whether a caller's connection still is."""
        return self.core.seen(self._clock.now(), connected=is_open(self._caller))

    async def exec(
        self, request: ExecRequest, stdin: Input | None = None, write: Write | None = None
    ) -> ExecReply:
        """Run a command beside a running attempt; see ``TaskRuntime.exec``. Raises NotFound when it does
        not run here."""
        key = attempt_key(request.task, request.attempt, request.program)
        runtime = self._runtime_of(key)
        state = runtime.look(key) if runtime else None
        if runtime is None or state is None or state.exit is not None:
            raise NotFound(
                f"{request.task} does not run on machine {self.core.machine} now",
                "See 'borgctl why' for what it is doing.",
            )
        if request.port:
            return await self._forward(key, request.port, stdin, write)
        output, code, cut = await runtime.exec(
            key, request.run, request.timeout_seconds, stdin, write, request.terminal
        )
        return ExecReply(output, code, cut)

    async def _forward(self, key: str, name: str, stdin: Input | None, write: Write | None) -> ExecReply:
        port = self.core.port_of(key, name)
        if not port or stdin is None or write is None:
            raise NotFound(f"{key} has no port '{name}'", "Its job file names the ports it has")
        await forward(port, self._connect, stdin, write)
        return ExecReply(b"", 0)

    async def logs(self, key: str, wanted: LogWanted, run: int = 0) -> AsyncIterator[bytes]:
        """Yield the output of an attempt's program, also of one that was let go and whose output is
        still kept; of the ``run`` with that number, counted from 1, where it is not 0. Raises NotFound when
        there is none here."""
        known, previous = self._runtime_of(key), wanted.previous
        state = known.look(key) if known and run else None
        if state is not None:
            previous = run < state.run
            if run < state.run - 1:
                raise NotFound(
                    f"machine {self.core.machine} has removed the output of run {run} of {key}",
                    f"it is at run {state.run}; the output of the run before is kept, and no other",
                )
        some = False
        # Of one that was let go the last run may have written nothing, as it was stopped before it began.
        runs = (previous,) if known or previous else (False, True)
        there = (known,) if known else tuple(self._runtimes.values())
        for runtime, is_earlier in product(there, runs):
            with contextlib.suppress(NotFound):
                wrote = False
                async for chunk in runtime.logs(key, msgspec.structs.replace(wanted, previous=is_earlier)):
                    some, wrote = True, wrote or bool(chunk)
                    yield chunk
                if wrote or known:
                    return
        if some:
            return
        machine = self.core.machine
        if why := next(filter(None, (runtime.removed(key) for runtime in self._runtimes.values())), ""):
            raise NotFound(
                f"machine {machine} has removed the output of {key}: {why}",
                f"[keep] in the borglet.toml of {machine} says what stays, and for how long.",
            )
        raise NotFound(
            f"machine {machine} has no {'earlier ' if previous else ''}output of {key}",
            "It has not run here, or its output was removed, by age or when the cell was taken down.",
        )

    # -- the machine: what runtimes and probes tell ---------------------------------------------------

    def runtime_opened(self, runtime: TaskRuntime, runs: list[RunState]) -> None:
        self._runtimes[runtime.kind] = runtime
        self.core.adopted(runtime.kind, runs, self._clock.now())
        self._look_around()
        self._turn()

    def runtime_changed(self, runtime: TaskRuntime, key: str) -> None:
        if runtime.kind in self._runtimes and (state := runtime.look(key)):
            self.ran(key, state)

    def ran(self, key: str, state: RunState) -> None:
        self.core.ran(key, state, self._clock.now())
        self._turn()

    def start_failed(self, key: str, run: int, error: StartFailed) -> None:
        now = self._clock.now()
        self.core.start_failed(key, run, str(error), now, permanent=error.permanent, port=error.port)
        self._turn()

    def probed(self, key: str, run: int, fault: str) -> None:
        self.core.probed(key, run, fault, self._clock.now(), ok=not fault)
        self._turn()

    def forgotten(self, key: str) -> None:
        self._secrets.forget(key)
        self.core.forgotten(key)
        self._turn()

    # -- secrets ------------------------------------------------------------------------------------------

    def _hold_secrets(self, assignment: Assignment) -> None:
        if not any(has_secrets(spec) for spec in assignment.run):
            return
        try:
            self._secrets.hold(assignment)
        except (BorgishError, OSError) as error:
            log.error("secrets of tasks cannot be kept in memory: %s", error)
        self._look_for_secrets()

    def _look_for_secrets(self) -> None:
        specs = (each.spec for each in self.core.attempts().values() if each.spec and not each.program)
        self.core.lack(self._secrets.lacking(specs))

    # -- the turn -------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Step the core and do what it says, in the order that it says."""
        if self._closing:
            return
        before = self.core.report_generation
        now = self._clock.now()
        actions = self.core.step(now)
        self._keep(actions)
        for action in actions.todo:
            self._do(action)
        self._set_alarm(actions.wake_at, now.mono)
        if self.core.report_generation != before:
            self._wake()
        for report in actions.news:
            _log_news(report)

    def _keep(self, actions: Actions) -> None:
        if not actions.records and not actions.head:
            return
        try:
            self._ledger.append(actions.records, actions.head)
        except OSError as error:
            self._ledger_failed(error)

    def _ledger_failed(self, error: OSError) -> None:
        """Go on without: what runs is more than what is remembered. The sampler tries again."""
        text = f"the ledger in {self._state} cannot be written: {error.strerror}"
        if text != self._ledger_fault:
            log.error("%s. Free some space; an end of this borglet now may lose exit codes", text)
        self._ledger_fault = text

    def _do(self, action: Action) -> None:
        if isinstance(action, Renew):
            self._renew(action)
        elif isinstance(action, Start):
            self._runner.do(action, self._runtimes[action.spec.runtime])
        elif runtime := self._runtime_of(action.key):
            self._runner.do(action, runtime)
        elif isinstance(action, Forget):
            for runtime in self._runtimes.values():
                self._runner.do(action, runtime)

    def _renew(self, action: Renew) -> None:
        """At once, whatever was asked for before: a lease must not lapse while something else is slow."""
        try:
            self._runtimes[action.spec.runtime].renew(action.key, action.until)
        except OSError as error:
            log.error("the lease of %s cannot be renewed: %s", action.key, error.strerror or error)

    def _runtime_of(self, key: str) -> TaskRuntime | None:
        return next((r for r in self._runtimes.values() if r.look(key) is not None), None)

    def _set_alarm(self, wake_at: float | None, now: float) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if wake_at is not None:
            delay = max(0.0, wake_at - now) + 0.001  # rather late by a tick than early and again
            self._alarm = asyncio.get_running_loop().call_later(delay, self._turn)

    # -- held polls -------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Wake the poll that is held to look again."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _hold(self, request: PollRequest, number: int) -> None:
        until = self._clock.now().mono + min(request.wait_seconds, HOLD_SECONDS_MAX)
        while not self._closing and number == self._newest_poll and not self.core.differs(request):
            left = until - self._clock.now().mono
            if left <= 0:
                return
            loop = asyncio.get_running_loop()
            wakeup = self._wakeup = loop.create_future()
            timer = loop.call_later(left, self._wake)
            try:
                await wakeup
            finally:
                timer.cancel()

    async def _make_durable(self) -> None:
        """Let the disk have every end and the newest head before they are spoken of."""
        while self._ledger.owes_sync and not self._ledger_fault:
            try:
                await asyncio.to_thread(self._ledger.syncing())
            except OSError as error:
                self._ledger_failed(error)

    # -- looking around -----------------------------------------------------------------------------------

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            try:
                self._usage = await sample(self._runtimes.values())
            except (BorgishError, OSError) as error:
                log.warning("usage could not be sampled: %s", error)
            except Exception:  # a fault in one runtime's figures must not end all looking around
                log.exception("usage could not be sampled")
            self._mend_ledger()
            self._look_around()
            self._turn()

    def _mend_ledger(self) -> None:
        if not self._ledger_fault:
            return
        try:
            self._ledger.append({}, None)
        except OSError as error:
            self._ledger_failed(error)
        else:
            log.info("the ledger can be written again")
            self._ledger_fault = ""

    def _look_around(self) -> None:
        found = conditions(self._runtimes.values(), self._state, self._conditions, self._free_bytes)
        if self._ledger_fault and not any(c.kind is ConditionKind.DISK_PRESSURE for c in found):
            found += (Condition(ConditionKind.DISK_PRESSURE, str(self._state), self._ledger_fault),)
        for condition in set(found) - set(self._conditions):
            log.warning("%s %s: %s", condition.kind, condition.about, condition.text)
        self._conditions = found
        self.core.observe(with_runtimes(self._facts, self._runtimes), found)

    def _log_assignment(self, request: PollRequest) -> None:
        if got := request.assignment:
            log.info("assignment %d: %d to run, %d to stop", got.generation, len(got.run), len(got.stop))
        elif change := request.change:
            counts = len(change.run), len(change.gone), len(change.stop)
            log.info("assignment %d: %d more to run, %d less, %d to stop", change.generation, *counts)


def _log_news(report: AttemptReport) -> None:
    state = f"ended: {report.ended}" if report.ended else str(report.phase)
    log.info("%s %s%s", report.key, state, f" ({report.reason})" if report.reason else "")
