"""Clients in threads of their own: each asks, and asks the same again until somebody has answered."""

import http.client
import json
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from borgish.cli.changes import Deadline
from borgish.errors import StoreFull
from tests.faults.ledger import Keeper, Owner, Request

ANSWER_SECONDS_MAX = 120.0
PATIENCE_SECONDS = 120.0
FULL_SECONDS = 0.01
PAUSE_SECONDS = 0.03
"""Between an answer and the next request, so that clients cost little while something else is waited for. All
begin at once when there is a master: what they ask comes together nevertheless."""


class Where:
    """Where the master is now. Clients wait here while there is none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._address: tuple[str, str] | None = None  # host:port and token
        self._acknowledged = self._full = 0
        self._at_stop: threading.Event | None = None
        self.is_over = False
        self.is_closing = False

    def is_at(self, url: str, token: str) -> None:
        """Tell everybody."""
        with self._changed:
            self._address = (urlsplit(url).netloc, token)
            self._changed.notify_all()

    def is_gone(self) -> None:
        """Let everybody wait."""
        with self._changed:
            self._address = None

    def end(self) -> None:
        """Send everybody home."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def go_home(self) -> None:
        """Send home whoever has its answer."""
        self.is_closing = True

    def find(self) -> tuple[str, str] | None:
        """Return where the master is, when there is one; None when it is all over."""
        with self._changed:
            self._changed.wait_for(lambda: self._address or self.is_over)
            return None if self.is_over else self._address

    def lost(self, address: tuple[str, str]) -> None:
        """Note that nobody answers there any more."""
        with self._changed:
            if self._address == address:
                self._address = None

    def acknowledged(self) -> None:
        """Note that somebody was told that something is done."""
        with self._changed:
            self._acknowledged += 1
            self._changed.notify_all()

    def was_full(self) -> None:
        """Note that somebody was told that the store is full."""
        with self._changed:
            self._full += 1
            self._changed.notify_all()

    def wait_for_full(self, count: int) -> bool:
        """Wait until so many more were told that the store is full; return whether they were in time."""
        with self._changed:
            goal = self._full + count
            return self._changed.wait_for(lambda: self._full >= goal, PATIENCE_SECONDS)

    def wait_for_more(self, count: int) -> bool:
        """Wait until so many more requests were acknowledged; return whether they were in time."""
        with self._changed:
            goal = self._acknowledged + count
            return self._changed.wait_for(lambda: self._acknowledged >= goal, PATIENCE_SECONDS)


class Client(threading.Thread):
    """Asks what its owner wants, one thing after the other. ``problems`` is what should not have been."""

    def __init__(self, owner: Owner, where: Where, pause_seconds: float = PAUSE_SECONDS) -> None:
        super().__init__(daemon=True, name=f"client of {type(owner).__name__}")
        self.owner = owner
        self.problems: list[str] = []
        self.done = 0
        self._where = where
        self._pause_seconds = pause_seconds
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Ask until it is all over."""
        while not (self._where.is_over or self._where.is_closing):
            request = self.owner.next_request()
            while not request.status:
                address = self._where.find()
                if address is None:
                    return
                self._try(request, address)
            time.sleep(self._pause_seconds)

    def _try(self, request: Request, address: tuple[str, str]) -> None:
        try:
            status, answer = self._ask(request, *address)
        except (OSError, http.client.HTTPException):
            self._connection = None
            self._where.lost(address)
            if isinstance(self.owner, Keeper):
                request.status = 503  # whatever became of it: it is not asked again
            return
        if status == 503 and not isinstance(self.owner, Keeper):
            return  # the outcome is unknown: the same again
        if status == StoreFull.status:
            self._where.was_full()
            time.sleep(FULL_SECONDS)
            if not isinstance(self.owner, Keeper):
                return  # nothing was done: the same again, until there is room
        self._take(request, status, answer)

    def ask_again(self) -> None:
        """Ask for the last thing done once more, and under its id for something else."""
        address = self._where.find()
        done = [] if isinstance(self.owner, Keeper) else [r for r in self.owner.asked if r.is_done]
        if not done or address is None:
            return
        request = done[-1]
        connection = http.client.HTTPConnection(address[0], timeout=ANSWER_SECONDS_MAX)
        status, answer = asked(connection, request, address[1])
        said = json.loads(answer)
        if not said.get("replayed") or said["position"] != request.position:
            self.problems.append(f"{request.path} asked again was answered {status}: {answer!r}")
        other = msgspec.structs.replace(request, body=request.body + b" ")
        status, answer = asked(connection, other, address[1])
        if status != 409:
            self.problems.append(f"another body for the id of {request.path}: {status}: {answer!r}")
        connection.close()

    def _take(self, request: Request, status: int, answer: bytes) -> None:
        if 200 <= status < 300:
            request.position = json.loads(answer)["position"]  # first: who sees it done looks for it there
            self.done += 1
        elif status not in (404, 409, 503, StoreFull.status):
            self.problems.append(f"{request.path} was answered {status}: {answer!r}")
        request.status = status
        self.owner.answered(request)
        if request.is_done:
            self._where.acknowledged()

    def _ask(self, request: Request, host: str, token: str) -> tuple[int, bytes]:
        if self._connection is None or f"{self._connection.host}:{self._connection.port}" != host:
            self._connection = http.client.HTTPConnection(host, timeout=ANSWER_SECONDS_MAX)
        return asked(self._connection, request, token)


def asked(connection: http.client.HTTPConnection, request: Request, token: str) -> tuple[int, bytes]:
    """Ask once and return status and body. Raises OSError and HTTPException."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": request.request_id,
    }
    connection.request("POST", request.path, request.body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def join(clients: Sequence[Client]) -> None:
    """Wait until all have gone home."""
    deadline = Deadline(PATIENCE_SECONDS)
    for client in clients:
        client.join(max(0.0, deadline.left))
        assert not client.is_alive(), f"{client.name} still waits"
