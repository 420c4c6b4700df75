"""Machines that go on while masters come and go, and remember all that they were told to start."""

import asyncio
import threading
from collections import Counter
from types import TracebackType

from borgish.borglet.actions import Action, Start
from borgish.cell.model import Machine
from borgish.clock import Now, SystemClock
from borgish.wire.link import JoinRequest
from tests.bench.borglets import InstantBorglet, machine_record
from tests.bench.served import READY_SECONDS_MAX, ServedBorglet, close_loop


class Remembering(InstantBorglet):
    """A borglet that counts the starts of each attempt."""

    def __init__(self, name: str) -> None:
        super().__init__(name, SystemClock())
        self.starts: Counter[tuple[str, int]] = Counter()  # by (task, attempt)

    def _do(self, action: Action, now: Now) -> None:
        if isinstance(action, Start):
            self.starts[action.spec.task, action.spec.attempt] += 1
        super()._do(action, now)

    def running(self) -> set[tuple[str, int]]:
        """Return the attempts whose program runs."""
        return {
            (attempt.task, attempt.attempt)
            for attempt in self.core.report()
            if attempt.ended is None and attempt.pid
        }


class Machines:
    """Some machines on real sockets, in one thread."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="machines", daemon=True)
        self._thread.start()
        self.borglets = {name: Remembering(name) for name in (f"m{n}" for n in range(1, count + 1))}
        self.joins: dict[str, JoinRequest] = {}
        for name, borglet in self.borglets.items():
            opened = asyncio.run_coroutine_threadsafe(ServedBorglet(name, borglet).open(), self._loop)
            _, self.joins[name] = opened.result(READY_SECONDS_MAX)

    def records(self) -> list[Machine]:
        """Return the machines as a cell knows them that they have joined."""
        made = [machine_record(name) for name in self.joins]
        for record in made:
            record.host, record.port = self.joins[record.name].host, self.joins[record.name].port
        return made

    def running(self) -> dict[str, set[tuple[str, int]]]:
        """Return what truly runs, by machine."""
        return {name: self._of(borglet) for name, borglet in self.borglets.items()}

    def _of(self, borglet: Remembering) -> set[tuple[str, int]]:
        async def look() -> set[tuple[str, int]]:
            return borglet.running()

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(READY_SECONDS_MAX)

    def close(self) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        close_loop(self._loop)

    def __enter__(self) -> "Machines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
