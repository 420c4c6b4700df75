"""People who use the tasks of a job: they follow the watch for where these are, and ask one after another."""

import random
import threading
import urllib.request
from contextlib import suppress
from types import TracebackType

import msgspec

from borgish.cli.lookup import every_task
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import BorgishError
from borgish.vocabulary import Phase, State
from borgish.wire.api import TaskView

REQUEST_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.01
LIST_SECONDS = 1.0
"""All tasks are read anew so often, as whoever follows a watch does that may break off."""


class WebLoad:
    """Requests to the healthy tasks of a job, from its beginning to its end as a context.

    ``failures`` says of each request that was refused or not answered in full when, which task and why.
    """

    def __init__(self, client: Client, job: str, port: str = "http", people: int = 2) -> None:
        self.asked = 0
        self.failures: list[str] = []
        self._client, self._job, self._port = client, job, port
        self._lock = threading.Lock()
        self._tasks: dict[int, TaskView] = {}
        self._ended = threading.Event()
        self._followers = [
            threading.Thread(target=each, daemon=True) for each in (self._list_on, self._watch)
        ]
        self._people = [threading.Thread(target=self._ask, args=(number,)) for number in range(people)]

    def __enter__(self) -> "WebLoad":
        self._list()
        for thread in (*self._followers, *self._people):
            thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._people:
            thread.join()

    def _take(self, views: list[TaskView]) -> None:
        """What was listed may be older than what the watch has said: of attempts the later counts."""
        with self._lock:
            for view in views:
                known = self._tasks.get(view.index)
                if known is None or view.attempt >= known.attempt:
                    self._tasks[view.index] = view

    def _list(self) -> None:
        self._take(every_task(self._client, job=self._job))

    def _list_on(self) -> None:
        while not self._ended.wait(LIST_SECONDS):
            with suppress(BorgishError):
                self._list()

    def _watch(self) -> None:
        while not self._ended.is_set():
            with suppress(BorgishError):
                for message in self._client.watch({"kinds": "tasks", "job": self._job}):
                    if self._ended.is_set():
                        return
                    if message.kind == "tasks":
                        self._take(msgspec.json.decode(message.data, type=list[TaskView]))
            self._ended.wait(PAUSE_SECONDS)

    def _fail(self, what: str) -> None:
        self.failures.append(f"{SystemClock().now().wall:.3f}: {what}")

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._ended.wait(PAUSE_SECONDS):
            with self._lock:
                usable = [
                    view
                    for view in self._tasks.values()
                    if view.state is State.RUNNING and view.phase is Phase.HEALTHY
                ]
            if not usable:
                self._fail("no task is healthy")
                continue
            chosen = chance.choice(usable)
            url = f"http://127.0.0.1:{chosen.ports[self._port]}/"
            self.asked += 1
            try:
                with urllib.request.urlopen(url, timeout=REQUEST_SECONDS_MAX) as reply:
                    reply.read()
            except OSError as error:
                self._fail(f"{chosen.name}@{chosen.attempt} at {url}: {error}")
