"""How many more tasks of a job find room: the real scheduler is asked to place more than there can be."""

from collections import Counter

import msgspec

from borgish.cell.allocs import check_inside
from borgish.cell.commands import SubmitJob
from borgish.cell.events import Entry, TasksEvicted
from borgish.cell.model import Rules
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Refused
from borgish.master.core import Core
from borgish.master.step import Ask
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.schedule import Scheduler, with_only
from borgish.sim.faux.copied import ACTOR, twin
from borgish.sim.packing import NobodyLeaves
from borgish.spec.job import JobSpec
from borgish.vocabulary import TASKS_PER_JOB_MAX, State

TRIAL = "fauxmaster-trial"
TASKS_MAX = 1_000_000
STEPS_MAX = 10_000


class Fit(msgspec.Struct, frozen=True):
    """How many tasks find room while nobody leaves, by machine, and what stops the next one ("": nothing).

    ``preempting`` is how many one job gets in all when tasks of a lower priority leave for it: ``evicted``.
    """

    machines: dict[str, int]
    refusal: str
    hint: str
    preempting: int = 0
    evicted: int = 0

    @property
    def tasks(self) -> int:
        """How many in all."""
        return sum(self.machines.values())


def fit(cell: Cell, wall: float, spec: JobSpec) -> Fit:
    """Return how many more tasks of a job there is room for. Quotas say what somebody may have, not what
    there is room for, and are left out; so is that a gang is placed whole. Raises Refused where its alloc
    set is not there."""
    check_inside(cell, spec)  # here it is still told by its own name
    trial = msgspec.structs.replace(spec, name=TRIAL, overrides={}, gang=False)
    trial = msgspec.structs.replace(trial, tasks=_more_than_fit(cell, trial))
    now = Now(wall, 0.0)
    plan = Scheduler(budget=NobodyLeaves()).schedule(
        with_only(cell, trial, now), Observed(), now, budget=trial.tasks
    )
    placed = Counter(machine for placement in plan.placements for machine in placement.machines)
    refusal = next(iter(plan.refusals.get(trial.key, ())), None)
    text, hint = (refusal.text, refusal.hint) if refusal is not None else ("", "")
    found = Fit(dict(sorted(placed.items())), text, hint)
    return _with_preemption(cell, now, trial, found) if refusal and _may_preempt(cell, trial) else found


def _more_than_fit(cell: Cell, spec: JobSpec) -> int:
    """Return a number of tasks for which there can be no room, not even on empty machines.

    What holds between the tasks of one job is asked about one job, which is bounded.
    """
    if spec.spread or spec.near or spec.apart:
        return TASKS_PER_JOB_MAX
    needs, machines = spec.resources, cell.machines.values()
    cpu = sum(machine.capacity.cpu_millis for machine in machines) // max(1, needs.cpu_millis)
    ram = sum(machine.capacity.ram_bytes for machine in machines) // max(1, needs.ram_bytes)
    return min(TASKS_MAX, 1 + min(cpu, ram))


def _may_preempt(cell: Cell, spec: JobSpec) -> bool:
    below = min(spec.priority, cell.rules.bands.production)
    return any(job.running and job.spec.priority < below for job in cell.jobs.values())


def _with_preemption(cell: Cell, now: Now, trial: JobSpec, found: Fit) -> Fit:
    """Submit a job as large as one can be to the real master, which sends away whom it may."""
    cell = twin(cell)
    cell.quotas.clear()
    cell.rules = Rules(cell.rules.bands)
    core = Core(cell, ReconcileSettings(), now)
    _stepped(core, now, None)
    job = msgspec.structs.replace(trial, tasks=min(trial.tasks, TASKS_PER_JOB_MAX))
    entries = _stepped(core, now, job)
    placed = sum(task.state is State.RUNNING for task in core.cell.jobs[job.key].tasks)
    events = [event for entry in entries for event in entry.events if isinstance(event, TasksEvicted)]
    evicted = {(event.job, index) for event in events for index in event.indexes}
    # Who may leave is not known to what said that nobody does: its hint would be about that.
    refusal = next(iter(core.refusals.get(job.key, ())), None)
    text, hint = (refusal.text, refusal.hint) if refusal is not None else (found.refusal, "")
    found = msgspec.structs.replace(found, refusal=text, hint=hint)
    if placed <= found.tasks:
        return found
    return msgspec.structs.replace(found, preempting=placed, evicted=len(evicted))


def _stepped(core: Core, now: Now, spec: JobSpec | None) -> list[Entry]:
    """Submit a job, or nothing, and step until all is placed that can be. Raises Refused."""
    step = core.step([Ask(1, SubmitJob(spec), ACTOR)] if spec is not None else [], now)
    for _, reply in step.replies:
        if isinstance(reply, Refused):
            raise reply
    entries = list(step.entries)
    for _ in range(STEPS_MAX):
        if not step.more:
            break
        step = core.step([], now)
        entries += step.entries
    return entries
