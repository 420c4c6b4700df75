"""What docker-bench-security checks of containers, its section 5, asked of a container that borgish started.

``VERDICTS`` has each check of CIS Docker Benchmark 1.6: how it is asked here, or why there is nothing to ask.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.docker.machine import SLEEP, Machine
from tests.ports import free_port

pytestmark = pytest.mark.docker

Inspected = dict[str, Any]  # GET /containers/ID/json
Check = Callable[[Inspected], bool]


def host(field: str, *wanted: Any) -> Check:
    return lambda seen: seen["HostConfig"][field] in wanted


def _no_capabilities(seen: Inspected) -> bool:
    return seen["HostConfig"]["CapDrop"] == ["ALL"] and not seen["HostConfig"]["CapAdd"]


def _no_devices(seen: Inspected) -> bool:
    return not seen["HostConfig"]["Devices"] and not seen["HostConfig"]["DeviceRequests"]


def _no_sensitive_folders(seen: Inspected) -> bool:
    never = ("/", "/boot", "/dev", "/etc", "/lib", "/proc", "/sys", "/usr")
    return not any(mount["Source"] in never or mount["RW"] for mount in seen["Mounts"])


def _named_addresses(seen: Inspected) -> bool:
    bound = [each for ports in seen["HostConfig"]["PortBindings"].values() for each in ports]
    return bool(bound) and all(each["HostIp"] not in ("", "0.0.0.0", "::") for each in bound)


def _no_privileged_ports(seen: Inspected) -> bool:
    bound = [each for ports in seen["HostConfig"]["PortBindings"].values() for each in ports]
    return all(int(each["HostPort"]) >= 1024 for each in bound)


def _ulimits(seen: Inspected) -> bool:
    limits = {each["Name"]: (each["Soft"], each["Hard"]) for each in seen["HostConfig"]["Ulimits"]}
    return limits["core"] == (0, 0) and 0 < limits["nofile"][1] <= 65_536


VERDICTS: dict[str, tuple[str, Check | str]] = {
    "5.1": ("no swarm mode without need", "borgish uses none; the engine is the operator's"),
    "5.2": ("an AppArmor profile", "the engine's own, where the kernel has AppArmor: measures() tells"),
    "5.3": ("SELinux options", "the engine's own, where it runs with SELinux: measures() tells"),
    "5.4": ("capabilities are dropped", _no_capabilities),
    "5.5": ("not privileged", host("Privileged", False)),
    "5.6": ("no sensitive folders of the machine", _no_sensitive_folders),
    "5.7": ("no sshd inside", lambda s: s["Config"]["Cmd"] == list(SLEEP)),
    "5.8": ("no privileged ports", _no_privileged_ports),
    "5.9": ("only needed ports", lambda s: len(s["HostConfig"]["PortBindings"]) == 1),
    "5.10": ("not the machine's network", lambda s: s["HostConfig"]["NetworkMode"] == "borgish-integration"),
    "5.11": ("a memory limit", lambda s: s["HostConfig"]["Memory"] == s["HostConfig"]["MemorySwap"] > 0),
    "5.12": ("a weight of cpu", lambda s: s["HostConfig"]["CpuShares"] not in (0, 1024)),
    "5.13": ("a read-only root", "by container.read_only, a test of its own; else resources.disk bounds it"),
    "5.14": ("ports on a named address", _named_addresses),
    "5.15": ("restarts at most 5 times", lambda s: s["HostConfig"]["RestartPolicy"]["Name"] == "no"),
    "5.16": ("not the machine's processes", host("PidMode", "")),
    "5.17": ("not the machine's IPC", host("IpcMode", "private")),
    "5.18": ("no devices", _no_devices),
    "5.19": ("ulimits of its own", _ulimits),
    "5.20": ("no shared propagation", lambda s: all(m["Propagation"] == "rprivate" for m in s["Mounts"])),
    "5.21": ("not the machine's host name", host("UTSMode", "")),
    "5.22": ("seccomp is not off", host("SecurityOpt", ["no-new-privileges"])),
    "5.23": ("exec is not privileged", "exec_create is called without it: the user test sees the user"),
    "5.24": ("exec is not root", "a test of its own: commands run as the container's user"),
    "5.25": ("the engine's own cgroup", host("CgroupParent", "")),
    "5.26": ("no new privileges", lambda s: "no-new-privileges" in s["HostConfig"]["SecurityOpt"]),
    "5.27": ("its health is checked", "borgish probes it, by health: of its job, and the engine does not"),
    "5.28": ("the image is pinned", "images are never pulled: what is on the machine runs"),
    "5.29": ("a limit of processes", host("PidsLimit", 1024)),
    "5.30": ("not the default bridge", lambda s: "bridge" not in s["NetworkSettings"]["Networks"]),
    "5.31": ("not the machine's user namespace", host("UsernsMode", "")),
    "5.32": ("no engine's socket inside", lambda s: "docker.sock" not in str(s["Mounts"])),
}  # fmt: skip


def test_every_check_has_its_verdict() -> None:
    assert list(VERDICTS) == [f"5.{number}" for number in range(1, 33)]


async def test_a_container_of_borgish_passes_the_checks_of_docker_bench_security(machine: Machine) -> None:
    runtime = await machine.runtime()
    if not runtime.measures()["docker network"].startswith("held"):
        pytest.skip(f"5.10, 5.14 and 5.30 do not hold here: {runtime.measures()['docker network']}")
    await runtime.start(machine.spec(*SLEEP, ports={"http": free_port()}), 1)
    (name,) = machine.containers()
    seen = machine.engine.api.inspect_container(name)
    asked = {number: check for number, (_, check) in VERDICTS.items() if not isinstance(check, str)}
    assert [number for number, check in asked.items() if not check(seen)] == []
    assert seen["Config"]["User"] == "65532:65532"
    assert (seen["HostConfig"]["Init"], seen["Config"]["StopTimeout"]) == (True, 10)
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware"} <= set(seen["HostConfig"]["MaskedPaths"])
    assert seen["HostConfig"]["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}
