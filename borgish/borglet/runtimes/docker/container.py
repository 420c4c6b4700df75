"""What an attempt is as a container, both ways: names, labels, limits, port mappings; states, exits, errors.

Nothing here talks to an engine.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import ceil
from typing import Any

import msgspec
from docker.errors import APIError
from docker.types import HostConfig, LogConfig, Mount, Ulimit

from borgish.borglet.runtimes.base import RunState, StartFailed
from borgish.borglet.runtimes.cgroups import PIDS_MAX, cpu_shares
from borgish.borglet.runtimes.docker.engine import Inspected, Listed
from borgish.borglet.runtimes.secrets import NOWHERE
from borgish.borglet.runtimes.secrets import Place as Secrets
from borgish.spec.job import Mount as JobMount
from borgish.vocabulary import Network
from borgish.wire.link import AttemptSpec, Exit, attempt_key

LABEL_CELL = "borgish.cell"
LABEL_OWNER = "borgish.owner"
LABEL_MACHINE = "borgish.machine"
LABEL_TASK = "borgish.task"
LABEL_ATTEMPT = "borgish.attempt"
LABEL_RUN = "borgish.run"
LABEL_PROGRAM = "borgish.program"  # "" of the main one
LABEL_DISK = "borgish.disk"  # how many bytes it may write; 0: as many as it likes

LOG_OPTIONS = {"max-size": "10m", "max-file": "3"}
OPEN_FILES_MAX = 65_536
IN_MEMORY = {  # where a program can write whose root is read-only; its memory limit counts it
    "/tmp": "rw,noexec,nosuid,nodev,size=64m,mode=1777",  # noqa: S108 - of a container
    "/run": "rw,noexec,nosuid,nodev,size=16m,mode=1777",
}
SECRET_FILES, SECRET_ENV = "/run/secrets", "/run/secrets-env"  # where a container has its secrets
# An engine shows the environment of its containers, so secrets come into that of the program by a shell that
# reads them and becomes the program. A dot keeps the newlines at the end, which the substitution would drop.
WITH_SECRET_ENV = (
    "/bin/sh",
    "-c",
    (
        f'for f in {SECRET_ENV}/*; do v=$(cat "$f" && echo .) || exit 126; '
        'export "${f##*/}=${v%.}"; done; exec "$@"'
    ),
    "sh",
)
RAM_BYTES_MIN = 6 * 1024**2  # what the engine admits
SIGNAL_BASE = 128  # the exit code of a program that signal n ended is 128 + n
SIGNAL_LAST = 31

_PORT_TAKEN = re.compile(
    r"Bind for \S*?:(\d+) failed: port is already allocated"
    r"|listen tcp\d? \S*:(\d+): bind: address already in use"
)
_ENDED = re.compile(r"Exited \((\d+)\)")
_CANNOT_RUN = re.compile(r"executable file not found|no such file or directory|permission denied|exec format")


class Owner(msgspec.Struct, frozen=True):
    """Whose containers: one machine of one cell, and one state folder where several have that name."""

    cell: str
    machine: str
    mark: str = ""

    def labels(self) -> dict[str, str]:
        return {LABEL_CELL: self.cell, LABEL_MACHINE: self.machine, LABEL_OWNER: self.mark}

    def filters(self) -> dict[str, list[str]]:
        """Return what finds its containers among all others."""
        return {"label": [f"{name}={value}" for name, value in self.labels().items()]}

    def container_name(self, spec: AttemptSpec, run: int) -> str:
        """Return the name of a run's container; unique on an engine, and readable in ``docker ps``."""
        return f"borgish-{self.run_name(spec.key, run)}"

    def run_name(self, key: str, run: int) -> str:
        """Return what the name of a run's container ends with, however it begins."""
        plain = key.replace("/", "-").replace("@", "-").replace(":", "-")
        parts = [self.cell, self.mark, plain, str(run)]
        return "-".join(part for part in parts if part)


class Place(msgspec.Struct, frozen=True):
    """What the engine offers."""

    network: str  # of the cell's containers; "": they use the machine's own
    publish: tuple[str, ...]  # the addresses of the machine on which ports are opened
    disk_bytes: int = 0  # what a container may write whose job does not say; 0: as much as it likes
    limits_disk: bool = False  # whether the engine itself sees to that
    open_files_max: int = OPEN_FILES_MAX  # of a process

    @property
    def bridge(self) -> bool:
        """Whether containers have a network of their own."""
        return bool(self.network)


class Container(msgspec.Struct):
    """One run of an attempt. ``state`` is None until its start has succeeded."""

    id: str
    key: str
    run: int
    state: RunState | None = None
    exit: Exit | None = None  # as soon as it is known from anywhere
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    out_of_memory_at: float = 0.0
    over_disk: str = ""  # why it was ended, when that was for its disk
    limit_bytes: int = 0  # what it may write; 0: as much as it likes
    layer: str = ""  # the folder of the machine that has what it writes; "" where the engine keeps none
    written: tuple[str, ...] = ()  # all folders and files of the machine that are filled by what it writes
    has_secret_env: bool = False  # what runs in it is started by ``WITH_SECRET_ENV``

    @property
    def alive(self) -> bool:
        return self.exit is None and (self.state is None or self.state.exit is None)


def container_config(
    spec: AttemptSpec,
    run: int,
    owner: Owner,
    place: Place,
    main: str = "",
    secrets: Secrets = NOWHERE,
    program: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments of ``create_container``. ``main``: the id of the container it runs beside.

    ``secrets`` are its folders of them; ``program`` is what the image starts, entry point and all, with
    the command of the job: needed where there is a secret in the environment.
    """
    published = place.bridge and not main and bool(spec.ports)
    user, group = spec.container.ids
    return {
        "image": spec.image,
        "name": owner.container_name(spec, run),
        "entrypoint": [*WITH_SECRET_ENV] if secrets.env else None,
        "command": list(program if secrets.env else spec.run) or None,
        "user": f"{user}:{group}",
        "environment": spec.env | ({"BORGISH_SECRETS": SECRET_FILES} if secrets.files else {}),
        "working_dir": spec.workdir or None,
        "labels": {
            **owner.labels(),
            LABEL_TASK: spec.task,
            LABEL_ATTEMPT: str(spec.attempt),
            LABEL_RUN: str(run),
            LABEL_PROGRAM: spec.program,
            LABEL_DISK: str(spec.resources.disk_bytes or place.disk_bytes),
        },
        "ports": [(port, "tcp") for port in spec.ports.values()] if published else None,
        "stop_timeout": ceil(spec.stop.grace_seconds),  # for whoever stops it by the engine's own means
        "host_config": _host_config(spec, place, main, secrets),
    }


def _host_config(spec: AttemptSpec, place: Place, main: str, secrets: Secrets) -> HostConfig:
    """A task sees the port numbers it was given, inside and outside; it has no rights over the machine.

    Cpu is a weight, as for processes: see ``cgroups``. What runs beside a main program has its network;
    each of them has the task's limits to itself, for an engine has no limit over several containers.
    """
    need, asked = spec.resources, spec.container
    ram_bytes = max(need.ram_bytes, RAM_BYTES_MIN) if need.ram_bytes else None
    disk_bytes = need.disk_bytes or place.disk_bytes
    ports = {f"{port}/tcp": [(at, port) for at in place.publish] for port in spec.ports.values()}
    mounted = {mount.target for mount in asked.mounts}
    in_memory = {at: how for at, how in IN_MEMORY.items() if at not in mounted} if asked.read_only else {}
    return HostConfig(
        version="1.41",
        init=True,
        network_mode=_network(spec, place, main),
        port_bindings=ports if place.bridge and not main and ports else None,
        mem_limit=ram_bytes,
        memswap_limit=ram_bytes,
        cpu_shares=cpu_shares(need.cpu_millis),
        pids_limit=PIDS_MAX,
        ulimits=[
            Ulimit(name="nofile", soft=place.open_files_max, hard=place.open_files_max),
            Ulimit(name="core", soft=0, hard=0),
        ],
        cap_drop=["ALL"],
        cap_add=list(asked.capabilities) or None,
        security_opt=["no-new-privileges"],
        ipc_mode="private",
        read_only=asked.read_only or None,
        tmpfs=in_memory or None,
        mounts=[_mount(mount) for mount in (*asked.mounts, *_secret_mounts(secrets))] or None,
        storage_opt={"size": str(disk_bytes)} if disk_bytes and place.limits_disk else None,
        restart_policy={"Name": "no"},
        log_config=LogConfig(type=LogConfig.types.JSON, config=LOG_OPTIONS),
    )


def _network(spec: AttemptSpec, place: Place, main: str) -> str:
    is_isolated = spec.network is Network.NONE
    if not (place.bridge or is_isolated):
        return "host"
    return f"container:{main}" if main else "none" if is_isolated else place.network


def _secret_mounts(secrets: Secrets) -> Iterator[JobMount]:
    if secrets.files:
        yield JobMount(secrets.files, SECRET_FILES)
    if secrets.env:
        yield JobMount(secrets.env, SECRET_ENV)


def _mount(mount: JobMount) -> Mount:
    """What somebody mounts on the machine later does not come in, and nothing mounted inside gets out."""
    return Mount(mount.target, mount.source, type="bind", read_only=not mount.write, propagation="rprivate")


def identity(labels: dict[str, str]) -> tuple[str, int] | None:
    """Return the key of the attempt and the number of the run, None when the labels are not ours."""
    task, attempt, run = (labels.get(label, "") for label in (LABEL_TASK, LABEL_ATTEMPT, LABEL_RUN))
    if not (task and attempt.isdecimal() and run.isdecimal()):
        return None
    return attempt_key(task, int(attempt), labels.get(LABEL_PROGRAM, "")), int(run)


def run_state(key: str, run: int, seen: Inspected, place: Place) -> RunState:
    """Return what the engine reports of a run, pid 0 when it has ended."""
    state = seen["State"]
    note = "" if place.bridge else "uses the machine's own network: the engine has no bridge"
    exit_ = None
    if state["Status"] not in ("running", "paused", "restarting"):
        exit_ = ending(state["ExitCode"], seconds(state["FinishedAt"]), oom=state["OOMKilled"])
    return RunState(
        key=key,
        run=run,
        pid=state["Pid"],
        started_at=seconds(state["StartedAt"]),
        exit=exit_,
        note=note,
    )


def layer_of(seen: Inspected) -> str:
    """Return the folder of the machine that has what a container writes; "" where the engine keeps none."""
    return str(((seen.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or "")


def written_to(seen: Inspected) -> tuple[str, ...]:
    """Return the folders and files of the machine that are filled by what a container writes: its layer, the
    volumes of its image, and what the engine mounts over files in ``/etc``."""
    volumes = [mount["Source"] for mount in seen.get("Mounts") or () if mount.get("Type") == "volume"]
    in_etc = [seen.get(field, "") for field in ("HostsPath", "HostnamePath", "ResolvConfPath")]
    return tuple(filter(None, (layer_of(seen), *volumes, *in_etc)))


def has_secret_env(seen: Inspected) -> bool:
    """Return whether a container has secrets in its environment."""
    return any(mount.get("Destination") == SECRET_ENV for mount in seen.get("Mounts") or ())


def listed_state(key: str, run: int, row: Listed) -> RunState:
    """Return what the engine's list has of a run: no process, and not when it ended."""
    ended = _ENDED.match(row["Status"])
    exit_ = ending(int(ended[1]), float(row["Created"]), oom=False) if ended else None
    return RunState(key=key, run=run, pid=0, started_at=float(row["Created"]), exit=exit_)


def ending(code: int, at: float, *, oom: bool) -> Exit:
    """Return how a container ended, ``at`` that time (seconds since 1970); signals are codes above 128."""
    if SIGNAL_BASE < code <= SIGNAL_BASE + SIGNAL_LAST:
        signal = code - SIGNAL_BASE
        return Exit(signal=signal, oom=oom and signal == 9, at=at)
    return Exit(code=code, at=at)


def seconds(written: str) -> float:
    """Return the engine's written time as seconds since 1970; its "never" is 0."""
    return max(0.0, datetime.fromisoformat(written).timestamp())


def not_created(error: APIError, spec: AttemptSpec) -> StartFailed:
    """Return why there is no container for an attempt."""
    text = error.explanation or str(error)
    if error.status_code == 404:
        return StartFailed(
            f"no image {spec.image} on this machine ({text})",
            f"Bring it here: `docker pull {spec.image}`, or `docker import FILE {spec.image}`.",
        )
    return StartFailed(
        f"the Docker engine refused the container ({text})", permanent=error.status_code == 400
    )


def not_started(error: APIError) -> StartFailed:
    """Return why a container that was made does not run."""
    text = (error.explanation or str(error)).strip()
    if taken := _PORT_TAKEN.search(text):
        port = int(taken[1] or taken[2])
        return port_taken(port)
    return StartFailed(f"the container does not start ({text})", permanent=bool(_CANNOT_RUN.search(text)))


def port_taken(port: int) -> StartFailed:
    """Return that somebody else listens on a port of the task."""
    return StartFailed(f"port {port} is in use on this machine by another program", port=port)
