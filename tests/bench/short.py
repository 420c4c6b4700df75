"""``short``: tasks that live for milliseconds, from the submission of a job to the end of all of it, durable.

Each is the program ``true``, on one machine that is started as people start it, and the one who asks is a
client over HTTP. ``confined`` is as programs are by default, ``plain`` without that. What the shims and the
programs take is what a control group around the whole cell took, without master, borglet and this process.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from borgish.borglet.runtimes import cgroups
from borgish.client import Client
from borgish.vocabulary import Outcome
from borgish.wire.api import JobDetail
from tests.bench import peers
from tests.bench.apps import own_cpu_seconds
from tests.bench.figure import Figure, Goal, at_least
from tests.bench.programs import LOOK_SECONDS, UP_SECONDS_MAX, BenchJob
from tests.bench.sizes import Sizes
from tests.cells import RealCell, cell

MORE = {
    "priority": "batch",
    "restart": {"policy": "on_failure"},
    "resources": {"cpu": "1m", "ram": "4MiB", "disk": "1MiB"},
}
LOOK_SHARE = 0.05  # of the time so far: looking more often would take the master's time from the tasks
NO_CONTROL_GROUP = "no control group of version 1 that counts cpu can be made here"


class Lived(msgspec.Struct, frozen=True):
    """What one job took: seconds from its submission to its end, and of cpu, for each of its tasks, the
    milliseconds of the master, the borglet, and all else of the cell (None: nobody counted)."""

    seconds: float
    master_ms: float
    borglet_ms: float
    rest_ms: float | None


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield ends a second and cpu of a task, of programs that are not confined, then of confined ones."""
    with (
        tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder,
        _counted() as group,
        cell(Path(folder) / "cell", forked=sizes.forked) as real,
    ):
        confined = [_lived(real, sizes.short_tasks, group) for _ in range(sizes.rounds)]
        config = real.folder / "machines" / "m1" / "borglet.toml"
        config.write_text(f"{config.read_text()}\n[process]\nconfine = false\n")
        real.kill("m1")
        real.ok("up")
        plain = [_lived(real, sizes.short_tasks, group) for _ in range(sizes.rounds)]
    yield from _figures("plain", sizes.short_tasks, plain, at_least(300.0), peers.SHORT_TASKS)
    yield from _figures("confined", sizes.short_tasks, confined, at_least(150.0))


TASKS_TOLD_APART_MIN = 100
TOO_FEW = "it is what remains of the cpu of all, which few tasks do not tell from its error on a busy host"


def _figures(name: str, tasks: int, lived: list[Lived], goal: Goal, peer: str = "") -> Iterator[Figure]:
    yield Figure(f"short.{name}.{tasks}", "tasks/s", [tasks / one.seconds for one in lived], goal, peer)
    yield Figure(f"short.{name}.{tasks}.wall", "s", [one.seconds for one in lived])
    yield Figure(f"short.{name}.cpu.master", "ms cpu/task", [one.master_ms for one in lived])
    yield Figure(f"short.{name}.cpu.borglet", "ms cpu/task", [one.borglet_ms for one in lived])
    rest = [one.rest_ms for one in lived if one.rest_ms is not None]
    absent = NO_CONTROL_GROUP if not rest else TOO_FEW if tasks < TASKS_TOLD_APART_MIN else ""
    yield Figure(f"short.{name}.cpu.programs", "ms cpu/task", [] if absent else rest, absent=absent)


def _lived(real: RealCell, tasks: int, group: Path | None) -> Lived:
    """Have a job of such tasks live, and look at how each of them ended."""
    client, pids = real.client(), [real.pid("borgmaster"), real.pid("m1")]
    job = BenchJob(client, tasks, ["true"], more=MORE)
    before, around_before = [own_cpu_seconds(pid) for pid in pids], _around(group)
    began = time.perf_counter()
    job.submit()
    _until_dead(client, job.key)
    seconds = time.perf_counter() - began
    master, borglet = (1000 * (own_cpu_seconds(pid) - then) for pid, then in zip(pids, before, strict=True))
    around = _around(group)
    rest = None if group is None else (around - around_before - master - borglet) / tasks
    ends = {(task.outcome, task.exit_code) for task in job.tasks()}
    assert ends == {(Outcome.FINISHED, 0)}, f"{job.key}: its tasks ended as {ends}"
    return Lived(seconds, master / tasks, borglet / tasks, rest)


def _until_dead(client: Client, key: str) -> None:
    began = time.perf_counter()
    while (job := client.get(f"/v1/jobs/{key}", None, JobDetail).job).dead < job.tasks:
        spent = time.perf_counter() - began
        if spent > UP_SECONDS_MAX:
            raise TimeoutError(f"{key}: {job.dead} of {job.tasks} tasks are dead; {job.reason}")
        time.sleep(max(LOOK_SECONDS, LOOK_SHARE * spent))


# The control group around all


@contextmanager
def _counted() -> Iterator[Path | None]:
    """Be in a control group of its own that counts cpu, with all that this process starts; None where none
    can be made. Version 2 is not used: there the groups of runs are not inside that of their borglet."""
    proc = Path("/proc/self")
    mounts = cgroups.mounts((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    own = next((Path(each.own) for each in mounts if "cpuacct" in each.controllers), None)
    group = own / f"borgish-bench-{os.getpid()}" if own else None
    try:
        if group is not None:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        group = None
    try:
        yield group
    finally:
        if group is not None and own is not None:
            (own / "cgroup.procs").write_text(str(os.getpid()))
            with contextlib.suppress(OSError):  # what has outlived the cell keeps it
                group.rmdir()


def _around(group: Path | None) -> float:
    """Return the milliseconds of cpu that all in the group but this process have taken so far."""
    if group is None:
        return 0.0
    return int((group / "cpuacct.usage").read_text()) / 1e6 - 1000 * time.process_time()
