"""Where groups may be made is read from the kernel's tables; limits are files and values."""

from pathlib import Path

import pytest

from borgish.borglet.runtimes import cgroups
from borgish.resources import Resources

NEEDS = Resources(cpu_millis=500, ram_bytes=256 * 1024**2)
V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / {at}/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/ab {at}/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / {at}/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / {at}/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
"""
V1_OWN = "8:pids:/\n4:memory:/docker/ab/in\n2:cpu,cpuacct:/slice\n9:name=systemd:/x\n0::/x\n"
V2 = "30 23 0:27 / {at} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def _proc(folder: Path, mountinfo: str, own: str) -> Path:
    proc = folder / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(mountinfo.format(at=folder))
    (proc / "cgroup").write_text(own)
    return proc


def test_mounts_are_paired_with_our_place_in_them() -> None:
    found = {mount.point: mount for mount in cgroups.mounts(V1.format(at="/c"), V1_OWN)}
    assert found["/c/cpu,cpuacct"].own == "/c/cpu,cpuacct/slice"
    assert found["/c/cpu,cpuacct"].controllers == {"cpu", "cpuacct"}
    assert found["/c/memory"].own == "/c/memory/in"  # the mount shows only what is below /docker/ab
    assert found["/c/pids"].own == "/c/pids"


def test_version_1_has_a_group_in_each_hierarchy(tmp_path: Path) -> None:
    proc = _proc(tmp_path, V1, V1_OWN)
    groups = cgroups.find(tmp_path / "m1", proc, is_root=False)
    assert groups is not None
    plan = groups.plan("web.1", NEEDS)
    name = cgroups.group_name(tmp_path / "m1")
    assert dict(plan.groups) == {
        f"{tmp_path}/memory/in/{name}/web.1": (
            ("memory.limit_in_bytes", "268435456", True),
            ("memory.memsw.limit_in_bytes", "268435456", False),
        ),
        f"{tmp_path}/pids/{name}/web.1": (("pids.max", "1024", True),),
        f"{tmp_path}/cpu,cpuacct/slice/{name}/web.1": (("cpu.shares", "512", False),),
    }
    assert plan.oom == f"{tmp_path}/memory/in/{name}/web.1/memory.oom_control"


def test_programs_of_a_task_share_its_limits_in_version_1(tmp_path: Path) -> None:
    groups = cgroups.find(tmp_path / "m1", _proc(tmp_path, V1, V1_OWN), is_root=False)
    assert groups is not None
    plan = groups.plan_inside(groups.plan_shared("web.1", NEEDS), "proxy.2")
    memory = f"{groups.roots['memory']}/web.1"
    assert dict(plan.within)[memory] == (
        ("memory.limit_in_bytes", "268435456", True),
        ("memory.memsw.limit_in_bytes", "268435456", False),
        ("memory.use_hierarchy", "1", False),
    )
    assert dict(plan.groups) == {f"{folder}/proxy.2": () for folder, _ in plan.within}
    assert plan.oom == f"{memory}/proxy.2/memory.oom_control"


def test_without_memory_and_pids_there_are_no_groups(tmp_path: Path) -> None:
    proc = _proc(tmp_path, "".join(V1.splitlines(keepends=True)[:2]), V1_OWN)
    assert cgroups.find(tmp_path / "m1", proc, is_root=True) is None


def _v2_tree(folder: Path, base: str, controllers: str = "cpuset cpu io memory pids") -> Path:
    """Make the files that the kernel would; return the control file of the base."""
    for group in (folder / base, folder / base / cgroups.group_name(folder / "m1")):
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.controllers").write_text(controllers)
        (group / "cgroup.subtree_control").touch()
        (group / "cgroup.procs").touch()
    return folder / base / "cgroup.subtree_control"


def test_version_2_at_the_root_for_root(tmp_path: Path) -> None:
    control = _v2_tree(tmp_path, "")
    proc = _proc(tmp_path, V2, "0::/user.slice/session-1.scope\n")
    groups = cgroups.find(tmp_path / "m1", proc, is_root=True)
    assert groups is not None
    assert groups.version == 2
    assert control.read_text() == "+memory +pids +cpu"
    ((folder, limits),) = groups.plan("web.1", NEEDS).groups
    assert folder == f"{tmp_path}/{cgroups.group_name(tmp_path / 'm1')}/web.1"
    assert ("memory.max", "268435456", True) in limits
    assert ("memory.swap.max", "0", False) in limits
    assert ("pids.max", "1024", True) in limits


def test_programs_of_a_task_share_its_limits_in_version_2(tmp_path: Path) -> None:
    """The kernel ends one of them whole for memory, and the others go on."""
    _v2_tree(tmp_path, "")
    groups = cgroups.find(tmp_path / "m1", _proc(tmp_path, V2, "0::/x\n"), is_root=True)
    assert groups is not None
    plan = groups.plan_inside(groups.plan_shared("web.1", NEEDS), "main")
    ((outer, shared),) = plan.within
    assert {("memory.max", "268435456", True), ("pids.max", "1024", True)} < set(shared)
    assert shared[-1] == ("cgroup.subtree_control", "+memory +pids +cpu", True)
    assert "memory.oom.group" not in [name for name, *_ in shared]
    assert plan.groups == ((f"{outer}/main", (("memory.oom.group", "1", False),)),)
    assert plan.oom == f"{outer}/main/memory.events"


def test_version_2_of_others_is_left_alone(tmp_path: Path) -> None:
    _v2_tree(tmp_path, "user.slice/session-1.scope")
    proc = _proc(tmp_path, V2, "0::/user.slice/session-1.scope\n")
    assert cgroups.find(tmp_path / "m1", proc, is_root=False) is None


def test_version_2_delegated_to_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = _v2_tree(tmp_path, "user.slice/borglet.service")
    proc = _proc(tmp_path, V2, "0::/user.slice/borglet.service\n")
    monkeypatch.setattr("os.getxattr", lambda path, name: b"1" if path.endswith("borglet.service") else b"")
    groups = cgroups.find(tmp_path / "m1", proc, is_root=False)
    assert groups is not None
    assert groups.roots["memory"].startswith(f"{tmp_path}/user.slice/borglet.service/borgish-")
    assert control.read_text() == "+memory +pids +cpu"


def test_version_2_without_the_controllers(tmp_path: Path) -> None:
    _v2_tree(tmp_path, "", controllers="hugetlb")
    proc = _proc(tmp_path, V2, "0::/\n")
    assert cgroups.find(tmp_path / "m1", proc, is_root=True) is None


@pytest.mark.parametrize(
    ("millis", "shares", "weight"), [(1, 2, 1), (100, 102, 4), (1000, 1024, 39), (1_000_000, 262_144, 10_000)]
)
def test_cpu_is_a_weight(millis: int, shares: int, weight: int) -> None:
    assert (cgroups.cpu_shares(millis), cgroups.cpu_weight(millis)) == (shares, weight)


def test_use_is_read_in_both_versions(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, files in (
        (old, {"cpuacct.usage": "2500000000\n", "memory.usage_in_bytes": "1000\n"}),
        (new, {"cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "memory.current": "1000\n"}),
    ):
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
    (old / "memory.stat").write_text("total_inactive_file 300\n")
    (new / "memory.stat").write_text("inactive_file 300\n")
    assert cgroups.used([str(old)]) == cgroups.used([str(new)]) == (2.5, 700)
    assert cgroups.used([str(tmp_path / "gone")]) is None


def test_stale_groups_are_removed_and_others_kept(tmp_path: Path) -> None:
    for name in ("old.1", "kept.2", "several.1/main", "several.1/proxy.1"):
        (tmp_path / name).mkdir(parents=True)
    cgroups.Groups(1, {"memory": str(tmp_path), "pids": str(tmp_path)}).remove_stale({"kept.2"})
    assert [path.name for path in tmp_path.iterdir()] == ["kept.2"]
