"""Talks to a borgmaster over its API, for borgctl, the dashboard, and scripts.

One class on ``http.client``: no proxies are taken from the environment, and no redirects are followed but
a standby's to the leader. What the answers mean is left to the callers, who pass the type they want. One
thread at a time per client; ``stream`` and ``watch`` have connections of their own, so they may run
beside other calls. Which of several masters is asked is in ``masters``.
"""

import http.client
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from urllib.parse import SplitResult, quote, urlencode

import msgspec

from borgish.addresses import WILDCARDS, address_of, is_loopback
from borgish.errors import (
    BorgishError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Overloaded,
    PreconditionFailed,
    Refused,
    StoreFull,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unreachable,
)
from borgish.masters import SENT_ON, Masters, NobodyLeads, NotAnswering, Redirected, Silent, Untrusted
from borgish.vocabulary import NAME_HINT

if TYPE_CHECKING:
    import ssl

    from borgish.wire.api import Problem

T = TypeVar("T")
Params = Mapping[str, str | int | bool | None]

WATCH_SILENCE_SECONDS_MAX = 30.0  # a living watch says something each 10 s
ALONE_SECONDS_MAX = 2.0  # for one of several masters to answer
_REFUSALS: dict[int, type[Refused]] = {
    error.status: error
    for error in (
        *(Refused, NotFound, Conflict, TooLarge, TooManyRequests, Unauthenticated, Forbidden, Gone),
        *(StoreFull, PreconditionFailed),
    )
}
_TLS_HINT = "The authority that signs the master is `ca` in client.json, or BORGISH_CA beside --url"
_CLEAR_HINT = "Other hosts reach a borgmaster by https://: `borgctl login URL --authority HASH`"
_UP_HINT = "Is the cell up? `borgctl up` starts it"
_UP_WRITES_IT = "`borgctl up` writes it, for its own user only"
_WRITTEN_BY_HAND = "`borgctl cell recover` makes one on the host of the borgmaster, `borgctl login` keeps one"
_START_HINT = "Does a borgmaster run there? Start it as it was started before, or look into its log"


_making = threading.Lock()
_made: dict[type, msgspec.json.Decoder[Any]] = {}


def decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    """Return what reads JSON as ``shape``, made once. Who may not be the only thread reads by this: msgspec
    puts together what it knows of a type when it first meets it (seen in 0.22), and a thread that meets it
    before that is done ends the process."""
    with _making:
        if shape not in _made:
            _made[shape] = msgspec.json.Decoder(shape)
        return _made[shape]


class Headers(Protocol):
    """The headers of an answer, whatever has read it."""

    def get(self, name: str, /) -> str | None:
        """Return a header by its name, in any case."""
        ...


class ClientFile(msgspec.Struct, frozen=True):
    """``client.json`` in a cell's folder: where its master is. Paths are relative to that folder."""

    url: str
    token_file: str
    ca: str = ""
    masters: tuple[str, ...] = ()  # all there are, if several
    pinned: bool = False  # ``ca`` is ours to replace, when its authority says which one follows


class Message(msgspec.Struct, frozen=True):
    """One message of a watch: ``data`` is JSON; ``id`` resumes after it."""

    id: str
    kind: str
    data: bytes


class Client:
    """A cell's borgmaster as seen from outside: the one that leads, of those at the addresses given.

    Every method raises ``Unreachable`` when nobody answers (in time), the error that the master named
    when it refuses, and ``BorgishError`` for an answer that cannot be understood.
    """

    def __init__(
        self,
        url: str,
        token: str,
        ca: str = "",
        timeout_seconds: float = 30.0,
        token_source: str = "",
        start_hint: str = _START_HINT,
        *,
        pinned: bool = False,
    ) -> None:
        """``url`` may be several with commas. ``ca`` is the file of the authority that signs an https master;
        ``pinned``: it is replaced by the one that follows, when it has signed that. ``token_source`` is for
        hints, and ``start_hint`` is one, for when nobody is there."""
        self._masters = Masters(url)
        self.timeout_seconds = timeout_seconds
        self._token = token
        self._ca, self._is_pinned = ca, pinned
        self._token_source = token_source
        self._start_hint = start_hint
        self._kept: http.client.HTTPConnection | None = None
        self._always: Params = {}

    @classmethod
    def find(cls, folder: str | os.PathLike[str], timeout_seconds: float = 30.0) -> "Client":
        """Return the client of the local cell in ``folder``, as its ``client.json`` says."""
        where = os.fspath(folder)
        file = _read_client_file(os.path.join(where, "client.json"))
        token_file = os.path.join(where, file.token_file)
        ca = os.path.join(where, file.ca) if file.ca else ""
        urls, is_of_up = ",".join((file.url, *file.masters)), _made_by_up(where)
        hint = _UP_HINT if is_of_up else _START_HINT
        token = _read_token(token_file, _UP_WRITES_IT if is_of_up else _WRITTEN_BY_HAND)
        return cls(urls, token, ca, timeout_seconds, token_file, hint, pinned=file.pinned and bool(ca))

    @property
    def url(self) -> str:
        """Where the master is that was asked last, or is asked first."""
        return self._masters.url

    @property
    def urls(self) -> str:
        """The addresses of all masters that are known, with commas, the one asked now first."""
        return self._masters.all

    @property
    def token(self) -> str:
        """By which it says who asks."""
        return self._token

    @property
    def tls(self) -> "ssl.SSLContext | None":
        """How a master is known by https; None for one on loopback without it."""
        return _trust(self._ca) if self.urls.startswith("https:") else None

    @property
    def is_present(self) -> bool:
        """Whether ``get`` reads the present of who leads, rather than the past or the copy of a standby."""
        return not self._always

    def each_master(self) -> "list[Client]":
        """Return a client for each of the masters, who is asked alone, whether it leads or not, and not for
        long."""
        each = [self._like(url, self._token, self._token_source) for url in self._masters.known]
        for one in each:
            one.timeout_seconds = min(ALONE_SECONDS_MAX, self.timeout_seconds)
        return each

    def with_token(self, token: str, token_source: str) -> "Client":
        """Return a client of the same master with another token."""
        return self._like(self._masters.all, token, token_source)

    def beside(self) -> "Client":
        """Return a client of the same master for another thread."""
        return self._like(self._masters.all, self._token, self._token_source)

    def as_of(self, position: int) -> "Client":
        """Return a client whose ``get`` reads the cell as it was at a position of the journal, from the same
        master, be it one that stands by."""
        client = self._like(self._masters.all, self._token, self._token_source)
        client._always = {**self._always, "at": position}
        return client

    def of_standby(self, at_least: int) -> "Client | None":
        """Return a client whose ``get`` reads from a master that stands by, of several the one that is
        furthest: the cell as it was at position ``at_least`` of the journal or later. None where no master
        stands by with a copy of the cell.

        Its ``url`` is another one as soon as somebody else had to answer.
        """
        from borgish.wire.api import HealthView

        found: list[tuple[int, str]] = []
        for one in self.each_master():
            try:
                view = one.get("/v1/health", None, HealthView)
            except BorgishError:
                continue
            finally:
                one.close()
            if view.role == "standby" and view.warm:
                found.append((view.position, one.url))
        if not found:
            return None
        client = self._like(f"{max(found)[1]},{self._masters.all}", self._token, self._token_source)
        client._always = {"at_least": at_least}
        return client

    def _like(self, urls: str, token: str, token_source: str) -> "Client":
        start_hint, pinned = self._start_hint, self._is_pinned
        return Client(urls, token, self._ca, self.timeout_seconds, token_source, start_hint, pinned=pinned)

    def get(self, path: str, params: Params | None, answer: type[T]) -> T:
        """Return what is at ``path`` (see ``quoted``), read as ``answer``."""
        return _decode(self.raw("GET", path, {**(params or {}), **self._always}), answer)

    def post(
        self,
        path: str,
        body: object,
        answer: type[T],
        request_id: str = "",
        params: Params | None = None,
        content_type: str = "application/json",
        expected: int | None = None,
    ) -> T:
        """Ask for a change and return the answer. ``body``: a struct, None, or bytes sent as they are.

        ``expected`` is the generation of what was shown: raises ``PreconditionFailed`` where it has another
        by now.
        """
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        return _decode(self.raw("POST", path, params, data, content_type, request_id, expected), answer)

    def raw(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: bytes = b"",
        content_type: str = "application/json",
        request_id: str = "",
        expected: int | None = None,
    ) -> bytes:
        """Do one request and return the body of the answer as it came.

        A connection that breaks is tried once more, another master asked, and one that is asked too often
        asked later, with the same request id: nothing is done twice.
        """
        headers = self._headers(method, content_type if body else "", request_id)
        if expected is not None:
            headers["If-Match"] = f'"{expected}"'
        return self._masters.ask(
            lambda: self._twice(method, _target(path, params), body, headers), self.close
        )

    def _twice(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> bytes:
        try:
            return self._round(method, target, body, headers)
        except (ConnectionRefusedError, TimeoutError) as error:
            self._unreachable(error, method)
        except (ConnectionError, http.client.HTTPException):
            self.close()  # it had merely grown old, or its master was replaced
        except OSError as error:
            self._unreachable(error, method)
        try:
            return self._round(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self._unreachable(error, method)

    def stream(
        self,
        path: str,
        params: Params | None = None,
        body: object = None,
        opened: Callable[[Callable[[], None]], None] | None = None,
    ) -> Iterator[bytes]:
        """Return the answer to a GET, or to a POST of a struct, in pieces as they come; waits for the next
        without limit, as long as the host of the master is there. ``opened`` is given what ends that, from
        any thread."""
        connection, response = self._masters.ask(
            lambda: self._open_stream(path, params, {}, body), self.close
        )
        if (sock := connection.sock) is not None:
            sock.settimeout(None)
            _keep_alive(sock)
            if opened is not None:
                opened(lambda: _shut_down(sock))
        return self._pieces(connection, response)

    def watch(self, params: Params | None = None, last_id: str = "") -> Iterator[Message]:
        """Return messages until the master ends the watch; from after ``last_id`` when given.

        Raises ``Gone`` when what follows ``last_id`` is no longer kept, or when this reader was too slow:
        read everything anew and watch without an id.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        connection, response = self._masters.ask(
            lambda: self._open_stream("/v1/watch", params, headers), self.close
        )
        if connection.sock:
            connection.sock.settimeout(WATCH_SILENCE_SECONDS_MAX)
        return until_gone(messages_in(self._pieces(connection, response)))

    def close(self) -> None:
        """Let go of the kept connection. The next call makes a new one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _round(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Send one request over the kept connection and return the body of a good answer."""
        if self._kept is None:
            try:
                self._kept = self._connection()
                self._find_alive(self._kept, method)
            except TimeoutError as error:
                self._unreachable(error)  # nothing was asked yet
        elif self._kept.sock is not None:  # it may have been made for a question, with less patience
            self._kept.sock.settimeout(self._seconds_for(method))
        self._kept.request(method, target, body or None, headers)
        response = self._kept.getresponse()
        content = response.read()
        if not 200 <= response.status < 300:
            raise self._refusal(response, content)
        return content

    def _open_stream(
        self, path: str, params: Params | None, headers: dict[str, str], body: object = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        method, data, kind = "GET", None, ""
        if body is not None:
            method, data, kind = "POST", msgspec.json.encode(body), "application/json"
        try:
            connection = self._connection()
        except OSError as error:
            self._unreachable(error)
        try:
            self._find_alive(connection, method)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._unreachable(error)
        try:
            connection.request(method, _target(path, params), data, self._headers(method, kind) | headers)
            response = connection.getresponse()
            if response.status != 200:
                raise self._refusal(response, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._unreachable(error, method)
        except BorgishError:
            connection.close()
            raise
        return connection, response

    def _pieces(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> Iterator[bytes]:
        try:
            while piece := response.read1(65536):
                yield piece
        except (OSError, http.client.HTTPException) as error:
            self._unreachable(error)
        finally:
            response.close()
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = expect_safe(self.url)
        host, port, seconds = parts.hostname or "", parts.port, self._seconds_for("GET")
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        from borgish.tls.https import MasterConnection

        connection = MasterConnection(host, port, seconds, _trust(self._ca))
        if self._is_pinned:
            import ssl

            try:
                connection.connect()
            except ssl.SSLCertVerificationError:
                if not self._follows():
                    raise
                connection = MasterConnection(host, port, seconds, _trust(self._ca))
        return connection

    def _find_alive(self, connection: http.client.HTTPConnection, method: str) -> None:
        """Where there are several masters, see that the one at the other end answers at all before it is
        asked for a change: of that nobody would know whether another one may be asked for it. Raises as
        ``http.client`` does."""
        if method != "GET" and self._masters.are_several:
            connection.request("GET", "/v1/health")
            connection.getresponse().read()
            if connection.sock is not None:
                connection.sock.settimeout(self._seconds_for(method))

    def _seconds_for(self, method: str) -> float:
        return self._masters.patience(self.timeout_seconds) if method == "GET" else self.timeout_seconds

    def _follows(self) -> bool:
        """Know the master by the authority that followed on the one that is known; return whether there is
        one. Raises OSError where it cannot be kept."""
        from pathlib import Path

        from borgish.credentials import write_private
        from borgish.tls.pinning import fetch_next

        try:
            following = fetch_next(self.url, Path(self._ca).read_bytes(), self.timeout_seconds)
        except BorgishError:
            return False
        if following:
            write_private(Path(self._ca), following.decode("ascii"))
        return bool(following)

    def _headers(self, method: str, content_type: str = "", request_id: str = "") -> dict[str, str]:
        if not (self._token.isascii() and self._token.isprintable()):
            raise Unauthenticated(
                "the token is more than one line of plain text",
                f"It was read from {self._token_source}" if self._token_source else "",
            )
        headers = {"Authorization": f"Bearer {self._token}"}
        if content_type:
            headers["Content-Type"] = content_type
        if method != "GET":
            headers["Idempotency-Key"] = request_id or _new_request_id()
        return headers

    def _refusal(self, response: http.client.HTTPResponse, body: bytes) -> BorgishError:
        error = refusal(self.url, response.status, response.headers, body)
        if isinstance(error, Unauthenticated) and self._token_source:
            error.hint = f"The token was read from {self._token_source}; it must be one of this cell"
        return error

    def _unreachable(self, error: Exception, method: str = "GET") -> NoReturn:
        """Raise ``Unreachable`` with what is known of why."""
        self.close()
        if isinstance(error, TimeoutError):
            message = f"{self.url} did not answer in time"
            if method != "GET":  # not every change may be asked for twice
                raise Unreachable(
                    message, "It may have been carried out: check before you try again"
                ) from error
            hint = "What listens there says nothing: a borgmaster that is stopped or busy, or another program"
            raise Silent(message, hint) from error
        if isinstance(error, socket.gaierror):
            raise NotAnswering(f"{self.url}: there is no such host") from error
        if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
            raise Unreachable(
                f"what answers at {self.url} is not a borgmaster, or was cut off", "Check the address"
            ) from error
        if reason := getattr(error, "reason", "") if type(error).__module__ == "ssl" else "":
            words = getattr(error, "verify_message", "") or "is there TLS at this address?"
            what = str(reason).lower().replace("_", " ")
            raise Untrusted(f"{self.url} cannot be trusted: {what}: {words}", _TLS_HINT) from error
        why = getattr(error, "strerror", None) or str(error) or "the connection broke"
        raise NotAnswering(f"{self.url} cannot be reached: {str(why).lower()}", self._start_hint) from error


def _shut_down(sock: socket.socket) -> None:
    """Wake who reads from a socket: it is as if the other end had closed it."""
    with suppress(OSError):  # it is closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of TLS, which is for the thread that reads


def expect_safe(url: str) -> SplitResult:
    """Return the parts of a master's address. Raises Invalid for what is none, and where a token would be
    sent over the network without TLS."""
    parts = address_of(url)
    host = parts.hostname or ""
    if parts.scheme == "http" and not is_loopback(host) and host not in WILDCARDS:  # these are this host, too
        raise Invalid(f"{url} would be sent the token over the network without TLS", _CLEAR_HINT)
    return parts


def refusal(url: str, status: int, headers: Headers, body: bytes) -> BorgishError:
    """Return the error that an answer of the master at ``url`` stands for."""
    is_problem = (headers.get("content-type") or "").partition(";")[0].strip() == "application/problem+json"
    if status == SENT_ON and (where := headers.get("location")):
        return Redirected(url, where, _problem(body, status).detail if is_problem else "")
    if not is_problem:
        return Unreachable(
            f"{url} answered {status} and is not a borgmaster",
            "Another program listens there: stop it, or check the address in client.json",
        )
    error = _error_of(_problem(body, status))
    after = headers.get("retry-after") or ""
    if isinstance(error, Unreachable) and after:
        return NobodyLeads(error.message, error.hint)
    if isinstance(error, TooManyRequests) and after.isascii() and after.isdigit():
        error.retry_after_seconds = float(after[:9])
    return error


def quoted(*parts: str | int) -> str:
    """Return a path under ``/v1`` of these parts, each made safe: ``quoted("jobs", "ann", "web")``.

    Raises Invalid for a name that would lead elsewhere, also where it is quoted.
    """
    names = [str(part) for part in parts]
    for name in names:
        if "/" in name or name in ("", ".", ".."):
            raise Invalid(f"invalid name {name[:63]!r}", NAME_HINT)
    return "/v1/" + "/".join(quote(name, safe="") for name in names)


def _trust(ca: str) -> "ssl.SSLContext":
    """Return how to know a master: by the authority in a file, or by those of this system."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca or None)
    except OSError as error:  # a wrong file as well: ssl.SSLError is one
        raise Unreachable(f"the authority's file {ca} cannot be used: {error.strerror}", _TLS_HINT) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel end a silent connection to a host that is gone: after half a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if number := getattr(socket, option, None):  # not every system has these
            connection.setsockopt(socket.IPPROTO_TCP, number, value)


def query_of(params: Params | None) -> dict[str, str]:
    """Return parameters as they are written in an address; those that are None or "" are left out."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (params or {}).items()
        if value is not None and value != ""
    }


def _target(path: str, params: Params | None) -> str:
    shown = query_of(params)
    return f"{path}?{urlencode(shown)}" if shown else path


def _new_request_id() -> str:
    from borgish.ids import new_request_id

    return new_request_id()


def _made_by_up(folder: str) -> bool:
    """Return whether a folder is one that ``borgctl up`` made: with the cell's file and its machines."""
    return all(os.path.exists(os.path.join(folder, name)) for name in ("cell.toml", "machines"))


def _read_client_file(path: str) -> ClientFile:
    try:
        with open(path, "rb") as file:
            return decoder(ClientFile).decode(file.read())
    except FileNotFoundError:
        raise Unreachable(
            f"there is no cell in {os.path.dirname(path)}",
            "`borgctl up` starts one there; BORGISH_DIR names another folder",
        ) from None
    except OSError as error:
        raise Unreachable(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise Unreachable(f"{path} is damaged: {error}", "`borgctl up` writes it anew") from error


def _read_token(path: str, hint: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError) as error:  # ValueError: not ASCII, or contains a NUL character
        reason = str(getattr(error, "strerror", None) or "it is not text").lower()
        raise Unauthenticated(f"the token file {path} cannot be read: {reason}", hint) from error


def _decode(body: bytes, answer: type[T]) -> T:
    try:
        return decoder(answer).decode(body)
    except msgspec.MsgspecError as error:
        raise BorgishError(
            f"the master's answer cannot be decoded: {error}",
            "Are master and client of the same version?",
        ) from error


def _problem(body: bytes, status: int) -> "Problem":
    """Read problem details; a damaged body still gives one."""
    from borgish.wire.api import Problem

    try:
        return decoder(Problem).decode(body)
    except msgspec.MsgspecError:
        return Problem("", status, f"the master answered {status}")


def _error_of(problem: "Problem") -> BorgishError:
    """Return the error that a problem was made from."""
    if problem.status == Invalid.status:
        return Invalid(problem.detail, problem.hint, problem.mistakes)
    if problem.status == Unreachable.status:
        kind = Overloaded if problem.title == Overloaded.title else Unreachable
        return kind(problem.detail, problem.hint)
    return _REFUSALS.get(problem.status, BorgishError)(problem.detail, problem.hint)


def until_gone(messages: Iterator[Message]) -> Iterator[Message]:
    """Yield messages. Raises Gone at the one that says so."""
    for message in messages:
        if message.kind == "gone":
            raise _error_of(_problem(message.data, Gone.status))
        yield message


def messages_in(pieces: Iterator[bytes]) -> Iterator[Message]:
    """Cut server-sent events out of the pieces of a stream; comments are dropped."""
    rest = b""
    for piece in pieces:
        *blocks, rest = (rest + piece).split(b"\n\n")
        for block in blocks:
            fields = _fields(block)
            if "data" in fields:
                yield Message(
                    fields.get("id", b"").decode(),
                    fields.get("event", b"message").decode(),
                    fields["data"],
                )


def lines_in(pieces: Iterable[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    """Yield the lines that each piece of a stream completes, without their ends; the last may have had none.
    One of more than ``bytes_max`` comes in parts."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        whole = [part for line in lines for part in _parts(line, bytes_max)]
        *parts, rest = _parts(rest, bytes_max)
        yield whole + parts
    if rest:
        yield [rest]


def _parts(line: bytes, bytes_max: int) -> list[bytes]:
    return [line[at : at + bytes_max] for at in range(0, len(line), bytes_max)] or [b""]


def _fields(block: bytes) -> dict[str, bytes]:
    """Return the fields of one server-sent event; several lines of data are joined."""
    fields: dict[str, bytes] = {}
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if name and colon:
            value = value.removeprefix(b" ")
            key = name.decode("ascii", "replace")
            fields[key] = fields[key] + b"\n" + value if key == "data" and key in fields else value
    return fields
