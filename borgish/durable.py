"""Files that outlive a power cut, and that only their owner reads."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk, or of one's share of it, that is full."""


def sync(path: Path) -> None:
    """Make what a file holds durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read: an ``opener`` of ``open``."""
    return os.open(path, flags, 0o600)


@contextmanager
def whole_file(file: Path, *, replaces: bool = False) -> Iterator[BinaryIO]:
    """Have a file to write, with mode 0600, that is there once all of it is written, or not at all.

    Raises FileExistsError where something is there, unless the file ``replaces`` it, and OSError for what
    the system refuses.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(descriptor)
        if replaces:
            draft.replace(file)
        else:
            os.link(draft, file)  # unlike a rename, it fails when somebody else was faster
    finally:
        draft.unlink(missing_ok=True)
    try:
        sync(file.parent)
    except OSError as error:
        # A folder into which one may only write, or a file system that syncs no folders: the file is there.
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP):
            raise
