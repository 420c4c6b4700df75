"""Containers are kept in: as whom they run, what they reach, what of the machine they see."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import msgspec
import pytest

from borgish.borglet.runtimes import disk
from borgish.borglet.runtimes.base import HELD, StartFailed
from borgish.borglet.runtimes.docker import host as docker_host
from borgish.borglet.runtimes.docker.host import Rules
from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.borglet.runtimes.leftovers import KEEP_NOTHING
from borgish.borglet.runtimes.mounts import MountRules
from borgish.borglet.runtimes.process.uids import UidRules
from borgish.errors import Unreachable
from borgish.resources import Resources
from borgish.spec.job import Container, Mount
from borgish.wire.link import AttemptSpec
from tests.fixtures_docker import ANY_ENGINE
from tests.integration.docker.machine import PATIENCE_SECONDS, SLEEP, Machine, ended, until
from tests.ports import free_port

pytestmark = pytest.mark.docker

SERVE = "mkdir -p /tmp/www && echo here > /tmp/www/index.html && exec httpd -f -p {} -h /tmp/www"


def rules() -> str:
    """Return the rules of the firewall; "" where it cannot be asked."""
    if not shutil.which("iptables"):
        return ""
    return subprocess.run(["iptables", "-S"], check=False, capture_output=True, text=True).stdout


async def said(runtime: DockerRuntime, spec: AttemptSpec, script: str) -> str:
    """Return what a script beside a task says, and with which code it ends."""
    output, code, _ = await runtime.exec(spec.key, ("sh", "-c", f"{script} 2>&1"), PATIENCE_SECONDS)
    return f"{output.decode().strip()} ({code})".strip()


async def started(machine: Machine, container: Container) -> tuple[DockerRuntime, AttemptSpec]:
    runtime = await machine.runtime()
    spec = machine.spec(*SLEEP, container=container)
    await runtime.start(spec, 1)
    return runtime, spec


@pytest.mark.parametrize(("user", "ids"), [("65532", "65532 65532"), ("7:9", "7 9"), ("0", "0 0")])
async def test_programs_and_commands_beside_them_run_as_the_user(
    machine: Machine, user: str, ids: str
) -> None:
    runtime, spec = await started(machine, Container(user))
    assert await said(runtime, spec, "echo $(id -u) $(id -g)") == f"{ids} (0)"
    main = await said(runtime, spec, "grep -E '^(Uid|Gid)' /proc/1/status")
    assert main.split()[1::5] == ids.split()


async def test_root_has_the_capabilities_that_were_asked_for_and_no_others(machine: Machine) -> None:
    runtime, spec = await started(machine, Container("0", capabilities=("CHOWN",)))
    assert await said(runtime, spec, "touch /tmp/a && chown 7 /tmp/a && echo done") == "done (0)"
    assert "CapEff:\t0000000000000001" in await said(runtime, spec, "cat /proc/self/status")
    assert "ot permitted" in await said(runtime, spec, "mknod /tmp/disk b 8 0")


async def test_a_read_only_root_leaves_a_little_room_in_memory(machine: Machine) -> None:
    runtime, spec = await started(machine, Container("0", read_only=True))
    assert "ead-only file system" in await said(runtime, spec, "touch /etc/a")
    assert await said(runtime, spec, "touch /tmp/a /run/a") == "(0)"
    assert "denied" in await said(runtime, spec, "cp /bin/busybox /tmp/true; chmod +x /tmp/true; /tmp/true")
    assert "No space" in await said(runtime, spec, "dd if=/dev/zero of=/run/b bs=1M count=20")


@pytest.fixture
async def apart(machine: Machine) -> DockerRuntime:
    """A runtime whose containers are in a network of their cell."""
    runtime = await machine.runtime()
    if (why := runtime.measures()["docker neighbours"]) != HELD:
        pytest.skip(f"this engine does not keep containers apart: {why}")
    return runtime


async def test_containers_reach_each_other_at_published_ports_and_by_nothing_else(
    machine: Machine, apart: DockerRuntime
) -> None:
    port, hidden = free_port(), free_port()
    serve = f"(httpd -f -p {hidden} -h /tmp &) ; {SERVE.format(port)}"
    server = machine.spec("sh", "-c", serve, ports={"http": port})
    client = machine.spec(*SLEEP, task="ann/client/0")
    await apart.start(server, 1)
    await apart.start(client, 1)
    gateway = (await said(apart, client, "ip route | awk '/default/ {print $3}'")).removesuffix(" (0)")
    address = (await said(apart, server, "hostname -i")).removesuffix(" (0)")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await said(apart, client, f"wget -qO- http://{gateway}:{port}/") != "here (0)":
            await asyncio.sleep(0.05)
    for at, which in ((address, port), (address, hidden), (gateway, hidden)):
        assert "(0)" not in await said(apart, client, f"timeout 1 wget -qO- http://{at}:{which}/")


async def test_plain_programs_reach_containers_at_published_ports_and_by_nothing_else(
    docker_mark: str, busybox_image: str, docker_engine: docker.DockerClient
) -> None:
    uids = UidRules()
    rules = msgspec.structs.replace(ANY_ENGINE, program_uids=uids.ranges)
    machine = Machine(docker_mark, busybox_image, docker_engine, rules)
    runtime = await machine.runtime()
    if (why := runtime.measures()["docker programs"]) != HELD:
        pytest.skip(f"no rule can be made here: {why}")
    port, hidden = free_port(), free_port()
    server = machine.spec(
        "sh", "-c", f"(httpd -f -p {hidden} -h /tmp &) ; {SERVE.format(port)}", ports={"http": port}
    )
    await runtime.start(server, 1)
    address = (await said(runtime, server, "hostname -i")).removesuffix(" (0)")

    async def reaches(at: str, which: int, uid: int) -> bool:
        program = f"import socket; socket.create_connection(({at!r}, {which}), 5).close()"
        running = await asyncio.create_subprocess_exec(
            "/usr/bin/env", "python3", "-c", program, stderr=asyncio.subprocess.DEVNULL, user=uid, cwd="/"
        )
        return await running.wait() == 0

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await reaches("127.0.0.1", port, uids.low) and await reaches(address, hidden, 0)):
            await asyncio.sleep(0.05)
    assert not await reaches(address, hidden, uids.low)
    assert not await reaches(address, port, uids.low)
    await machine.close()


async def test_what_root_writes_into_files_of_the_engine_is_its_disk(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(disk, "BUSY_SHARE_MAX", 1.0)
    runtime = await machine.runtime()
    if runtime.measures()["docker disk"] != disk.WATCHED:
        pytest.skip("this engine's files cannot be looked at")
    flood = "sh", "-c", "dd if=/dev/zero of=/etc/hosts bs=1M count=6; exec sleep 1000"
    limit = Resources(cpu_millis=100, ram_bytes=64 * 1024**2, disk_bytes=2 * 1024**2)
    spec = machine.spec(*flood, container=Container("0"), resources=limit)
    await runtime.start(spec, 1)
    assert "limit 2MiB" in (await ended(runtime, spec.key)).reason


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A host of its own, behind this one, that serves a page at two addresses: one of the kind of a cloud's
    metadata, not theirs itself, which this machine may need, and one of another kind."""
    name, link = f"bg-{os.getpid()}", f"bgc{os.getpid() % 100_000}"
    low, high = os.getpid() % 50, os.getpid() // 50 % 250
    metadata, here, there = f"169.254.{100 + low}.{1 + high}", f"10.78.{high}.1", f"10.78.{high}.2"
    (tmp_path / "index.html").write_text("here\n")
    ip("netns", "add", name)
    try:
        ip("link", "add", link, "up", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{here}/30", "dev", link)
        for words in (
            ("address", "add", f"{there}/30", "dev", "eth0"),
            ("address", "add", metadata, "dev", "lo"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", here),
        ):
            ip("-n", name, *words)
        ip("route", "add", metadata, "via", there)
        serve = ["busybox", "httpd", "-f", "-p", "80", "-h", str(tmp_path)]
        with subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", *serve]) as serving:
            yield metadata, there
            serving.kill()
    finally:
        ip("netns", "del", name)  # and with it the link, and the route


@pytest.mark.networks
async def test_the_metadata_address_is_closed(machine: Machine, cloud: tuple[str, str]) -> None:
    """By a rule of this run: that of other cells stays, for those of the machine that share it."""
    spec, (metadata, elsewhere) = machine.spec(*SLEEP), cloud
    runtime = DockerRuntime("cloud", "m1", mark=machine.mark, rules=ANY_ENGINE, keep=KEEP_NOTHING)
    await runtime.open(lambda _: None)
    if (why := runtime.measures()["docker metadata address"]) != HELD:
        pytest.skip(f"no rule can be made here: {why}")
    await runtime.start(spec, 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await said(runtime, spec, f"wget -qO- http://{elsewhere}/") != "here (0)":
            await asyncio.sleep(0.05)
    (await asyncio.open_connection(metadata, 80))[1].close()  # which the machine itself reaches
    assert "(0)" not in await said(runtime, spec, f"timeout 1 wget -qO- http://{metadata}/")
    await runtime.kill(spec.key)
    await runtime.forget(spec.key)
    await runtime.close()


async def test_folders_of_the_machine_are_mounted_as_listed(
    docker_mark: str, busybox_image: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    shown, open_, other = (tmp_path / name for name in ("shown", "open", "other"))
    for folder in (shown, open_, other):
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        (folder / "file").write_text(folder.name)
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(0o755)
    listed = MountRules((str(shown), str(open_)))
    machine = Machine(
        docker_mark, busybox_image, docker_engine, msgspec.structs.replace(ANY_ENGINE, mounts=listed)
    )
    mounts = (Mount(str(shown), "/shown"), Mount(str(open_), "/open", write=True))
    runtime, spec = await started(machine, Container(mounts=mounts))
    assert await said(runtime, spec, "cat /shown/file /open/file") == "shownopen (0)"
    assert "ead-only file system" in await said(runtime, spec, "touch /shown/a")
    assert await said(runtime, spec, "touch /open/a") == "(0)"
    unlisted = Container(mounts=(Mount(str(other), "/other"),))
    with pytest.raises(StartFailed, match="is not among the folders") as caught:
        await runtime.start(machine.spec(*SLEEP, task="ann/other/0", container=unlisted), 1)
    assert caught.value.permanent
    await machine.close()


async def test_nothing_starts_where_the_engine_lacks_what_it_must_have(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the engine has seccomp off"
    monkeypatch.setattr(docker_host, "_seccomp", lambda _options: why)
    strict = Machine(machine.mark, machine.image, machine.engine, Rules(without=("network",)))
    runtime = await strict.runtime()
    assert why in runtime.trouble()
    with pytest.raises(StartFailed, match=why) as caught:
        await runtime.start(strict.spec(*SLEEP), 1)
    assert not caught.value.permanent
    lenient = await machine.runtime()
    assert lenient.trouble() == ""
    assert (await lenient.start(machine.spec(*SLEEP), 1)).exit is None
    assert lenient.measures()["docker seccomp"] == why
    await strict.close()


async def test_a_network_that_somebody_removed_is_made_again(machine: Machine) -> None:
    own = Machine(machine.mark, machine.image, machine.engine)
    runtime = DockerRuntime("removed", "m1", mark=machine.mark, rules=ANY_ENGINE, look_seconds=0.05)
    await runtime.open(lambda _: None)
    if runtime.measures()["docker network"] != HELD:
        pytest.skip("this engine makes no networks")
    network = machine.engine.networks.get("borgish-removed")
    network.remove()
    with pytest.raises(StartFailed):
        await runtime.start(own.spec(*SLEEP), 1)
    await until(lambda: bool(machine.engine.networks.list(names=["borgish-removed"])))
    assert (await runtime.start(own.spec(*SLEEP), 1)).exit is None
    await runtime.kill(own.spec().key)
    await runtime.forget(own.spec().key)
    await runtime.close()
    machine.engine.networks.get("borgish-removed").remove()


async def test_what_an_engine_lacked_is_seen_as_soon_as_it_has_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.borglet.runtimes.docker.runtime.HOST_SECONDS", 3600.0)
    try:
        in_the_way = machine.engine.networks.create("borgish-later", "bridge")
    except docker.errors.APIError as error:
        pytest.skip(f"this engine makes no networks ({error.explanation})")
    rules = Rules(without=("seccomp",))
    runtime = DockerRuntime("later", "m1", mark=machine.mark, rules=rules, look_seconds=0.05)
    try:
        await runtime.open(lambda _: None)
        assert "the network borgish-later is another's" in runtime.trouble()
    finally:
        in_the_way.remove()
    await until(lambda: not runtime.trouble())
    await runtime.close()
    machine.engine.networks.get("borgish-later").remove()


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:2375", "ssh://root@m2", "npipe:////./pipe/docker"])
async def test_an_engine_over_a_network_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    runtime = DockerRuntime("integration", "m1")
    with pytest.raises(Unreachable, match="is no socket of this machine"):
        await runtime.open(lambda _: None)
    await runtime.close()


async def test_who_leaves_the_machine_leaves_no_network(machine: Machine) -> None:
    with_uids = msgspec.structs.replace(ANY_ENGINE, program_uids=UidRules().ranges)
    runtime = DockerRuntime("leaving", "m1", mark=machine.mark, rules=with_uids, keep=KEEP_NOTHING)
    await runtime.open(lambda _: None)
    await runtime.close()
    assert machine.engine.networks.list(names=["borgish-leaving"]) == []
    assert docker_host.bridge_of("leaving") not in await asyncio.to_thread(rules)
