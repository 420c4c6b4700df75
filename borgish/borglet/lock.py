"""One borglet a state folder: a lock that ends with its process, however that ends."""

import fcntl
import os
from pathlib import Path

from borgish.errors import UnsafeConfiguration

FILE_NAME = "borglet.lock"


class FolderLock:
    """Holds a folder for this process. A POSIX lock, because children do not inherit those: a task
    that outlives its borglet must not keep the next one out."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises UnsafeConfiguration when another process has it."""
        self._fd = os.open(folder / FILE_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise UnsafeConfiguration(
                f"the state folder {folder} is in use by another borglet (pid {holder or 'unknown'})",
                "Stop that one first, or give this one a state folder of its own.",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of the folder."""
        os.close(self._fd)
