"""Control groups, version 1 and 2: where runs may have theirs, with which limits, what they use.

Found from ``/proc/self/mountinfo`` and ``/proc/self/cgroup``, and used where this process may make
groups; ``find`` returns None elsewhere. The shim makes, fills and removes the group of a run; here is
only what is decided and read.

What is limited, in both runtimes: memory and processes strictly, cpu, which is compressible, by *weight* (the
shares of CFS, EuroSys 2015, section 6.2), and so not throttled. A task may use cpu that nobody else wants, as
most of Borg's may: a quota would make a task with 100m take seconds to start on an idle machine, and with
that its healing.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from borgish.borglet.runtimes.process.shim.basics import write_file
from borgish.resources import Resources

PIDS_MAX = 1024
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
V2_CONTROLLERS = ("memory", "pids", "cpu")
_CONTROLLED = " ".join(f"+{name}" for name in V2_CONTROLLERS)
DAEMONS = "borgish-daemons"

Limit = tuple[str, str, bool]  # file, value, whether the run may not start without it
Group = tuple[str, tuple[Limit, ...]]


class Plan(msgspec.Struct, frozen=True):
    """The groups of one run to be, and the file that counts what the kernel ends for memory.

    ``within``: groups around those, with the limits that all programs of a task share.
    """

    groups: tuple[Group, ...] = ()
    oom: str = ""
    within: tuple[Group, ...] = ()


class Groups(msgspec.Struct, frozen=True):
    """Where the runs of one borglet have their groups. ``roots``: by controller; one for all in version 2."""

    version: int
    roots: dict[str, str]

    def plan(self, name: str, needs: Resources) -> Plan:
        """Return the groups of a run with these limits."""
        return (self._plan_v2 if self.version == 2 else self._plan_v1)(name, needs)

    def plan_shared(self, name: str, needs: Resources) -> tuple[Group, ...]:
        """Return the groups around all programs of a task, with its limits: they share one memory limit.

        An engine of containers has no such thing, so there each program has the whole limit. That is what
        the documentation says, rather than a rule for dividing it that nobody asked for.
        """
        return tuple(
            (folder, (*(limit for limit in limits if limit[0] != _OOM_TOGETHER[0]), *self._pass_on(folder)))
            for folder, limits in self.plan(name, needs).groups
        )

    def plan_inside(self, within: Iterable[Group], name: str) -> Plan:
        """Return the groups of one run of a program inside those of its task."""
        shared = tuple(within)
        groups = tuple((f"{folder}/{name}", (_OOM_TOGETHER,) * (self.version == 2)) for folder, _ in shared)
        counts = "memory.events" if self.version == 2 else "memory.oom_control"
        memory = self.roots.get("memory", "")
        oom = next((f"{folder}/{counts}" for folder, _ in groups if folder.startswith(f"{memory}/")), "")
        return Plan(groups, oom, shared)

    def _pass_on(self, folder: str) -> tuple[Limit, ...]:
        """Return what lets the groups inside be counted, and a limit hold for all of them together."""
        if self.version == 2:
            return (("cgroup.subtree_control", _CONTROLLED, True),)
        is_memory = folder.startswith(f"{self.roots.get('memory', '')}/")
        return (("memory.use_hierarchy", "1", False),) * is_memory  # always so where the kernel is newer

    def remove_stale(self, names_kept: set[str]) -> None:
        """Remove empty groups of runs that are no more. What has processes stays."""
        for root in set(self.roots.values()):
            for entry in os.scandir(root):
                if entry.is_dir() and entry.name not in names_kept:
                    _remove_empty(entry.path)

    def close(self) -> None:
        """Remove what held the groups, when there are none. Version 2 keeps it: it has settings."""
        for root in self.roots.values() if self.version == 1 else ():
            with contextlib.suppress(OSError):
                os.rmdir(root)

    def _plan_v1(self, name: str, needs: Resources) -> Plan:
        limits: dict[str, list[Limit]] = {}
        shares: Limit = ("cpu.shares", str(cpu_shares(needs.cpu_millis)), False)
        wanted = {"memory": _memory_v1(needs), "pids": _PIDS, "cpu": (shares,), "cpuacct": ()}
        for controller, root in self.roots.items():  # several controllers can share a mount
            limits.setdefault(f"{root}/{name}", []).extend(wanted[controller])
        memory = self.roots.get("memory")
        oom = f"{memory}/{name}/memory.oom_control" if memory else ""
        return Plan(tuple((folder, tuple(found)) for folder, found in limits.items()), oom)

    def _plan_v2(self, name: str, needs: Resources) -> Plan:
        folder = f"{self.roots['memory']}/{name}"
        weight: Limit = ("cpu.weight", str(cpu_weight(needs.cpu_millis)), False)
        limits = (*_memory_v2(needs), *_PIDS, weight)
        return Plan(((folder, limits),), f"{folder}/memory.events")


def _remove_empty(folder: str) -> None:
    """Remove a group and those inside it, as far as they are empty."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir():
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)
        os.rmdir(folder)


_OOM_TOGETHER: Limit = ("memory.oom.group", "1", False)
_PIDS: tuple[Limit, ...] = (("pids.max", str(PIDS_MAX), True),)


def _memory_v1(needs: Resources) -> tuple[Limit, ...]:
    if not needs.ram_bytes:
        return ()
    most = str(needs.ram_bytes)  # swap counts only where the kernel is configured to count it
    return (("memory.limit_in_bytes", most, True), ("memory.memsw.limit_in_bytes", most, False))


def _memory_v2(needs: Resources) -> tuple[Limit, ...]:
    if not needs.ram_bytes:
        return ()
    return (
        ("memory.max", str(needs.ram_bytes), True),
        ("memory.swap.max", "0", False),
        _OOM_TOGETHER,
    )


def cpu_shares(cpu_millis: int) -> int:
    """Return the weight of a task in version 1, where 1024 is one core."""
    return min(262_144, max(2, cpu_millis * 1024 // 1000))


def cpu_weight(cpu_millis: int) -> int:
    """Return the weight of a task in version 2: the shares 2 to 262144 drawn onto 1 to 10000."""
    return 1 + (cpu_shares(cpu_millis) - 2) * 9999 // 262_142


# What is used


def used(folders: Iterable[str]) -> tuple[float, int] | None:
    """Return the cpu seconds so far and the bytes of memory of a run's groups; None when they are gone.

    Memory is without file pages that nobody used lately: the kernel takes those back when it wants.
    """
    cpu_seconds, ram_bytes = None, None
    for folder in folders:
        if (nanos := _number(f"{folder}/cpuacct.usage")) is not None:
            cpu_seconds = nanos / 1e9
        elif (stat := _table(f"{folder}/cpu.stat")) and "usage_usec" in stat:
            cpu_seconds = stat["usage_usec"] / 1e6
        for name, idle in (
            ("memory.usage_in_bytes", "total_inactive_file"),
            ("memory.current", "inactive_file"),
        ):
            if (held := _number(f"{folder}/{name}")) is not None:
                ram_bytes = max(0, held - _table(f"{folder}/memory.stat").get(idle, 0))
    return None if cpu_seconds is None or ram_bytes is None else (cpu_seconds, ram_bytes)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _table(path: str) -> dict[str, int]:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value.isdigit()}


# Where groups may be made


class Mount(msgspec.Struct, frozen=True):
    """One hierarchy: where it is mounted and where in it this process is."""

    version: int
    controllers: frozenset[str]
    point: str
    own: str


def find(folder: Path, proc: Path = Path("/proc/self"), *, is_root: bool) -> Groups | None:
    """Return where the runs of a runtime's folder may have groups; None where they may have none."""
    name = group_name(folder)
    found = mounts((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    for choose in (_choose_v2, _choose_v1):
        groups = choose(found, name, is_root=is_root)
        if groups:
            return groups
    return None


def group_name(folder: Path) -> str:
    """Return the name of the group that holds those of a runtime's runs: another for each folder."""
    return "borgish-" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def mounts(mountinfo: str, cgroup: str) -> list[Mount]:
    """Read the two tables of the kernel."""
    paths = {names: path for _, names, path in (line.split(":", 2) for line in cgroup.splitlines())}
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            found.append(Mount(2, frozenset(), point, point + _below(paths.get("", "/"), root)))
        elif kind == "cgroup":
            names = next((n for n in paths if n and set(n.split(",")) <= set(options.split(","))), "")
            own = point + _below(paths.get(names, "/"), root)
            found.append(Mount(1, frozenset(names.split(",")), point, own))
    return found


def _below(path: str, root: str) -> str:
    """Return a path inside a mount that shows only what is below ``root``."""
    inside = path.removeprefix(root.rstrip("/")) if path.startswith(root.rstrip("/") + "/") else "/"
    return inside.rstrip("/")


def _choose_v1(found: list[Mount], name: str, *, is_root: bool) -> Groups | None:
    del is_root  # where one may make groups is all that counts here
    roots = {c: f"{m.own}/{name}" for m in found for c in V1_CONTROLLERS if c in m.controllers}
    if not {"memory", "pids"} <= roots.keys():
        return None
    try:
        for root in roots.values():
            os.makedirs(root, exist_ok=True)
    except OSError:
        return None
    return Groups(1, roots)


def _choose_v2(found: list[Mount], name: str, *, is_root: bool) -> Groups | None:
    for mount in (m for m in found if m.version == 2):
        base = mount.own if mount.own == mount.point or _is_delegated(mount.own) else mount.point * is_root
        with contextlib.suppress(OSError):
            if base and set(V2_CONTROLLERS) <= set(Path(base, "cgroup.controllers").read_text().split()):
                _pass_down(base)
                root = f"{base}/{name}"
                os.makedirs(root, exist_ok=True)
                _pass_down(root)
                return Groups(2, dict.fromkeys(V2_CONTROLLERS, root))
    return None


def _is_delegated(folder: str) -> bool:
    """Tell whether a service manager gave us this part of the tree, as with ``Delegate=yes``."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _pass_down(folder: str) -> None:
    """Let groups below have limits. A group with processes of its own may not: they move into one below."""
    control, wanted = f"{folder}/cgroup.subtree_control", _CONTROLLED
    try:
        write_file(control, wanted)
    except OSError:
        os.makedirs(f"{folder}/{DAEMONS}", exist_ok=True)
        for pid in Path(folder, "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                write_file(f"{folder}/{DAEMONS}/cgroup.procs", pid)
        write_file(control, wanted)
