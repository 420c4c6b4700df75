"""Files that are taken out of a cell: for their owner only, and there in whole or not at all."""

import errno
import os
from pathlib import Path

from borgish.errors import Conflict, NotFound, TooLarge
from borgish.vocabulary import CHECKPOINT_FILE_BYTES_MAX


def expect_usable(file: Path, *, force: bool) -> None:
    """Raise Conflict when something is there already, and is not to be written over; NotFound where there is
    no folder for it; OSError for a folder.
    """
    if not file.parent.is_dir():
        raise NotFound(f"{file.parent}: there is no such folder", "Make it first, or name another file")
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if os.path.lexists(file) and not force:
        raise _taken(file)


def write_exported(file: Path, content: bytes, *, force: bool) -> None:
    """Write a file with mode 0600, all of it at once; over another one only with ``force``.

    Raises Conflict, and OSError for what the system refuses.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        if force:
            draft.replace(file)
        else:
            os.link(draft, file)  # unlike a rename, it fails when somebody else was faster
    except FileExistsError:
        raise _taken(file) from None
    finally:
        draft.unlink(missing_ok=True)


def read_exported(file: Path) -> bytes:
    """Return what such a file holds. Raises TooLarge, and OSError for what the system refuses."""
    with file.open("rb") as opened:
        content = opened.read(CHECKPOINT_FILE_BYTES_MAX + 1)
    if len(content) > CHECKPOINT_FILE_BYTES_MAX:
        raise TooLarge(
            f"{file} is larger than any checkpoint: over {CHECKPOINT_FILE_BYTES_MAX} bytes",
            "Name a file that `borgctl checkpoint export` wrote",
        )
    return content


def _taken(file: Path) -> Conflict:
    return Conflict(f"{file} is there already", "Name another file, or write over it with --force")
