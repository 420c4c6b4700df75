"""Whether what was taken down on purpose kept to the budgets, judged by what truly ran: the journal says what
was wanted and who was sent away, the machines when each program ran. The gate is not asked.

Only what is sure counts as down: a task that had no place, or whose program had not been started once. Only
what was truly up, for a while and on a machine that the master heard, counts as taken down.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, RolloutWentOn, TasksEvicted, TasksHandedOver
from borgish.cell.limits.availability import live_tasks
from borgish.cell.model import Cell, Job, Snapshot, Task
from borgish.sim.machines import Machine
from borgish.spec.shares import Share
from borgish.vocabulary import VOLUNTARY, Eviction, JobKind, RolloutKind, State, split_task_name, task_name
from borgish.wire.link import attempt_key

UP_SECONDS = 15.0
"""What has been up for so long, a master that hears its machine knows to be up."""
HEARD_SECONDS = 5.0

Tasks = set[tuple[str, int]]


def disruption_problems(
    entries: Iterable[Entry], decided_at: Mapping[int, float], machines: Mapping[str, Machine]
) -> list[str]:
    """Return what was taken down beyond a budget. ``decided_at``: by position, monotonic."""
    cell, problems = Cell(Snapshot("judged")), []
    for entry in entries:
        at = decided_at[entry.position]
        handed = _handed_to_nobody(cell, entry, machines, at)
        problems += [f"entry {entry.position}: {text}" for text in handed]
        if leaving := set(_taken_down(cell, entry, machines, at)):
            by_rollout = {event.job for event in entry.events if isinstance(event, RolloutWentOn)}
            broken = _broken(cell, leaving, machines, at, by_rollout)
            problems += [f"entry {entry.position}: {text}" for text in broken]
        apply_entry(cell, entry)
        cell.take_touched()
    return problems


def _handed_to_nobody(cell: Cell, entry: Entry, machines: Mapping[str, Machine], at: float) -> Iterator[str]:
    """Yield the tasks that are handed over to attempts whose programs had not begun so long before."""
    for event in (each for each in entry.events if isinstance(each, TasksHandedOver)):
        for index in event.indexes:
            name, handover = task_name(event.job, index), cell.handovers[event.job][index]
            key = attempt_key(name, handover.attempt)
            settled = at - cell.jobs[event.job].spec.update.settle_seconds
            if not machines[handover.machine].programs.had_begun(key, settled):
                yield f"{name} is handed over to {key} on {handover.machine}, which has not settled"


def _taken_down(
    cell: Cell, entry: Entry, machines: Mapping[str, Machine], at: float
) -> Iterator[tuple[str, int]]:
    """Yield the tasks that were up and are sent away on purpose by an entry."""
    for event in entry.events:
        if isinstance(event, TasksEvicted) and _is_held(cell, event):
            job, indexes = cell.jobs[event.job], event.indexes
        elif isinstance(event, RolloutWentOn) and not _is_hurried(cell.jobs[event.job]):
            job, indexes = cell.jobs[event.job], (*event.pending, *event.ended)
        else:
            continue
        for index in indexes:
            if index < job.tasks_wanted and _was_up(cell, job, job.tasks[index], machines, at):
                yield event.job, index


def _is_hurried(job: Job) -> bool:
    return job.rollout is not None and job.rollout.hurried


def _is_held(cell: Cell, event: TasksEvicted) -> bool:
    """Return whether budgets hold such an eviction: production preempts beyond them, and a restart is its
    user's own."""
    if event.cause is Eviction.PREEMPTED:
        preemptor = cell.jobs.get(split_task_name(event.preemptor)[0])
        return preemptor is not None and not cell.rules.bands.is_prod(preemptor.spec.priority)
    return event.cause in VOLUNTARY and event.cause is not Eviction.RESTART


def _was_up(cell: Cell, job: Job, task: Task, machines: Mapping[str, Machine], at: float) -> bool:
    there = cell.machines[task.machine]
    is_forced = any(drain.begun and drain.force for drain in there.drains)  # people said so
    if job.spec.kind is JobKind.ALLOC_SET or not there.up or is_forced:
        return False
    machine = machines[task.machine]
    key = attempt_key(task_name(job.key, task.index), task.attempt)
    # Also before: a borglet that has just begun reports what it has yet to find of its programs.
    is_heard = all(_heard(machine.answered_at, each) for each in (at - HEARD_SECONDS, at))
    return is_heard and machine.programs.ran(key, at - UP_SECONDS, at)


def _heard(answered_at: Sequence[float], at: float) -> bool:
    place = bisect_right(answered_at, at)
    return place > 0 and at - answered_at[place - 1] < HEARD_SECONDS


def _broken(
    cell: Cell, leaving: Tasks, machines: Mapping[str, Machine], at: float, by_rollout: Container[str]
) -> Iterator[str]:
    if cell.freeze is not None:
        yield f"{len(leaving)} tasks were taken down while the cell was frozen"
    for key in sorted({key for key, _ in leaving}):
        job = cell.jobs[key]
        share = job.spec.disruption.max_unavailable
        if key in by_rollout and job.rollout is not None and job.rollout.kind is not RolloutKind.ROLLBACK:
            share = job.spec.update.at_a_time or share  # its own update goes as far as it says
        if not (key in by_rollout and job.spec.gang):
            yield from _over([job], share, f"of {key}", leaving, machines, at)
    for name, budget in sorted(cell.budgets.items()):
        about = [job for job in cell.jobs.values() if budget.chooses(job.spec)]
        if {job.key for job in about} & {key for key, _ in leaving}:
            of = f"of the budget {name}"
            yield from _over(about, budget.max_unavailable, of, leaving, machines, at)


def _over(
    jobs: Sequence[Job],
    share: Share,
    of: str,
    leaving: Tasks,
    machines: Mapping[str, Machine],
    at: float,
) -> Iterator[str]:
    down = {(job.key, index) for job in jobs for index in _surely_down(job, machines, at)}
    keys = {job.key for job in jobs}
    gone = down | {(key, index) for key, index in leaving if key in keys}
    allowed = share.of(sum(live_tasks(job) for job in jobs))
    if len(gone) > allowed:
        yield f"{of} {len(gone)} tasks were down after it, and {allowed} may be"


def _surely_down(job: Job, machines: Mapping[str, Machine], at: float) -> Iterator[int]:
    for task in job.tasks[: job.tasks_wanted]:
        if task.state is State.PENDING:
            yield task.index
        elif task.state is State.RUNNING and job.spec.kind is not JobKind.ALLOC_SET:
            key = attempt_key(task_name(job.key, task.index), task.attempt)
            if task.machine in machines and not machines[task.machine].programs.had_begun(key, at):
                yield task.index
