"""Which borgmasters use one state folder at the moment, so that clients on this host know all of them.

Each has a file in ``masters/`` with its address, and a lock on it as long as it lives, however it goes; who
comes later removes the files of the dead. What clients read is ``client.json``: where the cell is asked
first, and every address there is. Who enters, leads or leaves writes it anew, in turn. A master that was
killed stays there until the next one writes, which costs clients one refused connection. Folders on several
hosts know nothing of each other, so there ``masters`` in ``cell.toml`` lists them.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from borgish.clock import SystemClock
from borgish.credentials import client_url, write_client_file
from borgish.errors import UnsafeConfiguration
from borgish.store.leadership import try_flock

TURN_SECONDS_MAX = 2.0
"""How long another may take to write, which is milliseconds; longer only when it was paused meanwhile."""
_LOOK_SECONDS = 0.01
_NAME_CHARACTERS_MAX = 200

log = logging.getLogger("borgmaster")


class MemberList:
    """The masters of a folder, and the place of one of them. Every method raises UnsafeConfiguration."""

    def __init__(self, folder: Path, ca: str = "", configured: Sequence[str] = ()) -> None:
        """``configured``: the addresses that the cell's file names, which clients get whether they live or
        not. ``ca`` is the file of the authority that signs the masters."""
        self._folder, self._ca, self._configured = folder, ca, tuple(configured)
        self._address = ""
        self._lock = -1  # the open file of ours, which is locked

    def enter(self, address: str) -> None:
        """Be known at an address from now on, beside who leads."""
        self._address = address
        with self._exclusive():
            self._lock = _locked_file(self._path(address), address)
            if self._lock < 0:
                log.warning("another borgmaster of %s says that it is at %s, too", self._folder, address)
            self._publish()

    def lead(self) -> None:
        """Be the one that is asked first."""
        with self._exclusive():
            self._publish(self._address)

    def leave(self) -> None:
        """Be known no more, as one that ends in order. Idempotent."""
        if self._lock < 0:
            return
        with self._exclusive():
            self._path(self._address).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1
            self._publish()

    def _publish(self, leader: str = "") -> None:
        """Write what clients read. Where nobody is left, that stays as it is."""
        known = tuple(dict.fromkeys((*self._configured, *self._living())))
        if not known:
            return
        published = client_url(self._folder)
        own = self._address if self._address in known else known[0]
        url = leader or (published if published in known else own)
        several = len(known) > 1 or self._configured
        write_client_file(self._folder, url, self._ca, known if several else ())

    def _living(self) -> Iterator[str]:
        """Return the addresses of all who live, and remove the files of others."""
        for path in sorted((self._folder / "masters").glob("*.address")):
            if self._lock >= 0 and path == self._path(self._address):
                yield self._address
            elif _is_held(path):
                yield path.read_text().strip()
            else:
                path.unlink(missing_ok=True)

    def _path(self, address: str) -> Path:
        name = quote(address.partition("://")[2], safe="")[-_NAME_CHARACTERS_MAX:]
        return self._folder / "masters" / f"{name}.address"

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Have the member list alone. One who was paused in its turn is waited for for a moment only."""
        try:
            (self._folder / "masters").mkdir(mode=0o700, exist_ok=True)
            lock = _opened(self._folder / "masters" / "lock")
            try:
                _wait_for(lock)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            where = error.filename or self._folder
            raise UnsafeConfiguration(
                f"{where}: {error.strerror}", "the state folder must be writable"
            ) from None


def _locked_file(path: Path, address: str) -> int:
    """Return the file of an address, open and locked; -1 when another has it."""
    lock_file = _opened(path)
    if not try_flock(lock_file):
        os.close(lock_file)
        return -1
    os.ftruncate(lock_file, 0)
    os.pwrite(lock_file, f"{address}\n".encode(), 0)
    return lock_file


def _is_held(path: Path) -> bool:
    lock_file = _opened(path)
    try:
        return not try_flock(lock_file)
    finally:
        os.close(lock_file)


def _wait_for(lock: int) -> None:
    clock = SystemClock()
    end = clock.now().mono + TURN_SECONDS_MAX
    while not try_flock(lock) and clock.now().mono < end:
        time.sleep(_LOOK_SECONDS)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
