"""Alloc sets, gangs, devices, fixed ports and rules in random lives of a real master core."""

from random import Random
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    JoinMachine,
    KillTasks,
    Observe,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SetMachineDown,
    SetMachineUp,
    SubmitJob,
    UncordonMachine,
)
from borgish.cell.events import PlacesPromised, TasksEvicted, TasksPlaced
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Job, Machine, Snapshot, Task
from borgish.cell.tasks.allocs import alloc_name, inside, is_alloc_set
from borgish.clock import Now
from borgish.link.conversation import attempt_spec
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.scheduler.affinity import selects
from borgish.scheduler.fleet import AllocFleet, Fleet
from borgish.spec.constraints import matches
from borgish.spec.job import Affinity, Constraint, JobSpec, Override, Spread
from borgish.vocabulary import JobKind, Phase, Runtime, State
from tests.profiles import examples
from tests.property.scheduler.test_random_passes import check_fleet

GIB = 1024**3
MACHINES = ("m0", "m1", "m2", "m3")


def record(chance: Random, name: str) -> Machine:
    rack = chance.choice(["r0", "r1", "r1", ""])
    return Machine(
        name=name,
        host="127.0.0.1",
        port=7000,
        tls=False,
        capacity=Resources(
            chance.randint(2, 4) * 1000, 8 * GIB, 0, {}, {"gpu": chance.randint(0, 3) * DEVICE_MILLIS}
        ),
        attributes={"rack": rack} if rack else {},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20003,
        boot_id="b",
        joined_at=0.0,
        port_next=20000,
    )


def devices(chance: Random) -> dict[str, int]:
    millis = chance.choice([0, 0, 0, 300, 500, 1000, 2000])
    return {"gpu": millis} if millis else {}


def room_spec(chance: Random, name: str) -> JobSpec:
    return JobSpec(
        name,
        "u",
        chance.randint(1, 4),
        (),
        resources=Resources(chance.choice([500, 1000, 1500]), GIB, devices=devices(chance)),
        kind=JobKind.ALLOC_SET,
        priority=chance.choice([0, 100, 200]),
        gang=chance.random() < 0.3,
    )


def job_spec(chance: Random) -> JobSpec:
    room, app = chance.choice(["", "", "r0", "r0", "r1"]), chance.choice("abcde")
    needs = Resources(chance.choice([100, 200, 500, 900]), GIB // 8, devices=devices(chance))
    fixed = chance.choice([{}, {}, {}, {"f": 20001}, {"f": 9000}])
    own = Override(resources=msgspec.structs.replace(needs, cpu_millis=chance.choice([300, 1200])))
    return JobSpec(
        f"{app}-{room}" if room else app,
        "u",
        chance.randint(1, 4),
        ("true",),
        resources=needs,
        ports=(*chance.choice([(), (), ("p",), ("p", "q")]), *fixed),
        fixed_ports=fixed,
        priority=chance.choice([0, 0, 100, 150, 200]),
        labels={"app": app},
        inside=f"u/{room}" if room else "",
        gang=chance.random() < 0.4,
        spread=some(chance, 0.3, Spread(over(chance), chance.randint(0, 2))),
        near=some(chance, 0.1, affinity(chance)),
        apart=some(chance, 0.2, affinity(chance)),
        overrides=chance.choice([{}, {}, {0: own}]),
    )


def some(chance: Random, likely: float, item: Any) -> tuple[Any, ...]:
    return (item,) if chance.random() < likely else ()


def over(chance: Random) -> str:
    return chance.choice(["machine", "rack"])


def affinity(chance: Random) -> Affinity:
    labels = (Constraint("app", "==", (chance.choice("ab"),)),)
    return Affinity(labels, over(chance), chance.choice([0, 0, 5]))


def unless_it_lives(cell: Cell, spec: JobSpec) -> JobSpec:
    """Return the specification that a live job has, instead of another: here none is updated."""
    job = cell.jobs.get(spec.key)
    return spec if job is None or job.state is State.DEAD else job.spec


def command(chance: Random, cell: Cell) -> Command:
    """Return something that somebody asks, or that happens to a machine."""
    kind, job, name = chance.random(), chance.choice(sorted(cell.jobs)), chance.choice(MACHINES)
    some_tasks = chance.choice([None, (0,), (0, 1)])
    if kind < 0.5:
        return SubmitJob(unless_it_lives(cell, job_spec(chance)))
    if kind < 0.55:
        return SubmitJob(unless_it_lives(cell, room_spec(chance, chance.choice(["r0", "r1"]))))
    if kind < 0.65:
        return ScaleJob(job, chance.randint(1, 5))
    if kind < 0.75:
        return KillTasks(job, some_tasks)
    if kind < 0.85:
        return RestartTasks(job, some_tasks, hurried=True)
    if kind < 0.93:
        return chance.choice([CordonMachine(name), UncordonMachine(name), UncordonMachine(name)])
    return chance.choice([SetMachineDown(name, "silent"), SetMachineUp(name), SetMachineUp(name)])


class Life:
    """A core, and beside it a cell that follows its journal entry by entry."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = Now(100.0, 100.0)
        self.core = Core(Cell(Snapshot("p")), ReconcileSettings(), self.now)
        self.shadow = Cell(Snapshot("p"))
        self.evicted: list[tuple[JobSpec, str]] = []  # in the same step, and where from
        self.follow(self.core.begin(1, "me", self.now))
        for name in MACHINES:
            self.do(JoinMachine(record(self.chance, name), "i", known=False))
        self.do(SubmitJob(room_spec(self.chance, "r0")), SubmitJob(room_spec(self.chance, "r1")))

    def go_on(self) -> None:
        """Let something happen."""
        names = sorted(self.core.cell.machines)
        match self.chance.random():
            case kind if kind < 0.15:
                for name in names:
                    self.report(name)
            case kind if kind < 0.3:
                self.leave(self.chance.choice(names))
            case _:
                self.do(command(self.chance, self.core.cell))

    def do(self, *given: Command) -> None:
        self.now = self.now.later(0.3)
        heard = PollsAnswered(dict.fromkeys(self.core.cell.machines, self.now.mono))
        step = self.core.step([heard, *(CommandRequest(1, each, "u") for each in given)], self.now)
        self.evicted = []
        self.follow(step)
        for _ in range(30):
            if not step.more:
                return
            step = self.core.step([], self.now)
            self.follow(step)
        raise AssertionError("the scheduler does not come to rest")

    def follow(self, step: Step) -> None:
        assert step.failures == ()
        for entry in step.entries:
            for event in entry.events:
                check_gang(self.shadow, event)
                check_promise(self.shadow, event)
                if isinstance(event, TasksEvicted):
                    job = self.shadow.jobs[event.job]
                    self.evicted += [(job.spec, job.tasks[index].machine) for index in event.indexes]
            apply_entry(self.shadow, entry)
            for event in entry.events:
                if isinstance(event, TasksPlaced):
                    check_rules(self.shadow, event, self.evicted)
        assert violations(self.core.cell) == []

    def report(self, name: str) -> None:
        """Let a machine say what runs: what should, and still what should not."""
        cell, seen = self.core.cell, self.core.observed.machines[name]
        attempts = [a for key, a in seen.attempts.items() if not cell.is_current(name, *key)]
        attempts += [
            reported(cell, cell.jobs[key], cell.jobs[key].tasks[index])
            for key, index in sorted(cell.placed[name])
            if not is_alloc_set(cell.jobs[key])
        ]
        self.do(Observe(name, "b", "i", tuple(attempts), whole=True))

    def leave(self, name: str) -> None:
        """Let what should not run on a machine be gone."""
        cell, seen = self.core.cell, self.core.observed.machines[name]
        gone = tuple(sorted(key for key in seen.attempts if not cell.is_current(name, *key)))
        self.do(Observe(name, "b", "i", (), gone=gone))


def reported(cell: Cell, job: Job, task: Task) -> SeenAttempt:
    spec = attempt_spec(cell, job, task)
    ports = tuple(spec.ports.values())
    return SeenAttempt(
        spec.task, spec.attempt, Phase.UP, spec.resources, ports, devices=spec.devices, alloc=spec.alloc
    )


def check_gang(cell: Cell, event: object) -> None:
    """What waits of a gang gets places all together, or none; so does all whose places are kept."""
    if isinstance(event, TasksPlaced | PlacesPromised) and cell.jobs[event.job].spec.gang:
        kept = {index for index in cell.waiting[event.job] if cell.jobs[event.job].tasks[index].promised}
        assert set(event.indexes) in (cell.waiting[event.job], kept, cell.waiting[event.job] - kept)


def check_promise(cell: Cell, event: object) -> None:
    """A kept place is given up only when its machine takes no tasks any more, or rules came in between."""
    if isinstance(event, PlacesPromised) and not all(event.machines):
        job = cell.jobs[event.job]
        there = [cell.machines[job.tasks[index].promised] for index in event.indexes]
        others = [term for other in cell.jobs.values() for term in other.spec.apart]
        ruled = bool(job.spec.near or job.spec.apart or job.spec.spread)
        ruled |= any(selects(term, job.spec) for term in others)
        assert ruled or any(
            not machine.up or machine.cordoned or machine.quarantined_until for machine in there
        )


def check_rules(cell: Cell, event: TasksPlaced, evicted: list[tuple[JobSpec, str]]) -> None:
    """Hard rules hold where a task is placed, also those of others.

    What it has to be near to may have been preempted in the same pass, or have its place kept there.
    """
    job = cell.jobs[event.job]
    others = [
        (other.spec, other.key == job.key, task)
        for other in cell.jobs.values()
        for task in other.tasks
        if task.state is State.RUNNING
    ]
    for index, name in zip(event.indexes, event.machines, strict=True):
        there = cell.machines[name]
        assert all(matches(constraint, there.attributes) for constraint in job.spec.constraints)
        for spread in job.spec.spread:
            value = value_of(there, spread.over)
            same = [
                t for _, own, t in others if own and value_of(cell.machines[t.machine], spread.over) == value
            ]
            assert not spread.max or (value and len(same) <= spread.max)
        for spec, own, task in others:
            if own and task.index == index:
                continue
            terms = [term for term in job.spec.apart if selects(term, spec)]
            terms += [term for term in spec.apart if selects(term, job.spec)]
            for term in (term for term in terms if not term.weight):
                assert value_of(there, term.over) != value_of(cell.machines[task.machine], term.over)
        for term in (term for term in job.spec.near if not term.weight):
            kept = [(cell.jobs[key].spec, at) for at, pairs in cell.promised.items() for key, _ in pairs]
            known = [*((spec, t.machine) for spec, _, t in others), *kept, *evicted]
            near = [
                spec
                for spec, at in known
                if value_of(there, term.over) == value_of(cell.machines[at], term.over)
            ]
            assert value_of(there, term.over)
            assert any(selects(term, spec) for spec in near)


def value_of(machine: Machine, over: str) -> str:
    return machine.name if over == "machine" else machine.attributes.get(over, "")


def check_arrays(core: Core) -> None:
    """What the scheduler keeps is what it would read anew."""
    scheduler, cell, observed = core._scheduler._scheduler, core.cell, core.observed
    scheduler.refresh(cell, observed, core._stale)
    kept = scheduler._current(cell, observed).fleet
    fresh = Fleet.of(cell, observed, 0, scheduler._mono)
    check_fleet(kept, fresh)
    check_devices_and_ports(kept, fresh)
    check_counters(kept)
    for key, room in scheduler._alloc_sets._alloc_sets.items() if scheduler._alloc_sets else ():
        room.fleet.read_on(cell, observed, sorted(room.stale))
        room.stale.clear()
        again = AllocFleet(kept, key)
        again.read_on(cell, observed, sorted(cell.machines))
        check_fleet(room.fleet, again)
        check_devices_and_ports(room.fleet, again)


def check_devices_and_ports(kept: Fleet, fresh: Fleet) -> None:
    for name, row in kept.row.items():
        there = fresh.row[name]
        ours, theirs = kept.device("gpu").free[:, row], fresh.device("gpu").free[:, there]
        assert [x for x in ours if x >= 0] == [x for x in theirs if x >= 0]
        for port in (20001, 9000):
            assert kept.fixed_ports.taken(port)[row] == fresh.fixed_ports.taken(port)[there]


def check_counters(kept: Fleet) -> None:
    """What is counted for spread and affinity is what is on the machines."""
    for counter in kept.topology._counters.values():
        by_row = [
            sum(n for key, n in jobs.items() if counter.choice.chooses(kept.topology._jobs[key].spec))
            for jobs in kept.jobs
        ]
        assert counter.by_row.tolist() == by_row


def check_refusals(core: Core) -> None:
    """What waits to run inside, alone and without rules, fits into no alloc; all that waits is told why."""
    cell = core.cell
    for key, waiting in cell.waiting.items():
        job = cell.jobs[key]
        told = [index for refusal in core.refusals.get(key, ()) for index in refusal.indexes]
        promised = [index for index in waiting if job.tasks[index].promised]
        assert sorted([*told, *promised]) == sorted(waiting)
        allocs = cell.jobs.get(job.spec.inside)
        if allocs is None or job.spec.gang or job.spec.spread or job.spec.near or job.spec.apart:
            continue
        if any(selects(term, job.spec) for other in cell.jobs.values() for term in other.spec.apart):
            continue
        for alloc in allocs.tasks:
            if alloc.state is State.RUNNING:
                for index in waiting:
                    assert not fits(core, allocs, alloc, job, index)


def fits(core: Core, allocs: Job, alloc: Task, job: Job, index: int) -> bool:
    """Return whether an alloc has room for a task, the plain way."""
    cell, seen, machine = core.cell, core.observed.machines[alloc.machine], core.cell.machines[alloc.machine]
    needs, room = job.spec.needs(index), allocs.spec.needs(alloc.index)
    inner = [(j.spec.needs(t.index), t.devices) for j, t in inside(cell, allocs, alloc.index)]
    ports = {p for k, n in cell.placed[machine.name] for p in cell.jobs[k].tasks[n].ports}
    for key, attempt in seen.attempts.items():
        if not cell.is_current(machine.name, *key) and attempt.ended is None:
            ports |= set(attempt.ports)
            if attempt.alloc == alloc_name(allocs, alloc.index):
                inner.append((attempt.needs, attempt.devices))
    kept = [cell.jobs[key].spec for key, _ in cell.promised.get(machine.name, ())]
    ports |= {port for spec in kept for port in spec.fixed_ports.values()}
    cpu = sum(used.cpu_millis for used, _ in inner)
    free = [port for port in range(20000, 20004) if port not in ports]
    fixed = set(job.spec.fixed_ports.values())
    dynamic = len(job.spec.ports) - len(fixed)
    dynamic += sum(len(spec.ports) - len(spec.fixed_ports) for spec in kept)
    return (
        machine.up
        and machine.takes_tasks
        and cpu + needs.cpu_millis <= room.cpu_millis
        and not fixed & ports
        and len(free) >= dynamic + len(fixed & set(free))
        and has_devices(needs.devices.get("gpu", 0), room.devices.get("gpu", 0), alloc.devices, inner)
    )


def has_devices(wanted: int, room: int, given: tuple[str, ...], inner: list[tuple[Resources, Any]]) -> bool:
    left = dict.fromkeys(given, min(room, DEVICE_MILLIS))
    for used, theirs in inner:
        for device in theirs:
            left[device] -= min(used.devices["gpu"], DEVICE_MILLIS)
    if not wanted:
        return True
    if wanted < DEVICE_MILLIS:
        return max(left.values(), default=0) >= wanted
    return list(left.values()).count(DEVICE_MILLIS) >= wanted // DEVICE_MILLIS


@settings(max_examples=examples(60))
@given(st.integers(0, 10**9))
@example(840)  # a part of a device is wanted where whole ones are kept
def test_a_life_with_allocs_gangs_and_rules_is_sound(seed: int) -> None:
    life = Life(seed)
    for _ in range(40):
        life.go_on()
        check_arrays(life.core)
        check_refusals(life.core)
