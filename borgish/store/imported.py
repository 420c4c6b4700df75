"""Whether a checkpoint that comes from outside is of this cell's own history.

A cell is started from the newest checkpoint and the journal after it, so one of another history, of a
database that was put back, say, would make a cell that never was. It is compared with what is kept here.
Blocks, and may run in a thread, as ``store.moment`` does.
"""

from borgish.cell.model import Snapshot
from borgish.cell.state import Cell
from borgish.errors import Conflict, Gone, Invalid, StoreDamaged, UnsafeConfiguration
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import is_good, verified_snapshot
from borgish.store.moment import Source, cell_at, replayed

NOT_REPLAYED = "history after it is not kept"


def check_imported(source: Source, cell: str, info: CheckpointInfo, stored: bytes, head: int) -> str:
    """Return a word on what it can be used for, "" when there is nothing to say.

    Raises Invalid for what is no good checkpoint, and Conflict for one of another version, another cell or
    another history, or with which nothing here can be compared. ``head`` is the journal's last position.
    """
    snapshot = _read(cell, info, stored)
    if info.position > head:
        raise Conflict(
            f"The checkpoint is at position {info.position}, and this journal ends at {head}",
            "It is of a history that this cell does not have: `fauxmaster show FILE` opens it",
        )
    try:
        _expect_same(snapshot, cell_at(source, cell, info.position).cell.snapshot())
    except Gone:
        return _compare_later(source, cell, snapshot)
    return ""


def _read(cell: str, info: CheckpointInfo, stored: bytes) -> Snapshot:
    try:
        return verified_snapshot(cell, info, stored)
    except StoreDamaged as error:
        raise Invalid(error.message, error.hint) from error
    except UnsafeConfiguration as error:
        raise Conflict(error.message, error.hint) from error


def _compare_later(source: Source, cell: str, snapshot: Snapshot) -> str:
    """Compare what follows from the checkpoint with the next good one, where the journal goes on from it."""
    first = next(iter(source.entries(0, 1)))  # without any, nothing would be gone
    if first.position > snapshot.position + 1:
        return NOT_REPLAYED
    for later in reversed(source.checkpoints()):
        if later.position > snapshot.position:
            stored = source.checkpoint_body(later.position)[1]
            if is_good(cell, later, stored):
                found = replayed(source, Cell(snapshot), later.position)
                _expect_same(found.snapshot(), verified_snapshot(cell, later, stored))
                return ""
    raise Conflict(
        f"Nothing kept here can be compared with the checkpoint at {snapshot.position}",
        "`borgctl checkpoint create` makes one that can; then import it again",
    )


def _expect_same(imported: Snapshot, known: Snapshot) -> None:
    """Compare a record at a time, so that nobody waits for the whole of it. Raises Conflict."""
    same = all(_same(getattr(imported, name), getattr(known, name)) for name in Snapshot.__struct_fields__)
    if not same:
        raise Conflict(
            f"The checkpoint at {imported.position} is of another history: this cell was otherwise then",
            "It may be of a database that was put back since: `fauxmaster show FILE` opens it",
        )


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(value == other[key] for key, value in one.items())
    return one == other
