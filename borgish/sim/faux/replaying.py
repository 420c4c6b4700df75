"""Decides the journal anew: what today's code makes of each thing that was asked, beside what is recorded.

The cell follows the recorded history, so that each entry is judged for itself; the first that comes out
otherwise is told.
"""

import argparse
from collections import Counter

import msgspec

from borgish.cell.commands import Command, RemoveMachine
from borgish.cell.decide import decide
from borgish.cell.events import AnyEvent, Entry, RolledBack
from borgish.cell.observed import Observed, SeenMachine
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import BorgishError, Invalid, Refused
from borgish.sim.faux.allowed import Allowed
from borgish.sim.faux.moments import find
from borgish.sim.faux.recall import Commands, Untold, recall
from borgish.sim.faux.session import Session
from borgish.sim.faux.words import Answer, cut, happened, outcomes, plural, viewed
from borgish.store.moment import cell_at, stretch
from borgish.store.replay import take_in

Parser = argparse.ArgumentParser
Parsed = argparse.Namespace

DIFFERS = 3
"""The exit code when something would be decided otherwise."""
PLACE = "place"
LONG_AGO = -1e9  # monotonic seconds


class Otherwise(msgspec.Struct, frozen=True):
    """An entry that would come out otherwise, and how: what would happen, or why nothing would."""

    entry: Entry
    today: tuple[str, ...]


class Replayed(msgspec.Struct):
    """What came of it; ``untold`` counts entries that were not decided anew, by the reason."""

    since: int
    until: int
    decided: int = 0
    placements: int = 0
    untold: Counter[str] = msgspec.field(default_factory=Counter)
    otherwise: Otherwise | None = None


def replay_words(parser: Parser) -> None:
    """From where to where."""
    parser.add_argument("--from", dest="since", default="", metavar="POSITION", help="or another moment")
    parser.add_argument("--to", dest="until", default="", metavar="POSITION", help="the end if not given")


def replay_all(session: Session, words: Parsed) -> Answer:
    """Decide what was asked anew, and tell the first thing that would be decided otherwise today."""
    there = session.opened
    since = find(there, words.since) if words.since else there.first
    until = find(there, words.until) if words.until else there.head
    if until < since:
        raise Invalid(f"position {until} is before {since}", "Name the earlier one with --from")
    found = decided_anew(session, since, until)
    return Answer(tuple(_lines(found)), _data(found), DIFFERS if found.otherwise else 0)


def decided_anew(session: Session, since: int, until: int) -> Replayed:
    """Go through the journal up to the first entry that comes out otherwise, or to the end."""
    source, found = session.opened.source, Replayed(since, until)
    cell = cell_at(source, session.opened.cell, since).cell
    judge = Judge(cell, session)
    for entry in stretch(source, since, until):
        found.otherwise = judge.look(entry, found)
        if found.otherwise is not None:
            break
    return found


class Judge:
    """Decides entries anew, on a cell that follows them."""

    def __init__(self, cell: Cell, session: Session) -> None:
        self._cell = cell
        self._session = session
        self._allowed = Allowed(cell)

    def look(self, entry: Entry, found: Replayed) -> Otherwise | None:
        """Judge an entry and take it in; return what would be otherwise."""
        try:
            ways = recall(self._cell, entry)
            then = self._then(entry)
        except (Untold, Refused) as reason:  # Refused: of a rollback, to where history is no longer kept
            found.untold[str(reason)] += 1
            return self._taken_in(entry)
        found.decided += 1
        found.placements += entry.cause == PLACE
        tried = [self._decided(way, entry, then) for way in ways]
        if not any(events == entry.events for events, _ in tried):
            return Otherwise(entry, _today(entry, *tried[0]) if tried else ("nothing would follow",))
        if wrong := self._allowed.objections(entry):
            return Otherwise(entry, tuple(wrong))
        return self._taken_in(entry)

    def _taken_in(self, entry: Entry) -> Otherwise | None:
        """Take an entry into the cell; where it placed tasks, look whether that was too much."""
        touched = take_in(self._cell, entry)
        wrong = self._allowed.taken_in(touched.machines | touched.placements | touched.machines_gone)
        return Otherwise(entry, tuple(wrong)) if wrong and entry.cause == PLACE else None

    def _then(self, entry: Entry) -> Cell | None:
        """Return the cell that a rollback went back to."""
        for event in entry.events:
            if isinstance(event, RolledBack):
                return cell_at(self._session.opened.source, self._session.opened.cell, event.to).cell
        return None

    def _decided(
        self, commands: Commands, entry: Entry, then: Cell | None
    ) -> tuple[tuple[AnyEvent, ...], str]:
        """Return what would happen, or else why nothing would."""
        now = Now(entry.at, 0.0)
        events: list[AnyEvent] = []
        try:
            for command in commands:
                events += decide(self._cell, _seen(command), command, entry.actor, now, then).events
        except BorgishError as refused:
            return (), f"refused: {refused.message}"
        except Exception as error:  # what today's code fails at, it decides otherwise
            return (), f"today's code fails: {error!r}"
        return tuple(events), ""


def _seen(command: Command) -> Observed:
    """Return what was seen, as far as it must have been: a machine that was given up was silent for long."""
    observed = Observed()
    if isinstance(command, RemoveMachine):
        observed.machines[command.machine] = SeenMachine(heard=LONG_AGO, watched_since=LONG_AGO)
    return observed


def _today(entry: Entry, events: tuple[AnyEvent, ...], refused: str) -> tuple[str, ...]:
    if refused:
        return (refused,)
    told = outcomes([msgspec.structs.replace(entry, events=events)])
    return tuple(told) or ("nothing would follow",)


def _lines(found: Replayed) -> list[str]:
    span = f"from position {found.since} to {found.until}"
    lines = [f"{plural(found.decided, 'decision')} {span} made anew"]
    if found.placements:
        lines.append(
            f"  {found.placements} of them placed tasks: whether these places are allowed was looked at"
        )
    lines += [f"  left out: {count} {reason}" for reason, count in sorted(found.untold.items())]
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
        "left_out": dict(found.untold),
        "otherwise": None if other is None else {"entry": viewed(other.entry), "today": other.today},
    }
