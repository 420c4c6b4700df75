"""What a daemon does at SIGHUP: it reads its files anew, and logs what changed and what needs a restart.

Both daemons go by this. A hangup never ends them: it is noted from the first moment on, before there is
anything that could be read anew.

What can be changed by assigning it (``LIVE`` in each daemon's settings) counts at once. The store, the
listener and the cell's rules are made from the rest, and the rules are in the journal. Contexts of TLS stay
the same objects: files that broke while a master stood by must not end it when it is to lead.
"""

import hashlib
import logging
import re
import signal
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from borgish.errors import UnsafeConfiguration

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

_SECRET = frozenset({"db"})  # a URL may have a password
_CERTIFICATES = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END (?:X509 |TRUSTED )?CERTIFICATE-----",
    re.DOTALL,
)


class Hangup:
    """Takes SIGHUP. What it calls for waits until somebody does it."""

    def __init__(self) -> None:
        self._pending = False
        # A handler and not SIG_IGN, which programs that are started would inherit.
        signal.signal(signal.SIGHUP, lambda *_: self._note())

    def _note(self) -> None:
        self._pending = True

    def handle(self, loop: AbstractEventLoop, reload: Callable[[], None]) -> None:
        """Have ``reload`` called in the loop at each hangup; at once when one came already."""
        loop.add_signal_handler(signal.SIGHUP, reload)
        if self._pending:
            reload()


class Change(msgspec.Struct, frozen=True):
    """One key of a daemon's file that has another value now. ``live``: it counts at once."""

    key: str
    old: object
    new: object
    live: bool

    def __str__(self) -> str:
        values = "changed" if self.key in _SECRET else f"{_shown(self.old)} -> {_shown(self.new)}"
        return f"{self.key}: {values}" + ("" if self.live else "; this needs a restart, and stays as it was")


def changes(old: msgspec.Struct, new: msgspec.Struct, live: Iterable[str]) -> tuple[Change, ...]:
    """Return the keys whose values differ. ``live`` names keys, or tables, that can be changed while running;
    a table that comes or goes cannot."""
    before, after = _flat(old), _flat(new)
    prefixes, both = tuple(live), before.keys() & after.keys()
    keys = [*before, *(key for key in after if key not in before)]
    return tuple(
        Change(key, before.get(key), after.get(key), key in both and _is_live(key, prefixes))
        for key in keys
        if before.get(key) != after.get(key)
    )


def merged(old: S, new: S, live: Iterable[str], table: str = "") -> S:
    """Return the old settings with the live ones of the new."""
    prefixes, fields = tuple(live), dict[str, object]()
    for name in old.__struct_fields__:
        key, before, after = f"{table}{name}", getattr(old, name), getattr(new, name)
        if isinstance(before, msgspec.Struct) and isinstance(after, msgspec.Struct):
            fields[name] = merged(before, after, prefixes, f"{key}.")
        elif _is_live(key, prefixes) and not isinstance(before or after, msgspec.Struct):
            fields[name] = after
    return msgspec.structs.replace(old, **fields)


def reload(log: logging.Logger, read: Callable[[], T], apply: Callable[[T], list[str]]) -> None:
    """Read and check everything first, so that a mistake changes nothing; then apply it, and log the lines
    that ``apply`` returns.

    ``read`` raises UnsafeConfiguration for every mistake. ``apply`` raises it, and OSError, only for files
    that were replaced after ``read`` had loaded them.
    """
    try:
        found = read()
    except UnsafeConfiguration as error:
        log.error("not reloaded, nothing was changed: %s", error)
        return
    try:
        lines = apply(found)
    except (OSError, UnsafeConfiguration) as error:
        log.error(
            "reloaded, except for the files under [tls]: they changed meanwhile. Send SIGHUP again: %s", error
        )
        return
    for line in lines:
        log.info("reloaded: %s", line)
    log.info("reloaded: %s", f"changes: {len(lines)}")


class Pem(msgspec.Struct, frozen=True):
    """What a daemon has loaded from its files in PEM. ``authorities`` are those that it trusts. ``is_own``:
    they are the cell's own, of which one that is removed is trusted no more."""

    fingerprint: str = ""
    authorities: frozenset[bytes] = frozenset()
    is_own: bool = False

    def changes(self, new: "Pem") -> list[str]:
        """Return a line for each change that another reading of the files makes."""
        lines = []
        if new.fingerprint != self.fingerprint:
            lines.append(f"certificate: {self.fingerprint} -> {new.fingerprint}, for new connections")
        if added := len(new.authorities - self.authorities):
            lines.append(f"ca: authorities added: {added}")
        if removed := len(self.authorities - new.authorities):
            words = "" if self.is_own else "; this needs a restart, they are trusted until then"
            lines.append(f"ca: authorities removed: {removed}{words}")
        return lines

    def merged(self, new: "Pem") -> "Pem":
        """Return what is loaded after a reload: a context of TLS can be given authorities, and none be taken
        from it."""
        return new if self.is_own else Pem(new.fingerprint, self.authorities | new.authorities)


def read_pem(certificate: str, ca: str = "") -> Pem:
    """Return what the files hold. Raises UnsafeConfiguration for one that cannot be read, and never for what
    is in it: ``ssl`` judges that.

    The whole file of the certificate counts, so that a renewed intermediate certificate is a change as well.
    """
    try:
        digest = hashlib.sha256(Path(certificate).read_bytes()).hexdigest()[:16]
        found = _CERTIFICATES.findall(Path(ca).read_bytes()) if ca else []
    except OSError as error:
        raise UnsafeConfiguration(f"{error.filename}: cannot be read: {error.strerror}") from None
    return Pem(digest, frozenset(b"".join(body.split()) for body in found))


def _is_live(key: str, prefixes: tuple[str, ...]) -> bool:
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def _flat(struct: msgspec.Struct, table: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        key = f"{table}.{name}" if table else name
        found |= _flat(value, key) if isinstance(value, msgspec.Struct) else {key: value}
    return found


def _shown(value: object) -> str:
    return "(none)" if value is None else repr(value) if isinstance(value, str) else str(value)
