"""What keeps containers apart here: the network of the cell, the firewall's rule, and what of the rest an
engine and its machine hold. What they do not hold is told, see ``Host.confinement``.

A container reaches another only at a port that was published, on the machine's address or on the gateway of
the network: the engine drops what goes from one straight to the other, and the firewall what goes to
addresses where clouds hand out the machine's own credentials. Plain programs of tasks, whose packets come
from the machine itself, are told by their uids.
"""

import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from docker.errors import APIError, NotFound

from borgish.addresses import WILDCARDS, is_loopback
from borgish.borglet.runtimes.base import HELD
from borgish.borglet.runtimes.disk import WATCHED
from borgish.borglet.runtimes.docker.container import LABEL_CELL, OPEN_FILES_MAX, Place
from borgish.borglet.runtimes.docker.engine import Client
from borgish.borglet.runtimes.docker.socket import socket_path
from borgish.borglet.runtimes.mounts import MountRules
from borgish.errors import Unreachable

LINK_LOCAL = "169.254.0.0/16"  # 169.254.169.254 and its neighbours
OF_USERS = "DOCKER-USER"  # the engine asks this chain first, and leaves its rules alone
FIREWALL_SECONDS_MAX = 5.0
SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/local/sbin"

CAP_SYS_RESOURCE = 24
SECCOMP, NETWORK = "seccomp", "network"


class Rules(msgspec.Struct, frozen=True):
    """What a machine's file says of its containers. ``publish`` is the number of the address where its tasks
    are found, ``disk_bytes`` what one writes whose job asks for no disk (0: as much as it likes),
    ``program_uids`` those that plain programs of tasks have, as ``60578-61183``."""

    publish: str = "127.0.0.1"
    mounts: MountRules = MountRules()
    without: tuple[str, ...] = ()  # what an engine may lack
    disk_bytes: int = 0
    program_uids: tuple[str, ...] = ()


class Host(msgspec.Struct, frozen=True):
    """An engine and its machine. ``confinement``: what should keep containers in, and ``held`` or why it does
    not. ``lacks``: why none is started here; "" when they are."""

    place: Place
    confinement: dict[str, str]
    lacks: str = ""


def look_at_host(client: Client, cell: str, rules: Rules) -> Host:
    """Return what there is, and make what can be made: the cell's network, and the rule for it.

    Raises APIError.
    """
    info: dict[str, Any] = client.info()
    options = [option.split(",") for option in info.get("SecurityOptions") or ()]
    seccomp = _seccomp(options)
    network, fault = _network(client, cell)
    bridge = bridge_of(cell)
    confinement = {
        SECCOMP: seccomp,
        "user namespace": _user_namespace(options),
        "kernel profile": _profile(options),
        NETWORK: f"containers use the machine's own: {fault}" if fault else HELD,
        "neighbours": fault or _neighbours(bridge),
        "programs": fault or _close_to_programs(bridge, rules.program_uids),
        "metadata address": fault or _close_link_local(bridge),
        "limits": _limits(info),
        "disk": _disk(info, Path("/proc/self/mountinfo").read_text()),
    }
    faults = {SECCOMP: seccomp, NETWORK: confinement[NETWORK]}
    lacking = [text for word, text in faults.items() if text != HELD and word not in rules.without]
    return Host(
        Place(
            network=name_of(cell) if network else "",
            publish=_addresses(rules.publish, network),
            disk_bytes=rules.disk_bytes,
            open_files_max=_open_files_max(),
            limits_disk=limits_disk(info, Path("/proc/self/mountinfo").read_text()),
        ),
        {f"docker {word}": text for word, text in confinement.items()},
        f"no container is started here: {'; '.join(lacking)}" if lacking else "",
    )


def host_address(listens: str, master: str) -> str:
    """Return the number of the address on which a machine's tasks are found, whose borglet ``listens`` so;
    of one that listens everywhere that from which it reaches the master. Raises Unreachable."""
    if is_loopback(listens):
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    try:
        if listens not in ("", *WILDCARDS):
            return str(socket.getaddrinfo(listens, None, family)[0][4][0])
        with socket.socket(family, socket.SOCK_DGRAM) as never_sends:
            never_sends.connect((master, 9))
            return str(never_sends.getsockname()[0])
    except OSError as error:
        raise Unreachable(
            f"the machine's own address is not known: {error.strerror or error}",
            "Name it in 'listen' of its borglet.toml.",
        ) from None


# -- The network of the cell --------------------------------------------------------------------------------


def name_of(cell: str) -> str:
    """Return the name of a cell's network."""
    return f"borgish-{cell}"


def bridge_of(cell: str) -> str:
    """Return the interface of a cell's network; the kernel takes 15 characters."""
    return f"borgish{hashlib.sha256(cell.encode()).hexdigest()[:8]}"


NO_TALK = {"com.docker.network.bridge.enable_icc": "false"}


def _network(client: Client, cell: str) -> tuple[dict[str, Any], str]:
    """Return a cell's network, made where it is missing; or why there is none."""
    name = name_of(cell)
    options = {**NO_TALK, "com.docker.network.bridge.name": bridge_of(cell)}
    made = ""
    for _ in range(2):  # the borglet of another machine of the cell may make it at the same time
        for found in client.networks(names=[name]):
            if found["Name"] == name and options.items() <= (found.get("Options") or {}).items():
                return client.inspect_network(found["Id"]), ""
            if found["Name"] == name:
                return {}, f"the network {name} is another's, and not closed; docker network rm {name}"
        try:
            client.create_network(name, "bridge", options=options, labels={LABEL_CELL: cell})
        except APIError as error:
            made = error.explanation or str(error)
    return {}, f"the engine made no network ({made})"


def remove_network(client: Client, cell: str, program_uids: Iterable[str] = ()) -> None:
    """Remove a cell's network and its rules, unless some container is in it."""
    try:
        client.remove_network(name_of(cell))
    except (NotFound, APIError):
        return  # it is gone, or somebody's yet
    bridge = bridge_of(cell)
    for rule in (_to_link_local(bridge), *(_from_programs(bridge, uid) for uid in program_uids)):
        _firewall("-D", *rule)


def _addresses(publish: str, network: dict[str, Any]) -> tuple[str, ...]:
    """Return where ports are published. From inside a container the machine's loopback is not to be reached:
    there the gateway stands for it."""
    pools = network.get("IPAM", {}).get("Config") or ()
    gateways = [pool["Gateway"].partition("/")[0] for pool in pools if pool.get("Gateway")]
    return (publish, *gateways) if is_loopback(publish) else (publish,)


# -- What holds ---------------------------------------------------------------------------------------------


def _seccomp(options: list[list[str]]) -> str:
    profiles = [option[1:] for option in options if option[0] == "name=seccomp"]
    if not profiles:
        return "the engine has seccomp off, which refuses dangerous calls of the kernel"
    return "the engine's profile for seccomp is unconfined" if ["profile=unconfined"] in profiles else HELD


def _user_namespace(options: list[list[str]]) -> str:
    names = {option[0] for option in options}
    if names & {"name=userns", "name=rootless"}:
        return HELD
    return "root in a container is the machine's root: the engine has no userns-remap and is not rootless"


def _profile(options: list[list[str]]) -> str:
    names = {option[0] for option in options}
    return (
        HELD if names & {"name=apparmor", "name=selinux"} else "the engine uses neither AppArmor nor SELinux"
    )


def _limits(info: dict[str, Any]) -> str:
    """Return which limits an engine cannot set; ``SwapLimit`` missing means swap comes on top."""
    wanted = {"memory": "MemoryLimit", "swap": "SwapLimit", "processes": "PidsLimit", "cpu": "CPUShares"}
    missing = [word for word, field in wanted.items() if not info.get(field, True)]
    return f"the engine cannot limit {', '.join(missing)}" if missing else HELD


def _neighbours(bridge: str) -> str:
    """The engine is told to drop what goes from one container straight to another; is there such a rule?"""
    code, said = _firewall("-S")
    if code:
        return f"the engine was told to keep containers apart; whether it does is not seen: {said}"
    rules = [line.split() for line in said.splitlines()]
    through = ["-i", bridge, "-o", bridge]
    if not any(rule[2:6] == through and rule[-2:] == ["-j", "DROP"] for rule in rules):
        return "the engine sets no rule that keeps containers apart, as with --iptables=false"
    switch = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    is_asked = switch.exists() and switch.read_text().strip() == "1"
    return HELD if is_asked else "bridges of this kernel do not ask the firewall: load br_netfilter"


def _close_link_local(bridge: str) -> str:
    """Keep containers from these addresses. A rule stays when the borglet ends, and the engine leaves it."""
    fault = _have_rule(_to_link_local(bridge))
    return f"no rule closes it to containers: {fault}" if fault else HELD


def _close_to_programs(bridge: str, uids: Iterable[str]) -> str:
    """Keep plain programs of tasks from all of containers but what ports publish."""
    faults = filter(None, (_have_rule(_from_programs(bridge, uid)) for uid in uids))
    fault = next(faults, "")
    return f"plain programs reach each port of containers: {fault}" if fault else HELD


def _to_link_local(bridge: str) -> tuple[str, ...]:
    return (OF_USERS, "-i", bridge, "-d", LINK_LOCAL, "-j", "DROP")


def _from_programs(bridge: str, uid: str) -> tuple[str, ...]:
    # What goes to a published port was sent to an address of the machine, and is on its way by DNAT.
    of_whom = ("-o", bridge, "-m", "owner", "--uid-owner", uid)
    return ("OUTPUT", *of_whom, "-m", "conntrack", "!", "--ctstate", "DNAT", "-j", "REJECT")


def _have_rule(rule: tuple[str, ...]) -> str:
    """Have a rule of the firewall, once; return why there is none."""
    code, said = _firewall("-C", *rule)
    if code:
        code, said = _firewall("-I", *rule)
    return said if code else ""


def _firewall(*arguments: str) -> tuple[int, str]:
    """Ask the firewall; return its exit code, 0 for success, and what it said."""
    if os.geteuid() != 0:
        return 1, "the borglet is not root"
    program = shutil.which("iptables") or shutil.which("iptables", path=SYSTEM_FOLDERS)
    if program is None:
        return 1, "there is no iptables"
    command = [program, "-w", str(int(FIREWALL_SECONDS_MAX)), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=2 * FIREWALL_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, f"iptables does not run: {error}"
    lines = done.stderr.strip().splitlines() if done.returncode else [done.stdout]
    return done.returncode, lines[0] if len(lines) == 1 else " ".join(lines[:2])


def _disk(info: dict[str, Any], mountinfo: str) -> str:
    """Return how containers are held to their disk. Layers that cannot be looked at are counted by the
    engine, in bytes and not in files."""
    if limits_disk(info, mountinfo):
        return "held by project quotas"
    layers = Path(info.get("DockerRootDir", "")) / str(info.get("Driver"))
    is_seen = info.get("Driver") == "overlay2" and os.access(layers, os.R_OK | os.X_OK)
    return WATCHED if is_seen else f"{WATCHED}, in bytes as the engine counts them"


def _open_files_max() -> int:
    """Return how many files a process of a container may have open: no more than the engine itself, where
    that may not raise its limits."""
    try:
        with socket.socket(socket.AF_UNIX) as to_engine:
            to_engine.connect(socket_path())
            peer = to_engine.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        of_engine = Path("/proc") / str(struct.unpack("3i", peer)[0])
        status = dict(line.split(":", 1) for line in (of_engine / "status").read_text().splitlines())
        limits = (of_engine / "limits").read_text()
    except OSError:
        return OPEN_FILES_MAX
    hard = re.search(r"^Max open files\s+\S+\s+(\d+)", limits, re.MULTILINE)
    may_raise = int(status["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
    return OPEN_FILES_MAX if may_raise or hard is None else min(OPEN_FILES_MAX, int(hard[1]))


def limits_disk(info: dict[str, Any], mountinfo: str) -> bool:
    """Return whether an engine can bound what a container writes: overlay2 on XFS with project quotas."""
    backing = dict(pair for pair in info.get("DriverStatus") or () if len(pair) == 2)
    if info.get("Driver") != "overlay2" or backing.get("Backing Filesystem") != "xfs":
        return False
    folder = f"{info.get('DockerRootDir', '')}/"
    mounts = [line.split(" - ") for line in mountinfo.splitlines()]
    around = [
        (before.split()[4], after.split()[2].split(","))
        for before, after in mounts
        if folder.startswith(f"{before.split()[4].rstrip('/')}/")
    ]
    options = max(around, key=lambda mount: len(mount[0]), default=("", []))[1]
    return bool({"pquota", "prjquota"} & set(options))
