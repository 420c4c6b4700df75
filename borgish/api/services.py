"""What the routes need of the master, service by service; tests give fakes.

The API may not import the master, which is above it, so each service is a protocol here with just what the
routes call. All of them raise errors of ``borgish.errors``.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from borgish.api.moments import Moment
from borgish.api.views.history import HistoryFilter
from borgish.api.views.status import summary_view
from borgish.api.views.tally import Tally
from borgish.audit import AuditEntry, AuditNote
from borgish.bands import Bands
from borgish.cell.access.model import Asker
from borgish.cell.command import Command
from borgish.cell.events import Entry
from borgish.cell.free_space import FreeSpace
from borgish.cell.generations import Thing
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.spec.job import JobSpec
from borgish.wire.api import (
    Accepted,
    AsOf,
    CheckpointView,
    EventView,
    HealthView,
    RefusalView,
    StatusView,
    SummaryView,
)
from borgish.wire.api_access import AuditVerdict
from borgish.wire.api_certificates import RotationView
from borgish.wire.api_figures import UsageSeries
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointVerdict,
    HistoryList,
    Imported,
    PastWindow,
    RollbackPlan,
    RollbackRequest,
)
from borgish.wire.api_plans import PlanView
from borgish.wire.link import ExecReply, JoinReply, JoinRequest, LogWanted, StdinReply, Terminal

T = TypeVar("T")


class Reading(msgspec.Struct, frozen=True):
    """The cell as it may be shown: everything in it is durable. Valid until the next ``await``."""

    cell: Cell
    observed: Observed
    now: Now
    refusals: Mapping[str, tuple[RefusalView, ...]]  # by job
    status: Callable[[], StatusView]
    tally: Tally = msgspec.field(default_factory=Tally)  # the master's own saves walks over all tasks
    as_of: AsOf | None = None  # which moment it is of; None: it is the present of who leads

    def summary(self, events: Sequence[EventView]) -> SummaryView:
        """Return what the dashboard shows; ``events`` are the latest, in order."""
        return summary_view(
            self.cell, self.observed, self.tally, self.status(), self.refusals, events, self.now
        )


class UsageOf(msgspec.Struct, frozen=True):
    """Whose usage is meant: of one job, task or machine, all of it where none is named."""

    job: str = ""  # user/job
    index: int | None = None  # of one of its tasks
    machine: str = ""


class WatchMessage(msgspec.Struct, frozen=True):
    """One message of the watch: server-sent event ``kind`` with JSON ``data`` and a resumable ``id``.

    Kinds: ``event`` (an EventView), ``tasks`` (a list of TaskView that changed, of one job),
    ``summary`` (a SummaryView). ``job`` and ``user`` are for filtering; summaries have none.
    """

    id: str
    kind: str
    data: bytes
    job: str = ""


class WatchBatch:
    """Messages that go out together, to all who watch the same: encoded once, when the first of them is
    sent it."""

    def __init__(self, messages: Sequence[WatchMessage]) -> None:
        self.messages = messages
        self._encoded: bytes | None = None

    def encoded(self) -> bytes:
        """Return them as server-sent events; JSON has no line breaks to take care of."""
        if self._encoded is None:
            self._encoded = b"".join(
                b"id: %s\nevent: %s\ndata: %s\n\n" % (each.id.encode(), each.kind.encode(), each.data)
                for each in self.messages
            )
        return self._encoded


class Inbox(Protocol):
    """Takes commands."""

    async def ask(
        self,
        command: Command,
        actor: str,
        request_id: str,
        digest: str,
        *,
        expected: int | None = None,
        asker: Asker,
    ) -> Accepted:
        """Hand in a command; return when it is durable. The same id and digest: the same answer.

        ``expected`` is the generation that what it is about must have. Raises Outdated for another, and
        Forbidden for what the ``asker`` may not have.
        """
        ...

    async def note(self, note: AuditNote) -> None:
        """Hand in what belongs into the audit log; return when it is durable."""
        ...


class Reader(Protocol):
    """Shows the cell as it is."""

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        """Call ``view`` when everything in memory is durable, and return what it returns.

        ``at_least`` is the position from which on the cell may be shown. Raises Invalid for one that there is
        not yet.
        """
        ...

    def events(self, job: str, after: int, limit: int, index: int | None = None) -> list[EventView]:
        """Return the latest events (of one job, or one task of it, when named) with a position above
        ``after``, in order. What is about all of a job is about each of its tasks."""
        ...


class Planner(Protocol):
    """Foresees submissions."""

    async def plan(self, spec: JobSpec, asker: Asker) -> PlanView:
        """Return what would follow if a job were submitted now; refuses what its submission would be."""
        ...


class Moments(Protocol):
    """Shows the cell as it was."""

    async def find(self, moment: Moment) -> AsOf:
        """Return which moment of the past is meant. Raises Invalid, NotFound, Conflict and Gone for one that
        cannot be reconstructed."""
        ...

    async def read(self, as_of: AsOf, view: Callable[[Reading], T]) -> T:
        """Call ``view``, in a thread, with the cell as it was at a moment that ``find`` returned."""
        ...

    async def window(self, moment: Moment) -> PastWindow:
        """Return the entries of the journal around a moment, and the cell before and after each. Raises as
        ``find`` does."""
        ...

    async def read_both(self, old: AsOf, new: AsOf, view: Callable[[Cell, Cell], T]) -> T:
        """Call ``view``, in a thread, with the cell as it was at two moments that ``find`` returned."""
        ...


class Past(Protocol):
    """Reads the stored journal."""

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList:
        """Return the latest entries that match, below the position ``before`` (0: all of it)."""
        ...

    async def decided(self, thing: Thing, after: int, until: int) -> list[Entry]:
        """Return the latest few entries by which somebody decided about a thing, in order: of those above
        position ``after``, up to ``until`` (0: the last). Of many only the latest are looked at."""
        ...


class Rollbacks(Protocol):
    """Takes the cell back."""

    async def plan(self, moment: Moment, asked: RollbackRequest) -> RollbackPlan:
        """Return what a rollback to a moment would do. Raises what it would be refused with for good."""
        ...

    async def roll_back(
        self, moment: Moment, asked: RollbackRequest, asker: Asker, request_id: str, digest: str
    ) -> Accepted:
        """Roll the cell back, after a checkpoint; return when it is durable. The same id and digest: the
        same answer."""
        ...


class UsageHistory(Protocol):
    """Reads the samples of usage that are kept."""

    async def series(self, of: UsageOf, since: float) -> UsageSeries:
        """Return what was used from a time on, in seconds since 1970."""
        ...


class Archive(Protocol):
    """Streams what happened, for who keeps it elsewhere."""

    async def begin(self, since: float | None, until: float | None) -> AsyncIterator[bytes]:
        """Return events, attempts and samples of usage of a time, in seconds since 1970, both ends included,
        as the lines of ``wire.archive``; from the first, or to now, where there is none. Raises Invalid,
        NotFound and Gone for what cannot be reconstructed."""
        ...


class Audit(Protocol):
    """Reads the audit log."""

    async def latest(self, user: str, since: float, before: int, limit: int) -> list[AuditEntry]:
        """Return the latest entries, in order: of a user, unless "", not from before a time, in seconds since
        1970, and with numbers below ``before``, unless 0."""
        ...

    async def verify(self, known: str) -> AuditVerdict:
        """Say whether each entry follows from the one before, and one that is known ("", or number:digest)
        is among them."""
        ...


class WatchHub(Protocol):
    """Lets clients watch."""

    def subscribe(self, kinds: frozenset[str], job: str, last_id: str) -> AsyncGenerator[WatchBatch, None]:
        """Yield messages as they come, those that came together as one batch; from after ``last_id`` when
        given. Raises Gone when that is not kept, and ends when the daemon does."""
        ...


class Registration(Protocol):
    """Registers machines: lets them join."""

    async def join(self, request: JoinRequest, invited: Asker | None = None) -> JoinReply:
        """Take a machine into the cell, or back into it. ``invited`` is who asks by an invitation."""
        ...


class Programs(Protocol):
    """Reaches the programs of tasks on their machines; ``program`` "" is a task's main one."""

    async def logs(
        self,
        task: str,
        wanted: LogWanted,
        *,
        incoming: bool = False,
        program: str = "",
        attempt: int = 0,
        restarts: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Return what is wanted of the output of one of a task's programs, from the machine it runs, or last
        ran, on; with an ``attempt`` of that one, and with ``restarts`` of its run after so many."""
        ...

    async def exec(
        self, task: str, run: tuple[str, ...], timeout_seconds: float, program: str = ""
    ) -> ExecReply:
        """Run a command beside one of a running task's programs."""
        ...

    async def exec_stream(
        self,
        task: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        program: str,
        session: str,
        *,
        terminal: Terminal | None = None,
        silence_seconds: float = 0.0,
    ) -> AsyncIterator[bytes]:
        """Run a command, and return lines of ``ExecPiece`` while it runs; it ends with who reads them.
        ``session`` names its input; "" for none."""
        ...

    async def forward(
        self, task: str, port: str, session: str, silence_seconds: float, timeout_seconds: float
    ) -> AsyncIterator[bytes]:
        """Join a port of a running task; its input has the ``session``, its output is as of a command."""
        ...

    async def exec_stdin(
        self,
        task: str,
        program: str,
        session: str,
        offset: int,
        data: bytes,
        *,
        end: bool,
        size: tuple[int, int] = (0, 0),
    ) -> StdinReply:
        """Pass a piece of input, which begins at ``offset``, to the command of this session; ``size``: rows
        and columns that its terminal has from now on, 0 as before."""
        ...


class Checkpointer(Protocol):
    """Makes checkpoints."""

    async def make(self, reason: str, name: str = "") -> CheckpointView:
        """Make a checkpoint now; one with a name stays until it is deleted."""
        ...


class CheckpointKeeper(Protocol):
    """Looks after the kept checkpoints. All but ``listed`` raise NotFound."""

    async def listed(self) -> list[CheckpointView]:
        """Return the kept checkpoints, newest first."""
        ...

    async def detail(self, position: int) -> CheckpointDetail:
        """Look into a checkpoint."""
        ...

    async def verify(self, position: int) -> CheckpointVerdict:
        """Say whether a checkpoint is good."""
        ...

    async def file(self, position: int, until: int = 0) -> bytes:
        """Return a checkpoint as it is kept outside of the cell (``wire.checkpoint_file``), not verified;
        with the journal from there up to ``until``, or Gone and TooLarge say why not; 0: without."""
        ...

    async def take_in(self, file: bytes, name: str, head: int, actor: str) -> Imported:
        """Keep a checkpoint that was handed out; ``head`` is the cell's position. Raises Invalid and Conflict
        for one that is not of this cell's history; nothing is overwritten."""
        ...

    async def delete(self, position: int, actor: str) -> CheckpointView:
        """Let go of a checkpoint, unless it is the last good one."""
        ...


class Services(msgspec.Struct, kw_only=True):
    """Everything that the routes are given."""

    inbox: Inbox
    reader: Reader
    planner: Planner
    moments: Moments
    past: Past
    rollbacks: Rollbacks
    usage: UsageHistory
    archive: Archive
    audit: Audit
    hub: WatchHub
    joining: Registration
    authority: Callable[[], bytes]  # those that the cell trusts, in PEM; b"": it has none of its own
    rotate_authority: Callable[[], RotationView]
    rotation_held_up: Callable[[], RotationView | None]  # by machines that have not followed the last step
    programs: Programs
    checkpointer: Checkpointer
    keeper: CheckpointKeeper
    bands: Callable[[], Bands]  # they do not change while a master leads
    free_space: Callable[[], FreeSpace]  # of the store's disk
    expect_obeyed: Callable[[], None]  # raises Fenced while machines obey another master
    health: Callable[[], HealthView]  # when all in memory is durable; of this borgmaster, which leads
    seal: Callable[[str, bytes], bytes]  # the value of the secret of a key
    metrics: Callable[[StatusView], bytes]  # the figures of the cell as text for Prometheus
