"""A plan as the API shows it: where each task would go, who would have to leave, what would wait and why."""

from collections.abc import Iterator

from borgish.cell.state import Cell
from borgish.clock import Clock
from borgish.master.core import Core
from borgish.master.planning import Foreseen
from borgish.master.reading import refusal_view
from borgish.master.turn import Turn
from borgish.scheduler.preemption import LIMIT_SHARE
from borgish.spec.diff import differences
from borgish.spec.job import JobSpec
from borgish.vocabulary import State, task_name
from borgish.wire.api import PlannedPlace, PlanView

MORE_LATER = f"more may be preempted for it later: at once no more than {LIMIT_SHARE:.0%} of what runs"


class Planner:
    """Plans submissions, on the cell as it is when all of it is durable."""

    def __init__(self, core: Core, turn: Turn, clock: Clock) -> None:
        self._core = core
        self._turn = turn
        self._clock = clock

    async def plan(self, spec: JobSpec, actor: str) -> PlanView:
        """Return what would follow if a job were submitted. Raises what its submission would."""
        await self._turn.durable()
        return plan_view(self._core.cell, self._core.foresee(spec, actor, self._clock.now()))


def plan_view(cell: Cell, found: Foreseen) -> PlanView:
    """Return what would become of a job."""
    spec, plan = found.spec, found.plan
    refusals = tuple(refusal_view(each) for each in plan.refusals.get(spec.key, ()))
    places = tuple(sorted(_places(found), key=lambda place: place.index))
    return PlanView(
        job=spec.key,
        text=_text(found, places) if found.decision.events else found.decision.text,
        position=cell.position,
        timeline=cell.timeline,
        token=found.token,
        tasks=_count(found),
        places=places,
        refusals=refusals,
        changes=_changes(cell, spec),
        notes=(*found.decision.notes, *((MORE_LATER,) * plan.more)),
    )


def _places(found: Foreseen) -> Iterator[PlannedPlace]:
    for placed in found.plan.placements:
        devices = placed.devices or ((),) * len(placed.indexes)
        allocs = placed.allocs or (-1,) * len(placed.indexes)
        for place in zip(placed.indexes, placed.machines, devices, allocs, strict=True):
            yield PlannedPlace(*place)
    for promise in found.plan.promises:
        for index, machine in zip(promise.indexes, promise.machines, strict=True):
            victims = found.victims.get(task_name(promise.job, index), ())
            yield PlannedPlace(index, machine, kept=True, victims=victims)


def _count(found: Foreseen) -> int:
    """Return how many tasks it is about: all of a new job, or the killed ones that come back."""
    return len(found.again) or found.spec.tasks


def _text(found: Foreseen, places: tuple[PlannedPlace, ...]) -> str:
    """Return one sentence: ``ann/web: of 4 tasks 3 would be placed at once, and 1 would wait``."""
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
    return f"{found.spec.key}: of {tasks} {', '.join(parts[:-1])}{', and ' * (len(parts) > 1)}{parts[-1]}"


def _changes(cell: Cell, spec: JobSpec) -> tuple[str, ...]:
    """Return what is other than in the job of that name that has ended."""
    before = cell.jobs.get(spec.key)
    if before is None or before.state is not State.DEAD:
        return ()
    return differences(before.spec, spec, cell.rules.bands)
