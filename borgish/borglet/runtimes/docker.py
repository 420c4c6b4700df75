"""Tasks as containers of a Docker engine.

The engine keeps the containers, their output and how they ended; this only knows which is which, by
their labels, so that a borglet that starts anew finds all as it was. An engine that does not answer
is trouble of the machine: no task is taken for ended because of it.

    docker_engine     calls with deadlines, from threads
    docker_container  what an attempt is as a container, both ways; talks to nobody
    docker_roll       which containers there are, and which have ended
    docker_kept       which stay for their output when their attempt was let go
    docker_start      making one
    docker_init       whether its program could be run
    docker_images     which images there are
    docker_exec, docker_use
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from docker.errors import APIError, NotFound

from borgish.borglet.runtimes.base import Input, RunState, Write
from borgish.borglet.runtimes.docker_container import Container, Owner, Place
from borgish.borglet.runtimes.docker_engine import Client, Engine
from borgish.borglet.runtimes.docker_exec import run_beside
from borgish.borglet.runtimes.docker_images import EVENTS, Images
from borgish.borglet.runtimes.docker_roll import Roll
from borgish.borglet.runtimes.docker_start import Starter
from borgish.borglet.runtimes.docker_use import Meter
from borgish.borglet.runtimes.keep import Keep
from borgish.clock import Clock, SystemClock
from borgish.errors import Conflict, Unreachable
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Usage

LOOK_SECONDS = 5.0
GONE_STATUS = (404, 409)  # no such container; it does not run

log = logging.getLogger(__name__)


class DockerRuntime:
    """The containers of one machine of one cell.

    ``mark`` tells machines apart that have one name and share an engine, as several local cells do:
    a word of the borglet's state folder that stays. ``publish`` is the machine's address on which
    the ports of tasks are opened. ``keep`` is what stays of attempts that were let go; with
    ``keep.NOTHING`` all of it is gone once ``open`` returns.
    """

    kind = Runtime.DOCKER

    def __init__(
        self,
        cell: str,
        machine: str,
        *,
        mark: str = "",
        publish: str = "127.0.0.1",
        look_seconds: float = LOOK_SECONDS,
        clock: Clock | None = None,
        keep: Keep = Keep(),  # noqa: B008 - frozen
    ) -> None:
        self._owner = Owner(cell, machine, mark)
        self._publish = publish
        self._look_seconds = look_seconds
        self._clock = clock or SystemClock()
        self._keep = keep
        self._engine = Engine()
        self._meter = Meter()
        self._images = Images(self._engine, self._clock)
        self._roll = Roll(self._engine, self._owner, self._clock, keep)
        self._starter = Starter(self._engine, self._owner, self._clock, self._roll)
        self._starts: dict[tuple[str, int], asyncio.Task[RunState]] = {}
        self._silent = ""

    async def open(self, changed: Callable[[str], None]) -> list[RunState]:
        """As in the protocol. Raises Unreachable when no engine answers; it may be called again then."""
        since = self._clock.now().wall
        await self._engine.open()
        self._roll.place = await self._engine.quick(self._look_around)
        await self._roll.look()
        await self._sweep_first()
        self._roll.changed = changed
        filters = {"type": "container", "event": ["die", "oom"]} | self._owner.filters()
        self._engine.listen(since, filters, self._roll.heard)
        self._engine.listen(since, EVENTS, self._images.heard)
        self._roll.in_background(self._look_now_and_then())
        return [container.state for container in self._roll.latest.values() if container.state]

    async def _sweep_first(self) -> None:
        """Old output is in nobody's way; but who wants nothing kept is about to leave the machine."""
        if self._keep.containers:
            self._roll.sweep()
        else:
            await self._roll.sweep_now()

    def _look_around(self, client: Client) -> Place:
        bridge = any(network["Name"] == "bridge" for network in client.networks(names=["bridge"]))
        if not bridge:
            log.warning("the Docker engine has no bridge: containers use the machine's own network")
        return Place(bridge, self._publish)

    async def _look_now_and_then(self) -> None:
        while True:
            await self._look_at_images()
            await asyncio.sleep(self._look_seconds)
            try:
                await self._roll.look()
                self._roll.sweep()
                self._silent = ""
            except (APIError, Unreachable) as error:
                self._silent = str(error)

    async def _look_at_images(self) -> None:
        """What images there are is good to know; an engine that does not tell can still run containers."""
        try:
            await self._images.look_when_due()
        except (APIError, Unreachable) as error:
            log.info("the images of the Docker engine cannot be listed: %s", error)

    def images(self) -> dict[str, str]:
        return self._images.by_name

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        known = self._roll.latest.get(spec.key)
        if known is not None and known.run == run and known.state is not None:
            return known.state
        mine = (spec.key, run)
        if mine not in self._starts:
            self._starts[mine] = asyncio.create_task(self._starter.start(spec, run))
            self._starts[mine].add_done_callback(lambda _: self._starts.pop(mine))
        return await asyncio.shield(self._starts[mine])

    def look(self, key: str) -> RunState | None:
        container = self._roll.latest.get(key)
        return container.state if container else None

    async def signal(self, key: str, signal: str) -> None:
        """As in the protocol; the container's init passes it on. Raises Unreachable."""
        container = self._roll.latest.get(key)
        if container is None or not container.alive:
            return
        try:
            await self._engine.slow(
                lambda client: client.kill(container.id, f"SIG{signal}"), "signal a container"
            )
        except APIError as error:
            if error.status_code not in GONE_STATUS:
                raise Unreachable(
                    f"the Docker engine refused a signal to {key} ({error.explanation})"
                ) from None

    async def kill(self, key: str) -> None:
        """As in the protocol. Raises Unreachable."""
        await self.signal(key, "KILL")

    async def forget(self, key: str) -> None:
        """As in the protocol: the container of a run that ended stays, under a name that says so, by
        the rule of ``keep``."""
        await self._roll.forget(key)

    async def sample(self) -> list[Usage]:
        running = [container for container in self._roll.latest.values() if container.alive]
        return await asyncio.to_thread(self._meter.read, running, self._clock.now().mono)

    async def logs(self, key: str, *, previous: bool, follow: bool, tail: int) -> AsyncIterator[bytes]:
        """As in the protocol; also of an attempt that was let go, while it is kept. Raises Unreachable."""
        container = (self._roll.previous if previous else self._roll.latest).get(key)
        follow = follow and container is not None and container.alive
        container = container or self._roll.kept.find(key, previous=previous)
        if container is None:
            return
        read = self._engine.stream if follow else self._engine.whole
        try:
            async for part in read(
                lambda client: _output(client, container, tail, follow=follow), "read output"
            ):
                yield part
        except NotFound:
            return  # it was just removed
        except APIError as error:
            raise Unreachable(f"the output of {key} cannot be read ({error.explanation})") from None

    def removed(self, key: str) -> str:
        return self._roll.kept.removed.why(key)

    async def exec(
        self,
        key: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        stdin: Input | None = None,
        write: Write | None = None,
    ) -> tuple[bytes, int, bool]:
        """As in the protocol. Raises Conflict when the task does not run, Unreachable."""
        container = self._roll.latest.get(key)
        if container is None or not container.alive:
            raise Conflict(f"{key} does not run here", "A command needs a running task to run beside.")
        try:
            return await run_beside(self._engine, container.id, run, timeout_seconds, stdin, write)
        except APIError as error:
            raise Conflict(f"{key} takes no command now ({error.explanation})") from None

    def trouble(self) -> str:
        if self._silent or not self._roll.stuck:
            return self._silent
        return f"the Docker engine does not come back from starting {', '.join(sorted(self._roll.stuck))}"

    async def close(self) -> None:
        for task in self._starts.values():
            task.cancel()
        self._roll.close()
        self._engine.close()


def _output(client: Client, container: Container, tail: int, *, follow: bool) -> object:
    return client.logs(container.id, stream=True, follow=follow, tail=tail or "all")
