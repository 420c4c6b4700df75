"""How much space is left where the cell is stored, and which commands are still accepted. Pure.

There are two floors. Below the first, what asks for more is refused, so that what is left is there for
stopping and healing: kills, reports, machines that come and go, tasks placed anew. Below the second nothing
is written at all, since a commit that fails ends the process: only a new process can read what it left
behind. So a full disk is found before a commit and not by it: the master reads the free space before each
step, and goes on by itself.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    FireCron,
    Observe,
    RestartTasks,
    RollBack,
    RunApp,
    RunCron,
    ScaleJob,
    SetBudget,
    SetCron,
    SetQuota,
    SubmitJob,
    UndoApp,
    UndoUpdate,
)
from borgish.configuration import Amount
from borgish.errors import StoreFull
from borgish.resources import show_bytes

FULL_SHARE = 0.25
"""Nothing is written with less than this part of the floor: one commit may be of some megabytes, and SQLite
writes it twice."""
MARGIN = 1.1
"""A level is left for a better one only with so much more than its floor, or it would change all the time."""
ASKS_FOR_MORE = (
    *(SubmitJob, ScaleJob, RestartTasks, RollBack, SetQuota, SetBudget, UndoUpdate),
    *(ApplyApp, UndoApp, RunApp),
    *(SetCron, RunCron, FireCron),
)

_MIB = 1024 * 1024


class Level(StrEnum):
    """What the space that is left allows."""

    AMPLE = "ample"
    LOW = "low"  # what asks for more is refused
    FULL = "full"  # nothing is written


_ORDER = (Level.FULL, Level.LOW, Level.AMPLE)


class Floor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to stay free of a file system: the smaller of the two, since 5 % of a large disk is a lot and
    512 MiB of a small one is all of it. 0 for no floor."""

    free_mib: Amount = 512.0
    free_percent: Annotated[float, msgspec.Meta(ge=0, le=50)] = 5.0

    def bytes_of(self, total_bytes: int) -> int:
        """Return the floor of a file system of this size."""
        return int(min(self.free_mib * _MIB, self.free_percent / 100 * total_bytes))


class FreeSpace(msgspec.Struct, frozen=True):
    """What is left. ``free_bytes`` is None where it is not known here, as of a database on a server."""

    level: Level = Level.AMPLE
    free_bytes: int | None = None
    floor_bytes: int = 0


AMPLE = FreeSpace()


def free_space_of(free_bytes: int, floor_bytes: int, before: Level = Level.AMPLE) -> FreeSpace:
    """Return what so many free bytes allow, after ``before``."""
    level = _level(free_bytes, floor_bytes)
    if _ORDER.index(level) > _ORDER.index(before):
        level = _level(free_bytes / MARGIN, floor_bytes)
    return FreeSpace(level, free_bytes, floor_bytes)


def _level(free_bytes: float, floor_bytes: int) -> Level:
    if free_bytes < FULL_SHARE * floor_bytes:
        return Level.FULL
    return Level.LOW if free_bytes < floor_bytes else Level.AMPLE


def check_space(space: FreeSpace, command: Command) -> None:
    """Raise StoreFull for a command that is not to be decided.

    Reports are decided at any level, so that what is shown stays true: only one of which something is to be
    written is refused, by who writes it, and the machine reports again until it is acknowledged.
    """
    if isinstance(command, ASKS_FOR_MORE):
        check_ample(space)
    elif not isinstance(command, Observe):
        check_writable(space)


def check_ample(space: FreeSpace) -> None:
    """Raise StoreFull unless everything may be written."""
    if space.level is not Level.AMPLE:
        raise store_full(space)


def check_writable(space: FreeSpace) -> None:
    """Raise StoreFull where nothing is to be written."""
    if space.level is Level.FULL:
        raise store_full(space)


def store_full(space: FreeSpace) -> StoreFull:
    """Return the error of a command that there is no space for. Nothing was decided."""
    others = "; jobs can be killed and machines removed meanwhile" if space.level is Level.LOW else ""
    return StoreFull(
        f"The store is full: {_why(space)}",
        f"Make room on that disk: the borgmaster goes on by itself, and tasks run on{others}",
    )


def refusing(space: FreeSpace) -> str:
    """Return what is refused now and why, "" where nothing is."""
    match space.level:
        case Level.FULL:
            return f"all changes are refused: {_why(space)}"
        case Level.LOW:
            return f"new work is refused: {_why(space)}"
        case Level.AMPLE:
            return ""


def _why(space: FreeSpace) -> str:
    floor = space.floor_bytes if space.level is Level.LOW else int(FULL_SHARE * space.floor_bytes)
    return f"the database's disk has {show_bytes(space.free_bytes or 0)} free, less than {show_bytes(floor)}"
