"""A request as the handlers see it: who asks, the master's services behind, and what a path names."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import msgspec
from litestar import Request
from litestar.datastructures import State

from borgish.api.job_parser import JobParser
from borgish.api.moments import AT, AT_LEAST, NOW, read_moment
from borgish.api.preconditions import ETAG, read_if_match
from borgish.api.services import Reading, Services
from borgish.api.views.history import HistoryFilter
from borgish.audit import AuditNote
from borgish.cell.access.model import ID_CHARACTERS, Asker, Principal
from borgish.cell.command import Command
from borgish.cell.crons.model import Cron
from borgish.cell.generations import Outdated
from borgish.cell.model import Cell, Job, Machine
from borgish.errors import BorgishError, Invalid, Mistake, NotFound, NotLeading, StoreFull, TooManyRequests
from borgish.failpoints import reach
from borgish.spec.file.mistakes import one_edit_away
from borgish.spec.job import JobSpec
from borgish.text import first_line, span
from borgish.vocabulary import job_key
from borgish.wire.api import Accepted, AsOf, EventList, Page

T = TypeVar("T")

INLINE_BYTES_MAX = 512  # what many callers at a time may send, without a turn for each
RESTORING_OF_TOKEN_MAX = 4
_NAMES_COMPARED_MAX = 2000
_POSITION_DIGITS = len(str(2**63))
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_WHERE = re.compile(r" - at `\$\.?(.*)`$")


class ApiRequest(Request[Principal, None, State]):
    """One authenticated request. ``user`` is the principal; its body is read strictly."""

    _as_of: AsOf | None = None

    @property
    def services(self) -> Services:
        """What the master does for routes."""
        services: Services = self.app.state["services"]
        return services

    @property
    def parser(self) -> JobParser:
        """What reads long job files."""
        parser: JobParser = self.app.state["parser"]
        return parser

    async def short_body(self) -> bytes:
        """Return a body that is small enough to be read here, when it is its turn."""
        body = await self.body()
        if len(body) > INLINE_BYTES_MAX:
            await self.parser.pause()
        return body

    @property
    def body_bytes(self) -> int:
        """How long the body is; -1 when the request does not have its length."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() else -1

    @property
    def request_id(self) -> str:
        """The ``Idempotency-Key``; empty when none was sent. Raises Invalid."""
        given = self.headers.get("idempotency-key", "")
        if given and not _REQUEST_ID.fullmatch(given):
            raise Invalid(
                "invalid Idempotency-Key",
                "Use at most 128 letters, digits and . _ : -, such as a UUID",
            )
        return given

    @property
    def expected(self) -> int | None:
        """The generation in ``If-Match``; None when none was sent. Raises Invalid."""
        return read_if_match(self.headers)

    def tag(self, generation: int) -> None:
        """Give the answer an ``ETag``: the generation of the one thing that it shows."""
        self.scope["state"][ETAG] = generation

    async def digest(self, content: bytes | None = None) -> str:
        """Return what distinguishes this request from every other: who asks, where, and the body, or the
        ``content`` that stands for it."""
        head = f"{self.user.name}\n{self.method} {self.scope['path']}?"
        asked = (
            head.encode()
            + self.scope["query_string"]
            + b"\n"
            + (await self.body() if content is None else content)
        )
        return hashlib.sha256(asked).hexdigest()

    async def json_as(self, shape: type[T]) -> T:
        """Return the body read as ``shape``; an empty body is an empty object. Raises Invalid."""
        body = await self.short_body() or b"{}"
        try:
            decoded = msgspec.json.decode(body, type=shape, strict=True)
            _EACH_KEY_ONCE.decode(body.decode())
            return decoded
        except msgspec.ValidationError as error:
            where = _WHERE.search(str(error))
            message = _WHERE.sub("", str(error))
            mistake = Mistake(message, path=where[1] if where else "")
            raise Invalid("invalid body", _fields_of(shape), (mistake,)) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise Invalid(f"the body is not JSON: {error}", "Send one JSON object") from error
        except RecursionError as error:
            raise Invalid("the body is nested too deeply", "Send one JSON object") from error

    async def read(self, view: Callable[[Reading], T]) -> T:
        """Return what ``view`` makes of the cell: as it is, or as it was when the query has an ``at``.

        The only way to the past. Views are made of a ``Cell`` and an ``Observed``: for the past the cell is
        made from the nearest good checkpoint and the journal after it, in threads, and the ``Observed`` knows
        nothing, so that each view shows null where it would have to guess. The moment is noted in the answer,
        and in a page of a list the position.
        """

        def shown(reading: Reading) -> T:
            answer = view(reading)
            if not isinstance(answer, msgspec.Struct):
                return answer
            noted: dict[str, object] = {}
            if reading.as_of and "as_of" in answer.__struct_fields__:
                noted["as_of"] = reading.as_of
            if isinstance(page := getattr(answer, "page", None), Page):
                noted["page"] = msgspec.structs.replace(page, position=reading.cell.position)
            return msgspec.structs.replace(answer, **noted) if noted else answer

        as_of = await self.as_of()
        if as_of is not None:
            return await self.services.moments.read(as_of, shown)
        return await self.services.reader.read(shown, self.at_least or 0)

    @property
    def at_least(self) -> int | None:
        """The position from which on a standby may answer; None: none may. Raises Invalid."""
        text = self.query_params.get(AT_LEAST)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _POSITION_DIGITS and int(text) < 2**63):
            raise Invalid(
                f"at_least: {text[:63]!r} is not a position", "Give the `position` of an answer, or 0 for any"
            )
        return int(text)

    async def shown_as_of(self) -> AsOf | None:
        """Return which moment ``read`` shows; None: the present of who leads."""
        return await self.read(lambda reading: reading.as_of)

    async def expect_reasons(self) -> None:
        """Raise NotLeading for the present of who stands by: it does not know why things wait now."""
        if await self.shown_as_of() is not None and await self.as_of() is None:
            raise NotLeading("why something waits now is known to the borgmaster that leads, not to a copy")

    async def as_of(self) -> AsOf | None:
        """Return the moment that is asked about, the same each time; None for now. Raises Invalid."""
        text, at_least = self.query_params.get(AT, NOW), self.at_least
        if text == NOW:
            return None
        if self._as_of is None:
            now = await self.services.reader.read(lambda reading: reading.now.wall, at_least or 0)
            with self.one_of_few():
                self._as_of = await self.services.moments.find(read_moment(text, now))
        return self._as_of

    @contextmanager
    def one_of_few(self) -> Iterator[None]:
        """Have a cell of the past restored meanwhile, a large one in some seconds of a core: one token has a
        few at once. Raises TooManyRequests."""
        restoring: Counter[str] = self.app.state["restoring"]
        who = self.user.token or self.user.name
        if restoring[who] >= RESTORING_OF_TOKEN_MAX:
            raise TooManyRequests(
                f"{self.user.name} has {RESTORING_OF_TOKEN_MAX} moments of the past restored already",
                "Wait for these answers",
                1.0,
            )
        restoring[who] += 1
        try:
            yield
        finally:
            restoring[who] -= 1
            if not restoring[who]:
                del restoring[who]

    async def events(self, job: str, after: int, limit: int, index: int | None = None) -> EventList:
        """Return the latest events (of one job, or one task of it, when named) above a position, up to the
        moment that is shown."""
        as_of = await self.shown_as_of()
        if as_of is None:
            return EventList(tuple(self.services.reader.events(job, after, limit, index)))
        found = await self.services.past.latest(HistoryFilter(job, index), as_of.position + 1, limit)
        events = [event for entry in found.items for event in entry.events if event.position > after]
        return EventList(tuple(events[-limit:]), as_of=as_of)

    @property
    def asker(self) -> Asker:
        """Who asks, and from where."""
        client = self.scope.get("client")
        return Asker(self.user, client[0] if client else "")

    async def note(self, action: str, about: str) -> None:
        """Have the audit log say what is going to be done. Raises StoreFull where it cannot."""
        who, source = self.user, self.asker.source
        note = AuditNote(0.0, who.name, who.role, who.token[:ID_CHARACTERS], source, action, about)
        await self.services.inbox.note(note)

    async def noted_values(self, shown: T, spec: JobSpec, hidden: Callable[[Reading], T]) -> T:
        """Return what is shown with the values of a job's environment, which the audit log is told of where
        they are somebody else's; where it cannot be told, what shows them ``hidden``."""
        there = spec.env or any(override.env for override in spec.overrides.values())
        if not there or self.user.owns(spec.user):
            return shown
        try:
            await self.note("environment", spec.key)
        except StoreFull:
            return await self.read(hidden)
        return shown

    async def command(self, command: Command, content: bytes | None = None) -> Accepted:
        """Hand a command to the master in the name of who asks. ``content``: see ``digest``."""
        digest, request_id = await self.digest(content), self.request_id
        self.services.expect_obeyed()
        try:
            accepted = await self.services.inbox.ask(
                command, self.user.name, request_id, digest, expected=self.expected, asker=self.asker
            )
        except Outdated as outdated:
            raise await self._told(outdated) from None
        reach("answer.made")
        return accepted

    async def _told(self, outdated: Outdated) -> Outdated:
        """Return the error with what was changed since, and by whom, as far as the journal tells."""
        try:
            now = await self.services.reader.read(lambda reading: reading.now.wall)
            entries = await self.services.past.decided(outdated.thing, outdated.expected, outdated.now)
        except BorgishError:
            return outdated
        since = "; then ".join(
            f"{first_line(entry.text)}, by {entry.actor} {span(now - entry.at)} ago" for entry in entries
        )
        return Outdated(outdated.thing, outdated.expected, outdated.now, since)


def _each_key_once(pairs: list[tuple[str, object]]) -> None:
    """Refuse what JSON leaves open: which of two values counts. Raises Invalid."""
    if len(dict(pairs)) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Invalid(f"{key[:63]!r} is given twice", "Keep one of them")
        seen.add(key)


_EACH_KEY_ONCE = json.JSONDecoder(object_pairs_hook=_each_key_once)  # ``json.loads`` makes one for each call


def _fields_of(shape: type) -> str:
    return "Its fields are " + ", ".join(field.encode_name for field in msgspec.structs.fields(shape))


def find_job(cell: Cell, key: str) -> Job:
    """Return a job by its key (``user/name``). Raises NotFound."""
    job = cell.jobs.get(key)
    if job is None:
        raise NotFound(
            f"there is no job {key}", _near(key, cell.jobs) or "`borgctl job list` shows what there is"
        )
    return job


def find_cron(cell: Cell, key: str) -> Cron:
    """Return a cron by its key (``user/name``). Raises NotFound."""
    cron = cell.crons.get(key)
    if cron is None:
        hint = _near(key, cell.crons) or "`borgctl cron list` shows what there is"
        raise NotFound(f"there is no cron {key}", hint)
    return cron


def find_task(cell: Cell, user: str, name: str, index: int) -> Job:
    """Return the job of a task that exists. Raises NotFound."""
    job = find_job(cell, job_key(user, name))
    if not 0 <= index < len(job.tasks):
        raise NotFound(
            f"{job.key} has no task {index}",
            f"Its tasks are 0 to {len(job.tasks) - 1}" if job.tasks else "It has no tasks",
        )
    return job


def find_machine(cell: Cell, name: str) -> Machine:
    """Return a machine by its name. Raises NotFound."""
    machine = cell.machines.get(name)
    if machine is None:
        hint = _near(name, cell.machines) or "`borgctl machine list` shows what there is"
        raise NotFound(f"there is no machine {name}", hint)
    return machine


def _near(name: str, names: Iterable[str]) -> str:
    """Return which of the names may be meant: one slip away, the same of another user, or begun by it."""
    known = list(islice(names, _NAMES_COMPARED_MAX))
    last = "/" + name.rpartition("/")[2]
    same = (other for other in known if other.endswith(last))
    begun = (other for other in known if other.startswith(name))
    near = one_edit_away(name, known) or next(same, "") or next(begun, "")
    return f"Did you mean {near}?" if near else ""
