"""What a database's errors mean for a cell, as errors of borgish with a way out."""

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from borgish.errors import BorgishError, Fenced, OutcomeUnknown, StoreDamaged, Unreachable

_DAMAGE = (
    "malformed",
    "not a database",
    "disk image",
    "could not decode to utf-8",
    "invalid page",
    "could not read block",
)
_FULL = ("disk is full", "no space left", "disk full", "could not extend file")
_LOCKED = ("database is locked", "table is locked")
_READ_ONLY = ("readonly database", "read-only")
_DISK = ("disk i/o error", "input/output error", "could not fsync", "could not write")

DAMAGED_HINT = "The borgmaster's log says what can be saved, and how"

_WAYS_OUT = (
    (_FULL, "Make room on the database's disk, then start again"),
    (_LOCKED, "End the program that holds it, then start again; whoever only looks opens it with mode=ro"),
    (_READ_ONLY, "Let this user write to the database, its file and its folder, then start again"),
    (_DISK, "Look at the disk and the kernel's log, then start again: what was committed is read back"),
)


def reason_of(error: SQLAlchemyError) -> str:
    """Return what the database said, on one line, without the statement and its values."""
    said = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(said).split()) or type(error).__name__


def unknown(error: SQLAlchemyError) -> BorgishError:
    """Return the error of a write that may or may not be in the store."""
    reason = reason_of(error)
    if _speaks_of(reason, _DAMAGE):
        return _damaged(reason)
    hint = _way_out(reason) or "Start again: what was committed is read back"
    return OutcomeUnknown(f"The store may not have the last write: {reason}", hint)


def fenced(cell: str, epoch: int) -> Fenced:
    """Return the error of a write by one who does not lead, or no longer."""
    return Fenced(
        f"This borgmaster, of epoch {epoch}, does not lead cell '{cell}'",
        "Another one does, and the cell goes on there; nothing was written here",
    )


def unread(error: SQLAlchemyError) -> BorgishError:
    """Return the error of a read, or of a start, that failed."""
    reason = reason_of(error)
    if _speaks_of(reason, _DAMAGE):
        return _damaged(reason)
    hint = _way_out(reason) or "Check it, then start again"
    return Unreachable(f"The database does not answer as it should: {reason}", hint)


def unkept(error: SQLAlchemyError, what: str = "kept", which: str = "checkpoint") -> BorgishError:
    """Return the error of what was not kept, or not deleted, beside the cell, which is unharmed."""
    reason = reason_of(error)
    return BorgishError(
        f"The {which} was not {what}: {reason}",
        "The journal is whole and the cell goes on; make room on the database's disk",
    )


def _damaged(reason: str) -> StoreDamaged:
    return StoreDamaged(f"The database is damaged: {reason}", DAMAGED_HINT)


def _way_out(reason: str) -> str:
    return next((hint for marks, hint in _WAYS_OUT if _speaks_of(reason, marks)), "")


def _speaks_of(reason: str, marks: tuple[str, ...]) -> bool:
    return any(mark in reason.lower() for mark in marks)
