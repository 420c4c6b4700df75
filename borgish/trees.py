"""Removing what tasks wrote: nested deeper than a path may be long, and than a function may call itself."""

import os
import secrets
from contextlib import suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path

DEPTH_MAX = 32
"""What lies deeper is moved to the top first: so many folders are open at a time, and no more."""


def remove_tree(path: Path) -> OSError | None:
    """Remove a file, or a folder with all that is in it; return why it is still there, None when it is gone.

    No symbolic link is followed, what is mounted inside stays, and what cannot be removed holds up nothing
    else. A program may go on writing there: what it writes meanwhile may stay.
    """
    removal = _Removal()
    try:
        above = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    try:
        return None if removal.remove(path.name, above, str(path.parent)) else removal.why
    finally:
        os.close(above)


class _Removal:
    def __init__(self) -> None:
        self.why: OSError | None = None  # the first reason for which something stayed
        self._top = -1
        self._moved: list[str] = []  # the names in the top folder of those that were too deep

    def remove(self, name: str, above: int, where: str, depth: int = 0) -> bool:
        """Remove an entry of the folder ``above``, which is ``where``; return whether it is gone."""
        try:
            if not _remove_one(name, above):
                self._remove_folder(name, above, f"{where}/{name}", depth)
        except FileNotFoundError:
            pass  # somebody else has removed it
        except OSError as error:
            self.why = self.why or OSError(error.errno, error.strerror, f"{where}/{name}")
            return False
        return True

    def _remove_folder(self, name: str, above: int, path: str, depth: int) -> None:
        inside = _open(name, above)
        try:
            if depth == DEPTH_MAX:
                moved = secrets.token_hex()
                os.rename(name, moved, src_dir_fd=above, dst_dir_fd=self._top)
                self._moved.append(moved)
                return
            if depth == 0:
                self._top = inside
            for each in os.listdir(inside):
                self.remove(each, inside, path, depth + 1)
            while depth == 0 and self._moved:
                self.remove(self._moved.pop(), inside, path, depth + 1)
        finally:
            os.close(inside)
        os.rmdir(name, dir_fd=above)


def _remove_one(name: str, above: int) -> bool:
    """Remove a file or an empty folder; return False for a folder that is not empty."""
    try:
        os.unlink(name, dir_fd=above)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=above)  # fails in another way where something is mounted
        except OSError as error:
            if error.errno not in (ENOTEMPTY, EEXIST):
                raise
            return False
    return True


def _open(name: str, above: int) -> int:
    """Open a folder, with the right to remove what is in it: its owner may have denied that to themselves."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        if os.fstat(place).st_mode & 0o700 != 0o700:
            with suppress(OSError):  # of somebody else: then what follows says so
                os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place)
    finally:
        os.close(place)
