"""A store in memory, for the simulator and for tests: the same contract, and faults on demand.

Entries are stored as encoded text, so that nothing written here can change afterwards, and an entry that
could not be stored fails here as well. There is only the journal, no tables.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from borgish.audit import AuditEntry
from borgish.cell.events import Entry, follows
from borgish.cell.free_space import AMPLE, FreeSpace
from borgish.cell.model import Cell
from borgish.errors import BorgishError, OutcomeUnknown, StoreDamaged, Unreachable
from borgish.store.base import CheckpointInfo, Records, fenced
from borgish.store.checkpoints import (
    Retention,
    Verify,
    check_import_conflicts,
    check_prune_base,
    check_unchanged,
    expired,
    find_checkpoint,
    is_good,
    name_for,
    other_good_checkpoint,
)
from borgish.store.codec import sha256_of
from borgish.store.replay import restore
from borgish.store.usage import UsageBlock

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


def _decode_entry(text: bytes) -> Entry:
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"A journal entry cannot be read: {error}", "Use another copy of the disk"
        ) from error


class Disk(msgspec.Struct):
    """What outlives a master: several stores may be open on one."""

    cell: str
    epoch: int = 0
    entries: list[bytes] = []  # in order, all above position ``pruned``
    checkpoints: dict[int, tuple[CheckpointInfo, bytes]] = {}  # by position, with the stored body
    pruned: int = 0  # the last position that was pruned
    usage: dict[tuple[float, int], UsageBlock] = {}  # by time and part
    audit: list[AuditEntry] = []  # in order
    free_space: FreeSpace = AMPLE
    gaps: tuple[tuple[int, int], ...] = ()  # positions left out, above ``pruned``: the first and last of each

    @property
    def head(self) -> int:
        """The position of the last entry."""
        return self.pruned + len(self.entries) + sum(last - first + 1 for first, last in self.gaps)

    def count(self, position: int) -> int:
        """Return how many entries there are up to a position."""
        left_out = sum(min(position, last) - first + 1 for first, last in self.gaps if first <= position)
        return max(0, position - self.pruned - left_out)


class MemoryStore:
    """A cell in memory. See ``store.base.Store`` for the contract."""

    kind = "memory"
    has_lease = False

    def __init__(self, cell: str, retention: Retention | None = None, disk: Disk | None = None) -> None:
        """Open a new disk, or an existing one, as a master does when it starts again."""
        self.disk = disk or Disk(cell)
        self.warnings: list[str] = []
        self._cell = cell
        self._retention = retention or Retention()
        self._epoch = 0
        self._end: BorgishError | None = None
        self._fault: bool | None = None

    def reopen(self) -> "MemoryStore":
        """Return what a master finds that starts on the same disk; this one is fenced once it leads."""
        return MemoryStore(self._cell, self._retention, self.disk)

    def copy(self) -> "MemoryStore":
        """Return a store on a copy of the disk; the two go on apart."""
        disk = self.disk
        copied = Disk(
            disk.cell,
            disk.epoch,
            list(disk.entries),
            dict(disk.checkpoints),
            disk.pruned,
            dict(disk.usage),
            list(disk.audit),
            gaps=disk.gaps,
        )
        return MemoryStore(self._cell, self._retention, copied)

    def fail_next_append(self, *, kept: bool) -> None:
        """Make the next append raise OutcomeUnknown; ``kept`` is whether it is in the store after all."""
        self._fault = kept

    def journal_sha256(self) -> str:
        """Return a hash of the whole journal: the same events at the same times give the same."""
        return hashlib.sha256(b"\n".join(self.disk.entries)).hexdigest()

    def free_space(self) -> FreeSpace:
        """Return the space that the disk was set to have."""
        return self.disk.free_space

    def load(self) -> Cell:
        """Return the cell, by the same way as from a database."""
        self._check_usable()
        recovered = restore(self._cell, self._newest_first(), self.entries)
        self.warnings = recovered.warnings
        return recovered.cell

    def lead(self, holder: str, address: str) -> int:  # noqa: ARG002 - the contract's names
        """Become the leader; nobody asks here who it is and where."""
        self._check_usable()
        self.disk.epoch += 1
        self._epoch = self.disk.epoch
        return self._epoch

    def leads(self) -> bool:
        """Return whether nobody has become the leader since."""
        self._check_usable()
        return self._epoch == self.disk.epoch

    def renew(self) -> None:
        """Prove that this one still leads."""
        self._check_leader()

    def release(self) -> None:
        """Resign."""
        self._epoch = 0

    def append(self, entries: Sequence[Entry], records: Records) -> None:
        """Store the entries, or fail as asked for."""
        self._check_leader()
        self._check_order(entries)
        encoded = [_encode(entry) for entry in entries]
        fault, self._fault = self._fault, None
        if fault is not False:
            for entry, text in zip(entries, encoded, strict=True):
                if entry.position > (due := self.disk.head + 1):
                    self.disk.gaps += ((due, entry.position - 1),)
                self.disk.entries.append(text)
            self.disk.audit.extend(records.audit)
        if fault is not None:
            self._end = OutcomeUnknown("The store may not have the last write: asked for", "Start again")
            raise self._end

    def entries(self, after: int, limit: int = 0) -> Iterator[Entry]:
        """Return journal entries with a position above ``after``, in order; ``limit`` 0 is all."""
        self._check_usable()
        first = self.disk.count(after)
        return map(_decode_entry, self.disk.entries[first : first + limit if limit else None])

    def entries_before(self, before: int, limit: int) -> Iterator[Entry]:
        """Return the ``limit`` entries next below position ``before``, newest first, decoded when taken."""
        self._check_usable()
        end = min(self.disk.count(before - 1), len(self.disk.entries))
        return map(_decode_entry, reversed(self.disk.entries[max(0, end - limit) : end]))

    def entries_naming(self, words: Sequence[str], first: int, below: int) -> Iterator[Entry]:
        """Return the entries of these positions that name all the words, newest first."""
        self._check_usable()
        start, end = (min(self.disk.count(each - 1), len(self.disk.entries)) for each in (first, below))
        wanted = [word.encode() for word in words]
        found = [each for each in self.disk.entries[start:end] if all(word in each for word in wanted)]
        return map(_decode_entry, reversed(found))

    def save_checkpoint(
        self, stored: bytes, position: int, at: float, reason: str, name: str = ""
    ) -> CheckpointInfo:
        """Store a compressed snapshot."""
        self._check_leader()
        if position > self.disk.head:
            raise ValueError(f"checkpoint at {position}, but the journal ends at {self.disk.head}")
        name = name_for(self.checkpoints(), position, name)
        info = CheckpointInfo(position, at, reason, sha256_of(stored), len(stored), name)
        self._put(info, stored)
        return info

    def import_checkpoint(self, info: CheckpointInfo, stored: bytes) -> None:
        """Store a checkpoint that comes from outside, as it is. Raises Conflict."""
        self._check_leader()
        check_import_conflicts(self.checkpoints(), info)
        self._put(info, stored)

    def _put(self, info: CheckpointInfo, stored: bytes) -> None:
        self.disk.checkpoints[info.position] = (info, stored)
        for old in expired(self.checkpoints(), self._retention, self.disk.pruned + 1):
            del self.disk.checkpoints[old.position]

    def prune_journal(self, below: int, limit: int) -> int:
        """Delete the first entries of the journal, of those below a checkpoint. Raises Conflict."""
        self._check_leader()
        check_prune_base(self.checkpoints(), below)
        gone = min(self.disk.count(below - 1), limit)
        if gone > 0:
            self.disk.pruned = _decode_entry(self.disk.entries[gone - 1]).position
            self.disk.gaps = tuple(gap for gap in self.disk.gaps if gap[0] > self.disk.pruned)
            del self.disk.entries[:gone]
        return max(0, gone)

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the stored checkpoints, newest first."""
        self._check_usable()
        return [info for info, _ in self._newest_first()]

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return one checkpoint with its body as stored."""
        find_checkpoint(self.checkpoints(), position)
        return self.disk.checkpoints[position]

    def delete_checkpoint(self, position: int, verify: Verify | None = None) -> CheckpointInfo:
        """Delete one checkpoint, unless it is the last good one."""
        self._check_leader()
        info = find_checkpoint(self.checkpoints(), position)
        other = other_good_checkpoint(position, self._newest_first(), verify or partial(is_good, self._cell))
        check_unchanged(self.checkpoints(), info, other)
        del self.disk.checkpoints[position]
        return info

    def give_back(self) -> int:
        """Return 0: nothing is on a disk."""
        return 0

    def save_usage(self, blocks: Sequence[UsageBlock]) -> None:
        """Store samples of usage, over those of the same times."""
        self._check_leader()
        times = {block.at for block in blocks}
        others = {key: block for key, block in self.disk.usage.items() if key[0] not in times}
        self.disk.usage = others | {(block.at, block.part): block for block in blocks}

    def usage(self, after: tuple[float, int], until: float, limit: int) -> list[UsageBlock]:
        """Return blocks after this (time, part) and not after ``until``, in order, at most ``limit``."""
        self._check_usable()
        found = [block for key, block in sorted(self.disk.usage.items()) if key > after and key[0] <= until]
        return found[:limit]

    def prune_usage(self, before: float, limit: int) -> int:
        """Delete the first blocks, at most ``limit``, of those from before a time; return how many."""
        self._check_leader()
        gone = [key for key in sorted(self.disk.usage) if key[0] < before][:limit]
        for key in gone:
            del self.disk.usage[key]
        return len(gone)

    def audit(self, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit log with a number above ``after``, in order, at most ``limit``."""
        return [entry for entry in self.disk.audit if entry.number > after][:limit]

    def latest_audit(self, user: str, since: float, before: int, limit: int) -> list[AuditEntry]:
        """Return the latest entries, at most ``limit``, in order; see ``Store``."""
        found = (
            entry
            for entry in self.disk.audit
            if user in ("", entry.note.user)
            and entry.note.at >= since
            and entry.number < (before or entry.number + 1)
        )
        return list(found)[-limit:]

    def last_audit(self) -> AuditEntry | None:
        """Return the latest entry of the audit log, None while there is none."""
        return self.disk.audit[-1] if self.disk.audit else None

    def prune_audit(self, before: float, limit: int) -> int:
        """Delete the first entries, at most ``limit``, of those from before a time; return how many."""
        older = [entry for entry in self.disk.audit[:-1] if entry.note.at < before][:limit]
        del self.disk.audit[: len(older)]
        return len(older)

    def close(self) -> None:
        """Close; the disk stays. Idempotent."""
        self._end = Unreachable("The store is closed", "Open it again")

    def _newest_first(self) -> list[tuple[CheckpointInfo, bytes]]:
        return [found for _, found in sorted(self.disk.checkpoints.items(), reverse=True)]

    def _check_usable(self) -> None:
        if self._end is not None:
            raise self._end

    def _check_leader(self) -> None:
        self._check_usable()
        if not self._epoch or self._epoch != self.disk.epoch:
            self._end = fenced(self._cell, self._epoch)
            raise self._end

    def _check_order(self, entries: Sequence[Entry]) -> None:
        position = self.disk.head
        for entry in entries:
            if not follows(entry, position):
                raise StoreDamaged(
                    f"Journal entry {entry.position} does not follow {position}; nothing was written",
                    "Start again: the journal is read back",
                )
            position = entry.position
