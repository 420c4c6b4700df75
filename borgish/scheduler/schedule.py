"""One pass over all that waits: which task goes where, and why the others do not.

The queue has the order of turns. Tasks are placed in *windows*: a stretch of the queue whose tasks
need at most half of what is free, so that their order hardly decides who gets a place, and tasks of
one class in it can be placed together, those that need the largest share of the cell first. As the cell
fills, windows shrink to single tasks. (Where a constraint makes a few machines scarce in a cell with much
room, fairness is by window, not by task.)

This only plans. The arrays already hold what was planned: whoever carries all of it out says so, and reports
which other machines changed, whose rows are read again.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial

import msgspec

from borgish.cell.limits.disruption import Gate
from borgish.cell.model import Cell, Job, Task
from borgish.cell.observed import Observed, leaving_attempts
from borgish.cell.tasks.allocs import is_alloc_set
from borgish.cell.tasks.leases import why_waiting
from borgish.clock import Now
from borgish.scheduler.alloc_sets import AllocSets
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.passes import Memory, Pass
from borgish.scheduler.pending import Pending
from borgish.scheduler.plan import Plan, Refusal, RefusalsByJob, merged
from borgish.scheduler.policies import POLICIES, Policy
from borgish.scheduler.preemption import DisruptionBudget, Preemptions
from borgish.scheduler.queue import Classes
from borgish.scheduler.scoring import Sampler, ScoreCache
from borgish.spec.job import JobSpec
from borgish.vocabulary import State

TASKS_MAX = 20_000
"""So many tasks are tried in a pass, where nobody asks for fewer."""
RESYNC_SECONDS = 60.0
"""All that waits is tried again so often, should a change that helps it have gone unseen."""


FAILURE_DOMAINS = ("rack", "zone")


EXPLAINED_MAX = 20
"""Of an exclusive job, so many tasks say in each pass until when they wait for a former attempt."""
_OTHERS = "their former attempts may still run", "they are exclusive, so they wait"


class SchedulerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of packing, by its name in ``policies.POLICIES``, and a switch for each of the techniques of
    section 3.4 of the Borg paper.
    """

    policy: str = "hybrid"
    score_cache: bool = True
    equivalence_classes: bool = True
    relaxed_randomisation: bool = True


class SchedulerSettings(SchedulerTable, frozen=True, forbid_unknown_fields=True):
    """The same, and the attributes of machines over which replicas of services are spread."""

    failure_domains: tuple[str, ...] = FAILURE_DOMAINS


class Scheduler:
    """Plans passes. Keeps nothing but what follows from cell and observed."""

    def __init__(
        self,
        seed: int = 0,
        settings: SchedulerSettings | None = None,
        budget: DisruptionBudget | None = None,
        *,
        preempts: bool = True,
    ) -> None:
        """Use a seed for ties; ``budget`` says whom preemption may disrupt: unless given, the gate of what is
        scheduled. Without ``preempts`` nobody has to leave."""
        self._seed = seed
        self._settings = settings or SchedulerSettings()
        self._budget, self._preempts = budget, preempts
        self._mono = 0.0
        self.forget()

    def forget(self) -> None:
        """Drop all that is kept, as when the cell was replaced by another."""
        self._memory: Memory | None = None  # of all machines; None: nothing was read yet
        self.read_anew()
        self._changed_jobs: set[str] | None = None  # since the last pass; None: nobody said which
        self._alloc_sets = AllocSets(self._memory_of)
        self._resync_at = 0.0
        self._planned: set[str] = set()  # machines with placements that were planned, not yet seen done

    def begin(self, cell: Cell) -> None:
        """Keep rows for a cell of which no machine is read yet. Each is refreshed before the first pass, or
        else that would read all of them at once."""
        fleet = Fleet(self._seed, len(cell.machines))
        fleet.bands = cell.rules.bands
        self._memory = self._memory_of(fleet)

    def read_anew(self) -> None:
        """Read all that waits in the next pass."""
        self._pending: Pending | None = None

    def refresh(self, cell: Cell, observed: Observed, machines: Iterable[str]) -> None:
        """Read these machines again: their record, their placements or what was seen there changed."""
        if self._memory is not None:
            names = sorted(set(machines))
            self._memory.fleet.read(cell, observed, names, self._mono)
            self._planned.difference_update(names)
            self._alloc_sets.refresh(names)

    def note(self, jobs: Iterable[str]) -> None:
        """Read these jobs again: they or their tasks changed, or are no more.

        Between two passes either nobody says so, and the next one reads all that waits, or it has to be said
        of all jobs that changed.
        """
        if self._changed_jobs is None:
            self._changed_jobs = set()
        self._changed_jobs.update(jobs)

    def schedule(self, cell: Cell, observed: Observed, now: Now, budget: int = TASKS_MAX) -> Plan:
        """Return where waiting tasks go and why others wait; ``budget`` is how many tasks are tried."""
        self._mono = now.mono
        memory = self._current(cell, observed)
        if now.mono >= self._resync_at:
            self._resync_at = now.mono + RESYNC_SECONDS
            memory.classes.retry_failed()
            self._alloc_sets.retry_failed()
            if self._pending is not None:
                self._pending.compare(cell)
        pending = self._pending = self._read_pending(cell, memory)
        waiting = pending.alloc_sets
        gate = self._budget or Gate(cell, observed, now)
        preemptions = Preemptions(cell, memory.fleet, now, gate, preempts=self._preempts)
        run = Pass(cell, memory, preemptions, budget, pending.machines, now)
        plan = run.plan(leaving(cell, observed))
        self._note_planned(plan, cell)
        if waiting:
            # After the pass on machines: what runs in allocs takes nothing from anybody but its alloc.
            allocs_come = any(placement.job in waiting for placement in plan.placements)
            self._alloc_sets.refresh(self._planned)
            inner = list(
                self._alloc_sets.plans(
                    cell, observed, now, memory.fleet, waiting, plan.preemptions, run.budget_left
                )
            )
            for each in inner:
                self._note_planned(each, cell)
            plan = merged(plan, *inner)
            plan = msgspec.structs.replace(plan, more=plan.more or allocs_come)
        plan = msgspec.structs.replace(
            plan, refusals=RefusalsByJob(leased(cell, observed, plan), plan.refusals)
        )
        classes = pending.machines.classes
        memory.fleet.topology.forget_unused(lambda: (rule for kind in classes for rule in kind.rules))
        return plan

    def _read_pending(self, cell: Cell, memory: Memory) -> Pending:
        """Take in which jobs changed; return all that waits."""
        fleet, changed, pending = memory.fleet, self._changed_jobs, self._pending
        placed: Iterable[str]
        if pending is None or changed is None:
            pending = Pending()
            pending.note(cell, cell.waiting)
            placed = fleet.topology.placed_jobs()
        else:
            pending.note(cell, changed)
            placed = changed
        for job in filter(None, map(cell.jobs.get, sorted(placed))):
            fleet.topology.know_spec(job.spec, partial(fleet.rows_of, cell, job.key))
        self._changed_jobs = None
        fleet.topology.expect(pending.terms)
        return pending

    def carried_out(self, cell: Cell, plan: Plan) -> frozenset[str]:
        """Take the last plan as done, all of it; return the machines whose rows are as the cell has them by
        that, and need not be read again.

        Not so where others have to leave, where places are kept, and where a placement counts otherwise than
        it was planned: ports by their number, an incoming attempt, an alloc and what is in one.
        """
        if plan.preemptions or plan.promises or cell.promised:
            return frozenset()
        done, others = set[str](), set[str]()
        for placement in plan.placements:
            is_alloc = placement.allocs or is_alloc_set(cell.jobs[placement.job])
            counts_otherwise = is_alloc or placement.ports or placement.job in cell.handovers
            (others if counts_otherwise else done).update(placement.machines)
        done -= others
        self._planned -= done
        self._alloc_sets.refresh(done)
        return frozenset(done)

    def _note_planned(self, plan: Plan, cell: Cell) -> None:
        self._planned.update(name for placement in plan.placements for name in placement.machines)
        self._planned.update(name for promise in plan.promises for name in promise.machines if name)
        self._planned.update(cell.promised)

    def dry_run(
        self,
        cell: Cell,
        observed: Observed,
        spec: JobSpec,
        unread: Iterable[str],
        now: Now,
        again: Sequence[int] = (),
    ) -> Plan:
        """Return the pass that would follow if a job were submitted now and nothing else waited.

        It is the very pass that would place it, on a copy of the rows with a cell in which only that job
        waits: 25 ms in all for one task on 10,000 machines.

        ``unread`` are machines that changed since they were refreshed; ``again`` are the dead tasks that
        the submission of a live job brings back, none for a new job. Nothing here changes.
        """
        other = Scheduler(self._seed, self._settings, self._budget, preempts=self._preempts)
        other._mono = now.mono
        if self._memory is not None:
            other._memory = other._memory_of(self._memory.fleet.copy(), self._memory.policy.copy())
            other._planned = set(self._planned)
            other.refresh(cell, observed, unread)
        other._current(cell, observed)  # kept places count in the rows; the trial has none
        return other.schedule(with_only(cell, spec, now, again), observed, now, budget=spec.tasks)

    def _current(self, cell: Cell, observed: Observed) -> Memory:
        """Return the rows as the cell has them: a plan that was not carried out leaves no trace."""
        if self._memory is None:
            self._memory = self._memory_of(Fleet.of(cell, observed, self._seed, self._mono))
            self._planned.clear()
        fleet = self._memory.fleet
        unblocked = {fleet.names[row] for row, until in fleet.blocked.items() if until <= self._mono}
        if changed := self._planned | unblocked:
            self.refresh(cell, observed, changed)
        return self._memory

    def _memory_of(self, fleet: Fleet, policy: Policy | None = None) -> Memory:
        """Return what is kept for some rows, which have a policy of their own: it learns from them."""
        fleet.failure_domains = self._settings.failure_domains
        policy = policy or POLICIES[self._settings.policy](self._seed)
        sampler = (
            Sampler(self._seed) if self._settings.relaxed_randomisation and not fleet.alloc_set else None
        )
        scores = ScoreCache(policy, sampler, enabled=self._settings.score_cache)
        return Memory(fleet, Classes(shared=self._settings.equivalence_classes), policy, scores)


def leased(cell: Cell, observed: Observed, plan: Plan) -> dict[str, tuple[Refusal, ...]]:
    """Return the refusals of exclusive jobs with tasks that were left out: a former attempt may still run."""
    found = {}
    for key in sorted(cell.leases.keys() & cell.waiting.keys()):
        waiting, by_text = cell.waiting[key], dict[tuple[str, str], list[int]]()
        for place, index in enumerate(sorted(waiting & cell.leases[key].keys())):
            text = why_waiting(cell, observed, key, index) if place < EXPLAINED_MAX else _OTHERS
            by_text.setdefault(text, []).append(index)
        if cell.jobs[key].spec.gang and by_text:
            by_text = {next(iter(by_text)): sorted(waiting)}  # it waits as a whole
        refusals = (
            Refusal(key, tuple(indexes), 0, {}, text, hint) for (text, hint), indexes in by_text.items()
        )
        found[key] = (*refusals, *plan.refusals.get(key, ()))
    return found


def leaving(cell: Cell, observed: Observed) -> frozenset[str]:
    """Return the machines, of those where places are kept, that have attempts which have yet to end."""
    return frozenset(
        name
        for name in cell.promised
        if (seen := observed.machines.get(name)) is not None and any(leaving_attempts(cell, name, seen))
    )


def with_only(cell: Cell, spec: JobSpec, now: Now, again: Sequence[int] = ()) -> Cell:
    """Return the cell with a job whose tasks all wait, and nobody else's, to be read only.

    With ``again`` it is the job that is there, of whose dead tasks these wait. Records of everything else are
    the cell's own, so that the trial is good for no longer than the cell stays as it is.
    """
    waiting = set(again or range(spec.tasks))
    if again:
        job = copy(cell.jobs[spec.key])
        job.tasks = [
            msgspec.structs.replace(task, state=State.PENDING, ending=None) if task.index in waiting else task
            for task in job.tasks
        ]
        job.pending, job.dead = job.pending + len(waiting), job.dead - len(waiting)
    else:
        tasks = [Task(index, since=now.wall) for index in range(spec.tasks)]
        job = Job(spec.key, cell.position + 1, spec, now.wall, spec.user, tasks=tasks, pending=len(tasks))
    trial = copy(cell)
    trial.jobs = cell.jobs | {spec.key: job}
    trial.waiting = {spec.key: waiting}
    trial.promised = {}  # the rows count these places; nobody is to be put there now
    return trial
