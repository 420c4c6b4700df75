"""What is in a borglet's state folder beside its ledger: the lock, and which cell the machine is in."""

import asyncio
import contextlib
import fcntl
import hmac
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from borgish.errors import UnsafeConfiguration

LOCK_NAME = "borglet.lock"

MEMBERSHIP_NAME = "membership.json"


class FolderLock:
    """Holds a folder for this process, one borglet a folder, and ends with the process, however that ends.

    A POSIX lock, because children do not inherit those: a task that outlives its borglet must not keep the
    next one out. (The library ``filelock`` has ``flock`` only, and truncates the file before it has the lock,
    which loses the number of the process that the refusal names.)
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises UnsafeConfiguration when another process has it."""
        self._fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
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


# -- The cell, and the token that its master polls with -----------------------------------------------------


class _Kept(msgspec.Struct, frozen=True):
    cell: str
    poll_token: str


class Membership:
    """What the last join gave. Before the first one there is no cell, and no token is right."""

    def __init__(self, kept: bytes, keep: Callable[[bytes], None]) -> None:
        """Read what was ``kept``; nothing, or what is damaged, means: join anew. ``keep`` keeps other bytes
        from then on, and raises OSError."""
        self._keep = keep
        try:
            self._kept = msgspec.json.decode(kept, type=_Kept)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._kept = _Kept("", "")
        self._joined = asyncio.Event()
        if self._kept.cell:
            self._joined.set()

    @property
    def cell(self) -> str:
        """The cell's name; "" before the first join."""
        return self._kept.cell

    @property
    def poll_token(self) -> str:
        """The token by which the master proves itself; "" before the first join."""
        return self._kept.poll_token

    async def first(self, seconds_max: float) -> None:
        """Return once there is one, at once where one was kept; or when it takes longer than so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._joined.wait()

    def admits(self, token: str) -> bool:
        """Whether a token is the right one; takes the same time for any wrong one."""
        right = self._kept.poll_token.encode()
        return bool(right) and hmac.compare_digest(token.encode("utf-8", "replace"), right)

    def keep(self, cell: str, poll_token: str) -> None:
        """Take what a join gave, and keep it. Raises OSError when only this process could keep it."""
        if (cell, poll_token) == (self._kept.cell, self._kept.poll_token):
            return
        self._kept = _Kept(cell, poll_token)
        self._joined.set()
        self._keep(msgspec.json.encode(self._kept))


def membership_in(folder: Path) -> Membership:
    """Return the membership that a file in a folder keeps over restarts (0600)."""
    path = folder / MEMBERSHIP_NAME

    def keep(kept: bytes) -> None:
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)

    return Membership(path.read_bytes() if path.exists() else b"", keep)
