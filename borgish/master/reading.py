"""The cell as it may be shown, with the sums that make showing it cheap."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from borgish.api.services import Reading
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.clock import Clock
from borgish.master.checkpointer import Checkpointer
from borgish.master.core import Core
from borgish.master.history import History
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.scheduler.plan import Refusal
from borgish.text import instant, show_indexes
from borgish.wire.api import EventView, RefusalView, StatusView

T = TypeVar("T")


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


class _Refusals(Mapping[str, tuple[RefusalView, ...]]):
    """The refusals of each job, in words when they are asked for: most reads need a few of them."""

    def __init__(self, core: Core) -> None:
        self._jobs, self._refusals = core.cell.jobs, core.refusals

    def __getitem__(self, job: str) -> tuple[RefusalView, ...]:
        return tuple(self._view(refusal) for refusal in self._refusals[job])

    def __iter__(self) -> Iterator[str]:
        return iter(self._refusals)

    def __len__(self) -> int:
        return len(self._refusals)

    def _view(self, refusal: Refusal) -> RefusalView:
        tasks = self._jobs[refusal.job].tasks
        return refusal_view(refusal, instant(min(tasks[index].since for index in refusal.indexes)))


class Reader:
    """Makes readings when everything in memory is durable. ``changed`` is called after each step."""

    def __init__(
        self,
        core: Core,
        turn: Turn,
        history: History,
        checkpointer: Checkpointer,
        clock: Clock,
        store_kind: str,
        refused: Callable[[], str] = lambda: "",
    ) -> None:
        """``refused`` tells why the machines' refusal lets no command be accepted, "" when they obey."""
        self._core = core
        self._turn = turn
        self._history = history
        self._checkpointer = checkpointer
        self._clock = clock
        self._store_kind = store_kind
        self._refused = refused
        self._started_at = clock.now().wall
        self._tally = Tally()

    def changed(self, step: Step) -> None:
        """Forget the sums of what a step moved or saw."""
        self._tally.drop(step.touched.placements)
        self._tally.drop_tasks(self._core.cell, step.touched.tasks)
        self._tally.drop_tasks(self._core.cell, step.seen)

    async def read(self, view: Callable[[Reading], T]) -> T:
        """Call ``view`` when everything in memory is durable, and return what it returns."""
        await self._turn.durable()
        return view(self._reading())

    def events(self, job: str, after: int, limit: int) -> list[EventView]:
        """Return the latest events (of one job, when named) above a position, in order."""
        return self._history.latest(job, after, limit)

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
            self._started_at, self._store_kind, self._checkpointer.latest, self._turn.room, self._refused()
        )

    def _status(self) -> StatusView:
        core, now = self._core, self._clock.now()
        return status_view(core.cell, core.observed, self._tally, self.daemon(), now)
