"""The one gate for taking a running task down on purpose (a voluntary disruption, in Kubernetes' words).

Section 4 of the Borg paper: Borg limits the rate of task disruptions and how many tasks of a job may be down
at the same time. Whoever evicts, restarts, moves or changes what runs asks here, and ``decide`` asks again.
What is down for any reason uses a budget up; losses are never held back by it. To move or change what is down
already is free, so a full cell cannot lock itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from borgish.cell.commands import EvictTasks
from borgish.cell.limits.availability import Count, count_of, down_of, has_reported, live_tasks, why_down
from borgish.cell.model import Cell, Job, Task, task_count
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import inside, is_alloc_set
from borgish.clock import Now
from borgish.vocabulary import VOLUNTARY, Eviction, State, split_task_name, task_name

NAMED_MAX = 3
"""Of the tasks that use a budget up, so many are named."""


class Limit(NamedTuple):
    """What one task's going down counts towards: ``kind`` and whose it is, a job or a budget across jobs."""

    kind: str
    name: str


_LEAVES = "about to leave"  # why a task counts as down that was taken through the gate

UNAVAILABLE, RATE, BUDGET, FREEZE = "max_unavailable", "max_rate", "budget", "freeze"


def is_exempt(cell: Cell, command: EvictTasks) -> bool:
    """Return whether an eviction is not held back by budgets: a loss, or a preemption by production."""
    if command.cause is Eviction.PREEMPTED:
        preemptor = cell.jobs.get(split_task_name(command.preemptor)[0])
        return preemptor is not None and cell.rules.bands.is_prod(preemptor.spec.priority)
    return command.cause not in VOLUNTARY


class Gate:
    """Says which tasks may be taken down on purpose now. What is taken through one gate counts as down for
    it: for who chooses several before any of it is done. It is good as long as the cell stays as it is."""

    def __init__(self, cell: Cell, observed: Observed, now: Now) -> None:
        """Where nothing observed is known, all is open but what the journal says was spared."""
        self._cell, self._observed, self._now = cell, observed, now
        self._taken: dict[str, set[int]] = {}  # by job: those that were not down
        self._rated: Counter[str] = Counter()  # by job: of the taken, those that its rate counts
        self._downs: dict[str, Set[int]] = {}  # by job
        self._counts: dict[str, Count] = {}  # by budget

    def refused(self, job: str, index: int, *, at_a_time: int | None = None) -> str:
        """Return why a task may not be taken down now: which budget is used up, and by whom; "" when it may.

        It may where it is down already, or where nobody wants it. With an alloc goes what is in it, so that
        must be free to go, too. ``at_a_time``: so many tasks may be down in place of the job's
        ``max_unavailable``, as its own update says.
        """
        if not self._observed.known:
            return "it was spared then" if task_name(job, index) in self._observed.spared else ""
        for limit, wanted in Counter(self.limits(job, index)).items():
            own = at_a_time if limit == (UNAVAILABLE, job) else None
            if self.room(limit, at_a_time=own) < wanted:
                return self._why(limit, wanted, at_a_time=own)
        return ""

    def pass_through(self, job: str, indexes: Iterable[int]) -> list[int]:
        """Return those of a job's tasks that may go, one after the other, and take them."""
        gone: list[int] = []
        for index in indexes:
            if not self.refused(job, index):
                self.take(job, index)
                gone.append(index)
        return gone

    def take(self, job: str, index: int) -> None:
        """Count a task, and what is in it, as down from now on."""
        for key, each in list(self._leaving(job, index)):
            self._rated[key] += self._cell.jobs[key].spec.disruption.max_rate is not None
            self._taken.setdefault(key, set()).add(each)

    def limits(self, job: str, index: int) -> Iterator[Limit]:
        """Yield what a task's going down counts towards, as many times as it does; nothing if it is free."""
        for key, _ in self._leaving(job, index):
            if self._cell.freeze is not None:
                yield Limit(FREEZE, self._cell.name)
            yield Limit(UNAVAILABLE, key)
            if self._cell.jobs[key].spec.disruption.max_rate is not None:
                yield Limit(RATE, key)
            for budget in self._cell.members.budgets_of(key):
                yield Limit(BUDGET, budget)

    def room(self, limit: Limit, *, at_a_time: int | None = None) -> int:
        """Return how much more may count towards a limit. At 0 or below, what is free may still go down."""
        if limit.kind == FREEZE:
            return 0
        if limit.kind == BUDGET:
            budget, count = self._cell.budgets[limit.name], self._count(limit.name)
            return budget.max_unavailable.of(count.live) - count.down - self._taken_of(limit.name)
        job = self._cell.jobs[limit.name]
        if limit.kind == RATE:
            rate = job.spec.disruption.max_rate
            return rate.count - self._recent(job) if rate is not None else 0
        return self._allowed(job, at_a_time) - len(self._down(job)) - len(self._taken.get(job.key, ()))

    def _leaving(self, key: str, index: int) -> Iterator[tuple[str, int]]:
        """Yield a task and what is in it, of these what is not down and not unwanted."""
        job = self._cell.jobs[key]
        tasks = [(job, job.tasks[index])]
        if is_alloc_set(job):
            tasks += sorted(inside(self._cell, job, index), key=lambda each: (each[0].key, each[1].index))
        for each, task in tasks:
            if (
                task.state is State.RUNNING
                and task.index < each.tasks_wanted
                and not self._is_free(each, task)
                and task.index not in self._taken.get(each.key, ())
            ):
                yield each.key, task.index

    def _is_free(self, job: Job, task: Task) -> bool:
        """Return whether a running task is known to be down. Of what nobody has heard of under this master,
        nothing is: it counts as down, and may well be up."""
        if task.index not in self._down(job):
            return False
        machine = self._cell.machines.get(task.machine)
        return machine is None or not machine.up or has_reported(self._observed, task.machine)

    def _down(self, job: Job) -> Set[int]:
        found = self._downs.get(job.key)
        if found is None:
            found = self._downs[job.key] = down_of(self._cell, self._observed, job)
        return found

    def _count(self, budget: str) -> Count:
        found = self._counts.get(budget)
        if found is None:
            found = self._counts[budget] = count_of(self._cell, self._observed, budget)
        return found

    def _taken_of(self, budget: str) -> int:
        members = self._cell.members.of(budget)
        return sum(len(indexes) for job, indexes in self._taken.items() if job in members)

    def _allowed(self, job: Job, at_a_time: int | None) -> int:
        return job.spec.disruption.max_unavailable.of(live_tasks(job)) if at_a_time is None else at_a_time

    def _recent(self, job: Job) -> int:
        """Return how many of its tasks were taken down on purpose in the time of its rate."""
        rate = job.spec.disruption.max_rate
        assert rate is not None
        recent = sum(abs(self._now.wall - at) < rate.within_seconds for at in job.disrupted)
        return recent + self._rated[job.key]

    # In words

    def _why(self, limit: Limit, wanted: int, *, at_a_time: int | None) -> str:
        if limit.kind == FREEZE:
            return f"the cell is {self._cell.freeze}"
        if limit.kind == BUDGET:
            budget, live = self._cell.budgets[limit.name], self._count(limit.name).live
            allowed, source = budget.max_unavailable.of(live), f"max_unavailable {budget.max_unavailable}"
            of = f"of the budget {budget.name} ({budget.selector})"
            return _used_up(of, allowed, live, source, wanted, "", list(self._users_of(budget.name)))
        job = self._cell.jobs[limit.name]
        disruption = job.spec.disruption
        if limit.kind == RATE:
            most = f"at most {disruption.max_rate} may be taken down on purpose (max_rate)"
            return f"of {job.key} {most}, and {self._recent(job)} were"
        source = f"max_unavailable {disruption.max_unavailable}" if at_a_time is None else "at a time"
        allowed, users = self._allowed(job, at_a_time), list(self._users(job, ""))
        noun = "task " if len(users) == 1 else "tasks "  # an index alone would read as how many are down
        return _used_up(f"of {job.key}", allowed, live_tasks(job), source, wanted, noun, users)

    def users(self, budget: str) -> Iterator[str]:
        """Yield the tasks that use up a budget across jobs, and why they are down."""
        return (f"{name} ({why})" for name, why in self._users_of(budget))

    def _users_of(self, budget: str) -> Iterator[tuple[str, str]]:
        for key in sorted(self._cell.members.of(budget)):
            yield from self._users(self._cell.jobs[key], f"{key}/")

    def _users(self, job: Job, name: str) -> Iterator[tuple[str, str]]:
        for index in sorted(self._down(job)):
            yield f"{name}{index}", why_down(self._cell, self._observed, job, job.tasks[index])
        for index in sorted(self._taken.get(job.key, ())):
            yield f"{name}{index}", _LEAVES


def _used_up(
    of: str, allowed: int, live: int, source: str, wanted: int, noun: str, users: Sequence[tuple[str, str]]
) -> str:
    """Return which limit is used up, and by whom: names, after ``noun``, and why each is down."""
    text = f"{of} at most {allowed} of {task_count(live)} may be down ({source})"
    if not users:
        return f"{text}, and {wanted} would go down together"
    be, named = "is" if len(users) == 1 else "are", users[:NAMED_MAX]
    more = f" and {len(users) - NAMED_MAX} more" if len(users) > NAMED_MAX else ""
    if all(why == _LEAVES for _, why in users):
        return f"{text}, and {noun}{', '.join(name for name, _ in named)}{more} {be} {_LEAVES}"
    return f"{text}, and down {be} {noun}{', '.join(f'{name} ({why})' for name, why in named)}{more}"
