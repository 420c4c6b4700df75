"""The words of ``/v1/archive``: rows of what happened, of where tasks ran, and of what they used.

The answer is a stream of lines, each an ``ArchivePiece`` in JSON: the first has ``begin``, the last has
``end``, or ``problem``. Without ``end`` it is not whole. Times are seconds since 1970.
``configs/archive.md`` tells what each column means.
"""

import msgspec


class EventRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event of an entry of the journal, or an entry without any: then there is no ``type``."""

    position: int
    number: int  # of the event in its entry
    happened_at: float
    timeline: int
    epoch: int
    actor: str
    asked: str
    request_id: str
    subject: str
    answer: str
    type: str | None
    job: str | None
    machine: str | None
    tasks: int  # how many it is about
    event: str | None  # as it is in the journal: JSON


class AttemptRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stay of a task on a machine. Without ``ended_at`` it went on when the time that is told ended."""

    attempt: int
    task: str
    user_name: str
    job: str
    idx: int
    kind: str
    machine: str
    band: str
    priority: int
    cpu_millis: int
    ram_bytes: int
    disk_bytes: int
    placed_at: float
    ended_at: float | None = None
    ended_position: int | None = None
    ending: str | None = None
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    restarts: int = 0


class UsageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one attempt used at a moment."""

    sampled_at: float
    machine: str
    task: str
    user_name: str
    job: str
    idx: int
    attempt: int
    cpu_millis: int
    ram_bytes: int


class ArchiveBegin(msgspec.Struct, frozen=True):
    """What follows: the entries above ``after`` and up to ``last``."""

    cell: str
    version: str  # of borgish
    made_at: float
    since: float | None  # as it was asked for; none: all there is
    until: float
    after: int
    last: int
    journal_begins: float | None = None  # where earlier entries are no longer kept


class ArchiveEnd(msgspec.Struct, frozen=True):
    """How many rows there were of each kind."""

    events: int
    attempts: int
    usage: int


class ArchivePiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some rows, of one kind or several."""

    begin: ArchiveBegin | None = None
    events: list[EventRow] = []
    attempts: list[AttemptRow] = []
    usage: list[UsageRow] = []
    end: ArchiveEnd | None = None
    problem: str = ""  # what came in the way after the answer had begun
    hint: str = ""
