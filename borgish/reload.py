"""What a daemon does at SIGHUP: it reads its files anew, and logs what changed and what needs a restart.

Both daemons go by this. A hangup never ends them: it is noted from the first moment on, before there is
anything that could be read anew.
"""

import hashlib
import logging
import signal
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)

_SECRET = frozenset({"db"})  # a URL may have a password


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


def log_changes(log: logging.Logger, lines: list[str]) -> None:
    """Log what a reload changed, a line each."""
    for line in lines:
        log.info("reloaded: %s", line)
    log.info("reloaded: %s", f"changes: {len(lines)}")


def fingerprint(certificate: str) -> str:
    """Return what tells a certificate in a PEM file from others; of a chain, its first."""
    der = ssl.PEM_cert_to_DER_cert(Path(certificate).read_text())
    return hashlib.sha256(der).hexdigest()[:16]


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
