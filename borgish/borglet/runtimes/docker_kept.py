"""Containers of attempts that were let go: they stay for a while, so that their output can be read.

Their name is the mark and has the time in it. Labels stay as they were made, but a name can change,
and the engine keeps it for the borglets to come. Removing what is outdated is left to ``docker_roll``. The
output of one takes at most 30 MiB, see ``docker_container.LOG_OPTIONS``.
"""

import asyncio
import logging
import re

import msgspec
from docker.errors import APIError

from borgish.borglet.runtimes.docker_container import Container, Owner, identity
from borgish.borglet.runtimes.docker_engine import Client, Engine, Listed
from borgish.borglet.runtimes.keep import Keep, Left, Removed, Room, surplus
from borgish.clock import Clock
from borgish.errors import Unreachable
from borgish.resources import show_bytes

AT_ONCE = 20  # are removed by a sweep: engines remove one at a time
GONE_NAME = re.compile(r"/?borgish\.gone\.(\d+\.\d{3})\.")  # no other name of ours begins like this

log = logging.getLogger(__name__)


class Gone(msgspec.Struct, frozen=True):
    """A container that was let go."""

    container: Container
    at: float  # seconds since 1970


class Kept:
    """Those of one owner, as the engine has them. They are marked under ``one_leaves``."""

    def __init__(
        self, engine: Engine, owner: Owner, clock: Clock, keep: Keep, one_leaves: asyncio.Lock
    ) -> None:
        self._engine, self._owner, self._clock, self._keep = engine, owner, clock, keep
        self._one_leaves = one_leaves
        self.removed = Removed()
        self._by_id: dict[str, Gone] = {}

    def __contains__(self, container_id: str) -> bool:
        return container_id in self._by_id

    def find(self, key: str, *, previous: bool) -> Container | None:
        """Return the container of an attempt's latest run, or of the one before."""
        mine = [gone for gone in self._by_id.values() if gone.container.key == key]
        runs = sorted(mine, key=_order, reverse=True)[int(previous) :]
        return runs[0].container if runs else None

    def see(self, rows: dict[str, Listed]) -> None:
        """Take in what the engine's list says, by container id."""
        self._by_id = {one: gone for one, gone in self._by_id.items() if one in rows}
        for one in rows.keys() - self._by_id.keys():
            if gone := _gone(rows[one]):
                self._by_id[one] = gone

    async def take(self, container: Container) -> bool:
        """Keep a container that has ended. False when it has to go: it holds too much, or takes no mark."""
        if not self._keep.containers:
            return False
        gone = Gone(container, self._clock.now().wall)
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
        lefts = [
            Left(one, gone.container.key, gone.at, gone.container.run) for one, gone in self._by_id.items()
        ]
        now, room = self._clock.now().wall, Room(self._keep.containers)
        found = surplus(lefts, self._keep, room, now)[:AT_ONCE]
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
    return f"borgish.gone.{gone.at:.3f}.{owner.run_name(key, run)}"


def is_gone(row: Listed) -> bool:
    """Tell whether the engine's list shows a container as let go."""
    return any(GONE_NAME.match(name) for name in row["Names"])


def _gone(row: Listed) -> Gone | None:
    marks = [mark for name in row["Names"] if (mark := GONE_NAME.match(name))]
    who = identity(row["Labels"])
    return Gone(Container(row["Id"], *who), float(marks[0][1])) if marks and who else None


def _order(gone: Gone) -> tuple[int, float]:
    return gone.container.run, gone.at
