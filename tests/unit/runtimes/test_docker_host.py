"""What an engine and its machine hold, and where they are reached."""

import socket
from typing import Any

import pytest
from docker.errors import APIError

from borgish.borglet.runtimes.base import HELD
from borgish.borglet.runtimes.disk import WATCHED
from borgish.borglet.runtimes.docker import host as docker_host
from borgish.borglet.runtimes.docker.host import Host, Rules, limits_disk, look_at_host
from borgish.errors import Unreachable

INFO = {
    "SecurityOptions": ["name=seccomp,profile=default", "name=apparmor", "name=userns"],
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"]],
    "DockerRootDir": "/var/lib/docker",
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CPUShares": True,
}


class Engine:
    """Says what it is made to say, and makes a network once."""

    def __init__(self, *, makes: bool = True, options: dict[str, str] | None = None, **info: Any) -> None:
        self._info, self._makes, self.made = {**INFO, **info}, makes, 0
        self._networks = [] if options is None else [{"Name": "borgish-c", "Id": "1", "Options": options}]

    def info(self) -> dict[str, Any]:
        return self._info

    def networks(self, names: list[str]) -> list[dict[str, Any]]:
        return [network for network in self._networks if network["Name"] in names]

    def inspect_network(self, _id: str) -> dict[str, Any]:
        return {"IPAM": {"Config": [{"Gateway": "172.20.0.1"}]}}

    def create_network(self, name: str, driver: str, *, options: dict[str, str], labels: Any) -> None:
        assert (driver, labels) == ("bridge", {"borgish.cell": "c"})
        if not self._makes:
            raise APIError("no bridge", explanation="no bridge here")
        self.made += 1
        self._networks.append({"Name": name, "Id": "1", "Options": options})


@pytest.fixture(autouse=True)
def firewall(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A firewall that takes every rule, and has the engine's."""
    asked: list[tuple[str, ...]] = []
    bridge = docker_host.bridge_of("c")

    def ask(*arguments: str) -> tuple[int, str]:
        asked.append(arguments)
        is_there = arguments[0] != "-C" or ("-I", *arguments[1:]) in asked
        return int(
            not is_there
        ), f"-A FORWARD -i {bridge} -o {bridge} -j DROP" if is_there else "no such rule"

    monkeypatch.setattr(docker_host, "_firewall", ask)
    return asked


def looked(engine: Engine, rules: Rules = Rules()) -> Host:  # noqa: B008 - frozen
    return look_at_host(engine, "c", rules)


def test_where_all_is_as_it_should_be_all_is_held(firewall: list[tuple[str, ...]]) -> None:
    engine = Engine()
    found = looked(engine)
    neighbours = found.confinement.pop("docker neighbours")  # the kernel has its say, too
    assert neighbours == HELD or "br_netfilter" in neighbours
    assert found.confinement.pop("docker disk").startswith(WATCHED)
    assert set(found.confinement.values()) == {HELD}
    assert (found.lacks, found.place.network, engine.made) == ("", "borgish-c", 1)
    assert (
        "-I",
        "DOCKER-USER",
        "-i",
        docker_host.bridge_of("c"),
        "-d",
        "169.254.0.0/16",
        "-j",
        "DROP",
    ) in firewall
    assert looked(engine).place == found.place
    assert engine.made == 1
    assert sum(asked[0] == "-I" for asked in firewall) == 1


def test_programs_are_told_by_their_uids(firewall: list[tuple[str, ...]]) -> None:
    rules = Rules(program_uids=("60578-61183", "1500"))
    assert looked(Engine(), rules).confinement["docker programs"] == HELD
    of_programs = [asked for asked in firewall if asked[:2] == ("-I", "OUTPUT")]
    assert [asked[asked.index("--uid-owner") + 1] for asked in of_programs] == ["60578-61183", "1500"]
    assert all("-o" in asked and docker_host.bridge_of("c") in asked for asked in of_programs)


def test_the_gateway_stands_for_a_loopback_that_containers_do_not_reach() -> None:
    assert looked(Engine()).place.publish == ("127.0.0.1", "172.20.0.1")
    assert looked(Engine(), Rules("192.0.2.7")).place.publish == ("192.0.2.7",)


@pytest.mark.parametrize(
    ("options", "measure", "words"),
    [
        ([], "docker seccomp", "seccomp off"),
        (["name=seccomp,profile=unconfined"], "docker seccomp", "unconfined"),
        (["name=seccomp,profile=builtin"], "docker seccomp", HELD),
        (["name=seccomp,profile=builtin"], "docker kernel profile", "neither AppArmor nor SELinux"),
        (["name=selinux"], "docker kernel profile", HELD),
        (["name=seccomp,profile=builtin"], "docker user namespace", "no userns-remap"),
        (["name=rootless"], "docker user namespace", HELD),
    ],
)
def test_what_an_engine_says_of_its_security(options: list[str], measure: str, words: str) -> None:
    assert words in looked(Engine(SecurityOptions=options)).confinement[measure]


def test_without_seccomp_nothing_starts_unless_the_machine_says_so() -> None:
    engine = Engine(SecurityOptions=[])
    assert "no container is started here: the engine has seccomp off" in looked(engine).lacks
    assert looked(engine, Rules(without=("seccomp",))).lacks == ""


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Engine(makes=False), "the engine made no network (no bridge here)"),
        (Engine(options={"com.docker.network.bridge.enable_icc": "true"}), "is another's, and not closed"),
    ],
    ids=["makes-none", "another's"],
)
def test_without_a_network_of_the_cell_nothing_starts_unless_the_machine_says_so(
    engine: Engine, words: str
) -> None:
    found = looked(engine)
    assert words in found.lacks
    assert words in found.confinement["docker metadata address"]
    lenient = looked(engine, Rules(without=("network",)))
    assert (lenient.lacks, lenient.place.network) == ("", "")


def test_limits_that_an_engine_cannot_set() -> None:
    found = looked(Engine(SwapLimit=False, PidsLimit=False))
    assert found.confinement["docker limits"] == "the engine cannot limit swap, processes"


@pytest.mark.parametrize(
    ("backing", "mounts", "wanted"),
    [
        ("xfs", "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /var rw - xfs /dev/b rw,prjquota", True),
        ("xfs", "1 0 8:1 / / rw - xfs /dev/a rw,prjquota\n2 1 8:2 / /var/lib rw - xfs /dev/b rw", False),
        ("extfs", "1 0 8:1 / / rw - ext4 /dev/a rw,prjquota", False),
    ],
    ids=["its-own", "another's", "ext4"],
)
def test_an_engine_holds_disks_on_xfs_with_project_quotas(backing: str, mounts: str, wanted: bool) -> None:
    info = {**INFO, "DriverStatus": [["Backing Filesystem", backing]]}
    assert limits_disk(info, mounts) is wanted
    assert not limits_disk({**info, "Driver": "vfs"}, mounts)


@pytest.mark.parametrize(
    ("listens", "wanted"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")],
)
def test_the_address_on_which_tasks_are_found(listens: str, wanted: str) -> None:
    assert docker_host.host_address(listens, "127.0.0.1") == wanted


def test_a_machine_whose_address_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(Unreachable, match="not known"):
        docker_host.host_address("m1.example", "127.0.0.1")


def test_the_name_of_a_bridge_is_one_for_the_kernel() -> None:
    assert len(docker_host.bridge_of("a-cell-with-a-very-long-name")) <= 15
