"""Remembers the requests that broke a master's memory, so that their retries do not break the next one's.

In a file of the state folder, because nothing of such a request is in the store. Another version of borgish
tries them again.
"""

from pathlib import Path

import msgspec

import borgish
from borgish.credentials import write_private
from borgish.errors import UnsafeConfiguration

FILE = "poison.json"
KEPT_MAX = 100


class Suspect(msgspec.Struct, frozen=True):
    """One request: the digest by which it is known, and what was said when it broke a master."""

    digest: str
    said: str
    version: str


class Suspects:
    """Those of one state folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._all = self._read()

    def known(self) -> dict[str, str]:
        """Return what was said of each, by digest: of those that this version has not yet mended."""
        return {each.digest: each.said for each in self._all if each.version == borgish.__version__}

    def note(self, digest: str, said: str) -> None:
        """Remember one. Raises OSError."""
        others = [each for each in self._all if each.digest != digest]
        self._all = [*others, Suspect(digest, said, borgish.__version__)][-KEPT_MAX:]
        write_private(self.path, msgspec.json.format(msgspec.json.encode(self._all)).decode() + "\n")

    def _read(self) -> list[Suspect]:
        if not self.path.exists():
            return []
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Suspect])
        except (OSError, msgspec.DecodeError) as error:
            raise UnsafeConfiguration(
                f"{self.path} cannot be read: {error}",
                "It names requests that broke a borgmaster; remove it to have them tried again",
            ) from error
