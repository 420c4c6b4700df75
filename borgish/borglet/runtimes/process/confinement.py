"""What keeps a program from the rest of its machine: which measures hold here, and what is asked of a shim.

A borglet finds out at its start by trying (``Confinement.find_out``): what the kernel, or the right to it,
lacks is left out and *shown*, and never a reason not to run tasks. What was found to hold has to: a program
that cannot be confined so later on is not started.
"""

import errno
import os
import platform
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.process.metadata import close_metadata
from borgish.borglet.runtimes.process.seccomp import syscall_filter
from borgish.borglet.runtimes.process.shim.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    landlock_version,
)
from borgish.borglet.runtimes.process.uids import UidRules, Uids
from borgish.text import safe
from borgish.vocabulary import HELD, PROGRAM_MEASURES, Network
from borgish.wire.link import AttemptSpec

HIDDEN = (
    "/run/docker.sock",
    "/run/docker",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/buildkit",
    "~/.borgish",
    "~/.config/borgish",
    "~/.docker",
)
"""What tasks never see, whoever they run as; ``~`` is the home of the borglet's user."""

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - of which each task has its own
HOME_IN_ROOT = "/work"
_NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID
_OFF = "off: 'confine = false' in its borglet.toml"
# Landlock's rights to change files, from WRITE_FILE on; then REFER, and TRUNCATE of version 3.
_WRITE_FILE, _WRITES, _REFER, _TRUNCATE = (
    1 << 1,
    sum(1 << bit for bit in (1, *range(4, 13))),
    1 << 13,
    1 << 14,
)
_ABSTRACT_SOCKETS = 1  # of its scopes
_VERSION_MIN = 2  # the first lets nothing be moved from one folder to another
_VERSION_SOCKETS = 6

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]


class ConfineRules(msgspec.Struct, frozen=True):
    """``[process]`` of ``borglet.toml``. ``hide``: on top of ``HIDDEN``. ``roots``: beneath which folders the
    ``root`` of a job may be."""

    confine: bool = True
    uids: UidRules = UidRules()
    hide: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


class Confinement:
    """How the programs of one runtime's folder are confined.

    ``measures`` says of each whether it is held, or why not.
    """

    def __init__(self, folder: Path, rules: ConfineRules, hide: tuple[str, ...] = ()) -> None:
        """``hide``: more that no task sees."""
        self._folder, self._rules = folder, rules
        self._is_root = os.geteuid() == 0
        self._uids = Uids(folder, rules.uids)
        # A borglet whose user has no home, as in a container under any uid, has nothing there to hide.
        ours = [path for path in map(os.path.expanduser, HIDDEN) if not path.startswith("~")]
        named = [str(Path(path).expanduser()) for path in (*rules.hide, *hide)]
        self._hide = [*ours, *named, str(folder.resolve())]
        self._filter = syscall_filter(platform.machine()).hex()
        self._landlock = 0  # its version
        self.measures: dict[str, str] = {}

    async def find_out(self, ask: Ask, command: dict[str, Any]) -> None:
        """Find out what holds. ``ask`` asks a shim; ``command`` is what else such a request has."""
        if not self._rules.confine:
            self.measures = dict.fromkeys(PROGRAM_MEASURES, _OFF)
            return
        self.measures = dict.fromkeys(PROGRAM_MEASURES, HELD)
        if not self._is_root:
            self.measures["uid"] = "the borglet is not root: tasks run as its own user"
        if not self._filter:
            self.measures["syscalls"] = f"no filter is known for {platform.machine()}"
        self._find_landlock()
        for _ in PROGRAM_MEASURES:
            answer = await ask(command | {"role": "probe", "probe": True} | self._probe())
            if not answer or "error" not in answer:
                break
            self._lacks(str(answer["error"]), int(answer["errno"] or 0), safe(str(answer["text"])))
        self.measures["metadata"] = await self._close_metadata()

    def inside(
        self, spec: AttemptSpec, folder: Path, work: Path, network_of: tuple[int, int] | None
    ) -> dict[str, Any] | None:
        """Return what a shim is asked for (``shim.inside``); None where nothing is confined.

        ``folder`` is the attempt's, ``work`` that in which it works, and ``network_of`` the init of the main
        program of one that runs beside it. Raises StartFailed, and OSError.
        """
        root = self._checked_root(spec)
        isolated = spec.network is Network.NONE
        if isolated and not (self._holds("namespaces") and self._holds("network")):
            why = self.measures["network" if self._holds("namespaces") else "namespaces"]
            raise StartFailed(
                f"it may have no network, and that cannot be had here: {why}",
                "run it on a machine where it can, or without 'network'",
                permanent=True,
            )
        if not self._rules.confine:
            return None
        whole = self._describe(self.uid_of(spec), folder, work, isolated=isolated)
        if root:
            uid = int(whole["uid"])
            whole |= {"root": root, "home": HOME_IN_ROOT, "landlock": self._landlock_rules(uid, HOME_IN_ROOT)}
        return whole | {
            "network_of": network_of if isolated else None,
            "shm_bytes": spec.resources.ram_bytes,
        }

    def uid_of(self, spec: AttemptSpec) -> tuple[int, int]:
        """Return the uid and gid that a task runs as; -1 for those of the borglet. Raises StartFailed."""
        if not (self._rules.confine and self._is_root and self._holds("uid")):
            return -1, -1
        return self._uids.of(spec.task.partition("/")[0])

    def barred(self, path: str, spec: AttemptSpec) -> StartFailed | None:
        """Return why a task cannot have what is there for others; None when that is not the reason."""
        real = Path(os.path.realpath(path))
        if spec.root or real.is_relative_to(self._folder.resolve() / "runs"):
            return None
        kept = (it for it in (*self._hide, *PRIVATE) if real.is_relative_to(os.path.realpath(it)))
        if self._holds("files") and (hidden := next(kept, "")):
            return StartFailed(
                f"'{path}' cannot be found: no task sees what is in the machine's {hidden}",
                "put it elsewhere, where everybody may read it",
                permanent=True,
            )
        uid, gid = self.uid_of(spec)
        user = spec.task.partition("/")[0]
        if uid > 0 and (closed := closed_folder(real, uid, gid)):
            return StartFailed(
                f"'{path}': permission denied for uid {uid}, which tasks of {user} run as: {closed} is not "
                "open to others",
                "put it where everybody may read it, or give the user an account of the machine's in "
                "[process.users] of its borglet.toml",
                permanent=True,
            )
        return None

    # -- what holds ---------------------------------------------------------------------------------

    def _holds(self, measure: str) -> bool:
        return self.measures.get(measure) == HELD

    def _namespaces(self, *, isolated: bool) -> int:
        return (_NAMESPACES | CLONE_NEWNET * isolated) * self._holds("namespaces")

    def _probe(self) -> dict[str, Any]:
        """Return a request to try all that is still taken to hold."""
        uid = self._rules.uids.low if self._is_root and self._holds("uid") else -1
        folder = self._folder / "probe"
        inside = self._describe((uid, uid), folder, folder / "work", isolated=self._holds("network"))
        return {"folder": str(folder), "workdir": "/", "groups": [], "inside": inside}

    def _describe(self, ids: tuple[int, int], folder: Path, work: Path, *, isolated: bool) -> dict[str, Any]:
        """Return what is asked for by all that holds, in the machine's own root."""
        home = str(work.resolve())
        return {
            "uid": ids[0],
            "gid": ids[1],
            "namespaces": self._namespaces(isolated=isolated),
            "user_namespace": not self._is_root,
            "network_of": None,
            "home": home,
            "work": home,
            "tmp": str(folder.resolve() / "tmp"),
            "hide": self._hide,
            "root": "",
            "read_only": self._holds("read_only"),
            "proc": self._holds("proc"),
            "shm_bytes": 0,
            "secrets": "",
            "landlock": self._landlock_rules(ids[0], home),
            "filter": self._filter if self._holds("syscalls") else "",
        }

    def _lacks(self, stage: str, number: int, text: str) -> None:
        """Take in what could not be set up."""
        measure = stage.removeprefix("confine.")
        if measure not in PROGRAM_MEASURES:
            measure, text = "namespaces", f"{stage}: {text}"
        words = "this kernel has no such thing" if number in (errno.ENOSYS, errno.EINVAL) else text
        if measure == "namespaces" and not self._is_root and number == errno.EPERM:
            words = "this machine allows no user namespaces to who is not root"
        self.measures[measure] = words
        if measure in ("namespaces", "files"):
            without = dict.fromkeys(("namespaces", "files", "read_only", "proc", "network"), words)
            self.measures |= without
        if measure == "landlock":
            self.measures["sockets"] = words

    def _find_landlock(self) -> None:
        try:
            self._landlock = landlock_version()
        except OSError as error:
            text = (
                "this kernel has none" if error.errno == errno.ENOSYS else "it is switched off in this kernel"
            )
            self.measures |= {"landlock": text, "sockets": f"without Landlock: {text}"}
            return
        if self._landlock < _VERSION_MIN:
            self.measures["landlock"] = f"this kernel has version {self._landlock} of it"
        if self._landlock < _VERSION_SOCKETS:
            needs = f"needs version {_VERSION_SOCKETS} of Landlock"
            self.measures["sockets"] = f"{needs}; this kernel has {self._landlock}"

    def _landlock_rules(self, uid: int, home: str) -> dict[str, Any] | None:
        if not self._holds("landlock"):
            return None
        truncate = _TRUNCATE * (self._landlock >= 3)
        places = [home, "/tmp", "/var/tmp", "/dev"]  # noqa: S108 - private ones
        return {
            "handled": _WRITES | _REFER | truncate,
            "of_files": _WRITE_FILE | truncate,
            "scoped": _ABSTRACT_SOCKETS * self._holds("sockets"),
            "size": 24 if self._landlock >= _VERSION_SOCKETS else 16 if self._landlock >= 4 else 8,
            "writable": places if uid == 0 else [*places, "/proc"],
        }

    async def _close_metadata(self) -> str:
        if not self._is_root or not self._holds("uid"):
            return "tasks run as the borglet's own user, of which it cannot be told by whom a packet is"
        return await close_metadata(self._rules.uids)

    def _checked_root(self, spec: AttemptSpec) -> str:
        """Return the folder that is to be the root of a task; "": it has the machine's."""
        if not spec.root:
            return ""
        root = os.path.realpath(spec.root)
        if not any(Path(root).is_relative_to(os.path.realpath(it)) for it in self._rules.roots):
            raise StartFailed(
                f"this machine does not let tasks have {spec.root} as their root",
                "its administrator names such folders in 'roots' of [process] in its borglet.toml",
                permanent=True,
            )
        if not os.path.isdir(root):
            raise StartFailed(f"there is no folder {spec.root} to be its root", permanent=True)
        if not self._holds("files"):
            raise StartFailed(
                f"it cannot have a root of its own here: {self.measures['files']}", permanent=True
            )
        return root


def closed_folder(path: Path, uid: int, gid: int) -> str:
    """Return the first folder around a path that a user may not pass, or itself; "" when all are open."""
    for place in (*reversed(path.parents), path):
        try:
            found = place.stat()
        except OSError:
            return ""
        bit = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
        if not found.st_mode & bit:
            return str(place)
    return ""
