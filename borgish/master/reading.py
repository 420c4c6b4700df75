"""What clients are shown of the running cell: readings, the latest events in words, and plans."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import msgspec

from borgish.api.moments import not_reached
from borgish.api.services import Reading
from borgish.api.views.events import event_views
from borgish.api.views.order import order_refusal
from borgish.api.views.rollouts import update_words
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.cell.access.authorization import authorize_spec
from borgish.cell.access.model import Asker
from borgish.cell.events import Entry
from borgish.cell.model import Cell, Task, task_count
from borgish.cell.tasks.failing import last_failure
from borgish.clock import Clock
from borgish.master.core import Core
from borgish.master.expiry import Expiry
from borgish.master.past.checkpoints import Checkpointer
from borgish.master.planning import DryRun
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.scheduler.feasibility import AVOIDED
from borgish.scheduler.plan import Refusal
from borgish.scheduler.preemption import LIMIT_SHARE
from borgish.spec.diff import differences
from borgish.spec.job import JobSpec
from borgish.text import instant, show_indexes
from borgish.vocabulary import task_name
from borgish.wire.api import EventView, RefusalView, StatusView
from borgish.wire.api_plans import PlannedPlace, PlanView

T = TypeVar("T")

EVENTS_KEPT = 10_000
EVENTS_BYTES_KEPT = 32 * 1024**2
"""Of these, so that those of large jobs, each with thousands of indexes, fill no memory."""
_INDEX_BYTES, _EVENT_BYTES = 40, 400
"""What an index takes of an event, and the rest of it without its text."""
TASKS_AT_ONCE = 1_000
"""So many tasks are summed up at once: some milliseconds."""
CATCH_UP_PAUSE_SECONDS = 0.01
MORE_LATER = f"more may be preempted for it later: at once no more than {LIMIT_SHARE:.0%} of what runs"


def refusal_view(refusal: Refusal, since: str = "") -> RefusalView:
    """Return a refusal as the API shows it; ``since`` when its tasks wait."""
    return RefusalView(
        job=refusal.job,
        tasks=len(refusal.indexes),
        indexes=show_indexes(refusal.indexes),
        text=refusal.text,
        reasons=refusal.reasons,
        hint=refusal.hint,
        since=since,
        impossible=refusal.impossible,
        waits_for=refusal.waits_for,
    )


def _with_failure(refusal: Refusal, failed: Sequence[Task]) -> Refusal:
    """Return a refusal in which machines are avoided with the last failure of its tasks first: that is to be
    mended, and room elsewhere may only let them fail there as well."""
    if AVOIDED not in refusal.reasons or not failed:
        return refusal
    last = max(failed, key=lambda task: task.since)
    name = task_name(refusal.job, last.index)
    how = last_failure(last)
    look = f"`borgctl task logs {name}` shows what it wrote, `borgctl why {name}` where it failed"
    if "cannot start" in how:  # then it wrote nothing
        look = f"mend what it runs and submit it again; `borgctl why {name}` says where it failed"
    hint = refusal.hint if refusal.impossible else look
    return msgspec.structs.replace(refusal, text=f"{how}; {refusal.text}", hint=hint)


def _standing_view(cell: Cell, refusal: Refusal) -> RefusalView:
    tasks = cell.jobs[refusal.job].tasks
    refusal = _with_failure(refusal, [task for i in refusal.indexes if (task := tasks[i]).failed])
    return refusal_view(refusal, instant(min(tasks[index].since for index in refusal.indexes)))


class _Refusals(Mapping[str, tuple[RefusalView, ...]]):
    """The refusals of each job, in words when they are asked for: most reads need a few of them, and a list
    of tasks those of one job for each of its tasks."""

    def __init__(self, core: Core) -> None:
        self._cell, self._observed = core.cell, core.observed
        self._jobs, self._refusals = core.cell.jobs, core.refusals
        self._views: dict[str, tuple[RefusalView, ...]] = {}  # of a job: its tasks are gone through for it

    def __getitem__(self, job: str) -> tuple[RefusalView, ...]:
        if (views := self._views.get(job)) is not None:
            return views
        if job not in self._refusals and job not in self._cell.deferred:
            raise KeyError(job)
        views = self._views[job] = self._in_words(job)
        return views

    def _in_words(self, job: str) -> tuple[RefusalView, ...]:
        refused = [_standing_view(self._cell, refusal) for refusal in self._refusals.get(job, ())]
        refused.sort(key=lambda refusal: AVOIDED not in refusal.reasons)  # what failed says most of a job
        waits = order_refusal(self._cell, self._observed, self._jobs[job]) if job in self._jobs else None
        return (waits, *refused) if waits is not None else tuple(refused)

    def __iter__(self) -> Iterator[str]:
        return chain(self._refusals, (key for key in self._cell.deferred if key not in self._refusals))

    def __len__(self) -> int:
        return len(self._refusals.keys() | self._cell.deferred.keys())


def _event_bytes(event: EventView) -> int:
    return _EVENT_BYTES + len(event.text) + _INDEX_BYTES * len(event.indexes)


class RecentEvents:
    """A bounded list of events, oldest first."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._events: deque[EventView] = deque()
        self._bytes = 0
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> list[EventView]:
        """Take in a journal entry; return what it says."""
        fresh = event_views(entry)
        self._events.extend(fresh)
        self._bytes += sum(map(_event_bytes, fresh))
        while len(self._events) > EVENTS_KEPT or self._bytes > EVENTS_BYTES_KEPT:
            self._bytes -= _event_bytes(self._events.popleft())
        return fresh

    def latest(self, job: str, after: int, limit: int, index: int | None = None) -> list[EventView]:
        """Return the last ``limit`` events above position ``after`` (of one job, or one task of it, when
        named), in order."""
        found: list[EventView] = []
        for event in reversed(self._events):
            if event.position <= after or len(found) == limit:
                break
            is_of_task = index is None or not event.indexes or index in event.indexes
            if (not job or event.job == job) and is_of_task:
                found.append(event)
        return found[::-1]


class Reader:
    """Makes readings when everything in memory is durable. ``changed`` is called after each step."""

    def __init__(
        self,
        core: Core,
        turn: Turn,
        history: RecentEvents,
        checkpointer: Checkpointer,
        clock: Clock,
        store_kind: str,
        refused: Callable[[], str] = lambda: "",
        expiry: Expiry | None = None,
        busy: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """``refused`` tells why the machines' refusal lets no command be accepted, "" when they obey;
        ``expiry`` when the certificates of the cell end."""
        self._core = core
        self._turn = turn
        self._history = history
        self._checkpointer = checkpointer
        self._clock = clock
        self._store_kind = store_kind
        self._refused, self._expiry, self._busy = refused, expiry, busy
        self._started_at = clock.now().wall
        self._tally = Tally()
        self._catching_up: asyncio.Task[None] | None = None

    def changed(self, step: Step) -> None:
        """Note what a step moved or saw. Call it in the master's loop."""
        self._tally.note(step.touched, step.seen)
        if self._tally.is_behind and self._catching_up is None:
            self._catching_up = asyncio.create_task(self._catch_up(), name="sums")

    def close(self) -> None:
        """Sum up nothing more."""
        if self._catching_up is not None:
            self._catching_up.cancel()

    async def _catch_up(self) -> None:
        """Bring the sums up to date bit by bit, as after a start, when all machines report: whoever reads
        first would hold up everybody for as long as it takes at once."""
        try:
            while self._tally.is_behind:
                self._tally.fill_some(self._core.cell, self._core.observed, TASKS_AT_ONCE)
                await asyncio.sleep(CATCH_UP_PAUSE_SECONDS)
        finally:
            self._catching_up = None

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        """Call ``view`` when everything in memory is durable, and return what it returns. Raises Invalid for
        a position that there is not yet: nobody is further than who leads."""
        await self._turn.durable()
        if at_least > (head := self._core.cell.position):
            raise not_reached(at_least, head)
        return view(self._reading())

    def events(self, job: str, after: int, limit: int, index: int | None = None) -> list[EventView]:
        """Return the latest events (of one job, or one task of it, when named) above a position, in order."""
        return self._history.latest(job, after, limit, index)

    def _reading(self) -> Reading:
        return Reading(
            self._core.cell,
            self._core.observed,
            self._clock.now(),
            _Refusals(self._core),
            self._status,
            self._tally,
        )

    def daemon(self) -> Daemon:
        """Return what the status says of this process."""
        return Daemon(
            self._started_at,
            self._store_kind,
            self._checkpointer.latest,
            self._turn.free_space,
            self._refused(),
            *(self._expiry.latest() if self._expiry else ((), ())),
            self._busy(),
        )

    def _status(self) -> StatusView:
        core, now = self._core, self._clock.now()
        return status_view(core.cell, core.observed, self._tally, self.daemon(), now)


class Planner:
    """Plans submissions, on the cell as it is when all of it is durable."""

    def __init__(self, core: Core, turn: Turn, clock: Clock) -> None:
        self._core = core
        self._turn = turn
        self._clock = clock

    async def plan(self, spec: JobSpec, asker: Asker) -> PlanView:
        """Return what would follow if a job were submitted. Raises what its submission would."""
        await self._turn.durable()
        authorize_spec(self._core.cell, spec, asker.principal)
        dry_run = self._core.dry_run(spec, asker.principal.name, self._clock.now())
        return plan_view(self._core.cell, dry_run)


def plan_view(cell: Cell, found: DryRun) -> PlanView:
    """Return what would become of a job."""
    spec, plan = found.spec, found.plan
    standing = tuple(_standing_view(cell, each) for each in found.standing)
    refusals = (*standing, *(refusal_view(each) for each in plan.refusals.get(spec.key, ())))
    places = tuple(sorted(_places(found), key=lambda place: place.index))
    return PlanView(
        job=spec.key,
        text=_text(found, places) + _waiting(found),
        position=cell.position,
        timeline=cell.timeline,
        token=found.token,
        tasks=_count(found),
        places=places,
        refusals=refusals,
        changes=_changes(cell, spec),
        notes=(*found.decision.notes, *((MORE_LATER,) * plan.more)),
        updates=update_words(spec, found.update) if found.update is not None else {},
        waits=found.waits,
    )


def _places(found: DryRun) -> Iterator[PlannedPlace]:
    for placed in found.plan.placements:
        devices = placed.devices or ((),) * len(placed.indexes)
        allocs = placed.allocs or (-1,) * len(placed.indexes)
        for place in zip(placed.indexes, placed.machines, devices, allocs, strict=True):
            yield PlannedPlace(*place)
    for promise in found.plan.promises:
        for index, machine in zip(promise.indexes, promise.machines, strict=True):
            victims = found.victims.get(task_name(promise.job, index), ())
            yield PlannedPlace(index, machine, kept=True, victims=victims)


def _count(found: DryRun) -> int:
    """Return how many tasks it is about: all of a new job, or the killed ones that come back."""
    return len(found.again) or found.spec.tasks


def _text(found: DryRun, places: tuple[PlannedPlace, ...]) -> str:
    """Return one sentence: ``ann/web: of 4 tasks 3 would be placed at once, and 1 would wait``."""
    if found.update is not None:  # ann/web is updated to version 3: 4 tasks to restart
        return found.decision.text.replace(f"{found.spec.key} is ", f"{found.spec.key} would be ", 1)
    if found.is_there and not found.again:
        return found.decision.text
    count = _count(found)
    later = [place for place in places if place.kept]
    victims = sum(len(place.victims) for place in later)
    left = "another has left" if victims == 1 else f"{victims} others have left"
    counts = (
        (len(places) - len(later), "be placed at once"),
        (
            len(later),
            f"be placed when {left} for it" if len(later) == 1 else f"be placed when {left} for them",
        ),
        (count - len(places), "wait"),
    )
    parts = [f"{number:,} would {words}" for number, words in counts if number]
    tasks = "1 task" if count == 1 else f"{count:,} tasks"
    if found.again:
        tasks = f"{tasks} that {'was' if count == 1 else 'were'} killed"
    text = f"{found.spec.key}: of {tasks} {', '.join(parts[:-1])}{', and ' * (len(parts) > 1)}{parts[-1]}"
    return f"{text}, once it starts: {found.waits}" if found.waits else text


def _waiting(found: DryRun) -> str:
    """Return what to add where tasks of the job that is there wait, and go on to."""
    count = len({index for refusal in found.standing for index in refusal.indexes})
    waits = "waits" if count == 1 else "wait"
    return f"; {count:,} of its {task_count(found.spec.tasks)} {waits}" if count else ""


def _changes(cell: Cell, spec: JobSpec) -> tuple[str, ...]:
    """Return what is other than in the job of that name that is there."""
    before = cell.jobs.get(spec.key)
    if before is None or before.spec == spec:
        return ()
    return differences(before.spec, spec, cell.rules.bands)
