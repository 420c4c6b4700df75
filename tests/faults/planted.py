"""Bugs to plant into a borgmaster, so that it is seen that they would be found."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    Decision,
    SubmitJob,
)
from borgish.cell.events import AnyEvent, AppApplied, Entry, JobChanged, JobSubmitted
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Now, SystemClock
from borgish.errors import Refused
from borgish.master import core
from borgish.master.core import Core
from borgish.master.step import CommandRequest
from borgish.store import disk_space, sqlite
from borgish.store.base import Records
from borgish.store.sql import SqlStore
from borgish.store.tables import Row
from borgish.wire.api import Accepted
from tests.faults.vfs import FULL, SYNC_FAILED, Done, watched

PLENTY_BYTES = 100 * 2**30
_UNTIL_THE_END = ExitStack()


def acknowledge_what_is_not_durable() -> None:
    """From the fifth append on none is done."""
    append, count = SqlStore.append, 0

    def forgetful(self: SqlStore, entries: Sequence[Entry], records: Records) -> None:
        nonlocal count
        count += 1
        if count < 5:
            append(self, entries, records)

    _put(SqlStore, "append", forgetful)


def do_requests_again() -> None:
    """A request id is remembered by nobody."""
    _put(Core, "_known", lambda *_: None)


def write_tables_by_half() -> None:
    """The journal has it all, the tables have no tasks."""

    def forgetful(self: SqlStore, entries: Sequence[Entry], records: Records) -> list[tuple[str, list[Row]]]:
        return [
            (statement, rows) for statement, rows in work(self, entries, records) if "tasks" not in statement
        ]

    work = SqlStore._statements
    _put(SqlStore, "_statements", forgetful)


def lose_applies() -> None:
    """What is applied is answered and remembered, and nothing follows from it."""
    _applies_lead_to(lambda _: ())


def apply_by_half() -> None:
    """Of what is applied the last job is left as it is."""

    def half(events: tuple[AnyEvent, ...]) -> tuple[AnyEvent, ...]:
        last = [event for event in events if isinstance(event, JobSubmitted | JobChanged)][-1]
        return tuple(event for event in events if event is not last)

    _applies_lead_to(half)


def apply_twice() -> None:
    """What is applied becomes a version of its application, and another one that is the same."""

    def twice(events: tuple[AnyEvent, ...]) -> tuple[AnyEvent, ...]:
        again = (each for each in events if isinstance(each, AppApplied))
        return (*events, *(msgspec.structs.replace(each, version=each.version + 1) for each in again))

    _applies_lead_to(twice)


def apply_what_is_refused() -> None:
    """Of an apply that is refused the first job is there all the same."""
    record = Core._record

    def leaking(
        self: Core, command: Command, actor: str, now: Now, ask: CommandRequest | None = None
    ) -> Accepted:
        try:
            return record(self, command, actor, now, ask)
        except Refused:
            if isinstance(command, ApplyApp):
                first = msgspec.structs.replace(command, documents=command.documents[:1])
                record(self, first, actor, now)
            raise

    _put(Core, "_record", leaking)


def _applies_lead_to(change: Callable[[tuple[AnyEvent, ...]], tuple[AnyEvent, ...]]) -> None:
    decide = core.decide  # type: ignore[attr-defined]  # what the core calls it by

    def wrong(
        cell: Cell,
        observed: Observed,
        command: Command,
        actor: str,
        now: Now,
        target: RollbackTarget | None = None,
    ) -> Decision:
        decision: Decision = decide(cell, observed, command, actor, now, target)
        if not isinstance(command, ApplyApp):
            return decision
        return msgspec.structs.replace(decision, events=change(decision.events))

    _put(core, "decide", wrong)


def fail_at_poison() -> None:
    """A job named ``poison`` cannot be decided, in a way that nobody foresaw."""
    decide = core.decide  # type: ignore[attr-defined]  # what the core calls it by

    def failing(
        cell: Cell,
        observed: Observed,
        command: Command,
        actor: str,
        now: Now,
        target: RollbackTarget | None = None,
    ) -> Decision:
        if isinstance(command, SubmitJob) and command.spec.name == "poison":
            raise ZeroDivisionError("nobody foresaw this")
        return decide(cell, observed, command, actor, now, target)

    _put(core, "decide", failing)


def break_at_poison() -> None:
    """A job named ``poison`` is taken in by half."""
    apply_entry = core.apply_entry  # type: ignore[attr-defined]  # as above

    def failing(cell: Cell, entry: Entry) -> None:
        apply_entry(cell, entry)
        if entry.subject.endswith("/poison"):
            raise ZeroDivisionError("half of it")

    _put(core, "apply_entry", failing)


def step_clock() -> None:
    """The wall clock is off by as many seconds as a file says, at every look."""
    now, file = SystemClock.now, Path(os.environ["CLOCK_FILE"])

    def stepped(self: SystemClock) -> Now:
        true = now(self)
        return Now(true.wall + float(file.read_text()), true.mono)

    _put(SystemClock, "now", stepped)


def break_disk() -> None:
    """From some write (or sync) on, each fails, with the code that the environment says."""
    watching = _UNTIL_THE_END.enter_context(watched())
    code, left = int(os.environ["DISK_CODE"]), int(os.environ["DISK_AFTER"])

    def refuse(change: Done) -> int:
        nonlocal left
        left -= change.what == ("sync" if code == SYNC_FAILED else "write")
        return code if left < 0 and change.what in ("write", "sync") else 0

    watching.refuse = refuse


def fill_disk() -> None:
    """The disk has as many bytes free as a file says, and writes fail where that is 0: all of them as long
    as the reserve takes up the rest, and else those beyond it. ``unnoticed`` instead of a number: nothing is
    free, and who asks is told of plenty, as one who asked a moment ago."""
    watching = _UNTIL_THE_END.enter_context(watched())
    file = Path(os.environ["DISK_FREE_FILE"])
    reserve = file.with_name("cell.reserve")
    left = disk_space.RESERVE_BYTES_MAX

    def refuse(change: Done) -> int:
        nonlocal left
        if change.what != "write" or file.read_text() not in ("0", "unnoticed"):
            return 0
        left -= len(change.data)
        return FULL if reserve.exists() or left < 0 else 0

    def space_of(_folder: Path) -> tuple[int, int]:
        said = file.read_text()
        return PLENTY_BYTES if said == "unnoticed" else int(said), PLENTY_BYTES

    watching.refuse = refuse
    _put(disk_space, "space_of", space_of)


def do_not_wait_long() -> None:
    """A database that somebody else holds is waited for a moment only."""
    _put(sqlite, "BUSY_SECONDS_MAX", 0.2)


def _put(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)
