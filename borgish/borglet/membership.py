"""The cell this machine is in and the token its master polls with, kept over restarts (0600)."""

import hmac
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

FILE_NAME = "membership.json"


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

    @property
    def cell(self) -> str:
        """The cell's name; "" before the first join."""
        return self._kept.cell

    @property
    def poll_token(self) -> str:
        """The token by which the master proves itself; "" before the first join."""
        return self._kept.poll_token

    def admits(self, token: str) -> bool:
        """Whether a token is the right one; takes the same time for any wrong one."""
        right = self._kept.poll_token.encode()
        return bool(right) and hmac.compare_digest(token.encode("utf-8", "replace"), right)

    def keep(self, cell: str, poll_token: str) -> None:
        """Take what a join gave, and keep it. Raises OSError when only this process could keep it."""
        if (cell, poll_token) == (self._kept.cell, self._kept.poll_token):
            return
        self._kept = _Kept(cell, poll_token)
        self._keep(msgspec.json.encode(self._kept))


def membership_in(folder: Path) -> Membership:
    """Return the membership that a file in a folder keeps."""
    path = folder / FILE_NAME

    def keep(kept: bytes) -> None:
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)

    return Membership(path.read_bytes() if path.exists() else b"", keep)
