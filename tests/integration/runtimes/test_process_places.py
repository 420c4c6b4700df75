"""What a job may have otherwise, a root of its own or no network, and what is said when its user may not
read something."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.process.confinement import ConfineRules
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.borglet.runtimes.process.uids import UidRules
from borgish.spec.job import Program
from borgish.vocabulary import HELD, PROGRAM_MEASURES, Network, Runtime
from borgish.wire.link import AttemptSpec, LogWanted
from tests.contract.runtime.suite import DEADLINE_SECONDS, Watched, attempt_spec, text
from tests.integration.runtimes.machine import end_all

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only a borglet that is root gives each user a uid")


def shell(command: str, **changes: object) -> AttemptSpec:
    return attempt_spec(("sh", "-c", command), Runtime.PROCESS, **changes)


@pytest.fixture
def roots() -> Iterator[Path]:
    """A folder with the root ``small`` in it, not below /tmp, of which each task has its own."""
    busybox = shutil.which("busybox")
    if os.geteuid() != 0 or not busybox:
        pytest.skip("no busybox to make a root of, or no right to have it outside of /tmp")
    folder = Path(tempfile.mkdtemp(prefix="borgish-roots-", dir="/var/lib"))
    folder.chmod(0o755)
    for name in ("bin", "etc"):
        (folder / "small" / name).mkdir(parents=True)
    shutil.copy(busybox, folder / "small/bin/busybox")
    (folder / "small/bin/sh").symlink_to("busybox")
    (folder / "small/etc/mark").write_text("small\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def watched(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    roots = (str(request.getfixturevalue("roots")),) if "roots" in request.fixturenames else ()
    rules = ConfineRules(roots=roots, uids=UidRules(root_users=("eve",)))
    watched = await Watched(ProcessRuntime(tmp_path / "m1", rules=rules)).open()
    yield watched
    await watched.runtime.close()
    end_all(tmp_path / "m1")


def needs(watched: Watched, measure: str) -> None:
    if (why := watched.runtime.measures()[measure]) != HELD:
        pytest.skip(f"{measure} is not held here: {why}")


async def said(watched: Watched, spec: AttemptSpec) -> list[str]:
    """Run a program to its end and return what it wrote."""
    await watched.runtime.start(spec, 1)
    await watched.end_of(spec.key)
    return (await text(watched.runtime.logs(spec.key, LogWanted()))).splitlines()


async def test_finding_out_what_holds_leaves_the_devices_of_the_machine_as_they_are(watched: Watched) -> None:
    assert watched.runtime.measures()
    assert (os.stat(os.devnull).st_uid, os.stat(os.devnull).st_gid) == (0, 0)


async def test_a_root_of_its_own(watched: Watched, roots: Path) -> None:
    needs(watched, "files")
    box = "busybox"
    command = (
        f"{box} ls /; {box} cat /etc/mark; pwd; echo $HOME; echo x > mine && {box} cat mine;"
        f"echo x > /tmp/mine; {box} ls /tmp; echo n > /dev/null;"
        f"{box} touch /etc/mine 2> /dev/null || echo refused"
    )
    lines = await said(watched, shell(command, root=str(roots / "small"), env={"PATH": "/bin"}))
    assert lines[:6] == ["bin", "dev", "etc", "proc", "tmp", "work"]
    assert lines[6:] == ["small", "/work", "/work", "x", "mine", "refused"]
    look = ("sh", "-c", "busybox ls /; echo $HOME")
    spec = shell("exec busybox sleep 600", root=str(roots / "small"), env={"PATH": "/bin"}, attempt=8)
    await watched.runtime.start(spec, 1)
    beside, code, _ = await watched.runtime.exec(spec.key, look, DEADLINE_SECONDS)
    assert (beside.decode().split(), code) == ([*lines[:6], "/work"], 0)


@as_root
async def test_what_it_can_write_to_sets_no_user_and_has_no_devices(watched: Watched) -> None:
    needs(watched, "read_only")
    spec = shell("cat /proc/self/mounts; pwd")
    *mounts, home = await said(watched, spec)
    options = {place: set(options.split(",")) for _, place, _, options, *_ in map(str.split, mounts)}
    for place in ("/tmp", "/var/tmp", "/dev/shm", home):
        assert {"rw", "nosuid", "nodev"} <= options[place], place


async def test_a_root_that_the_machine_does_not_allow(watched: Watched, roots: Path) -> None:
    for root, words in (("/usr", "does not let tasks have /usr"), (str(roots / "none"), "no folder")):
        with pytest.raises(StartFailed, match=words) as caught:
            await watched.runtime.start(shell("true", root=root), 1)
        assert caught.value.permanent


async def test_no_network_but_that_of_its_programs(watched: Watched) -> None:
    needs(watched, "network")
    sidecar = Program("proxy", ("sh", "-c", "readlink /proc/self/ns/net; cat /proc/net/dev"))
    main = shell("readlink /proc/self/ns/net; exec sleep 600", network=Network.NONE, programs=(sidecar,))
    await watched.runtime.start(main, 1)
    lines = await said(watched, main.beside(sidecar))
    main_said = await text(watched.runtime.logs(main.key, LogWanted()))
    assert main_said.strip() == lines[0] != os.readlink("/proc/self/ns/net")
    assert [line.split(":")[0].strip() for line in lines if ":" in line and "net:" not in line] == ["lo"]


@as_root
async def test_what_its_user_may_not_read_is_named(watched: Watched) -> None:
    folder = Path(tempfile.mkdtemp(prefix="borgish-home-", dir="/var/lib"))
    program = folder / "serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    try:
        spec = msgspec.structs.replace(shell(""), run=(str(program),))
        with pytest.raises(
            StartFailed, match=rf"for uid \d+, which tasks of ann.*{folder} is not open"
        ) as caught:
            await watched.runtime.start(spec, 1)
        assert caught.value.permanent
        with pytest.raises(StartFailed, match=f"{folder} is not open"):
            await watched.runtime.start(shell("true", workdir=str(folder)), 1)
        os.chmod(folder, 0o755)
        await watched.runtime.start(spec, 1)
    finally:
        shutil.rmtree(folder)


@as_root
async def test_what_is_in_the_temporary_folder_of_the_machine_is_named(
    watched: Watched, tmp_path: Path
) -> None:
    needs(watched, "files")
    program = tmp_path / "serve"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(StartFailed, match="no task sees what is in the machine's /tmp"):
        await watched.runtime.start(msgspec.structs.replace(shell(""), run=(str(program),)), 1)


@as_root
async def test_only_those_that_the_machine_names_run_as_root(watched: Watched) -> None:
    """And even they have no capability, and no way to the settings of the kernel."""
    look = (
        "id -u; grep CapEff /proc/self/status; echo x > /proc/sys/kernel/core_pattern;mount -t tmpfs x /mnt"
    )
    ann = await said(watched, shell(look))
    eve = await said(watched, shell(look, task="eve/web/0"))
    assert int(ann[0]) > 1000
    assert eve[0] == "0"
    for lines in (ann, eve):
        assert lines[1].split()[1] == "0" * 16
        assert "cannot create /proc/sys/kernel/core_pattern" in lines[2]
        assert "must be superuser" in lines[3] or "denied" in lines[3]


@as_root
async def test_a_machine_can_switch_it_off_and_says_so(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "m2", rules=ConfineRules(confine=False))
    watched = await Watched(runtime).open()
    assert await said(watched, shell("id -u")) == ["0"]
    measures = runtime.measures()
    assert {measures[name] for name in PROGRAM_MEASURES} == {"off: 'confine = false' in its borglet.toml"}
    await runtime.close()
