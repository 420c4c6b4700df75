"""Whom the tasks of a borgish user run as, on a machine whose borglet is root: never the same as another's.

Kept in the runtime's folder, so that the same user is the same uid after a restart. Where several borglets
share a host they share its numbers, too: each that is in use is claimed for a name, in a folder that goes
with a boot. Users of the same name are one user there, whatever their cells.
"""

import contextlib
import hashlib
import os
import pwd
from pathlib import Path

import msgspec

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.process.shim.basics import replace_json

CLAIMS = Path("/run/borgish-uids")
FILE = "uids.json"


class UidRules(msgspec.Struct, frozen=True):
    """``[process]`` of ``borglet.toml``, as far as it is of uids. ``users``: uid and gid by borgish user."""

    low: int = 60_578  # to 61183 systemd's plan of uids has no use for them, nor have Debian and Fedora
    high: int = 61_183
    users: dict[str, tuple[int, int]] = {}
    root_users: tuple[str, ...] = ()

    @property
    def ranges(self) -> tuple[str, ...]:
        """All uids of tasks but root's, as a firewall is told of them."""
        return (f"{self.low}-{self.high}", *sorted({str(uid) for uid, _ in self.users.values()}))


class Uids:
    """The uids of one runtime's folder."""

    def __init__(self, folder: Path, rules: UidRules, claims: Path = CLAIMS) -> None:
        self._file, self._rules, self._claims = folder / FILE, rules, claims
        self._claimed: dict[str, int] = {}
        try:
            self._kept = msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.MsgspecError):
            self._kept = {}

    def of(self, user: str) -> tuple[int, int]:
        """Return the uid and gid of a user's tasks. Raises StartFailed when none is left, and OSError."""
        if user in self._rules.root_users:
            return 0, 0
        if (given := self._rules.users.get(user)) is not None:
            return given
        uid = self._claimed.get(user) or self._take(user)
        return uid, uid

    def _take(self, user: str) -> int:
        low, high = self._rules.low, self._rules.high
        count = high - low + 1
        begin = int.from_bytes(hashlib.sha256(user.encode()).digest()[:8]) % count
        kept = self._kept.get(user, low + begin)
        others = {uid for name, uid in self._kept.items() if name != user}
        others |= {uid for uid, _ in self._rules.users.values()}
        for uid in (kept, *(low + (begin + step) % count for step in range(count))):
            if low <= uid <= high and uid not in others and not _is_account(uid) and self._claim(uid, user):
                self._claimed[user] = uid
                if self._kept.get(user) != uid:
                    self._kept[user] = uid
                    replace_json(str(self._file), self._kept)
                return uid
        raise StartFailed(
            f"no uid is left for the tasks of {user}: {low}-{high} are in use",
            "give 'uids' in [process] of the machine's borglet.toml a larger range",
        )

    def _claim(self, uid: int, user: str) -> bool:
        """Tell whether a uid is this user's on this host, from now on if it was nobody's."""
        self._claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._claims / str(uid)
        with contextlib.suppress(FileExistsError):
            # By a link: a claim is there whole, or not at all.
            young = self._claims / f"{uid}.{os.getpid()}"
            young.write_text(user)
            try:
                os.link(young, path)
            finally:
                young.unlink()
        return path.read_text() == user


def _is_account(uid: int) -> bool:
    try:
        return pwd.getpwuid(uid) is not None
    except KeyError:
        return False
