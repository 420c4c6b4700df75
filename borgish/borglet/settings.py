"""``borglet.toml``: read, checked, and turned into what the daemon uses. Every mistake ends with exit 74."""

import os
import posixpath
import pwd
import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from borgish import configuration
from borgish.addresses import is_loopback, several
from borgish.borglet.runtimes.leftovers import Retention
from borgish.borglet.runtimes.process.confinement import ConfineRules
from borgish.borglet.runtimes.process.uids import UidRules
from borgish.borglet.state_folder import MEMBERSHIP_NAME
from borgish.errors import UnsafeConfiguration
from borgish.resources import (
    DEVICE_MILLIS,
    DEVICES_MAX,
    NAMED_MAX,
    RAM_BYTES_MIN,
    Resources,
    parse_bytes,
    parse_cpu_millis,
    parse_seconds,
)
from borgish.spec.job import NEVER_MOUNTED, overlap
from borgish.tls.files import MACHINE_FILE
from borgish.vocabulary import NAME_PATTERN, Runtime
from borgish.wire.bounds import KEY_CHARACTERS_MAX, VALUE_CHARACTERS_MAX

ROOM_BYTES_MIN = 1024**2
ENGINE_MAY_LACK = ("seccomp", "network")
"""Without which containers are started where the file says so, and else are not."""
UID_MIN, UID_MAX = 1000, 2**31 - 1
USABLE_RUNTIMES = (Runtime.PROCESS, Runtime.DOCKER)


Kept = Annotated[int, msgspec.Meta(ge=0, le=100_000)]

LIVE = ("join_token_file", "master", "tls")
"""What can be changed while a borglet runs. The rest needs a restart, over which its tasks go on."""


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files in PEM: what this borglet shows, and by whose signature it knows the master."""

    certificate: str
    key: str
    ca: str = ""


class _Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[keep]`` as it is written; ``runtimes.leftovers.Retention`` has the defaults."""

    age: str | None = None
    last: Kept | None = None
    last_age: str | None = None
    folders: Kept | None = None
    room: str | None = None
    containers: Kept | None = None


class _Docker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[docker]`` as it is written."""

    mounts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


class _Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[process]`` as it is written. ``users``: of the machine, by name or number, by borgish user."""

    confine: bool = True
    uids: str | None = None
    users: dict[str, str | int] = {}
    root_users: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written."""

    machine: str
    master: str
    join_token_file: str = ""
    state: str = "state"
    listen: str = "127.0.0.1:0"
    ports: str = "20000-20999"
    runtimes: tuple[str, ...] | None = None
    capacity: dict[str, str | int | float] = {}
    devices: dict[str, int] = {}
    attributes: dict[str, str] = {}
    task_disk: str = "10%"
    docker: _Docker = _Docker()
    keep: _Keep = _Keep()
    process: _Process = _Process()
    tls: Tls | None = None


class Settings(msgspec.Struct, frozen=True):
    """What the daemon runs with. Paths are absolute. ``runtimes`` None: all that work here.

    ``capacity`` overrides what is measured; an amount of 0 is measured. ``task_disk`` is what a task writes
    whose job asks for no disk: bytes, or else a share of the file system of ``state``. ``mounts`` are the
    folders that containers may get, ``without`` what an engine may lack.
    """

    machine: str
    host: str
    port: int  # 0: any free one
    master: str  # several with commas
    join_token_file: Path | None  # None: the machine has a certificate, by which it joins
    state: Path
    ports_low: int
    ports_high: int
    runtimes: tuple[Runtime, ...] | None
    capacity: Resources
    attributes: dict[str, str]
    task_disk: tuple[int, float]
    mounts: tuple[str, ...]
    without: tuple[str, ...]
    keep: Retention
    process: ConfineRules
    tls: Tls | None


def load(path: Path) -> Settings:
    """Read a file. Raises UnsafeConfiguration naming the file and the key."""
    return checked(path, read(path))


def checked(path: Path, file: File, *, invited: bool = False) -> Settings:
    """Return what follows from a file that was read. ``invited``: the machine is about to get a certificate.

    Raises UnsafeConfiguration.
    """
    host, port = _checked(path, "listen", _address, file.listen)
    base = path.resolve().parent
    state = base / _checked(path, "state", _not_empty, file.state)
    has_certificate = invited or (state / MACHINE_FILE).exists()
    if not is_loopback(host) and file.tls is None and not has_certificate:
        raise UnsafeConfiguration(
            f"{path}: listen = '{file.listen}' can be reached from other machines, and this one has "
            "neither a certificate of its cell nor [tls]",
            "Get one with `borglet join`, listen on 127.0.0.1, or add [tls] with certificate, key and ca.",
        )
    if not (file.join_token_file or has_certificate or (state / MEMBERSHIP_NAME).exists()):
        raise UnsafeConfiguration(
            f"{path}: there is no join_token_file, and {state} is not of a machine that is in a cell",
            "Name the file of a token, or run the `borglet join` of an invitation (`borgctl machine invite`)",
        )
    low, high = _checked(path, "ports", _port_range, file.ports)
    return Settings(
        machine=_checked(path, "machine", _name, file.machine),
        host=host,
        port=port,
        master=_checked(path, "master", _urls, file.master),
        join_token_file=_join_token_file(path, base, file.join_token_file),
        state=state,
        ports_low=low,
        ports_high=high,
        runtimes=_checked(path, "runtimes", _runtimes, file.runtimes),
        capacity=msgspec.structs.replace(
            _capacity(path, file.capacity), devices=_devices(path, file.devices)
        ),
        attributes=_attributes(path, file.attributes),
        task_disk=_checked(path, "task_disk", _room, file.task_disk),
        mounts=_checked(path, "docker.mounts", _mounts, file.docker.mounts),
        without=_checked(path, "docker.without", _without, file.docker.without),
        keep=_keep(path, file.keep),
        process=_process(path, base, file),
        tls=_tls(path, base, file.tls),
    )


def own_files(settings: Settings) -> tuple[str, ...]:
    """Return the files and folders that are the borglet's own, and no task's."""
    tls = (settings.tls.certificate, settings.tls.key) if settings.tls else ()
    return (str(settings.state), str(settings.join_token_file), *tls)


def read(path: Path) -> File:
    """Return what a file holds. Raises UnsafeConfiguration for what is no such file."""
    example = "configs/borglet.toml"
    return configuration.read(path, File, example, f"name the file with --config; {example} is an example")


def _checked(path: Path, key: str, check: Any, value: Any) -> Any:
    try:
        return check(value)
    except ValueError as error:
        raise UnsafeConfiguration(f"{path}: {key} = {value!r} {error}") from None


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError("is not a valid name: write lower-case letters, digits and '-', at most 63")
    return value


def _not_empty(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("must be the path of a folder")
    return value


def _file_name(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("must be the path of a file")
    return value


def _join_token_file(path: Path, base: Path, name: str) -> Path | None:
    return base / _checked(path, "join_token_file", _file_name, name) if name else None


def _address(value: str) -> tuple[str, int]:
    host, mark, port = value.rpartition(":")
    if not (mark and host and port.isdecimal() and int(port) <= 65535):
        raise ValueError("is not an address: write host:port, as 127.0.0.1:0")
    return host.strip("[]"), int(port)


def _port_range(value: str) -> tuple[int, int]:
    low, mark, high = value.partition("-")
    if not (mark and low.strip().isdecimal() and high.strip().isdecimal()):
        raise ValueError("is not a range: write it like 20000-20999")
    if not 1024 <= int(low) <= int(high) <= 65535:
        raise ValueError("is outside 1024-65535, or its end is before its beginning")
    return int(low), int(high)


def _urls(value: str) -> str:
    return ",".join(_url(url) for url in several(value)) or _url("")


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("is not the address of a borgmaster: write it like http://127.0.0.1:7400")
    try:
        parts = urlsplit(value)
        is_address = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # a port that is none
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise ValueError("is not the address of a borgmaster: write it like http://127.0.0.1:7400")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError("would send the join token over the network without TLS: use https://")
    return value.rstrip("/")


def _runtimes(value: tuple[str, ...] | None) -> tuple[Runtime, ...] | None:
    if value is None:
        return None
    unknown = [name for name in value if name not in USABLE_RUNTIMES]
    if unknown or not value:
        raise ValueError(f"must name some of: {', '.join(USABLE_RUNTIMES)}")
    return tuple(dict.fromkeys(Runtime(name) for name in value))


def _capacity(path: Path, amounts: dict[str, str | int | float]) -> Resources:
    known = {"cpu": parse_cpu_millis, "ram": _ram_bytes, "disk": parse_bytes}
    values = {}
    for name, amount in amounts.items():
        key = f"capacity.{name}"
        read = known.get(name, _named_amount)
        if name not in known:
            _checked(path, key, lambda _, n=name: _name(n), amount)
        values[name] = _checked(path, key, read, str(amount))
    cpu, ram, disk = (values.pop(name, 0) for name in known)
    return Resources(cpu, ram, disk, values)


def _devices(path: Path, counts: dict[str, int]) -> dict[str, int]:
    """Return the devices of each kind in thousandths."""
    for kind, count in counts.items():
        _checked(path, f"devices.{kind}", lambda _, kind=kind: _name(kind), count)
        _checked(path, f"devices.{kind}", _device_count, count)
    return {kind: DEVICE_MILLIS * count for kind, count in counts.items()}


def _device_count(count: int) -> int:
    if not 0 <= count <= DEVICES_MAX:
        raise ValueError(f"is outside 0 to {DEVICES_MAX} devices")
    return count


def _ram_bytes(text: str) -> int:
    return parse_bytes(text, RAM_BYTES_MIN)


def _named_amount(text: str) -> int:
    if not text.isdecimal() or int(text) > NAMED_MAX:
        raise ValueError(f"is not a whole number up to {NAMED_MAX}")
    return int(text)


def _attributes(path: Path, attributes: dict[str, str]) -> dict[str, str]:
    for name, value in attributes.items():
        fits = 0 < len(name) <= KEY_CHARACTERS_MAX and len(value) <= VALUE_CHARACTERS_MAX
        if not (fits and name.isprintable() and value.isprintable()):
            raise UnsafeConfiguration(
                f"{path}: attributes.{name}: a name has 1 to {KEY_CHARACTERS_MAX} and a value at most "
                f"{VALUE_CHARACTERS_MAX} printable characters"
            )
    return attributes


def _mounts(value: tuple[str, ...]) -> tuple[str, ...]:
    for folder in value:
        if not folder.startswith("/") or posixpath.normpath(folder).replace("//", "/") != folder:
            raise ValueError(f"has '{folder}': write an absolute path in its shortest way, like /srv/data")
        if folder == "/" or any(overlap(os.path.realpath(folder), never) for never in NEVER_MOUNTED):
            raise ValueError(f"has '{folder}', which no container gets; nor what is in it, or around it")
    return value


def _without(value: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [word for word in value if word not in ENGINE_MAY_LACK]:
        raise ValueError(f"has '{unknown[0]}', and only knows {', '.join(ENGINE_MAY_LACK)}")
    return value


def _keep(path: Path, keep: _Keep) -> Retention:
    """Return what stays of ended tasks; what is not written is as ``Retention`` has it."""
    numbers = {"last": keep.last, "folders": keep.folders, "containers": keep.containers}
    found: dict[str, Any] = {field: value for field, value in numbers.items() if value is not None}
    for key, field in (("age", "seconds"), ("last_age", "last_seconds")):
        if (value := getattr(keep, key)) is not None:
            found[field] = _checked(path, f"keep.{key}", parse_seconds, value)
    if keep.room is not None:
        found["room_bytes"], found["room_share"] = _checked(path, "keep.room", _room, keep.room)
    return Retention(**found)


def _process(path: Path, base: Path, file: File) -> ConfineRules:
    """Return how programs are confined: what is secret here is hidden from them in any case."""
    process, uids = file.process, UidRules()
    for user in (*process.users, *process.root_users):
        _checked(path, "process.users", _name, user)
    if process.uids is not None:
        low, high = _checked(path, "process.uids", _uid_range, process.uids)
        uids = msgspec.structs.replace(uids, low=low, high=high)
    users = {
        user: _checked(path, f"process.users.{user}", _account, name) for user, name in process.users.items()
    }
    if len({uid for uid, _ in users.values()}) < len(users):
        raise UnsafeConfiguration(
            f"{path}: process.users gives two users the same uid: either could do what the other can",
            "Give each an account of its own.",
        )
    for key in ("hide", "roots"):
        for place in getattr(process, key):
            _checked(path, f"process.{key}", _absolute, place)
    return ConfineRules(
        confine=process.confine,
        uids=msgspec.structs.replace(uids, users=users, root_users=process.root_users),
        hide=(*process.hide, *_secret_places(base, file)),
        roots=process.roots,
    )


def _secret_places(base: Path, file: File) -> list[str]:
    """Return where a borglet and a master beside it keep what opens the cell."""
    state = (base / file.state).resolve()
    around = [it for it in (state, *state.parents) if it.name == ".borgish" or (it / "cell.toml").is_file()]
    named = [file.join_token_file, *((file.tls.key,) if file.tls else ())]
    return [str(state), *map(str, around), *(str((base / name).resolve()) for name in named)]


def _uid_range(value: str) -> tuple[int, int]:
    low, mark, high = value.partition("-")
    if not (mark and low.strip().isdecimal() and high.strip().isdecimal()):
        raise ValueError("is not a range: write it like 60578-61183")
    if not UID_MIN <= int(low) <= int(high) <= UID_MAX:
        raise ValueError(f"is outside {UID_MIN}-{UID_MAX}, or its end is before its beginning")
    return int(low), int(high)


def _account(value: str | int) -> tuple[int, int]:
    """Return a uid and its gid: those of an account of this machine, or a number that no account has."""
    try:
        found = pwd.getpwuid(value) if isinstance(value, int) else pwd.getpwnam(value)
        uid, gid = found.pw_uid, found.pw_gid
    except (KeyError, OverflowError):
        if not isinstance(value, int) or not 0 < value <= UID_MAX:
            raise ValueError("is no account of this machine, nor a uid") from None
        uid = gid = value
    if uid == 0:
        raise ValueError("is root: name the user in root_users, if it is to be so")
    return uid, gid


def _absolute(value: str) -> str:
    if not value.startswith("/") or "\0" in value:
        raise ValueError("must be a path that begins with '/'")
    return value


def _room(text: str) -> tuple[int, float]:
    """Return a number of bytes, or else a share of the file system."""
    if not text.endswith("%"):
        return parse_bytes(text, ROOM_BYTES_MIN), 0.0
    number = text.removesuffix("%").strip()
    if not (number.isdecimal() and 1 <= int(number) <= 90):
        raise ValueError("is not a share: write it like 5%, from 1% to 90%, or like 1GiB")
    return 0, int(number) / 100


def _tls(path: Path, base: Path, tls: Tls | None) -> Tls | None:
    if tls is None:
        return None
    files = {"certificate": tls.certificate, "key": tls.key, "ca": tls.ca}
    for key, name in files.items():
        if (name or key != "ca") and not (base / name).is_file():
            raise UnsafeConfiguration(f"{path}: tls.{key}: there is no file {base / name}")
    return Tls(*(str(base / name) if name else "" for name in files.values()))
