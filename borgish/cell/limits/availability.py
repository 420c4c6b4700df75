"""Which tasks are down: wanted, and not there for those who use them.

It follows from the cell and from what was observed. Where the master tells of all that changes
(``note_tasks``, ``note_touched``), only that is looked at again, for the jobs that are asked about: a job of
10,000 tasks is walked once, and again when its own record changes. What a new master has not heard of is down
until it has.
"""

from collections.abc import Iterable, Set
from typing import NamedTuple

from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Job, Task
from borgish.cell.observed import Known, KnownBudget, KnownJob, Observed
from borgish.cell.touched import Touched
from borgish.clock import Now
from borgish.vocabulary import Ending, JobKind, Phase, State, task_name


def why_down(cell: Cell, observed: Observed, job: Job, task: Task) -> str:
    """Return why a task is down, in words; "" where it is not.

    A task that is dead, or more than are wanted, is not: nobody waits for it. One that is probed is down
    until its probe has answered, if it is a service.
    """
    if task.state is State.DEAD or task.index >= job.tasks_wanted:
        return ""
    if task.state is State.PENDING:
        return str(State.PENDING)
    machine = cell.machines.get(task.machine)
    if machine is None or not machine.up:
        return f"{task.machine} is down"
    spec = job.spec_of(task)
    if spec.kind is JobKind.ALLOC_SET:
        return ""  # reserved: there is nothing to come up
    seen = observed.attempt(task.machine, task_name(job.key, task.index), task.attempt)
    if seen is None:
        return f"not reported by {task.machine} yet"
    if seen.ended is not None:
        return "ended"
    if seen.phase is Phase.UP and spec.health is not None and spec.is_service:
        return "not healthy yet"
    return "" if seen.phase in (Phase.UP, Phase.HEALTHY) else str(seen.phase)


RECOVERED_SECONDS = 30.0
"""A program that had to be restarted has settled when it was up for so long, since the pauses between its
crashes grow."""


def is_settled(job: Job, seen: SeenAttempt, seconds: float, now: Now) -> bool:
    """Return whether an attempt that runs the job's present version does its work, and has for so long. One
    that runs to completion need not be ready for anybody: it has only to run."""
    if seen.ended is not None:
        return seen.ended is Ending.FINISH
    is_up = seen.phase is Phase.HEALTHY or (
        seen.phase is Phase.UP and (job.spec.health is None or not job.spec.is_service)
    )
    return is_up and now.mono - seen.since >= max(seconds, RECOVERED_SECONDS if seen.restarts else 0.0)


def has_reported(observed: Observed, machine: str) -> bool:
    """Return whether a machine has told this master what it runs.

    Of one that has not, all counts as down, and may be up: it is not free to move until then, or each new
    master would take down what is up.
    """
    seen = observed.machines.get(machine)
    return seen is not None and bool(seen.instance)


def down_of(cell: Cell, observed: Observed, job: Job) -> Set[int]:
    """Return the indexes of a job's tasks that are down. They are read, not kept: the set may change."""
    known = observed.availability
    if known is None:
        return find_down(cell, observed, job)
    there = known.jobs.get(job.key)
    if (
        there is None
        or there.job is not job
        or there.spec is not job.spec
        or there.tasks_wanted != job.tasks_wanted
    ):
        there = KnownJob(job, job.spec, job.tasks_wanted, find_down(cell, observed, job))
        known.jobs[job.key] = there
        return there.down
    for index in there.changed:
        if index < len(job.tasks) and why_down(cell, observed, job, job.tasks[index]):
            there.down.add(index)
        else:
            there.down.discard(index)
    there.changed.clear()
    return there.down


def find_down(cell: Cell, observed: Observed, job: Job) -> set[int]:
    """Return the same by looking at every task."""
    return {task.index for task in job.tasks if why_down(cell, observed, job, task)}


def live_tasks(job: Job) -> int:
    """Return how many tasks a job should have running: those wanted that are not over."""
    live = job.pending + job.running
    return live - sum(task.state is not State.DEAD for task in job.tasks[job.tasks_wanted :])


class Count(NamedTuple):
    """Of the jobs of a budget: the tasks that should run, and of these those that are down."""

    live: int
    down: int


def count_of(cell: Cell, observed: Observed, budget: str) -> Count:
    """Return how many tasks a budget is about."""
    members, known = cell.members.of(budget), observed.availability
    if known is None:
        each = [_count(cell, observed, job) for job in members]
        return Count(sum(live for live, _ in each), sum(down for _, down in each))
    there = known.budgets.get(budget)
    if there is None or there.members is not members:
        there = known.budgets[budget] = KnownBudget(members, changed=set(members))
    for job in there.changed:
        before = there.jobs.pop(job, (0, 0))
        now = _count(cell, observed, job) if job in members else (0, 0)
        if now != (0, 0):
            there.jobs[job] = now
        there.live += now[0] - before[0]
        there.down += now[1] - before[1]
    there.changed.clear()
    return Count(there.live, there.down)


def _count(cell: Cell, observed: Observed, key: str) -> tuple[int, int]:
    job = cell.jobs[key]
    return live_tasks(job), len(down_of(cell, observed, job))


# For the master's step, which tells of all that changes


def keep_availability(cell: Cell, observed: Observed) -> None:
    """Keep what is found out from now on."""
    down = {name for name, machine in cell.machines.items() if not machine.up}
    links = cell.links
    changed = {*links.followers, *links.children}
    observed.availability = Known(machines_down=down, changed=changed)


def note_tasks(observed: Observed, job: str, indexes: Iterable[int]) -> None:
    """Note that something else is seen of tasks of a job."""
    known = observed.availability
    if known is None:
        return
    known.changed.add(job)
    if (there := known.jobs.get(job)) is not None:
        there.changed.update(indexes)
    if (rollout := known.rollouts.get(job)) is not None:
        rollout.seen.update(indexes)
    for budget in known.budgets.values():
        if job in budget.members or job in budget.jobs:
            budget.changed.add(job)


def note_touched(cell: Cell, observed: Observed, touched: Touched) -> None:
    """Note what an entry wrote to."""
    known = observed.availability
    if known is None:
        return
    for job, indexes in touched.tasks.items():
        _forget_rollout(known, job)
        note_tasks(observed, job, indexes)
        link = cell.links.of(job)
        known.changed.update(name for name, _ in link.awaited)
        if link.parent:
            known.changed.add(link.parent)
    for job in touched.jobs_gone | touched.tasks_gone.keys():
        _forget_rollout(known, job)
        note_tasks(observed, job, ())
        known.jobs.pop(job, None)
    for name in touched.budgets - cell.budgets.keys():
        known.budgets.pop(name, None)
    for name in touched.machines:
        machine = cell.machines.get(name)
        if machine is not None and machine.up is (name in known.machines_down):
            known.machines_down.symmetric_difference_update((name,))
            for job, index in cell.placed[name]:
                note_tasks(observed, job, (index,))
    known.machines_down -= touched.machines_gone


def _forget_rollout(known: Known, job: str) -> None:
    known.rollouts.pop(job, None)
    known.calm.discard(job)
