"""The containers of a machine: which run of an attempt is its latest, which have ended, which stay.

Ends come as events, at once; a listing of everything, now and then, finds what events did not report. Kept in
one event loop. Making containers is left to ``start``.

Containers of attempts that were let go stay for a while, so that their output can be read. Their name is
the mark and has the time in it, and for how long they are wanted: labels stay as they were made, but a name
can change, and the engine keeps it for the borglets to come. The output of one takes at most 30 MiB, see
``container.LOG_OPTIONS``.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from signal import SIGKILL

import msgspec
from docker.errors import APIError, NotFound

from borgish.borglet.runtimes.base import RunState
from borgish.borglet.runtimes.docker import container as containers
from borgish.borglet.runtimes.docker.container import Container, Owner, Place, identity
from borgish.borglet.runtimes.docker.engine import Client, Engine, Listed, News
from borgish.borglet.runtimes.leftovers import Leftover, RemovalReasons, Retention, Room, to_remove
from borgish.clock import Clock
from borgish.errors import Unreachable
from borgish.resources import show_bytes
from borgish.wire.link import Exit

OUT_OF_MEMORY_SECONDS_MAX = 5.0  # from the kernel's verdict to the end that it explains

AT_ONCE = 20  # are removed by a sweep: engines remove one at a time
# No other name of ours begins like this. What follows has no dot, so the seconds are not taken for it.
GONE_NAME = re.compile(r"/?borgish\.gone\.(\d+\.\d{3})\.(?:(\d+)s\.)?")

log = logging.getLogger(__name__)


class Inventory:
    """The containers of one owner. ``changed``, once set, is called with the key of whose run ended."""

    def __init__(self, engine: Engine, owner: Owner, clock: Clock, keep: Retention) -> None:
        self._engine, self._owner, self._clock = engine, owner, clock
        self._one_leaves = asyncio.Lock()  # many at once, beside starts, were seen to lock an engine up
        self.kept = KeptContainers(engine, owner, clock, keep, self._one_leaves)
        self.changed: Callable[[str], None] = lambda _: None
        self.place = Place("none", ())  # until the engine has answered
        self.latest: dict[str, Container] = {}  # by attempt
        self.previous: dict[str, Container] = {}  # by attempt; ended, kept for its output
        self.starting: set[str] = set()  # names of containers that are being made
        self.stuck: set[str] = set()  # names of containers whose start did not come back
        self.died_at = float("-inf")  # when (monotonic) the engine last reported an end
        self._known: dict[str, Container] = {}  # by container id
        self._leaving: set[str] = set()  # ids
        self._background: set[asyncio.Task[None]] = set()

    # Come and go

    def know(self, container: Container) -> Container:
        """Hear of its end from now on, though it is not yet its attempt's run."""
        self._known[container.id] = container
        return container

    def disregard(self, container: Container) -> None:
        """No longer know it; whatever it is, the next look finds it."""
        self._known.pop(container.id, None)

    def enter(self, container: Container) -> None:
        """It is a run of its attempt: the latest, or the one before; older ones go."""
        self.know(container)
        key = container.key
        runs = {c.id: c for c in (self.previous.get(key), self.latest.get(key), container) if c}
        latest, *older = sorted(runs.values(), key=lambda c: c.run, reverse=True)
        self.latest[key] = latest
        self.previous.pop(key, None)
        if older and not older[0].alive:
            self.previous[key] = older.pop(0)
        for old in older:
            self.let_go(old)

    def let_go(self, container: Container) -> None:
        """Remove it from the engine, soon; one that stays is found by the next look."""
        self.disregard(container)
        if container.id not in self._leaving:
            self._leaving.add(container.id)
            self.in_background(self.remove(container))

    async def forget(self, key: str, keep_seconds: float = 0.0) -> None:
        """Let go of all runs of an attempt; what has ended stays for its output, until it is swept."""
        for runs in (self.previous, self.latest):
            if container := runs.pop(key, None):
                self.disregard(container)
                if container.alive or not await self.kept.take(container, keep_seconds):
                    await self.remove(container)
        self.sweep()

    def sweep(self) -> None:
        """Remove some of what was kept long enough, soon; it is called again and again."""
        for container in self.kept.outdated():
            self.kept.drop(container)
            self.let_go(container)

    async def sweep_now(self) -> None:
        """Remove all that was kept long enough, and return when that is done."""
        while outdated := self.kept.outdated():
            for container in outdated:
                self.kept.drop(container)
                await self.remove(container)

    async def remove(self, container: Container) -> None:
        """Remove it from the engine; one that stays is found by the next look."""
        self._leaving.add(container.id)
        try:
            async with self._one_leaves:
                await self._engine.slow(
                    lambda client: client.remove_container(container.id, v=True, force=True),
                    "remove a container",
                )
        except NotFound:
            pass  # somebody else has done it
        except (APIError, Unreachable) as error:
            log.info("the container of run %d of %s stays for now: %s", container.run, container.key, error)
        finally:
            self._leaving.discard(container.id)

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def close(self) -> None:
        for task in self._background:
            task.cancel()

    # Watch

    def heard(self, news: News) -> None:
        """Handle an event. A container that is not known is found by the next listing."""
        container = self._known.get(news["Actor"]["ID"])
        if container is None:
            return
        at = news["timeNano"] / 1e9
        if news["Action"] == "oom":
            container.out_of_memory_at = at
        elif news["Action"] == "die":
            oom = at - container.out_of_memory_at < OUT_OF_MEMORY_SECONDS_MAX
            code = int(news["Actor"]["Attributes"]["exitCode"])
            self.died_at = self._clock.now().mono
            self._ended(container, containers.ending(code, at, oom=oom))

    def _ended(self, container: Container, exit_: Exit) -> None:
        if not container.alive:
            return
        if container.over_disk and exit_.signal == SIGKILL:
            exit_ = msgspec.structs.replace(exit_, reason=container.over_disk)
        container.exit = exit_
        container.ended.set()
        if container.state is not None:
            self._replace(container, msgspec.structs.replace(container.state, exit=exit_))

    def _replace(self, container: Container, state: RunState) -> None:
        container.state = state
        if self.latest.get(container.key) is container:
            self.changed(container.key)

    async def inspect(self, container: Container) -> RunState | None:
        """Return its state; None when the engine does not answer."""
        try:
            seen = await self._engine.quick(lambda client: client.inspect_container(container.id))
        except (APIError, Unreachable):
            return None
        limit = seen["Config"]["Labels"].get(containers.LABEL_DISK, "0")
        container.limit_bytes = int(limit)
        container.layer, container.written = containers.layer_of(seen), containers.written_to(seen)
        container.has_secret_env = containers.has_secret_env(seen)
        return containers.run_state(container.key, container.run, seen, self.place)

    async def refresh(self) -> None:
        """Find what no event reported. Raises Unreachable or APIError when the engine does not answer."""
        known = tuple(self._known.values())
        rows = {row["Id"]: row for row in await self._list()}
        self.kept.see(rows)
        for container in known:
            if container.state is not None and container.alive:
                await self._compare(container, container.state, rows.get(container.id))
        unknown = [row for one, row in rows.items() if one not in self._known and not is_gone(row)]
        for row in sorted(unknown, key=lambda row: row["Created"]):
            leaves = row["Id"] in self._leaving or row["Id"] in self.kept
            if not leaves and not self.starting & _names(row):
                await self._adopt(row)
        self.stuck &= {name for row in rows.values() if row["State"] == "created" for name in _names(row)}

    async def _list(self) -> list[Listed]:
        filters = self._owner.filters()
        rows: list[Listed] = await self._engine.quick(
            lambda client: client.containers(all=True, filters=filters)
        )
        return rows

    async def _compare(self, container: Container, state: RunState, row: Listed | None) -> None:
        if row is None:
            self._ended(container, Exit(reason="somebody removed its container", at=self._clock.now().wall))
        elif (row["State"] != "running" or not state.pid) and (seen := await self.inspect(container)):
            if seen.exit is not None:
                self._ended(container, seen.exit)
            elif seen != state:
                self._replace(container, seen)

    async def _adopt(self, row: Listed) -> None:
        """Adopt a container of a borglet before, or from a start that did not come back."""
        who = containers.identity(row["Labels"])
        if who is None:
            return
        container = Container(row["Id"], *who)
        if row["State"] in ("created", "removing"):
            self.let_go(container)
            return
        container.state = await self.inspect(container) or containers.listed_state(*who, row)
        if container.id not in self._known:
            self.enter(container)
            self.changed(container.key)


def _names(row: Listed) -> set[str]:
    return {name.removeprefix("/") for name in row["Names"]}


# -- What stays ---------------------------------------------------------------------------------------------


class Gone(msgspec.Struct, frozen=True):
    """A container that was let go."""

    container: Container
    at: float  # seconds since 1970
    keep_seconds: float = 0.0  # see ``Leftover``


class KeptContainers:
    """Those of one owner, as the engine has them. They are marked under ``one_leaves``."""

    def __init__(
        self, engine: Engine, owner: Owner, clock: Clock, keep: Retention, one_leaves: asyncio.Lock
    ) -> None:
        self._engine, self._owner, self._clock, self._keep = engine, owner, clock, keep
        self._one_leaves = one_leaves
        self.removed = RemovalReasons()
        self._by_id: dict[str, Gone] = {}

    def __contains__(self, container_id: str) -> bool:
        return container_id in self._by_id

    def find(self, key: str, *, previous: bool) -> Container | None:
        """Return the container of an attempt's latest run, or of the one before."""
        mine = [gone for gone in self._by_id.values() if gone.container.key == key]
        runs = sorted(mine, key=_order, reverse=True)[int(previous) :]
        return runs[0].container if runs else None

    def see(self, rows: dict[str, Listed]) -> None:
        """Update from the engine's list, by container id."""
        self._by_id = {one: gone for one, gone in self._by_id.items() if one in rows}
        for one in rows.keys() - self._by_id.keys():
            if gone := _gone(rows[one]):
                self._by_id[one] = gone

    async def take(self, container: Container, keep_seconds: float = 0.0) -> bool:
        """Keep a container that has ended. False when it has to go: it holds too much, or takes no mark."""
        if not self._keep.containers:
            return False
        gone = Gone(container, self._clock.now().wall, keep_seconds)
        self._by_id[container.id] = gone  # from now on: its output can be read at any moment
        try:
            async with self._one_leaves:
                if container.id not in self._by_id:
                    return True  # swept while it waited
                if await self._is_small(container):
                    await self._mark(gone)
                    return True
        except (APIError, Unreachable) as error:
            log.info("the output of %s cannot be kept: %s", container.key, error)
        self.drop(container)
        return False

    def drop(self, container: Container) -> None:
        """It is about to be removed."""
        self._by_id.pop(container.id, None)

    def outdated(self) -> list[Container]:
        """Return those that have to go, in that order, but only some: the rest is for the next sweep."""
        leftovers = [
            Leftover(one, gone.container.key, gone.at, gone.container.run, keep_seconds=gone.keep_seconds)
            for one, gone in self._by_id.items()
        ]
        now, room = self._clock.now().wall, Room(self._keep.containers)
        found = to_remove(leftovers, self._keep, room, now)[:AT_ONCE]
        for left, why in found:
            self.removed.add(left.key, why)
        return [self._by_id[left.name].container for left, _ in found]

    async def _is_small(self, container: Container) -> bool:
        """Nobody can take away what its program has written and leave the output. A volume has no size."""

        def look(client: Client) -> list[Listed]:
            rows: list[Listed] = client.containers(all=True, size=True, filters={"id": container.id})
            return rows

        rows = await self._engine.slow(look, "tell the size of a container")
        if any(row.get("Mounts") for row in rows):
            self.removed.add(container.key, "its container had a volume")
        elif any(row.get("SizeRw", 0) > self._keep.written_bytes for row in rows):
            most = show_bytes(self._keep.written_bytes)
            self.removed.add(container.key, f"its program had written more than {most} into its container")
        else:
            return True
        return False

    async def _mark(self, gone: Gone) -> None:
        name = gone_name(self._owner, gone)
        await self._engine.slow(lambda client: client.rename(gone.container.id, name), "rename a container")


def gone_name(owner: Owner, gone: Gone) -> str:
    """Return the name that marks a container as let go."""
    key, run = gone.container.key, gone.container.run
    keep = f"{gone.keep_seconds:.0f}s." if gone.keep_seconds else ""
    return f"borgish.gone.{gone.at:.3f}.{keep}{owner.run_name(key, run)}"


def is_gone(row: Listed) -> bool:
    """Tell whether the engine's list shows a container as let go."""
    return any(GONE_NAME.match(name) for name in row["Names"])


def _gone(row: Listed) -> Gone | None:
    marks = [mark for name in row["Names"] if (mark := GONE_NAME.match(name))]
    who = identity(row["Labels"])
    if not marks or not who:
        return None
    return Gone(Container(row["Id"], *who), float(marks[0][1]), float(marks[0][2] or 0))


def _order(gone: Gone) -> tuple[int, float]:
    return gone.container.run, gone.at
