"""What goes into one step of the master, and what comes out."""

from collections.abc import Mapping

import msgspec

from borgish.audit import AuditNote
from borgish.cell.access.model import Asker
from borgish.cell.command import Command
from borgish.cell.events import Entry
from borgish.cell.observed import Miss
from borgish.cell.touched import Touched
from borgish.cell.updates.rollback import RollbackTarget
from borgish.errors import Refused
from borgish.master.quarantine import Failure
from borgish.wire.api import Accepted


class CommandRequest(msgspec.Struct, frozen=True):
    """A command from outside. ``handle`` comes back with its reply; ``target``: see ``decide``."""

    handle: int
    command: Command
    actor: str
    request_id: str = ""
    digest: str = ""  # of the body that came with the request id
    target: RollbackTarget | None = None
    expected: int | None = None  # generation of what it is about; see ``cell.generations``
    asker: Asker | None = None  # whose rights count, for the audit log; None: a part of borgish itself


class Noted(msgspec.Struct, frozen=True):
    """Something that belongs into the audit log and changes nothing. Who has a ``handle`` is told when it is
    durable."""

    handle: int
    note: AuditNote  # its time is that of the step


class PollsAnswered(msgspec.Struct, frozen=True):
    """Machines that gave a valid answer, and when (monotonic seconds)."""

    machines: Mapping[str, float]


class NotPolled(msgspec.Struct, frozen=True):
    """Machines that were not asked yet, and so cannot have kept silent."""

    machines: tuple[str, ...]


class PollsMissed(msgspec.Struct, frozen=True):
    """Machines that gave no valid answer since the last step."""

    machines: Mapping[str, Miss]


class UsageSeen(msgspec.Struct, frozen=True):
    """Fresh samples of one machine, by (task, attempt): (cpu_millis, ram_bytes)."""

    machine: str
    usage: Mapping[tuple[str, int], tuple[int, int]]


Input = CommandRequest | Noted | PollsAnswered | PollsMissed | NotPolled | UsageSeen


class Step(msgspec.Struct, frozen=True):
    """What one step came to. Nothing of it may be told before ``entries`` are durable."""

    entries: tuple[Entry, ...]
    touched: Touched  # the records to write with the entries
    replies: tuple[tuple[int, Accepted | Refused], ...]
    assignments: frozenset[str]  # machines whose assignment is to be made anew
    seen: Mapping[str, frozenset[int]]  # tasks, by job, of which something else is seen now
    more: bool  # work is left: step again at once
    audit: tuple[tuple[AuditNote, int], ...] = ()  # for the audit log, with positions of journal entries
    failures: tuple[Failure, ...] = ()  # what it failed at and went on without
    reads: bool = False  # machines are left that have to be read before there can be a pass
