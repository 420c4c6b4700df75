"""What a job file says of its containers: as whom they run, and what they may beyond the ordinary.

Everything here that opens a container further than the default is a privilege, see ``privileges``.
"""

import posixpath
import re

from borgish.spec.file.document import Scalar
from borgish.spec.file.kinds import Field, Flag, Leaf, ListOf, Record, Schema, Text, Values, Wrong
from borgish.spec.file.mistakes import nearest, quote
from borgish.spec.job import CONTAINER_USER, NEVER_MOUNTED, Container, Mount, overlap

ID_MAX = 2**31 - 1  # what engines take

CAPABILITIES = (
    *("AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN"),
    *("DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE"),
    *("LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE"),
    *("NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN"),
    *("SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "SYSLOG", "WAKE_ALARM"),
)

_OF_THE_KERNEL = ("/dev", "/proc", "/sys")


_USER = re.compile(r"(0|[1-9][0-9]{0,9})(?::(0|[1-9][0-9]{0,9}))?")


class User(Leaf[str]):
    """A user by number, and a group where that has another number; ``root`` is 0."""

    example = "1000, or 1000:100"

    def of(self, found: Scalar) -> str:
        text = "0" if found.text == "root" else found.text
        numbers = _USER.fullmatch(text)
        if not numbers:
            hint = f"write its number, like {self.example}: names are the image's own"
            raise Wrong(f"{quote(text)} is not a user's number", hint)
        user, group = numbers[1], numbers[2] or numbers[1]
        if max(int(user), int(group)) > ID_MAX:
            raise Wrong(f"{quote(text)} is above {ID_MAX}", f"write it like {self.example}")
        return user if user == group else f"{user}:{group}"

    def schema(self) -> Schema:
        number = r"(0|[1-9][0-9]{0,9})"
        pattern = f"^(root|{number}(:{number})?)$"
        return {"type": ["integer", "string"], "pattern": pattern, "minimum": 0, "maximum": ID_MAX}


class Capability(Leaf[str]):
    """A capability of Linux by name, with or without CAP_ in front."""

    example = "NET_ADMIN"

    def of(self, found: Scalar) -> str:
        name = found.text.upper().removeprefix("CAP_")
        if name == "ALL":
            raise Wrong("nobody gets all capabilities at once", "name those that it needs, like NET_ADMIN")
        if name not in CAPABILITIES:
            close = nearest(name.lower(), [known.lower() for known in CAPABILITIES])
            hint = f"did you mean {close.upper()}?" if close else "capabilities(7) lists them"
            raise Wrong(f"{quote(found.text)} is not a capability", hint)
        return name

    def schema(self) -> Schema:
        return {"enum": [*CAPABILITIES, *(f"CAP_{name}" for name in CAPABILITIES)]}


class Folder(Text):
    """An absolute path, written in the one shortest way, that is not, nor overlaps, one of ``never``."""

    def __init__(self, example: str, never: tuple[str, ...], why: str) -> None:
        super().__init__(4096, r"/.*", f"an absolute path, like {example}")
        self._never, self._why = never, why

    def of(self, found: Scalar) -> str:
        path = super().of(found)
        shortest = posixpath.normpath(path).replace("//", "/")
        if path != shortest:
            raise Wrong(f"{quote(path)} is a long way to write {quote(shortest)}", f"write {shortest}")
        if path == "/" or any(overlap(path, never) for never in self._never):
            raise Wrong(f"{quote(path)} {self._why}", "name another folder")
        return path


_MOUNT_FIELDS = (
    Field(
        "from",
        Folder("/srv/data", NEVER_MOUNTED, "is no folder of a machine that containers get"),
        "a folder of the machine, one of those that its borglet.toml lists",
        "source",
        required=True,
    ),
    Field(
        "to",
        Folder("/data", _OF_THE_KERNEL, "is no place for a folder of the machine"),
        "where it is in the container",
        "target",
        required=True,
    ),
    Field("write", Flag(), "true: its programs may change what is in it; they read only, unless given"),
)


def _make_mount(values: Values) -> Mount | None:
    return Mount(**values.given) if {"source", "target"} <= values.given.keys() else None


_MOUNT = Record("a mount", _MOUNT_FIELDS, "{from: /srv/data, to: /data}", _make_mount)


_MOUNTS = ListOf(_MOUNT, 16, "[{from: /srv/data, to: /data}]")

_CONTAINER_FIELDS = (
    Field(
        "user",
        User(),
        f"the number of the user that its programs run as, or user:group; {CONTAINER_USER} unless given; "
        "0 is root",
    ),
    Field("read_only", Flag(), "true: all of it is read-only but /tmp (64MiB) and /run (16MiB), in memory"),
    Field(
        "capabilities",
        ListOf(Capability(), len(CAPABILITIES), "[NET_ADMIN]", unique=True),
        "capabilities of Linux, for programs that run as root",
    ),
    Field("mounts", _MOUNTS, "folders of the machine that it sees"),
)


def _make_container(values: Values) -> Container:
    container = Container(**values.given)
    if container.capabilities and container.ids[0] != 0:
        # Engines raise them for root alone; no_new_privileges keeps a file from bringing them to others.
        message = "an engine gives capabilities to programs of root only, and these are not"
        values.report("capabilities", message, "remove them, or write user: root")
    targets = [mount.target for mount in container.mounts]
    for target in sorted({target for target in targets if targets.count(target) > 1}):
        values.report("mounts", f"{quote(target)} is given twice", "keep one of them")
    return container


CONTAINER = Record("container", _CONTAINER_FIELDS, "{user: 1000, read_only: true}", _make_container)
