"""Tasks as containers of a Docker engine.

The engine keeps the containers, their output and how they ended; this only knows which is which, by
their labels, so that a borglet that starts anew finds all as it was. An engine that does not answer
is trouble of the machine: no task is taken for ended because of it.

    engine     calls with deadlines, from threads; commands beside a task
    container  what an attempt is as a container, both ways; talks to nobody
    inventory  which containers there are, which have ended, which stay for their output
    host       the cell's network, and what the engine and its machine hold
    start      making one, and whether its program could be run
    here       the runtime, the images that there are, what containers use
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.base import HELD, Input, RunState, StartFailed, Write
from borgish.borglet.runtimes.disk import DiskWatch, Tree
from borgish.borglet.runtimes.docker.container import WITH_SECRET_ENV, Container, Owner
from borgish.borglet.runtimes.docker.engine import Client, Engine, News, run_beside
from borgish.borglet.runtimes.docker.host import Host, Rules, look_at_host, remove_network
from borgish.borglet.runtimes.docker.inventory import Inventory
from borgish.borglet.runtimes.docker.start import Starter
from borgish.borglet.runtimes.leftovers import Retention
from borgish.borglet.runtimes.processes import Used
from borgish.borglet.runtimes.secrets import NO_SECRETS, SecretFolders
from borgish.clock import Clock, SystemClock
from borgish.errors import Conflict, Unreachable
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, LogWanted, Terminal, Usage, split_attempt_key

LOOK_SECONDS = 5.0
GONE_STATUS = (404, 409)  # no such container; it does not run
IMAGES_SECONDS = 60.0
HOST_SECONDS = 60.0
IMAGES_MAX = 256
IMAGE_EVENTS = {"type": "image", "event": ["pull", "load", "import", "tag", "untag", "delete"]}
_NO_NAME = "<none>:<none>"
LACKS_HINT = "Mend it, or name it in 'without' under [docker] of its borglet.toml to run all the same."

log = logging.getLogger(__name__)


class DockerRuntime:
    """The containers of one machine of one cell.

    ``mark`` distinguishes machines that have one name and share an engine, as several local cells do:
    a word of the borglet's state folder that stays. ``rules`` are the machine's own.
    ``keep`` is what stays of attempts that were let go; with ``KEEP_NOTHING`` all of it is gone once ``open``
    returns, and the cell's network when it is closed.
    """

    kind = Runtime.DOCKER

    def __init__(
        self,
        cell: str,
        machine: str,
        *,
        mark: str = "",
        rules: Rules = Rules(),  # noqa: B008 - frozen
        look_seconds: float = LOOK_SECONDS,
        clock: Clock | None = None,
        keep: Retention = Retention(),  # noqa: B008 - frozen
        secrets: SecretFolders = NO_SECRETS,
    ) -> None:
        self._owner = Owner(cell, machine, mark)
        self._rules = rules
        self._look_seconds = look_seconds
        self._clock = clock or SystemClock()
        self._keep = keep
        self._engine = Engine()
        self._meter = Meter()
        self._images = Images(self._engine, self._clock)
        self._inventory = Inventory(self._engine, self._owner, self._clock, keep)
        self._starter = Starter(
            self._engine, self._owner, self._clock, self._inventory, rules.mounts, secrets
        )
        self._disk = DiskWatch(self._clock, self._written, self._end_for_disk)
        self._host = Host(self._inventory.place, {})
        self._host_due = float("-inf")  # when (monotonic) to look at it next
        self._starts: dict[tuple[str, int], asyncio.Task[RunState]] = {}
        self._silent = ""

    async def open(self, changed: Callable[[str], None]) -> list[RunState]:
        """As in the protocol. Raises Unreachable when no engine answers; it may be called again then."""
        since = self._clock.now().wall
        await self._engine.open()
        await self._look_around()
        await self._inventory.refresh()
        await self._sweep_first()
        self._inventory.changed = changed
        filters = {"type": "container", "event": ["die", "oom"]} | self._owner.filters()
        self._engine.listen(since, filters, self._inventory.heard)
        self._engine.listen(since, IMAGE_EVENTS, self._images.heard)
        self._inventory.in_background(self._look_now_and_then())
        self._inventory.in_background(self._disk.run())
        return [container.state for container in self._inventory.latest.values() if container.state]

    async def _sweep_first(self) -> None:
        """Old output is in nobody's way; but who wants nothing kept is about to leave the machine."""
        if self._keep.containers:
            self._inventory.sweep()
        else:
            await self._inventory.sweep_now()

    async def _look_around(self) -> None:
        """See what the engine and its machine hold, and make the cell's network where it is missing."""

        def look(client: Client) -> Host:
            return look_at_host(client, self._owner.cell, self._rules)

        self._host_due = self._clock.now().mono + HOST_SECONDS
        found = await self._engine.slow(look, "answer")
        for name, text in found.confinement.items():
            if text not in (HELD, self._host.confinement.get(name)):
                log.warning("%s: %s", name, text)
        self._host, self._inventory.place = found, found.place

    async def _look_now_and_then(self) -> None:
        while True:
            await self._look_at_images()
            await asyncio.sleep(self._look_seconds)
            try:
                # What it lacks may be there again soon: an address that was in use, a network in the way.
                if self._silent or self._host.lacks or self._clock.now().mono >= self._host_due:
                    await self._look_around()
                await self._inventory.refresh()
                self._inventory.sweep()
                self._silent = ""
            except (APIError, Unreachable) as error:
                self._silent = str(error)

    async def _look_at_images(self) -> None:
        """An engine that does not list its images can still run containers."""
        try:
            await self._images.look_when_due()
        except (APIError, Unreachable) as error:
            log.info("the images of the Docker engine cannot be listed: %s", error)

    def images(self) -> dict[str, str]:
        return self._images.by_name

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        known = self._inventory.latest.get(spec.key)
        if known is not None and known.run == run and known.state is not None:
            return known.state
        if self._host.lacks:
            raise StartFailed(self._host.lacks, LACKS_HINT)
        mine = (spec.key, run)
        if mine not in self._starts:
            self._starts[mine] = asyncio.create_task(self._starter.start(spec, run))
            self._starts[mine].add_done_callback(lambda _: self._starts.pop(mine))
        try:
            return await asyncio.shield(self._starts[mine])
        except StartFailed:
            self._host_due = float("-inf")  # it may be for want of a network that somebody removed
            raise

    def renew(self, key: str, until: float) -> None:
        """Do nothing: containers have no leases, since nothing of ours stays beside each."""

    def look(self, key: str) -> RunState | None:
        container = self._inventory.latest.get(key)
        return container.state if container else None

    async def signal(self, key: str, signal: str) -> None:
        """As in the protocol; the container's init passes it on. Raises Unreachable."""
        container = self._inventory.latest.get(key)
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

    async def forget(self, key: str, keep_seconds: float = 0.0) -> None:
        """As in the protocol: the container of a run that ended stays, under a name that marks it, by
        the rule of ``keep``."""
        await self._inventory.forget(key, keep_seconds)

    async def sample(self) -> list[Usage]:
        running = [container for container in self._inventory.latest.values() if container.alive]
        return await asyncio.to_thread(self._meter.read, running, self._clock.now().mono)

    async def logs(self, key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        """As in the protocol; also of an attempt that was let go, while it is kept. Raises Unreachable."""
        previous = wanted.previous
        container = (self._inventory.previous if previous else self._inventory.latest).get(key)
        follow = wanted.follow and container is not None and container.alive
        container = container or self._inventory.kept.find(key, previous=previous)
        if container is None:
            return
        read = self._engine.stream if follow else self._engine.whole
        try:
            async for part in read(
                lambda client: client.logs(
                    container.id,
                    stream=True,
                    follow=follow,
                    tail=wanted.tail or "all",
                    since=wanted.since or None,
                    timestamps=wanted.timestamps,
                ),
                "read output",
            ):
                yield part
            yield b""
        except NotFound:
            return  # it was just removed
        except APIError as error:
            raise Unreachable(f"the output of {key} cannot be read ({error.explanation})") from None

    def removed(self, key: str) -> str:
        return self._inventory.kept.removed.why(key)

    async def exec(
        self,
        key: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        stdin: Input | None = None,
        write: Write | None = None,
        terminal: Terminal | None = None,
    ) -> tuple[bytes, int, bool]:
        """As in the protocol. Raises Conflict when the task does not run, Unreachable."""
        container = self._inventory.latest.get(key)
        if container is None or not container.alive:
            raise Conflict(f"{key} does not run here", "A command needs a running task to run beside.")
        if container.has_secret_env:
            run = (*WITH_SECRET_ENV, *run)
        try:
            return await run_beside(self._engine, container.id, run, timeout_seconds, stdin, write, terminal)
        except APIError as error:
            raise Conflict(f"{key} takes no command now ({error.explanation})") from None

    # What they write

    def measures(self) -> dict[str, str]:
        return self._host.confinement

    def _written(self) -> list[Tree]:
        """Return what to watch, also where the engine bounds the layers: volumes it does not."""
        return [
            Tree(
                c.key,
                c.run,
                c.limit_bytes,
                tuple(path for path in c.written if _is_open(path)),
                partial(self._meter.pids, c),
                partial(self._told_of, c),
                partial(self._meter.cpu_seconds, c),
            )
            for c in self._inventory.latest.values()
            if c.alive and c.state is not None
        ]

    def _told_of(self, container: Container) -> int:
        """Return what a container has written as the engine counts it, which costs more than looking; 0 where
        its layer can be looked at here. Blocks."""
        if container.layer and _is_open(container.layer):
            return 0
        try:
            rows = self._engine.blocking(
                lambda client: client.containers(all=True, size=True, filters={"id": container.id})
            )
        except (APIError, Unreachable):
            return 0
        return max((int(row.get("SizeRw", 0)) for row in rows), default=0)

    async def _end_for_disk(self, tree: Tree, why: str) -> None:
        container = self._inventory.latest.get(tree.key)
        if container is None or container.run != tree.run:
            return
        container.over_disk = why
        try:
            await self.kill(tree.key)
        except Unreachable as error:
            log.warning("%s goes on: %s", tree.key, error)

    def trouble(self) -> str:
        if self._silent or self._host.lacks:
            return self._silent or self._host.lacks
        if not self._inventory.stuck:
            return ""
        return (
            f"the Docker engine does not come back from starting {', '.join(sorted(self._inventory.stuck))}"
        )

    async def close(self) -> None:
        for task in self._starts.values():
            task.cancel()
        self._inventory.close()
        if not self._keep.containers:
            cell, uids = self._owner.cell, self._rules.program_uids
            with suppress(APIError, Unreachable):
                await self._engine.slow(lambda client: remove_network(client, cell, uids), "remove a network")
        self._engine.close()


# -- Images -------------------------------------------------------------------------------------------------


class Images:
    """The newest images of one engine. ``by_name``: from ``name:tag`` to the architecture, like amd64.

    The engine's list has no architectures; each image is inspected once. Listed anew each
    minute, and soon after the engine reported that an image came or went. The master shows them and
    prefers a machine that has the image, where a task may start at once, but journals nothing of it: a
    list that is out of date does no harm.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.by_name: dict[str, str] = {}
        self._engine, self._clock = engine, clock
        self._architectures: dict[str, str] = {}  # by image id
        self._due = float("-inf")  # when (monotonic) to look next

    def heard(self, _news: News) -> None:
        """Handle the event that an image came or went."""
        self._due = float("-inf")

    async def look_when_due(self) -> None:
        """Look at all images, if it is time to. Raises Unreachable or APIError."""
        now = self._clock.now().mono
        if now < self._due:
            return
        self._due = now + IMAGES_SECONDS  # before the look: what comes meanwhile makes it due again
        rows = await self._engine.quick(_list)
        tagged = [(row, name) for row in rows for name in row["RepoTags"] or () if name != _NO_NAME]
        newest = sorted(tagged, key=lambda one: (-one[0]["Created"], one[1]))[:IMAGES_MAX]
        ids = dict.fromkeys(row["Id"] for row, _ in newest)  # many names can be of one image
        self._architectures = known = {image: await self._architecture(image) for image in ids}
        self.by_name = {name: known[row["Id"]] for row, name in newest if known[row["Id"]]}

    async def _architecture(self, image: str) -> str:
        """Return an image's architecture; "" when it has just gone."""
        if found := self._architectures.get(image):
            return found
        try:
            seen: dict[str, Any] = await self._engine.quick(lambda client: client.inspect_image(image))
        except NotFound:
            return ""
        return str(seen.get("Architecture", ""))


def _list(client: Client) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.images()
    return rows


# -- What containers use ------------------------------------------------------------------------------------


class Meter:
    """Finds the groups of each container once, and remembers its last reading: use is a difference."""

    def __init__(self) -> None:
        self._folders: dict[str, list[str]] = {}  # by container id
        self._before: dict[str, Used] = {}  # by container id

    def read(self, containers: list[Container], mono: float) -> list[Usage]:
        """Return what each running container uses. Reads files: call it from a thread, one at a time."""
        now = {container.id: used for container in containers if (used := self._used(container, mono))}
        self._folders = {c.id: self._folders[c.id] for c in containers}
        before, self._before = self._before, now
        return [
            Usage(
                who[0], who[1], now[c.id].cpu_millis_since(before.get(c.id, now[c.id])), now[c.id].ram_bytes
            )
            for c in containers
            if c.id in now and (who := split_attempt_key(c.key))
        ]

    def pids(self, container: Container) -> list[int]:
        """Return the processes of a container. Reads files."""
        folders = self._folders.get(container.id) or _folders(container)
        return next((pids for folder in folders if (pids := _pids_in(folder))), [])

    def cpu_seconds(self, container: Container) -> float | None:
        """Return what a container has used so far; None when it is not known. Reads files."""
        used = cgroups.used(self._folders.get(container.id) or _folders(container))
        return used[0] if used else None

    def _used(self, container: Container, mono: float) -> Used | None:
        if not self._folders.get(container.id):
            self._folders[container.id] = _folders(container)
        used = cgroups.used(self._folders[container.id])
        return Used(mono, *used) if used else None


def _is_open(path: str) -> bool:
    """Return whether this process may look into a folder or a file of an engine."""
    return os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0))


def _pids_in(folder: str) -> list[int]:
    try:
        return [int(line) for line in (Path(folder) / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _folders(container: Container) -> list[str]:
    """Return the groups of a container that count cpu and memory; none when it has just ended."""
    pid = container.state.pid if container.state else 0
    try:
        of_container = (Path("/proc") / str(pid) / "cgroup").read_text()
        of_machine = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return []
    if container.id not in of_container:
        return []
    mounts = cgroups.mounts(of_machine, of_container)
    counting = [mount.own for mount in mounts if mount.controllers & {"cpuacct", "memory"}]
    return counting or [mount.own for mount in mounts if mount.version == 2]
