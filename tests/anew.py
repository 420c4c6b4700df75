"""Decides a journal anew, from its beginning: by the code that wrote it, all must come out as it is."""

from collections.abc import Sequence

from borgish.cell.events import Entry
from borgish.cell.model import Snapshot
from borgish.sim.faux.exported import Exported
from borgish.sim.faux.opened import Opened
from borgish.sim.faux.replaying import Replayed, decided_anew
from borgish.sim.faux.session import Session
from borgish.store.base import CheckpointInfo
from borgish.store.codec import compress, encode_snapshot, sha256_of


def decided_anew_of(cell: str, entries: Sequence[Entry]) -> Replayed:
    """Return what comes of it."""
    stored = compress(encode_snapshot(Snapshot(cell)))
    info = CheckpointInfo(0, 0.0, "the beginning", sha256_of(stored), len(stored))
    head = entries[-1].position if entries else 0
    there = Opened("a journal", "checkpoint", cell, Exported(info, stored, entries), 0, head)
    return decided_anew(Session(there, "0"), 0, head)
