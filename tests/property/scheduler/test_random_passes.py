"""What holds for every plan on every cell, and after every history of passes."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from borgish.cell.events import (
    AnyEvent,
    HandoversBegan,
    HandoversEnded,
    IncomingEnded,
    JobSubmitted,
    MachineCordoned,
    MachineDown,
    MachineDrained,
    MachineJoined,
    MachineQuarantined,
    MachineReleased,
    MachineRemoved,
    MachineUncordoned,
    MachineUp,
    TasksEvicted,
    TasksHandedOver,
)
from borgish.cell.model import Cell, Drain, Job
from borgish.cell.observed import Observed, SeenMachine, forget_machine
from borgish.clock import Now
from borgish.scheduler import passes, scoring
from borgish.scheduler.affinity import UNFIT
from borgish.scheduler.feasibility import feasible
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.fleet.fleet import AMOUNTS, BY_ROW
from borgish.scheduler.pending import PendingQueue
from borgish.scheduler.placing import Taken, place
from borgish.scheduler.plan import Plan
from borgish.scheduler.policies.fragmentation import Hybrid
from borgish.scheduler.queue import Classes, levels, turns
from borgish.scheduler.schedule import Scheduler
from borgish.scheduler.scoring import ScoreCache, Scored, cost_of, costs_of
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, HandoverCause, split_task_name
from tests.profiles import examples
from tests.property.scheduler.random_cells import (
    MORE,
    SPECS,
    cells,
    devices_free,
    fits,
    held,
    over,
    ports_held,
    spec,
    strangers,
    suits,
    there_of,
)
from tests.unit.scheduler.cells import NOW, carry_out, happen, machine, preempt, touched

HYBRID = Hybrid()
STRANGERS = st.composite(strangers)


def copied(cell: Cell) -> Cell:
    return Cell(msgspec.msgpack.decode(msgspec.msgpack.encode(cell.snapshot()), type=type(cell.snapshot())))


@pytest.fixture(scope="module", autouse=True)
def explained() -> Iterator[None]:
    """Let each pass say of all that waits why it does as things are now, not only of some."""
    with patch.object(passes, "EXPLAINED_AGAIN", 1000):
        yield


def check_plan(cell: Cell, observed: Observed, plan: Plan, now: Now) -> None:
    """Carry the plan out, and check it task by task."""
    waiting = {(key, index) for key, indexes in cell.waiting.items() for index in indexes}
    before = {name: set(ports_held(cell, observed, name, now.mono)) for name in cell.machines}
    carry_out(cell, msgspec.structs.replace(plan, preemptions=(), promises=()))
    placed = [(each.job, index) for each in plan.placements for index in each.indexes]
    for key, index in placed:
        check_placed(cell, observed, key, index, before)
    carry_out(cell, msgspec.structs.replace(plan, preemptions=(), placements=()))
    promised = {(key, index) for there in cell.promised.values() for key, index in there}
    refused = [(each.job, n) for found in plan.refusals.values() for each in found for n in each.indexes]
    assert len(placed) == len(set(placed))
    assert len(refused) == len(set(refused))
    assert set(placed) | set(refused) | promised == waiting or plan.more
    assert not set(placed) & set(refused)
    assert not promised & {*placed, *refused}
    for key, index in refused:
        assert not any(fits(cell, observed, n, cell.jobs[key], index, now.mono) for n in cell.machines)
    check_refusals(cell, plan)
    check_preemptions(cell, plan)
    preempt(cell, plan)


def check_preemptions(cell: Cell, plan: Plan) -> None:
    """Only lower tasks below prod have to leave, each once, for somebody whose place is kept there."""
    victims = [(each.job, index) for each in plan.preemptions for index in each.indexes]
    assert len(victims) == len(set(victims))
    for each in plan.preemptions:
        key, index = split_task_name(each.preemptor)
        preemptor = cell.jobs[key]
        assert cell.jobs[each.job].spec.priority < min(200, preemptor.spec.priority)
        there = {cell.jobs[each.job].tasks[n].machine for n in each.indexes}
        assert there == {preemptor.tasks[index].promised}


def check_placed(cell: Cell, observed: Observed, key: str, index: int, before: dict[str, set[int]]) -> None:
    job = cell.jobs[key]
    handover = cell.handover(key, index)
    task = job.tasks[index] if handover is None else handover.task(index)
    there = cell.machines[task.machine]
    assert suits(cell, observed, task.machine, job)
    assert not over(there, held(cell, observed, task.machine), job.spec.needs(index))
    assert len(task.ports) == len(job.spec.ports)
    assert len(task.devices) == (job.spec.needs(index).devices.get("tpu", 0) + 999) // 1000
    free = devices_free(cell, observed, task.machine)  # strangers may have more of one than there is
    assert all(free[int(device.partition(":")[2])] >= 0 for device in task.devices)
    chosen = [port for port in task.ports if port not in job.spec.fixed_ports.values()]
    assert set(job.spec.fixed_ports.values()) <= set(task.ports)
    assert all(there.ports_low <= port <= there.ports_high for port in chosen)
    assert not before[task.machine] & set(task.ports)
    everybody = [port for _, each in there_of(cell, task.machine) for port in each.ports]
    assert len(everybody) == len(set(everybody))


def check_refusals(cell: Cell, plan: Plan) -> None:
    for each in (each for found in plan.refusals.values() for each in found):
        assert each.machines == len(cell.machines)
        assert all(0 < count <= each.machines for count in each.reasons.values())
        assert sum(each.reasons.values()) >= each.machines
        assert each.text
        assert each.hint


@given(cells())
def test_every_task_is_placed_right_or_refused_rightly(drawn: tuple[Cell, Observed]) -> None:
    cell, observed = drawn
    check_plan(cell, observed, Scheduler().schedule(cell, observed, NOW), NOW)


@given(cells(machines=40), st.data())
def test_a_few_machines_that_fit_will_do(drawn: tuple[Cell, Observed], data: st.DataObject) -> None:
    """Where not all machines are looked at, plans are as right, and what is kept of some stays right."""
    cell, observed = drawn
    scheduler = Scheduler(2)
    with patch.multiple(scoring, SCANNED_MIN=2, ENOUGH_MIN=1, ENOUGH_EACH=1):
        for step in range(3):
            check_plan(cell, observed, scheduler.schedule(cell, observed, NOW), NOW)
            change(cell, observed, data, step)
            scheduler.refresh(cell, observed, touched(cell) | observed.machines.keys())
            check_sampled(scheduler, cell)


def check_sampled(scheduler: Scheduler, cell: Cell) -> None:
    """Compare the costs that are kept of some rows with those of all."""
    assert scheduler._memory is not None
    fleet, classes, policy, scores = scheduler._memory
    for job in cell.jobs.values():
        kind = classes.of(cell, job, -1, fleet)
        costs, rows = scores.scored(fleet, kind, 1)
        if rows is not None:
            assert np.array_equal(costs, costs_of(fleet, policy, kind)[rows])
            assert np.count_nonzero(costs < UNFIT) >= 1


@given(cells(), st.integers(0, 3))
def test_the_same_seed_gives_the_same_plan(drawn: tuple[Cell, Observed], seed: int) -> None:
    cell, observed = drawn
    first = Scheduler(seed).schedule(cell, observed, NOW)
    assert Scheduler(seed).schedule(copied(cell), observed, NOW) == first


@given(cells(), st.data())
def test_caches_agree_with_the_cell_after_any_history(
    drawn: tuple[Cell, Observed], data: st.DataObject
) -> None:
    cell, observed = drawn
    scheduler, now = Scheduler(1), NOW
    for step in range(data.draw(st.integers(1, 4))):
        plan = scheduler.schedule(cell, observed, now)
        if data.draw(st.booleans()):
            check_plan(cell, observed, plan, now)
            done = scheduler.carried_out(cell, plan)
            scheduler.refresh(cell, observed, cell.machines.keys() - done)
            check_fleet(scheduler._current(cell, observed).fleet, Fleet.of(cell, observed, 1, now.mono))
            event(f"placed, and not read again: {bool(done)}")
        change(cell, observed, data, step)
        scheduler.refresh(cell, observed, touched(cell) | observed.machines.keys())
        now = now.later(data.draw(st.sampled_from([0.0, 1.0, 300.0])))
    scheduler._mono = now.mono
    kept = scheduler._current(cell, observed).fleet
    check_fleet(kept, Fleet.of(cell, observed, 1, now.mono))
    check_scores(kept, scheduler, cell)
    check_plan(cell, observed, scheduler.schedule(cell, observed, now), now)


MARKS: dict[str, Callable[[str], AnyEvent]] = {
    "down": lambda name: MachineDown(name, "silent"),
    "up": MachineUp,
    "cordon": MachineCordoned,
    "uncordon": MachineUncordoned,
    "quarantine": lambda name: MachineQuarantined(name, 5.0, 1),
    "release": MachineReleased,
    "drain": lambda name: MachineDrained(name, (Drain("ann", 1.0, 2.0),)),
    "undrain": lambda name: MachineDrained(name, ()),
}


def change(cell: Cell, observed: Observed, data: st.DataObject, step: int) -> None:
    """Let something happen to a cell."""
    for name in sorted(cell.machines):
        drawn = data.draw(st.sampled_from(["", "", "stranger", "leave", *MARKS]))
        if drawn in MARKS:
            happen(cell, MARKS[drawn](name))
        elif drawn == "stranger":
            data.draw(STRANGERS(observed, name))
        elif drawn == "leave" and not there_of(cell, name) and not cell.promised.get(name):
            happen(cell, MachineRemoved(name))
            forget_machine(observed, name)
    for job in list(cell.jobs.values()):
        running = [
            task.index for task in job.tasks if task.machine and task.index not in waiting_of(cell, job.key)
        ]
        chosen = data.draw(st.sampled_from([None, *running]))
        if chosen is not None:
            happen(cell, *data.draw(st.sampled_from(list(leaving(cell, job, chosen)))))
    if data.draw(st.booleans()):
        happen(cell, MachineJoined(machine(f"x{step}", **data.draw(MORE))))
        observed.machines[f"x{step}"] = SeenMachine()
    if data.draw(st.booleans()):
        happen(cell, JobSubmitted(spec(100 + step, "dan", data.draw(SPECS))))


def leaving(cell: Cell, job: Job, index: int) -> Iterator[tuple[AnyEvent, ...]]:
    """Yield what may happen to a task that leaves its machine: it is evicted, or it is replaced."""
    handover = cell.handover(job.key, index)
    yield (TasksEvicted(job.key, (index,), Eviction.DRAIN),)
    if handover is None:
        yield (HandoversBegan(job.key, (index,), HandoverCause.DRAIN),)
        return
    yield (HandoversEnded(job.key, (index,)),)
    if handover.attempt:
        yield (IncomingEnded(job.key, (index,)),)
        yield (TasksHandedOver(job.key, (index,)),)
        yield (TasksEvicted(job.key, (index,), Eviction.DRAIN, taken_over=(index,)),)


def waiting_of(cell: Cell, key: str) -> set[int]:
    return cell.waiting.get(key, set())


def check_fleet(kept: Fleet, fresh: Fleet) -> None:
    """Compare rows by name: those kept up to date with those read anew."""
    assert kept.row.keys() == fresh.row.keys()
    rows, there = list(kept.row.values()), [fresh.row[name] for name in kept.row]
    nothing = np.zeros((4, len(kept.names) + len(fresh.names)))
    for priority in kept.held.keys() | fresh.held.keys():
        ours, theirs = kept.held.get(priority, nothing), fresh.held.get(priority, nothing)
        assert np.array_equal(ours[:4, rows], theirs[:4, there]), priority
    for row, other_row in zip(rows, there, strict=True):
        for kind in range(min(kept.kinds.count, fresh.kinds.count)):
            same = next((n for n, k in kept.kinds.named.items() if k == kind), None)
            other = fresh.kinds.named.get(same, -1) if same else kind
            assert kept.free[kind, row] == (fresh.free[other, other_row] if other >= 0 else 0)
        assert kept.ports[row].taken == fresh.ports[other_row].taken
        assert kept.jobs[row] == fresh.jobs[other_row]
    for column in set(BY_ROW) - {*AMOUNTS, "changed"}:
        ours, theirs = getattr(kept, column)[..., rows], getattr(fresh, column)[..., there]
        # The running pass adds shares up, so that the last digits may differ.
        assert np.allclose(ours, theirs, rtol=0, atol=1e-9), column
    for column in set(BY_ROW) - {"runtimes", "working", "changed", "tie"}:
        assert not getattr(kept, column)[..., ~kept.present].any(), column


def check_scores(fleet: Fleet, scheduler: Scheduler, cell: Cell) -> None:
    """Compare, for every class: costs kept, computed for all rows at once, and one by one."""
    assert scheduler._memory is not None
    _, classes, policy, scores = scheduler._memory
    for job in cell.jobs.values():
        for index in (-1, *sorted(job.spec.overrides)):
            kind = classes.of(cell, job, index, fleet)
            costs = scores.costs(fleet, kind)
            assert np.array_equal(costs, costs_of(fleet, policy, kind))
            for row in np.flatnonzero(feasible(fleet, kind)).tolist():
                assert costs[row] == cost_of(fleet, policy, kind, row, 0)
                assert cost_of(fleet, policy, kind, row, 1) > costs[row]


@settings(max_examples=examples(30))
@given(cells(machines=200, jobs=3))
def test_feasibility_is_as_by_hand(drawn: tuple[Cell, Observed]) -> None:
    cell, observed = drawn
    fleet, classes = Fleet.of(cell, observed, 0, NOW.mono), Classes()
    for job in cell.jobs.values():
        for index in (0, *sorted(i for i in job.spec.overrides if i < job.spec.tasks)):
            passes = feasible(fleet, classes.of(cell, job, index, fleet))
            found = {name for name, row in fleet.row.items() if passes[row]}
            assert found == {n for n in cell.machines if fits(cell, observed, n, job, index, NOW.mono)}


@given(cells(), st.integers(1, 30))
def test_each_task_takes_the_cheapest_machine(drawn: tuple[Cell, Observed], count: int) -> None:
    cell, observed = drawn
    for job in cell.jobs.values():
        fleet, plain = (Fleet.of(cell, observed, 0, NOW.mono) for _ in range(2))
        kind = Classes().of(cell, job, 0, fleet)
        runs = [(bare(key), count) for key in ("a/a", "b/b", "a/a")]
        scored = Scored(ScoreCache(HYBRID).costs(fleet, kind))
        taken = place(fleet, HYBRID, kind, scored, runs, own_max=count)
        expected = [cheapest_rows(plain, Classes().of(cell, job, 0, plain), *run) for run in runs]
        assert [each.rows for each in taken] == expected
        alone = Fleet.of(cell, observed, 0, NOW.mono)
        kind = Classes().of(cell, job, 0, alone)
        scored = Scored(ScoreCache(HYBRID).costs(alone, kind))
        assert place(alone, HYBRID, kind, scored, runs[:1], own_max=0)[0].rows == expected[0]


def bare(key: str) -> Job:
    user, _, name = key.partition("/")
    return Job(key, 1, JobSpec(name, user, 1, ("true",)), 0.0, user)


def cheapest_rows(fleet: Fleet, kind: TaskClass, job: Job, count: int) -> list[int]:
    """Place tasks the plain way: look at every machine for every task."""
    rows = []
    for _ in range(count):
        passes = feasible(fleet, kind)
        costs = [
            (
                cost_of(fleet, HYBRID, kind, row, fleet.jobs[row].get(job.key, 0)) if passes[row] else UNFIT,
                row,
            )
            for row in range(len(fleet.names))
        ]
        cost, row = min(costs, default=(UNFIT, -1))
        if cost == UNFIT:
            break
        Taken().take(fleet, HYBRID, kind, job, [row])
        rows.append(row)
    return rows


@given(cells(), st.integers(0, 1000))
def test_the_queue_is_fair(drawn: tuple[Cell, Observed], position: int) -> None:
    cell, observed = drawn
    cell.position = position
    fleet = Fleet.of(cell, observed, 0, NOW.mono)
    priorities, seen = [], set()
    queue = PendingQueue(cell.waiting)
    queue.read(cell, Classes(), fleet, NOW.wall)
    taken, _ = queue.take(list(queue.classes), lambda _: 1000, len(queue.jobs), position)
    for level in levels([*filter(None, queue.special.values()), *taken], position):
        priorities.append(level[0][0].job.spec.priority)
        left = {user[0].job.spec.user: sum(len(job.indexes) for job in user) for user in level}
        had = dict.fromkeys(left, 0)
        last: dict[str, int] = {}
        for waiting in turns(level):
            user, key = waiting.job.spec.user, waiting.job.key
            _, index = waiting.take()
            assert last.get(key, -1) < index
            last[key] = index
            seen.add((key, index))
            had[user] += 1
            # Nobody gets a second turn more than anybody who still waits.
            assert all(had[user] - count <= 1 for name, count in had.items() if count < left[name])
    assert priorities == sorted(set(priorities), reverse=True)
    assert seen == {(key, index) for key, indexes in cell.waiting.items() for index in indexes}
