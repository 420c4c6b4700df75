"""One master for one store on one host: an advisory lock on a file that names who holds it.

On SQLite this is the election: the kernel lets go of the lock when its holder is gone, however it went.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from borgish.clock import SystemClock
from borgish.errors import InUse, UnsafeConfiguration

GOING_SECONDS_MAX = 5.0
"""So long is waited for what a holder that is gone leaves behind."""
_LOOK_SECONDS = 0.01


class FileLock:
    """An ``flock`` that is held until ``release``, or until the process is gone, however it went."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises InUse when another process has it, UnsafeConfiguration when the file cannot
        be opened."""
        self.path = path
        self._file = _open(path)
        try:
            self._take()
        except BaseException:
            os.close(self._file)
            raise
        self._write(f"{os.getpid()}\n")

    def _take(self) -> None:
        """Lock. A child that its holder had just forked has the lock, too, until it runs its own program.

        So a lock whose holder is gone is about to be free.
        """
        clock = SystemClock()
        end = clock.now().mono + GOING_SECONDS_MAX
        while not flocked(self._file):
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            if not _is_gone(holder) or clock.now().mono >= end:
                raise _taken(self.path, holder)
            time.sleep(_LOOK_SECONDS)

    def release(self) -> None:
        """Let go. The file stays, as another may be waiting for it. Idempotent."""
        if self._file >= 0:
            self._write("")
            os.close(self._file)
            self._file = -1

    def _write(self, text: str) -> None:
        """Say who has it. On a full disk nobody does; it is held all the same."""
        os.ftruncate(self._file, 0)
        with suppress(OSError):
            os.pwrite(self._file, text.encode(), 0)


def flocked(file: int) -> bool:
    """Lock an open file, unless somebody has it locked; return whether it is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_gone(holder: str) -> bool:
    """Return whether a process has ended, by its number; without a number it may be any."""
    if not holder.isdecimal():
        return False
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return True
    except (OverflowError, PermissionError):
        return False
    return False


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnsafeConfiguration(
            f"The lock {path} cannot be opened: {error.strerror}", "Give a folder that this user may write to"
        ) from error


def _taken(path: Path, holder: str) -> InUse:
    who = f"process {holder}" if holder else "another process"
    return InUse(
        f"The store is in use: {who} holds {path}",
        "Stop that borgmaster first, or wait for it with --standby, or use another folder",
    )
