"""``replay``: decides the journal anew, what today's code makes of each command, beside what is recorded.

The cell follows the recorded history, so that each entry is judged for itself; the first that comes out
otherwise is reported.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import RollBack
from borgish.cell.decide import decide
from borgish.cell.events import AnyEvent, Entry, TasksPlaced
from borgish.cell.invariants import is_overfull
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.cell.recorded import commands_of, observed_of
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Now
from borgish.errors import BorgishError, Invalid, Refused, StoreDamaged
from borgish.reconcilers import RECONCILERS
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.queue import Classes
from borgish.scheduler.schedule import SchedulerSettings
from borgish.scheduler.scoring import ScoreCache
from borgish.sim.faux.output import Answer, cut, happened, outcomes, viewed
from borgish.sim.faux.session import Session, find_position
from borgish.store.recovery import CAUSE as RECOVERY
from borgish.store.replay import cell_at, entries_between, replay_one
from borgish.text import plural
from borgish.vocabulary import task_name

DIFFERS = 3
"""The exit code when something would be decided otherwise."""
PLACE = "place"

# Why an entry is not decided anew.
NOT_RECORDED = "entries of older versions of borgish: their commands are not recorded"
LOST = "entries of a recovery, which say what was lost"
UNKNOWN = "entries of other versions of borgish: their commands cannot be read"

_PLANNERS = frozenset({"scheduler", *(each.name for each in RECONCILERS)})


class NotDecided(Exception):
    """An entry that is not decided anew. ``args[0]`` says why, the same for all of a kind."""


class Divergence(msgspec.Struct, frozen=True):
    """An entry that would come out otherwise, and how: what would happen, or why nothing would."""

    entry: Entry
    today: tuple[str, ...]


class Replayed(msgspec.Struct):
    """What came of it.

    ``placements`` and ``planned`` count those of the decided that placed tasks, and whose commands the
    scheduler or a reconciler gave; ``left_out`` entries that were not decided anew, by the reason.
    """

    since: int
    until: int
    decided: int = 0
    placements: int = 0
    planned: int = 0
    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    otherwise: Divergence | None = None


def replay_arguments(parser: ArgumentParser) -> None:
    """From where to where."""
    parser.add_argument("--from", dest="since", default="", metavar="POSITION", help="or another moment")
    parser.add_argument("--to", dest="until", default="", metavar="POSITION", help="the end if not given")


def replay(session: Session, args: Namespace) -> Answer:
    """Decide what was asked anew, and tell the first thing that would be decided otherwise today."""
    there = session.opened
    since = find_position(there, args.since) if args.since else there.first
    until = find_position(there, args.until) if args.until else there.head
    if until < since:
        raise Invalid(f"position {until} is before {since}", "Name the earlier one with --from")
    found = decided_anew(session, since, until)
    return Answer(tuple(_lines(found)), _data(found), DIFFERS if found.otherwise else 0)


def decided_anew(session: Session, since: int, until: int) -> Replayed:
    """Go through the journal up to the first entry that comes out otherwise, or to the end."""
    source, found = session.opened.source, Replayed(since, until)
    cell = cell_at(source, session.opened.cell, since).cell
    judge = Judge(cell, session)
    for entry in entries_between(source, since, until):
        found.otherwise = judge.look(entry, found)
        if found.otherwise is not None:
            break
    return found


class Judge:
    """Decides entries anew, on a cell that follows them."""

    def __init__(self, cell: Cell, session: Session) -> None:
        self._cell = cell
        self._session = session
        self._placements = PlacementCheck(cell)

    def look(self, entry: Entry, found: Replayed) -> Divergence | None:
        """Judge an entry and take it in; return what would be otherwise."""
        try:
            commands = _commands_of(self._cell, entry)
            target = self._target(commands)
        except (NotDecided, Refused) as reason:  # Refused: of a rollback, to where history is no longer kept
            found.left_out[str(reason)] += 1
            return self._apply(entry)
        found.decided += 1
        found.placements += entry.cause == PLACE
        found.planned += entry.actor in _PLANNERS
        events, refused = self._decided(commands, entry, target)
        if events != entry.events:
            return Divergence(entry, _today(entry, events, refused))
        if wrong := self._placements.violations(entry):
            return Divergence(entry, tuple(wrong))
        return self._apply(entry)

    def _apply(self, entry: Entry) -> Divergence | None:
        """Take an entry into the cell; where it placed tasks, look whether that was too much."""
        touched = replay_one(self._cell, entry)
        wrong = self._placements.update(touched.machines | touched.placements | touched.machines_gone)
        return Divergence(entry, tuple(wrong)) if wrong and entry.cause == PLACE else None

    def _target(self, commands: tuple[Command, ...]) -> RollbackTarget | None:
        """Return what a rollback goes back to. Raises Refused."""
        opened = self._session.opened
        positions = (command.to for command in commands if isinstance(command, RollBack))
        cells = (cell_at(opened.source, opened.cell, to).cell for to in positions)
        return next(map(RollbackTarget, cells), None)

    def _decided(
        self, commands: tuple[Command, ...], entry: Entry, target: RollbackTarget | None
    ) -> tuple[tuple[AnyEvent, ...], str]:
        """Return what would happen, or else why nothing would."""
        now = Now(entry.at, 0.0)
        facts = entry.command.observed if entry.command else None
        events: list[AnyEvent] = []
        try:
            for command in commands:
                observed = observed_of(facts, command, now)
                events += decide(self._cell, observed, command, entry.actor, now, target).events
        except BorgishError as refused:
            return (), f"refused: {refused.message}"
        except Exception as error:  # what today's code fails at, it decides otherwise
            return (), f"today's code fails: {error!r}"
        return tuple(events), ""


def _commands_of(cell: Cell, entry: Entry) -> tuple[Command, ...]:
    """Return what an entry was decided from. Raises NotDecided."""
    try:
        commands = commands_of(cell, entry)
    except StoreDamaged as error:
        raise NotDecided(UNKNOWN) from error
    if commands is None:
        raise NotDecided(LOST if entry.cause == RECOVERY else NOT_RECORDED)
    return commands


def _today(entry: Entry, events: tuple[AnyEvent, ...], refused: str) -> tuple[str, ...]:
    if refused:
        return (refused,)
    texts = outcomes([msgspec.structs.replace(entry, events=events)])
    return tuple(texts) or ("nothing would follow",)


def _lines(found: Replayed) -> list[str]:
    span = f"from position {found.since} to {found.until}"
    lines = [f"{plural(found.decided, 'decision')} {span} made anew"]
    if found.placements:
        lines.append(
            f"  {found.placements} of them placed tasks: whether these places are allowed was checked"
        )
    if found.planned:
        lines.append(
            f"  {found.planned} of them came from the scheduler or a reconciler: whether it would give these "
            "commands again was not tried, for what it observed is not recorded"
        )
    lines += [f"  left out: {count} {reason}" for reason, count in sorted(found.left_out.items())]
    other = found.otherwise
    if other is None:
        return [*lines, "all come out as they are recorded"]
    recorded = happened([other.entry])
    return [
        *lines,
        "the first that comes out otherwise:",
        *recorded,
        *(f"  today: {t}" for t in cut(other.today)),
    ]


def _data(found: Replayed) -> dict[str, object]:
    other = found.otherwise
    return {
        "from": found.since,
        "to": found.until,
        "decided": found.decided,
        "passes": found.placements,
        "planned": found.planned,
        "left_out": dict(found.left_out),
        "otherwise": None if other is None else {"entry": viewed(other.entry), "today": other.today},
    }


class PlacementCheck:
    """The scheduler's rows of one cell, kept up with it."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._fleet = Fleet.of(cell, Observed(), 0, 0.0)
        self._classes = Classes(shared=True)
        self._scores = ScoreCache(POLICIES[SchedulerSettings().policy](0))
        self._stale: set[str] = set()

    def violations(self, entry: Entry) -> list[str]:
        """Return what is wrong with the placements of an entry that is not applied to the cell yet."""
        placed = [event for event in entry.events if isinstance(event, TasksPlaced)]
        if placed:
            self._read()
        return [text for event in placed for text in self._of(event)]

    def update(self, machines: Iterable[str]) -> list[str]:
        """Take note of machines that changed; return which of them hold more than they have."""
        there = {name for name in machines if name in self._cell.machines}
        self._stale |= set(machines)
        return [f"{name} holds more than it has" for name in sorted(there) if is_overfull(self._cell, name)]

    def _read(self) -> None:
        self._fleet.read(self._cell, Observed(), sorted(self._stale), 0.0)
        self._stale = set()

    def _of(self, event: TasksPlaced) -> list[str]:
        job = self._cell.jobs.get(event.job)
        if job is None or job.spec.inside:  # inside, the room is the alloc's
            return []
        found = []
        for index, machine in zip(event.indexes, event.machines, strict=True):
            row = self._fleet.row.get(machine, -1)
            kind = self._classes.of(self._cell, job, index, self._fleet)
            if row < 0 or not self._scores.is_suitable(self._fleet, kind, row):
                found.append(f"{task_name(event.job, index)} may not run on {machine}")
            elif not self._is_kept(machine) and not self._scores.takes(self._fleet, kind, row):
                found.append(f"{task_name(event.job, index)} has no room on {machine}")
        return found

    def _is_kept(self, machine: str) -> bool:
        """Return whether places are kept there, perhaps for these tasks: the rows count them as taken."""
        return bool(self._cell.promised.get(machine))


COMMANDS = {"replay": (replay_arguments, replay)}
