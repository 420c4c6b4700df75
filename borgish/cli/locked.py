"""One ``up`` or ``down`` of a cell at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from borgish.errors import Conflict


@contextmanager
def alone(folder: Path, *, make: bool) -> Iterator[None]:
    """Hold the cell's lock. ``make`` makes the folder where it is missing.

    Raises Conflict when another has it.
    """
    if make:
        _make_folder(folder)
    handle = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another `borgctl up` or `down` works on {folder}", "Wait for it to end, then try again"
            ) from None
        yield
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "there is a file of that name" if folder.is_file() else (error.strerror or "").lower()
        raise Conflict(
            f"{folder} cannot be the cell's folder: {reason}",
            "Name another with --dir or BORGISH_DIR; `borgctl up` makes it",
        ) from error
