"""What is to change so that a cell is again what it should have been at an earlier moment. Pure.

Rolled back is what people *want*: jobs with their specs, which of their tasks are to run, which machines
take which tasks and are to be empty, quotas and budgets. A freeze is of now, and stays as it is. What was
*observed* is not rolled back: machines are those there are now, a task that runs what it should run goes on
where it is and as it is, and no attempt comes back. So for each task there is an action:

- It is to run, and does, by the same spec as then: it stays untouched. By another spec, or where that spec
  does not let it be: it is stopped and runs anew.
- It is to run and is dead: it is pending again; unless its job runs to completion and this same program has
  finished or failed since then. That result is known, and nobody wants the work done twice.
- It is not to run: it ends, and what was known of it then is known again.

Crons are what they were then, and what was dealt with of them stays so: nothing that was due runs again.
Their runs are no matter of a rollback of the whole cell: those that go on do, and those that are over stay
so; by name they are jobs like any.

A job's spec counts as the same when nothing differs that a program notices (``same_program``).

What is to be stopped *lags behind* the rollback (``Job.rollout``): the job is at once what it is to be, and
those attempts run their version of it until the reconciler reaches them, a few a second.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import StrEnum, auto
from typing import Final

import msgspec

from borgish.cell.crons.model import Cron
from borgish.cell.events import AppRestored, JobRestored, MachineRestored
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import App, Cell, Drain, Job, Machine, Rollout, Taint, Task, Version
from borgish.cell.tasks.allocs import evicted_with
from borgish.cell.touched import Touched
from borgish.spec.changes import SpecChange, TaskChange
from borgish.spec.constraints import matches
from borgish.spec.cron import same_times
from borgish.spec.diff import differences
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, State


class Change(StrEnum):
    """What becomes of a job."""

    RETURNS = "returns"
    CHANGES = "changes"
    VANISHES = "vanishes"


class JobPlan(msgspec.Struct, frozen=True):
    """What becomes of one job. ``restored`` is None for one that is gone at once."""

    job: str
    change: Change
    differences: tuple[str, ...]  # of the specs, in words
    restored: JobRestored | None
    stopped: int  # running tasks that end or run anew
    started: int
    kept: int  # running tasks that go on
    results_kept: int  # tasks that have finished since and do not run again
    after: JobSpec | None = None  # what it is when all is done; None: gone
    live: tuple[int, ...] = ()  # of its tasks then those that are to run


class RollbackTarget(msgspec.Struct, eq=False):
    """The cell that a rollback goes back to, and which records of the present cell may differ from it.

    To compare 100,000 jobs takes longer than a turn may. So they are compared before (``compare``), in slices
    between turns, and the turn that decides looks only at what is left, and at what it touched itself.
    """

    cell: Cell
    jobs: set[str] | None = None  # those that may differ; None: nothing was compared, and any may
    machines: set[str] | None = None

    def note(self, touched: Touched) -> None:
        """Take in what a step wrote after the comparison began."""
        if self.jobs is not None and self.machines is not None:
            self.jobs |= touched.changed_jobs()
            self.machines |= touched.machines | touched.machines_gone


class RollbackInfo(msgspec.Struct, frozen=True):
    """What is alike in everything that one rollback does to running tasks; see ``Rollout``."""

    position: int
    to: int
    hurried: bool
    reason: str
    at: float


class Plan(msgspec.Struct, frozen=True):
    """What a rollback changes, job by job; what is not named stays as it is."""

    jobs: tuple[JobPlan, ...]
    machines: tuple[MachineRestored, ...]
    quotas: tuple[Quota, ...]
    quotas_gone: tuple[str, ...]
    budgets: tuple[Budget, ...]
    budgets_gone: tuple[str, ...]
    apps: tuple[AppRestored, ...]
    apps_gone: tuple[str, ...]
    crons: tuple[Cron, ...]  # as they are after it
    crons_gone: tuple[str, ...]
    machines_missing: tuple[str, ...]  # that were there then; they do not come back by themselves
    running: int  # tasks of the whole cell that run now
    moved: int  # running tasks that could go on, but leave with the alloc they run in

    @property
    def is_empty(self) -> bool:
        """Whether all is as it was."""
        limits = self.quotas or self.quotas_gone or self.budgets or self.budgets_gone
        jobs = self.jobs or self.apps or self.apps_gone or self.crons or self.crons_gone
        return not (self.machines or limits or jobs)

    @property
    def stopped(self) -> int:
        """How many running tasks end or run anew."""
        return self.moved + sum(job.stopped for job in self.jobs)

    @property
    def started(self) -> int:
        """How many tasks are started, anew or again."""
        return self.moved + sum(job.started for job in self.jobs)


def compare(now: Cell, target: RollbackTarget) -> Iterator[None]:
    """Find what a rollback of the whole cell may change, a record of the cell at each step.

    The cell may change between two steps, as long as ``target`` takes note of it.
    """
    then = target.cell
    target.jobs, target.machines = set(), set()
    for key in itertools.chain(list(now.jobs), then.jobs):
        if not _is_unchanged(now, then, key):
            target.jobs.add(key)
        yield
    for name, before in then.machines.items():
        there = now.machines.get(name)
        if there is None or not _marks(there) == _marks(before) == _NO_MARKS:
            target.machines.add(name)
        yield


def _is_unchanged(now: Cell, then: Cell, key: str) -> bool:
    """Return whether nothing becomes of a job, whatever the time is and whatever becomes of others."""
    job, before = now.jobs.get(key), then.jobs.get(key)
    if is_run(job or before):
        return True
    if job is None or before is None or job.rollout is not None or before.rollout is not None:
        return False
    return _header(job) == _header(before) and (_all_live(job, before) or _are_over_alike(job, before))


def _all_live(job: Job, before: Job) -> bool:
    """Return whether no task of a job is over, nor was then: where the specification is the same, each of
    them stays."""
    return not job.dead and not before.dead and job.rollout is None


def _are_over_alike(job: Job, before: Job) -> bool:
    pairs = zip(job.tasks, before.tasks, strict=True)
    return all(a.state is b.state is State.DEAD and a.ending is b.ending for a, b in pairs)


_NO_MARKS: Final = (False, (), ())


def _marks(machine: Machine) -> tuple[object, ...]:
    return machine.cordoned, machine.taints, machine.drains


def plan(
    now: Cell, target: RollbackTarget, only: frozenset[str], at: float, *, hurried: bool, reason: str
) -> Plan:
    """Return what makes the cell what it was to be then; with ``only``, only these of its jobs.

    ``at`` is the time now, in seconds since 1970. Neither cell is changed. Tasks of ``now`` may lag behind an
    earlier rollback: each counts by what it runs, and those that are to be stopped lag behind this one
    instead.
    """
    then = target.cell
    info = RollbackInfo(now.position + 1, then.position, hurried, reason, at)
    found: list[JobPlan | None] = []
    apps = now.apps if only else then.apps  # as they are after it
    for key in sorted(only or _jobs_to_look_at(now, target)):
        job, before = now.jobs.get(key), desired(then.jobs.get(key))
        if before is not None and before.app and before.app not in apps:
            before = msgspec.structs.replace(before, app="", owners={})
        if not only and is_run(now.jobs.get(key) or then.jobs.get(key)):
            continue
        if job is not None and before is not None:
            found.append(_changing(job, before, now.machines, info))
        elif job is not None:
            found.append(_vanishing(job, info))
        elif before is not None:
            found.append(_returning(before))
    jobs = tuple(one for one in found if one is not None)
    return Plan(
        jobs,
        () if only else tuple(_machines(now, target, at)),
        () if only else tuple(_quotas(now.quotas, then.quotas)),
        () if only else tuple(sorted(now.quotas.keys() - then.quotas.keys())),
        () if only else tuple(_budgets(now.budgets, then.budgets)),
        () if only else tuple(sorted(now.budgets.keys() - then.budgets.keys())),
        () if only else tuple(_apps(now.apps, then.apps)),
        () if only else tuple(sorted(now.apps.keys() - then.apps.keys())),
        () if only else tuple(_crons(now.crons, then.crons, at)),
        () if only else tuple(sorted(now.crons.keys() - then.crons.keys())),
        tuple(sorted(then.machines.keys() - now.machines.keys())),
        sum(job.running for job in now.jobs.values()),
        _moved(now, jobs),
    )


def _jobs_to_look_at(now: Cell, target: RollbackTarget) -> Set[str]:
    if target.jobs is None:
        return now.jobs.keys() | target.cell.jobs.keys()
    return target.jobs | now.touched.changed_jobs()


def _budgets(now: Mapping[str, Budget], then: Mapping[str, Budget]) -> Iterator[Budget]:
    for name, budget in sorted(then.items()):
        if name not in now or now[name].terms != budget.terms:
            yield budget


def _apps(now: Mapping[str, App], then: Mapping[str, App]) -> Iterator[AppRestored]:
    for key, before in sorted(then.items()):
        there = now.get(key)
        if there is None:
            yield AppRestored(key, before.uid, before.present, before.version, before.earlier)
        elif there.present.content != before.present.content:
            yield AppRestored(key, before.uid, before.present, there.version + 1)


def is_run(job: Job | None) -> bool:
    """Return whether a job began by a schedule."""
    return job is not None and job.cron != ""


def _crons(now: Mapping[str, Cron], then: Mapping[str, Cron], at: float) -> Iterator[Cron]:
    """Yield the crons of then: what is due from now on is, and what was dealt with stays so."""
    for key, before in sorted(then.items()):
        there = now.get(key)
        same = there is not None and (there.spec, there.app) == (before.spec, before.app)
        if there is not None and same and bool(there.paused) == bool(before.paused):
            continue
        cron = before if there is None else msgspec.structs.replace(there, spec=before.spec, app=before.app)
        following = 0.0 if before.paused else before.spec.times.after(max(at, cron.last))
        if there is not None and not there.paused and not before.paused and same_times(there.spec, cron.spec):
            following = there.next
        yield msgspec.structs.replace(
            cron, at=before.at, by=before.by, paused=before.paused, next=following, generation=0
        )


def _machines(now: Cell, target: RollbackTarget, at: float) -> Iterator[MachineRestored]:
    then = target.cell.machines
    names: Set[str] = then.keys() if target.machines is None else target.machines | now.touched.machines
    for name in sorted(names & now.machines.keys() & then.keys()):
        there, before = now.machines[name], then[name]
        taints = tuple(_taints(there.taints, before.taints, at))
        drains = tuple(_drains(there.drains, before.drains, at))
        if _marks(there) != (before.cordoned, taints, drains):
            reason = before.reason if before.cordoned else ""
            yield MachineRestored(name, before.cordoned, reason, taints, drains)


def _quotas(now: Mapping[str, Quota], then: Mapping[str, Quota]) -> Iterator[Quota]:
    for key, before in sorted(then.items()):
        there = now.get(key)
        if there is None or there.terms != before.terms:
            yield before


def _taints(now: tuple[Taint, ...], then: tuple[Taint, ...], at: float) -> Iterator[Taint]:
    """Yield the taints of then: one that is there goes on, and one that comes back begins now, so that
    nobody who tolerates it for a while has to leave at once."""
    there = {(taint.key, taint.value, taint.effect): taint for taint in now}
    for taint in then:
        fresh = msgspec.structs.replace(taint, since=at)
        yield there.get((taint.key, taint.value, taint.effect), fresh)


def _drains(now: tuple[Drain, ...], then: tuple[Drain, ...], at: float) -> Iterator[Drain]:
    """Yield the drains of then: one that is there goes on, and one that comes back begins now, with as long a
    deadline and within the budgets. A window that is over does not come back."""
    there = {(drain.window, drain.by, drain.reason): drain for drain in now}
    for drain in then:
        window = drain.window
        if found := there.get((window, drain.by, drain.reason)):
            yield found
        elif window is None:
            deadline = at + drain.deadline - drain.at
            yield msgspec.structs.replace(drain, at=at, deadline=deadline, force=False)
        elif window.ends > at:
            yield msgspec.structs.replace(drain, begun=window.drains_from <= at)


def _moved(now: Cell, jobs: tuple[JobPlan, ...]) -> int:
    """Return how many tasks leave only because the allocs that they run in do."""
    stopped = {
        one.job: one.restored.rollout.attempts
        for one in jobs
        if one.restored is not None and one.restored.rollout is not None
    }
    moved = 0
    for key, attempts in stopped.items():
        for event in evicted_with(now, now.jobs[key], attempts, ""):
            moved += sum(index not in stopped.get(event.job, {}) for index in event.indexes)
    return moved


def desired(job: Job | None) -> Job | None:
    """Return a job as it was to be: when a rollback was under way, as that was to leave it.

    Of the counts of tasks only that of the dead is right then.
    """
    if job is None or job.rollout is None:
        return job
    end = job.rollout
    if end.tasks == 0:
        return None
    spec = msgspec.structs.replace(job.spec, tasks=end.tasks)
    tasks = [end.records.get(task.index, task) for task in job.tasks[: end.tasks]]
    dead = sum(task.state is State.DEAD for task in tasks)
    return msgspec.structs.replace(job, spec=spec, tasks=tasks, dead=dead, rollout=None)


def _vanishing(job: Job, info: RollbackInfo) -> JobPlan | None:
    """Its tasks end; when none runs it is gone at once. None when that is under way."""
    rollout = _rollout(job, (task for task in job.tasks if task.state is State.RUNNING), 0, {}, info)
    if _is_under_way(job, None, rollout):
        return None
    restored = None
    if rollout.attempts:
        over = tuple(_killed(task, info.reason) for task in job.tasks if task.state is State.PENDING)
        restored = _restored(job, job.spec, job.generation, dead=over, rollout=rollout, version=job.version)
    return JobPlan(job.key, Change.VANISHES, (), restored, job.running, 0, 0, 0)


def _returning(before: Job) -> JobPlan:
    """It is no longer known: its tasks that were to run are pending, of the others it is known again."""
    over = tuple(task for task in before.tasks if task.state is State.DEAD)
    restored = _restored(
        before, before.spec, before.generation, dead=over, version=before.version, earlier=before.earlier
    )
    live = tuple(task.index for task in before.tasks if task.state is not State.DEAD)
    return JobPlan(before.key, Change.RETURNS, (), restored, 0, len(live), 0, 0, before.spec, live)


class _Action(StrEnum):
    """What becomes of one task that is there now and was there then."""

    KEEP = auto()
    KEEP_RESULT = auto()  # it was to run, and has a result
    REPLACE = auto()  # runs, and is to run something else
    STOP = auto()  # runs
    RERUN = auto()  # is dead, and is to run
    END = auto()  # does not run, and what was known of it then is known again


def _changing(job: Job, before: Job, machines: Mapping[str, Machine], info: RollbackInfo) -> JobPlan | None:
    """Return what becomes of a job that was there and is there; None when nothing does."""
    actions = _actions(job, before, machines)
    changed = {
        index for index, action in actions.items() if action not in (_Action.KEEP, _Action.KEEP_RESULT)
    }
    if not (changed or _header(job) != _header(before) or job.rollout is not None):
        return None
    ending = {index: before.tasks[index] for index in _with(actions, _Action.STOP)}
    behind = [job.tasks[index] for index in sorted([*ending, *_with(actions, _Action.REPLACE)])]
    behind += [task for task in job.tasks[len(before.tasks) :] if task.state is State.RUNNING]
    live = tuple(
        task.index
        for task in before.tasks
        if task.state is not State.DEAD and actions.get(task.index) is not _Action.KEEP_RESULT
    )
    rollout = _rollout(job, behind, len(before.tasks), ending, info)
    if changed <= rollout.attempts.keys() and _is_under_way(job, before, rollout):
        return None
    # Tasks too many stay while one of them runs, and those of them that wait are dead meanwhile.
    tasks = len(job.tasks) if any(i >= rollout.tasks for i in rollout.attempts) else len(before.tasks)
    missing = before.tasks[len(job.tasks) :]
    over = [before.tasks[index] for index in _with(actions, _Action.END)]
    over += [task for task in missing if task.state is State.DEAD]
    staying = job.tasks[len(before.tasks) : tasks]
    over += [_killed(task, info.reason) for task in staying if task.state is State.PENDING]
    restored = _restored(
        before,
        msgspec.structs.replace(before.spec, tasks=tasks),
        max(job.generation, before.generation) + (job.spec != before.spec),
        pending=tuple(_with(actions, _Action.RERUN)),
        dead=tuple(over),
        rollout=rollout if rollout.attempts else None,
        version=job.version + (not same_version(job.spec, before.spec)),
    )
    stopped = len(rollout.attempts)
    started = len(_with(actions, _Action.REPLACE)) + len(restored.pending)
    return JobPlan(
        job.key,
        Change.CHANGES,
        differences(job.spec, before.spec),
        restored,
        stopped,
        started + sum(task.state is not State.DEAD for task in missing),
        job.running - stopped,
        len(_with(actions, _Action.KEEP_RESULT)),
        before.spec,
        live,
    )


def _rollout(
    job: Job, behind: Iterable[Task], tasks: int, records: dict[int, Task], info: RollbackInfo
) -> Rollout:
    """Return the rollout by which running tasks of a job are reached."""
    attempts = {task.index: task.attempt for task in behind}
    hurried, reason, position, to = info.hurried, info.reason, info.position, info.to
    replaces = job.rollout.changed_since if job.rollout is not None else 0
    return Rollout(attempts, tasks, records, hurried, reason, position, to, at=info.at, replaces=replaces)


def _is_under_way(job: Job, before: Job | None, rollout: Rollout) -> bool:
    """Return whether a rollback goes on that leads to the same, and no slower."""
    there, desired_now = job.rollout, desired(job)
    if there is None or (rollout.hurried and not there.hurried):
        return False
    aim = (there.attempts, there.tasks, there.records) == (rollout.attempts, rollout.tasks, rollout.records)
    if before is None or desired_now is None:
        return aim and before is desired_now
    return aim and _header(before) == _header(desired_now)


def _restored(
    job: Job,
    spec: JobSpec,
    generation: int,
    *,
    pending: tuple[int, ...] = (),
    dead: tuple[Task, ...] = (),
    rollout: Rollout | None = None,
    version: int,
    earlier: Mapping[int, Version] | None = None,
) -> JobRestored:
    at, by = job.submitted_at, job.submitted_by
    waits = job.waits is not None  # who waited then, waits again; who did not, is placed at once
    return JobRestored(
        *(job.key, job.uid, spec, generation, at, by, spec.tasks, pending, dead, rollout, version),
        dict(earlier or {}),
        job.app,
        job.owners,
        waits,
    )


def _header(job: Job) -> tuple[object, ...]:
    return job.spec, job.uid, job.submitted_at, job.submitted_by, job.app


def _killed(task: Task, reason: str) -> Task:
    return msgspec.structs.replace(task, state=State.DEAD, ending=Ending.KILL, reason=reason)


def _with(actions: Mapping[int, _Action], action: _Action) -> list[int]:
    return [index for index, found in actions.items() if found is action]


def _actions(job: Job, before: Job, machines: Mapping[str, Machine]) -> dict[int, _Action]:
    """Return the action of each task that is there now and was there then; of most, that it stays."""
    if job.spec == before.spec and _all_live(job, before):
        return {}
    compared: dict[int, SpecChange] = {}  # by the identity of a specification
    actions = {}
    for task, then in zip(job.tasks, before.tasks, strict=False):
        index, spec = task.index, job.spec_of_last(task)
        if id(spec) not in compared:
            compared[id(spec)] = SpecChange(spec, before.spec)
        same = compared[id(spec)].of(index) < TaskChange.RESTART
        if same and spec is not before.spec and task.state is State.RUNNING:
            # The right program, perhaps in a place that is not right: constraints, and the alloc set that it
            # runs in, are no matter of a program.
            attributes = machines[task.machine].attributes
            same = spec.inside == before.spec.inside and all(
                matches(constraint, attributes) for constraint in before.spec.constraints
            )
        actions[index] = _action(task, then, same=same, completes=not before.spec.is_service)
    return actions


def _action(task: Task, then: Task, *, same: bool, completes: bool) -> _Action:
    """``same``: it runs, or ran, the program of then; ``completes``: that has a result."""
    was_over = then.state is State.DEAD
    match task.state:
        case State.RUNNING:
            return _Action.STOP if was_over else _Action.KEEP if same else _Action.REPLACE
        case State.PENDING:
            return _Action.END if was_over else _Action.KEEP
        case State.DEAD:
            has_result = same and completes and task.ending in (Ending.FINISH, Ending.FAIL)
            if was_over:
                return _Action.KEEP if has_result or task.ending is then.ending else _Action.END
            # By the ids of attempts: nothing that ran to completion runs twice unless somebody asked for it.
            return _Action.KEEP_RESULT if has_result and _has_ended_since(task, then) else _Action.RERUN


def _has_ended_since(task: Task, then: Task) -> bool:
    """Return whether a task that is over had not ended so when it was last to run, by the attempts.

    The result may be that of an attempt that was lost then, and came late.
    """
    was_lost = any(lost.attempt == task.attempt for lost in then.lost)
    was_running = task.attempt == then.attempt and then.state is State.RUNNING
    return task.attempt > then.attempt or was_running or was_lost


def same_version(a: JobSpec, b: JobSpec) -> bool:
    """Return whether nothing differs but the number of tasks, which is no version of its own."""
    return msgspec.structs.replace(a, tasks=b.tasks) == b
