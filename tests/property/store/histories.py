"""Draws what may happen next to a cell: one event that its lifecycle allows, or None."""

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from borgish.bands import Bands
from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    RollBack,
)
from borgish.cell.decide import decide
from borgish.cell.events import (
    AnyEvent,
    BudgetRemoved,
    BudgetSet,
    CellFrozen,
    CellUnfrozen,
    JobChanged,
    JobForgotten,
    JobSubmitted,
    MachineCordoned,
    MachineDown,
    MachineDrained,
    MachineFacts,
    MachineJoined,
    MachineRemoved,
    MachineUncordoned,
    MachineUp,
    QuotaRemoved,
    QuotaSet,
    RulesSet,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
    TasksRestarted,
    TasksResubmitted,
)
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Cell, Drain, Job, Rules
from borgish.cell.observed import Observed
from borgish.cell.updates.rollback import RollbackTarget
from borgish.cell.updates.rollback_checks import decide_rollback
from borgish.cell.updates.rollout import remaining
from borgish.clock import Now
from borgish.errors import Refused
from borgish.resources import Resources
from borgish.spec.job import Constraint
from borgish.spec.shares import Share
from borgish.vocabulary import Band, Ending, Eviction, Runtime, State
from tests.contract.store.samples import job, machine

NAMES = ("a", "b", "c")
MACHINES = ("m1", "m2")
RULES = (Rules(), Rules(Bands(production=120, batch=110), quota_required=True))
PRIORITIES = st.sampled_from([0, 105, 150])
SIZES = st.integers(0, 6)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)  # NUL is among them


def next_event(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    """Return something that may happen to the cell as it is."""
    return data.draw(st.sampled_from(_CHOICES))(cell, data)


def _submit(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    spec = job(data.draw(st.sampled_from(NAMES)), data.draw(SIZES))
    spec = msgspec.structs.replace(spec, priority=data.draw(PRIORITIES))
    before = cell.jobs.get(spec.key)
    return None if before and before.state is not State.DEAD else JobSubmitted(spec)


def _of_rules(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    quota = Quota("ann", data.draw(st.sampled_from(Band)), Resources(1, 2, 3, {"a": 4}, {"gpu": 500}), 7.5)
    choices: list[AnyEvent] = [RulesSet(data.draw(st.sampled_from(RULES))), QuotaSet(quota)]
    if quota.key in cell.quotas:
        choices.append(QuotaRemoved(quota.key))
    budget = Budget("web", (Constraint("app", "==", ("web",)),), Share(data.draw(st.integers(1, 3))))
    choices += [BudgetSet(budget), CellFrozen("x"), CellUnfrozen()]
    if budget.name in cell.budgets:
        choices.append(BudgetRemoved(budget.name))
    return data.draw(st.sampled_from(choices))


def _join(_cell: Cell, data: st.DataObject) -> AnyEvent | None:
    return MachineJoined(machine(data.draw(st.sampled_from(MACHINES))))


def _of_machine(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    if not cell.machines:
        return None
    name, said = data.draw(st.sampled_from(sorted(cell.machines))), data.draw(TEXT)
    if not cell.placed[name] and data.draw(st.booleans()):
        return MachineRemoved(name)
    choices: tuple[AnyEvent, ...] = (
        MachineFacts(name, Resources(1, 2, 3), {"k": said}, (Runtime.DOCKER,), "boot-2"),
        MachineDown(name, said),
        MachineUp(name),
        MachineCordoned(name, said),
        MachineUncordoned(name),
        MachineDrained(name, (Drain("ann", 1.0, 2.0, said),)),
    )
    return data.draw(st.sampled_from(choices))


def _of_job(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    if not cell.jobs:
        return None
    found = cell.jobs[data.draw(st.sampled_from(sorted(cell.jobs)))]
    if found.rollout is None and data.draw(st.booleans()):
        return JobChanged(found.key, job(found.spec.name, data.draw(SIZES)))
    return JobForgotten(found.key) if found.state is State.DEAD else None


def _of_tasks(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    states = [(found, state) for found in cell.jobs.values() for state in State if _in(found, state)]
    if not states:
        return None
    found, state = data.draw(st.sampled_from(states))
    indexes = tuple(data.draw(st.lists(st.sampled_from(_in(found, state)), min_size=1, unique=True)))
    match state:
        case State.PENDING:
            return _of_pending(cell, data, found.key, indexes)
        case State.RUNNING:
            return _of_running(data, found.key, indexes)
        case State.DEAD:
            return None if found.rollout else TasksResubmitted(found.key, indexes)


def _of_pending(cell: Cell, data: st.DataObject, key: str, indexes: tuple[int, ...]) -> AnyEvent:
    if not cell.machines or data.draw(st.integers(0, 3)) == 0:
        return TasksEnded(key, indexes, Ending.KILL, ("asked",) * len(indexes))
    machines = tuple(data.draw(st.sampled_from(sorted(cell.machines))) for _ in indexes)
    ports = tuple((20000 + n,) for n in range(len(indexes))) if data.draw(st.booleans()) else ()
    return TasksPlaced(key, indexes, machines, ports)


def _of_running(data: st.DataObject, key: str, indexes: tuple[int, ...]) -> AnyEvent:
    many, said = len(indexes), data.draw(TEXT)
    ending, cause = data.draw(st.sampled_from(Ending)), data.draw(st.sampled_from(Eviction))
    nothing = (None,) * many
    choices: tuple[AnyEvent, ...] = (
        TasksRestarted(key, indexes, (3,) * many, (1,) * many, nothing, (said,) * many),
        TasksEvicted(key, indexes, cause, said),
        TasksEnded(key, indexes, ending, (said,) * many),
        TasksEnded(key, indexes, ending, (said,) * many, nothing, (9,) * many, (1.5,) * many),
    )
    return data.draw(st.sampled_from(choices))


def _of_rollback(cell: Cell, data: st.DataObject) -> AnyEvent | None:
    """Go on with a rollback under way, by some of the tasks that lag behind."""
    if not cell.rolling:
        return None
    key = data.draw(st.sampled_from(sorted(cell.rolling)))
    running = remaining(cell.jobs[key]).to_stop
    stop = data.draw(st.lists(st.sampled_from(running), unique=True)) if running else []
    return next(iter(_decided(cell, AdvanceRollouts({key: tuple(stop)}))), None)


def rollback(cell: Cell, then: Cell) -> AnyEvent | None:
    """Return what takes the cell back, None when it may not be."""
    try:
        command = RollBack(then.position, 1.5, max_affected=1000)
        (event,) = decide_rollback(cell, RollbackTarget(then), command, "tester", Now(9.0, 9.0)).events
    except Refused:
        return None
    return event


def _decided(cell: Cell, command: Command) -> tuple[AnyEvent, ...]:
    return decide(cell, Observed(), command, "tester", Now(9.0, 9.0)).events


def _in(found: Job, state: State) -> list[int]:
    return [task.index for task in found.tasks if task.state is state]


_CHOICES: tuple[Callable[[Cell, st.DataObject], AnyEvent | None], ...] = (
    _submit,
    _join,
    _of_machine,
    _of_rules,
    _of_job,
    _of_tasks,
    _of_tasks,
    _of_rollback,
)
