"""``fits`` and ``compact``: how many more tasks of a job find room, and how few machines would do.

The real scheduler is asked to place more than there can be.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter

import msgspec

from borgish.cell.commands import SubmitJob
from borgish.cell.events import Entry, TasksEvicted
from borgish.cell.model import Cell, Rules
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import check_inside
from borgish.clock import Now
from borgish.errors import Invalid, Refused
from borgish.master.core import Core
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import Scheduler, SchedulerSettings, with_only
from borgish.sim.faux.changes import file_arguments, job_in
from borgish.sim.faux.copied import ACTOR, copy_cell
from borgish.sim.faux.names import nearest
from borgish.sim.faux.output import Answer, cut
from borgish.sim.faux.session import Session
from borgish.sim.pack.command import show_compacted
from borgish.sim.pack.compact import TRIALS
from borgish.sim.pack.packed_cell import compact_cell, left_out
from borgish.spec.job import JobSpec
from borgish.text import plural
from borgish.vocabulary import TASKS_PER_JOB_MAX, State

TRIALS_MAX = 1000


def fits(session: Session, args: Namespace) -> Answer:
    """Say how many more tasks of a job would find room now, and what stops the next one."""
    spec = job_in(args.job, session.here, args.user)
    found = fit(session.here, session.now, spec)
    where = ", ".join(cut([f"{name}: {count}" for name, count in found.machines.items()], 20))
    lines = [f"{found.tasks} more tasks of {spec.name} fit{f' ({where})' if where else ''}"]
    if found.preempting:
        gone = plural(found.evicted, "task")
        lines.append(f"{found.preempting} of one job, if {gone} of lower priority leave for them")
    if found.refusal:
        lines.append(f"the next one: {found.refusal}")
        lines += [f"hint: {found.hint}"] if found.hint else []
    else:
        lines.append("nothing stops the next one: so many were tried")
    return Answer(tuple(lines), {"job": spec.key, "tasks": found.tasks} | msgspec.to_builtins(found))


def compact_arguments(parser: ArgumentParser) -> None:
    """By which policy, and how often."""
    usual = SchedulerSettings().policy
    parser.add_argument(
        "--policy", default=usual, metavar="P", help=f"{', '.join(POLICIES)}; {usual} if not given"
    )
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help=f"{TRIALS} if not given")
    parser.add_argument("--seed", type=int, default=0, metavar="N")


def compact(session: Session, args: Namespace) -> Answer:
    """Say how few of its machines would do for what runs now."""
    if args.policy not in POLICIES:
        raise Invalid(f"there is no policy '{args.policy}'", nearest(args.policy, POLICIES, "policies"))
    if not 1 <= args.trials <= TRIALS_MAX:
        raise Invalid(f"{args.trials} is outside 1 to {TRIALS_MAX} trials")
    found = compact_cell(session.here, args.policy, args.seed, args.trials)
    data = {"machines": found.machines, "tasks": found.tasks, "result": found.result, "needed": found.needed}
    out = left_out(session.here)
    lines = [*show_compacted(found).split("\n"), *([f"left out: {', '.join(cut(out, 12))}"] if out else [])]
    return Answer(tuple(lines), data | {"left_out": out})


COMMANDS = {"fits": (file_arguments, fits), "compact": (compact_arguments, compact)}


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
    check_inside(cell, spec)  # here the error still has its own name
    trial = msgspec.structs.replace(spec, name=TRIAL, overrides={}, gang=False)
    trial = msgspec.structs.replace(trial, tasks=_more_than_fit(cell, trial))
    now = Now(wall, 0.0)
    plan = Scheduler(preempts=False).schedule(
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
    cell = copy_cell(cell)
    cell.quotas.clear()
    cell.rules = Rules(cell.rules.bands)
    core = Core(cell, ReconcileSettings(), now)
    _stepped(core, now, None)
    job = msgspec.structs.replace(trial, tasks=min(trial.tasks, TASKS_PER_JOB_MAX))
    entries = _stepped(core, now, job)
    placed = sum(task.state is State.RUNNING for task in core.cell.jobs[job.key].tasks)
    events = [event for entry in entries for event in entry.events if isinstance(event, TasksEvicted)]
    evicted = {(event.job, index) for event in events for index in event.indexes}
    # Who may leave is not known to the scheduler that lets nobody leave: its hint would be about that.
    refusal = next(iter(core.refusals.get(job.key, ())), None)
    text, hint = (refusal.text, refusal.hint) if refusal is not None else (found.refusal, "")
    found = msgspec.structs.replace(found, refusal=text, hint=hint)
    if placed <= found.tasks:
        return found
    return msgspec.structs.replace(found, preempting=placed, evicted=len(evicted))


def _stepped(core: Core, now: Now, spec: JobSpec | None) -> list[Entry]:
    """Submit a job, or nothing, and step until all is placed that can be. Raises Refused."""
    step = core.step([CommandRequest(1, SubmitJob(spec), ACTOR)] if spec is not None else [], now)
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
