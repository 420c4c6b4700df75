"""What is on a disk when its power is cut: all that was synced, and any part of the rest.

A disk may write in any order what it was not told to sync, sector by sector, or not at all.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.vfs import Done

SECTOR_BYTES = 512

Image = dict[str, bytes]
"""Files by name."""


class File:
    """What is in a file: what is surely on the disk, and what was done since."""

    def __init__(self) -> None:
        self.durable = b""
        self.pending: list[Done] = []

    def sync(self) -> None:
        """Make durable what was done."""
        self.durable, self.pending = self.all_kept(), []

    def all_kept(self) -> bytes:
        """Return the file as a program sees it."""
        return _with(self.durable, self.pending)

    def torn(self, chance: random.Random) -> bytes:
        """Return it with some of what was not synced, in any order."""
        sectors = [sector for change in self.pending for sector in _sectors(change)]
        return _with(self.durable, [sector for sector in sectors if chance.random() < 0.5])


class Folder:
    """The files of one database, synced as SQLite does on Unix: names are so with a journal's first sync."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}  # by path, as programs see it
        self._durable: dict[str, File] = {}
        self._new: set[str] = set()  # journals that were made and never synced

    def do(self, change: Done) -> None:
        """Take in a change."""
        path = change.path
        if path not in self._files and path.endswith(("-wal", "-journal")):
            self._new.add(path)
        file = self._files.setdefault(path, File())
        match change.what:
            case "delete":
                del self._files[path]
            case "sync":
                file.sync()
                if path in self._new:
                    self._new.discard(path)
                    self._durable = dict(self._files)
            case _:
                file.pending.append(change)

    def dropped(self) -> Image:
        """Return what is there when nothing is that was not synced."""
        return _named({path: file.durable for path, file in self._durable.items()})

    def kept(self) -> Image:
        """Return what is there when all is."""
        return _named({path: file.all_kept() for path, file in self._files.items()})

    def torn(self, chance: random.Random) -> Image:
        """Return what may be there, names and sectors as it comes."""
        paths = sorted(self._files.keys() | self._durable.keys())
        names = {path: chance.choice((self._files, self._durable)) for path in paths}
        return _named({path: found[path].torn(chance) for path, found in names.items() if path in found})


def images(done: Sequence[Done], cuts: set[int], chance: random.Random) -> Iterator[tuple[int, str, Image]]:
    """Yield what may be on the disk after so many changes, for each of ``cuts``: cut, kind, files."""
    folder = Folder()
    for cut in range(len(done) + 1):
        if cut in cuts:
            yield cut, "dropped", folder.dropped()
            yield cut, "kept", folder.kept()
            yield cut, "torn", folder.torn(chance)
        if cut < len(done):
            folder.do(done[cut])


def chosen_cuts(done: Sequence[Done], chance: random.Random, others: int) -> set[int]:
    """Return before and after each sync and deletion, and so many others."""
    at = {cut for cut, change in enumerate(done) if change.what in ("sync", "delete")}
    return at | {cut + 1 for cut in at} | set(chance.sample(range(len(done)), min(others, len(done))))


def written(image: Image, folder: Path) -> None:
    """Put the files of a disk into a folder, and nothing else."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, data in image.items():
        (folder / name).write_bytes(data)


def _named(files: dict[str, bytes]) -> Image:
    return {Path(path).name: data for path, data in files.items()}


def _with(data: bytes, changes: Sequence[Done]) -> bytes:
    made = bytearray(data)
    for change in changes:
        end = change.offset + len(change.data)
        made.extend(bytes(max(0, end - len(made))))
        if change.what == "truncate":
            del made[change.offset :]
        else:
            made[change.offset : end] = change.data
    return bytes(made)


def _sectors(change: Done) -> Iterator[Done]:
    if change.what != "write":
        yield change
        return
    begin = change.offset
    while begin < change.offset + len(change.data):
        end = min((begin // SECTOR_BYTES + 1) * SECTOR_BYTES, change.offset + len(change.data))
        yield Done("write", change.path, begin, change.data[begin - change.offset : end - change.offset])
        begin = end
