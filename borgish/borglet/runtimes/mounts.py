"""Which folders of the machine its containers get: those that its ``borglet.toml`` lists, and no others.

Only a whole entry of the list is mounted. What is inside one may be a task's to change, so that a path
through it could lead elsewhere a moment after it was looked at.
"""

import os
from pathlib import Path

import msgspec

from borgish.borglet.runtimes.base import StartFailed
from borgish.spec.job import NEVER_MOUNTED, Mount, overlap

GIVEAWAYS = ("docker.sock", "containerd.sock", "podman.sock", "cell.db")
"""What shows that a folder is an engine's, or a borgmaster's: who has it has the machine, or the cell."""


class MountRules(msgspec.Struct, frozen=True):
    """``listed`` is what may be mounted, ``never`` what borgish keeps for itself: files and folders."""

    listed: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def real(self, mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
        """Return the mounts with what their folders are behind all links. Raises StartFailed."""
        return tuple(msgspec.structs.replace(mount, source=self._real(mount.source)) for mount in mounts)

    def _real(self, source: str) -> str:
        if source not in self.listed:
            raise StartFailed(
                f"{source} is not among the folders that containers get on this machine",
                "'mounts' under [docker] in its borglet.toml lists them; constraints choose the machine",
                permanent=True,
            )
        try:
            real = os.path.realpath(source, strict=True)
        except OSError as error:
            raise StartFailed(f"{source} cannot be mounted: {error.strerror}", permanent=True) from None
        if why := why_not(real, self.never):
            raise StartFailed(f"{source} is not mounted: {why}", "list another folder", permanent=True)
        return real


def why_not(real: str, never: tuple[str, ...]) -> str:
    """Return why a folder is no container's, whatever is listed; "" when it may be. ``real`` has no links."""
    if not os.path.isdir(real):
        return f"{real} is no folder"
    if real == "/":
        return "it is the whole machine"
    for kept in (*NEVER_MOUNTED[1:], *never):
        if overlap(real, os.path.realpath(kept)):
            return f"{real} overlaps {kept}"
    for name in GIVEAWAYS:
        if os.path.lexists(Path(real) / name):
            return f"{real} has {name} in it"
    return ""
