"""The one gate for taking a running task down on purpose (a voluntary disruption, in Kubernetes' words).

Section 4 of the Borg paper: Borg limits the rate of task disruptions and how many tasks of a job may be down
at the same time. Whoever evicts, restarts, moves or changes what runs asks here, and ``decide`` asks again.
What is down for any reason uses a budget up; losses are never held back by it. To move or change what is down
already is free, so a full cell cannot lock itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from borgish.cell.allocs import inside, is_alloc_set
from borgish.cell.availability import down_of, live_tasks, why_down
from borgish.cell.commands import EvictTasks
from borgish.cell.model import Cell, Job, task_count
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.vocabulary import TASKS_PER_JOB_MAX, VOLUNTARY, Eviction, State, split_task_name, task_name

NAMED_MAX = 3
"""Of the tasks that use a budget up, so many are named."""


class Limit(NamedTuple):
    """What one task's going down counts towards: ``kind`` and whose it is."""

    kind: str
    name: str


UNAVAILABLE, RATE = "max_unavailable", "max_rate"


def is_exempt(cell: Cell, command: EvictTasks) -> bool:
    """Return whether an eviction is not held back by budgets: a loss, or a preemption by production."""
    if command.cause is Eviction.PREEMPTED:
        preemptor = cell.jobs.get(split_task_name(command.preemptor)[0])
        return preemptor is not None and cell.rules.bands.is_prod(preemptor.spec.priority)
    return command.cause not in VOLUNTARY


class Gate:
    """Says which tasks may be taken down on purpose now. What is taken through one gate counts as down for
    it: for who chooses several before any of it is done."""

    def __init__(self, cell: Cell, observed: Observed, now: Now) -> None:
        """Where nothing observed is known, all is open but what the journal says was spared."""
        self._cell, self._observed, self._now = cell, observed, now
        self._taken: dict[str, set[int]] = {}  # by job
        self._rated: Counter[str] = Counter()  # by job: of the taken, those that its rate counts

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
            room = self.room(limit, at_a_time=own)
            if room < wanted:
                return self._why(limit, wanted, at_a_time=own)
        return ""

    def pass_through(self, job: str, indexes: Iterable[int], most: int = TASKS_PER_JOB_MAX) -> list[int]:
        """Return those of a job's tasks that may go, one after the other, and take them; so many at most."""
        gone: list[int] = []
        for index in indexes:
            if len(gone) < most and not self.refused(job, index):
                self.take(job, index)
                gone.append(index)
        return gone

    def take(self, job: str, index: int) -> None:
        """Count a task, and what is in it, as down from now on."""
        for limit in self.limits(job, index):
            if limit.kind == RATE:
                self._rated[limit.name] += 1
        for key, each in self._leaving(job, index):
            self._taken.setdefault(key, set()).add(each)

    def limits(self, job: str, index: int) -> Iterator[Limit]:
        """Yield what a task's going down counts towards, as many times as it does; nothing if it is free."""
        for key, _ in self._leaving(job, index):
            yield Limit(UNAVAILABLE, key)
            if self._cell.jobs[key].spec.disruption.max_rate is not None:
                yield Limit(RATE, key)

    def room(self, limit: Limit, *, at_a_time: int | None = None) -> int:
        """Return how much more may count towards a limit. At 0 or below, what is free may still go down."""
        job = self._cell.jobs[limit.name]
        if limit.kind == RATE:
            rate = job.spec.disruption.max_rate
            return rate.count - self._recent(job) if rate is not None else 0
        return self._allowed(job, at_a_time) - len(self._down(job)) - len(self._newly(job))

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
                and task.index not in self._down(each)
                and task.index not in self._taken.get(each.key, ())
            ):
                yield each.key, task.index

    def _down(self, job: Job) -> Set[int]:
        return down_of(self._cell, self._observed, job)

    def _newly(self, job: Job) -> Set[int]:
        """Return the taken that were not down."""
        return self._taken.get(job.key, set()) - self._down(job)

    def _allowed(self, job: Job, at_a_time: int | None) -> int:
        return job.spec.disruption.max_unavailable.of(live_tasks(job)) if at_a_time is None else at_a_time

    def _recent(self, job: Job) -> int:
        rate = job.spec.disruption.max_rate
        assert rate is not None
        recent = sum(abs(self._now.wall - at) < rate.within_seconds for at in job.disrupted)
        return recent + self._rated[job.key]

    # In words

    def _why(self, limit: Limit, wanted: int, *, at_a_time: int | None) -> str:
        job = self._cell.jobs[limit.name]
        disruption = job.spec.disruption
        if limit.kind == RATE:
            return (
                f"of {job.key} at most {disruption.max_rate} may be taken down on purpose (max_rate), and "
                f"{self._recent(job)} were"
            )
        allowed = self._allowed(job, at_a_time)
        source = f"max_unavailable {disruption.max_unavailable}" if at_a_time is None else "at a time"
        text = f"of {job.key} at most {allowed} of {task_count(live_tasks(job))} may be down ({source})"
        users = [*self._users(job)]
        if not users:
            return f"{text}, and {wanted} would go down together"
        more = f" and {len(users) - NAMED_MAX} more" if len(users) > NAMED_MAX else ""
        return f"{text}, and down {'is' if len(users) == 1 else 'are'} {', '.join(users[:NAMED_MAX])}{more}"

    def _users(self, job: Job) -> Iterator[str]:
        """Yield who uses a job's budget, and why they are down."""
        down = self._down(job)
        for index in sorted(down):
            yield f"{index} ({why_down(self._cell, self._observed, job, job.tasks[index])})"
        for index in sorted(self._newly(job)):
            yield f"{index} (about to leave)"
