"""Random cells, and the plain answer to whether a task fits a machine, without arrays or caches."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Drain, Job, Machine, Taint, Task
from borgish.cell.observed import Observed
from borgish.resources import Resources
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec, Override, Preference, Toleration
from borgish.vocabulary import Ending, Phase, Runtime, TaintEffect
from tests.unit.scheduler.cells import cell_of, machine, observed_of

GB = 1_000_000_000
CONSTRAINTS = (
    Constraint("arch", "==", ("amd64",)),
    Constraint("rack", "in", ("r0", "r1")),
    Constraint("rack", "!=", ("r2",)),
    Constraint("disks", ">=", ("2",)),
    Constraint("gpu", "present"),
    Constraint("gpu", "not present"),
)


def needs(most: int) -> st.SearchStrategy[Resources]:
    return st.builds(
        Resources,
        st.integers(0, most * 500),
        st.integers(1, most).map(lambda amount: amount * GB + 1),
        st.integers(0, most).map(lambda amount: amount * GB),
        st.one_of(st.just({}), st.fixed_dictionaries({"gpu": st.integers(0, most // 4)})),
    )


def with_devices(amounts: st.SearchStrategy[Resources], millis: list[int]) -> st.SearchStrategy[Resources]:
    """Let some ask for, or have, devices."""
    devices: st.SearchStrategy[dict[str, int]] = st.one_of(
        st.just({}), st.fixed_dictionaries({"tpu": st.sampled_from(millis)})
    )
    return st.builds(lambda a, d: msgspec.structs.replace(a, devices=d), amounts, devices)


TAINTS = st.lists(
    st.builds(
        Taint,
        st.sampled_from(["gone", "ml"]),
        st.sampled_from(["", "x"]),
        st.sampled_from(TaintEffect),
        st.just(0.0),
    ),
    max_size=2,
    unique_by=lambda taint: taint.key,
).map(lambda taints: tuple(sorted(taints)))
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(["gone", "ml"]),
        st.sampled_from(["", "x", "y"]),
        st.sampled_from([None, None, 60.0]),
    ),
    max_size=2,
).map(tuple)


ATTRIBUTES = st.fixed_dictionaries(
    {"arch": st.sampled_from(["amd64", "arm64"])},
    optional={
        "rack": st.sampled_from(["r0", "r1", "r2"]),
        "disks": st.sampled_from(["1", "2", "x"]),
        "gpu": st.just("a100"),
    },
)
RUNTIMES = st.sampled_from([(Runtime.PROCESS,), (Runtime.DOCKER,), (Runtime.PROCESS, Runtime.DOCKER)])
MORE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "capacity": with_devices(needs(16), [1000, 3000]),
        "taints": st.one_of(st.just(()), TAINTS),
        "attributes": ATTRIBUTES,
        "runtimes": RUNTIMES,
        "ports_high": st.integers(19999, 20005),
        "port_next": st.integers(0, 20010),
        "up": st.integers(0, 5).map(bool),
        "cordoned": st.integers(0, 5).map(lambda drawn: not drawn),
        "quarantined_until": st.sampled_from([0.0] * 9 + [5.0]),
        "drains": st.sampled_from([(), (), (), (), (Drain("ann", 1.0, 2.0),)]),
    }
)
SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 12),
        "resources": with_devices(needs(8), [300, 700, 1000, 2000]),
        "tolerations": st.one_of(st.just(()), TOLERATIONS),
        "prefer": st.sampled_from([(), (), (Preference(Constraint("rack", "==", ("r0",)), 7),)]),
        "priority": st.sampled_from([0, 1, 100, 200, 300]),
        "runtime": st.sampled_from([Runtime.PROCESS, Runtime.PROCESS, Runtime.DOCKER]),
        "ports": st.sampled_from([(), (), ("http",), ("http", "admin")]),
        "constraints": st.lists(st.sampled_from(CONSTRAINTS), max_size=2).map(tuple),
        "overrides": st.dictionaries(
            st.integers(0, 11), st.builds(Override, resources=st.one_of(st.none(), needs(8))), max_size=2
        ),
    }
)


def spec(number: int, user: str, facts: dict[str, Any]) -> JobSpec:
    fixed = {"fixed": 20003} if facts["tasks"] == 3 else {}
    ports = (*facts["ports"], *fixed)
    return JobSpec(f"j{number}", user, run=("true",), **{**facts, "ports": ports, "fixed_ports": fixed})


@st.composite
def cells(draw: st.DrawFn, machines: int = 12, jobs: int = 8) -> tuple[Cell, Observed]:
    names = [f"m{number}" for number in range(draw(st.integers(0, machines)))]
    users = draw(st.lists(st.sampled_from(["ann", "bob", "cid"]), max_size=jobs))
    cell = cell_of(
        [machine(name, **draw(MORE)) for name in names],
        [spec(number, user, draw(SPECS)) for number, user in enumerate(users)],
    )
    observed = observed_of(cell)
    for name in draw(st.lists(st.sampled_from(names), unique=True)) if names else ():
        strangers(draw, observed, name)
    return cell, observed


def strangers(draw: st.DrawFn, observed: Observed, name: str) -> None:
    """Let a machine have an attempt that is leaving, one that ended, a blocked port, a broken runtime."""
    seen = observed.machines[name]
    port = draw(st.integers(20000, 20006))
    key = ("old/job/0", draw(st.integers(1, 3)))
    ended = draw(st.sampled_from([None, None, Ending.FAIL]))
    tpu = draw(st.sampled_from([0, 0, 400, 1000]))
    needed = msgspec.structs.replace(draw(needs(4)), devices={"tpu": tpu} if tpu else {})
    devices = ("tpu:0",) if tpu else ()
    seen.put(SeenAttempt(*key, Phase.STOPPING, needed, (port,), ended=ended, devices=devices))
    seen.ports_blocked = {draw(st.integers(20000, 20006)): draw(st.sampled_from([50.0, 500.0]))}
    seen.unhealthy_runtimes = draw(st.sampled_from([(), (), (Runtime.DOCKER,)]))
    seen.unkillable = draw(st.sampled_from([set(), set(), set(), {key}]))


def there_of(cell: Cell, name: str) -> list[tuple[Job, Task]]:
    """Return what should run on a machine; of incoming attempts the tasks as they will be."""
    found = [(cell.jobs[key], cell.jobs[key].tasks[index]) for key, index in cell.placed[name]]
    arriving = cell.arriving.get(name, ())
    return found + [(cell.jobs[key], cell.handovers[key][index].task(index)) for key, index in arriving]


def held(cell: Cell, observed: Observed, name: str) -> Resources:
    """Return what is held on a machine: by the tasks placed there, and by attempts that are leaving."""
    total = Resources()
    for job, placed in there_of(cell, name):
        total = total.plus(job.spec.needs(placed.index))
    for key, index in cell.promised.get(name, ()):
        total = total.plus(cell.jobs[key].spec.needs(index))
    for (task, attempt), seen in observed.machines[name].attempts.items():
        if seen.ended is None and not cell.is_wanted(name, task, attempt):
            total = total.plus(seen.needs)
    return total


def ports_held(cell: Cell, observed: Observed, name: str, mono: float) -> list[int]:
    """Return the ports in use on a machine, each as often as it is used."""
    found = [port for _, task in there_of(cell, name) for port in task.ports]
    for (task, attempt), seen in observed.machines[name].attempts.items():
        if seen.ended is None and not cell.is_wanted(name, task, attempt):
            found += seen.ports
    return found + [port for port, until in observed.machines[name].ports_blocked.items() if until > mono]


def suits(cell: Cell, observed: Observed, name: str, job: Job) -> bool:
    """Return whether a machine is one for the job, whatever is free there."""
    there, broken = cell.machines[name], observed.machines[name].unhealthy_runtimes
    return (
        there.up
        and there.takes_tasks
        and job.spec.runtime in there.runtimes
        and job.spec.runtime not in broken
        and not observed.machines[name].has_unkillable
        and all(matches(constraint, there.attributes) for constraint in job.spec.constraints)
        and not any(keeps_off(taint, job.spec) for taint in there.taints)
    )


def keeps_off(taint: Taint, wanted: JobSpec) -> bool:
    """Return whether a taint keeps new tasks of a job away."""
    tolerated = [t for t in wanted.tolerations if t.taint == taint.key and t.value in ("", taint.value)]
    if taint.effect is TaintEffect.EVICT:
        return not any(t.for_seconds is None for t in tolerated)
    return taint.effect is TaintEffect.REFUSE and not tolerated


def devices_free(cell: Cell, observed: Observed, name: str) -> list[int]:
    """Return the thousandths free of each device of a machine."""
    free = [1000] * (cell.machines[name].capacity.devices.get("tpu", 0) // 1000)
    users = [(task.devices, job.spec.needs(task.index).devices) for job, task in there_of(cell, name)]
    for (task, attempt), seen in observed.machines[name].attempts.items():
        if seen.ended is None and not cell.is_wanted(name, task, attempt):
            users.append((seen.devices, seen.needs.devices))
    for devices, asked in users:
        for device in devices:
            number = int(device.partition(":")[2])
            if number < len(free):
                free[number] -= min(1000, asked.get("tpu", 0))
    return free


def has_devices(cell: Cell, observed: Observed, name: str, millis: int) -> bool:
    free = devices_free(cell, observed, name)
    if millis < 1000:
        return not millis or max(free, default=0) >= millis
    return free.count(1000) >= millis // 1000


def fits(cell: Cell, observed: Observed, name: str, job: Job, index: int, mono: float) -> bool:
    """Return whether one task could go to a machine now."""
    there = cell.machines[name]
    taken = set(ports_held(cell, observed, name, mono))
    ports = sum(port not in taken for port in range(there.ports_low, there.ports_high + 1))
    fixed = job.spec.fixed_ports
    if ports < len(job.spec.ports) - len(fixed) or not suits(cell, observed, name, job):
        return False
    if taken & set(fixed.values()):
        return False
    if not has_devices(cell, observed, name, job.spec.needs(index).devices.get("tpu", 0)):
        return False
    wanted, used = job.spec.needs(index), held(cell, observed, name)
    return not over(there, used.plus(wanted), wanted)


def over(there: Machine, used: Resources, of: Resources) -> bool:
    """Return whether more is used than there is, of what is asked for."""
    pairs = [
        (of.cpu_millis, used.cpu_millis, there.capacity.cpu_millis),
        (of.ram_bytes, used.ram_bytes, there.capacity.ram_bytes),
        (of.disk_bytes, used.disk_bytes, there.capacity.disk_bytes),
        *((n, used.named.get(name, 0), there.capacity.named.get(name, 0)) for name, n in of.named.items()),
        *((n, used.devices.get(k, 0), there.capacity.devices.get(k, 0)) for k, n in of.devices.items()),
    ]
    return any(wanted and amount > capacity for wanted, amount, capacity in pairs)
