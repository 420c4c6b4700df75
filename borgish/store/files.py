"""The files of an SQLite database, when one takes the place of another: never half of each.

A database is its file and the log beside it, which SQLite would apply to whatever file it finds there. So
the new one is complete under a name of its own first; from the moment that it has the name ``.rebuilt``
it is what will be opened, whoever opens next.
"""

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from borgish.durable import sync
from borgish.failpoints import reach

LOGS = ("-wal", "-shm")
PADDED_BYTES_MAX = 64 * 2**20  # beside eight times what is there; to say more than that is damage itself


def finish_rebuild(path: Path) -> None:
    """Let a database that was rebuilt take its place, if one waits. The lock is held."""
    rebuilt = _beside(path, ".rebuilt")
    if not rebuilt.exists():
        return
    for log in LOGS:
        _beside(path, log).unlink(missing_ok=True)
    sync_folder(path)
    reach("rebuild.cleared")
    rebuilt.replace(path)
    sync_folder(path)
    reach("rebuild.replaced")


def settle(path: Path, built: Path) -> None:
    """Make a complete and closed database the one that will be opened."""
    sync(built)
    built.replace(_beside(path, ".rebuilt"))
    sync_folder(path)
    reach("rebuild.settled")


def put_aside(path: Path) -> list[Path]:
    """Copy a database and its log to names of their own, which nothing else has, and return these. Raises
    OSError, and leaves no half of them then."""
    aside = next(found for n in count(1) if not (found := _beside(path, f".damaged-{n}")).exists())
    try:
        copies = copied(path, aside)
        for copy in copies:
            sync(copy)
        sync_folder(path)
    except OSError:
        removed(aside)
        raise
    reach("rebuild.aside")
    return copies


def copied(path: Path, to: Path) -> list[Path]:
    """Copy a database that nobody has open, with its log, over what is there, and return the copies."""
    removed(to)
    copies = []
    for name in ("", "-wal"):
        if _beside(path, name).exists():
            copies.append(_beside(to, name))
            with open(copies[-1], "wb", opener=_for_its_user) as copy, _beside(path, name).open("rb") as file:
                shutil.copyfileobj(file, copy, 2**20)
    return copies


def pad(path: Path) -> None:
    """Give an SQLite file that was cut off the length that it says it has: else it is not read at all."""
    with path.open("r+b") as file:
        head = file.read(32)
        page_bytes = int.from_bytes(head[16:18], "big")
        pages = int.from_bytes(head[28:32], "big")
        size = pages * (65536 if page_bytes == 1 else page_bytes)
        there = path.stat().st_size
        if head.startswith(b"SQLite format 3\0") and there < size <= 8 * there + PADDED_BYTES_MAX:
            file.truncate(size)


def removed(path: Path) -> Path:
    """Remove a database with its log, where there is one, and return its path."""
    for name in ("", "-journal", *LOGS):
        _beside(path, name).unlink(missing_ok=True)
    return path


def working_copies(path: Path) -> Iterator[Path]:
    """Yield the names of what a rebuild works on: they are of no use to anybody when it was cut off."""
    yield _beside(path, ".salvage")
    yield _beside(path, ".building")


def sync_folder(path: Path) -> None:
    """Make the names beside a file durable."""
    sync(path.parent)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _for_its_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
