"""One look at what was opened: at which position of its history it is, and the copy that was changed."""

from collections.abc import Iterator
from datetime import datetime, time, timedelta

from borgish.api.moments import NOW, Moment, no_such_name, read_moment
from borgish.cell.events import Entry
from borgish.cell.model import Cell
from borgish.errors import Conflict, Gone, Invalid, NotFound
from borgish.sim.faux.copied import Copy, copy_cell
from borgish.sim.faux.opened import Opened
from borgish.sim.faux.output import when
from borgish.store.replay import cell_at, position_at, replay, roll_forward

PAGE_ENTRIES = 500


class Session:
    """Begins at a moment of what was opened. To be closed."""

    def __init__(self, there: Opened, at: str = NOW) -> None:
        """Raises what ``find`` and ``cell_at`` raise."""
        self.opened = there
        self.warnings: list[str] = []
        self.began_at = find_position(there, at)
        self.changed_copy: Copy | None = None
        self._trial: Copy | None = None  # the latest
        self.cell = self._cell_at(self.began_at)
        self.at = written(there, self.began_at)  # seconds since 1970

    @property
    def here(self) -> Cell:
        """The cell that questions are about: the copy, once something was changed."""
        copy = self.changed_copy
        return copy.cell if copy is not None else self.cell

    # What really happened

    def steps(self, count: int) -> list[Entry]:
        """Go through the next entries of the journal and return them. Raises Conflict and NotFound."""
        self._expect_history()
        entries = list(self.opened.source.entries(self.cell.position, count))
        if not entries:
            raise self._at_the_end()
        replay(self.cell, entries)
        self.at = entries[-1].at
        return entries

    def following(self) -> Iterator[Entry]:
        """Yield what really happened next, without going there. Raises Conflict and NotFound."""
        self._expect_history()
        after, any_there = self.cell.position, False
        while page := list(self.opened.source.entries(after, PAGE_ENTRIES)):
            any_there = True
            yield from page
            after = page[-1].position
        if not any_there:
            raise self._at_the_end()

    def go_on_to(self, entry: Entry) -> None:
        """Go to an entry that is still to come."""
        roll_forward(self.opened.source, self.cell, entry.position)
        self.at = entry.at

    def go_to(self, moment: str) -> None:
        """Go to a moment, and let go of the copy."""
        position = find_position(self.opened, moment)
        self.cell = self._cell_at(position)
        self.at = written(self.opened, position)
        self._close_copy()

    def cell_of(self, moment: str) -> Cell:
        """Return the cell at a moment, to be read only; "here" is where this session is."""
        return self.here if moment == "here" else self._cell_at(find_position(self.opened, moment))

    # What would be if

    def copy(self) -> Copy:
        """Return the copy that is worked on, made when it is first asked for."""
        if self.changed_copy is None:
            self.changed_copy = self.trial()
        return self.changed_copy

    def trial(self) -> Copy:
        """Return a copy of what is here, for one question: until the next one is asked for."""
        if self._trial is not None and self._trial is not self.changed_copy:
            self._trial.close()
        self._trial = Copy(copy_cell(self.here), self.now)
        return self._trial

    def back(self) -> None:
        """Let go of the copy. Raises Conflict where there is none."""
        if self.changed_copy is None:
            raise Conflict(
                "nothing was changed here: this is what really happened", "There is nothing to undo"
            )
        self._close_copy()

    def _close_copy(self) -> None:
        if self.changed_copy is not None:
            self.changed_copy.close()
            self.changed_copy = None

    def close(self) -> None:
        """Let go of the copies."""
        self._close_copy()
        if self._trial is not None:
            self._trial.close()

    @property
    def now(self) -> float:
        """What time it is here, in seconds since 1970."""
        copy = self.changed_copy
        return copy.now().wall if copy is not None else self.at

    def _cell_at(self, position: int) -> Cell:
        found = cell_at(self.opened.source, self.opened.cell, position)
        self.warnings += found.warnings
        return found.cell

    def _expect_history(self) -> None:
        if self.changed_copy is not None:
            raise Conflict(
                f"this copy was changed at position {self.cell.position}, and has no journal after that",
                "`back` returns to what really happened",
            )

    def _at_the_end(self) -> NotFound:
        here = self.opened
        hint = f"It was opened at {self.began_at}; `at POSITION` goes to an earlier one"
        if here.kind == "checkpoint" and here.first == here.head:
            hint = "The file has no journal: export it --with-journal, or open the cell's database"
        return NotFound(f"nothing more is in {here.what} after position {self.cell.position}", hint)


_CLOCK_SECONDS = 2.0  # a moment so little after the end is the end


def find_position(there: Opened, text: str) -> int:
    """Return the position that is meant; "now" is the end of what was opened.

    Raises Invalid, NotFound for what is after the end or never was, and Gone for what is not kept.
    """
    end = written(there, there.head)
    moment = read_moment(_zoned(text, end), end)
    position = _position_of(there, moment, end)
    if position < there.first:
        raise Gone(
            f"position {position} is not in {there.what}: it begins at {there.first}",
            f"Open it --at {there.first} or later" if there.kind != "checkpoint" else _LATER,
        )
    return _expect_written(there, position)


_LATER = "Export an earlier checkpoint, --with-journal; or open the cell's database"


def written(there: Opened, position: int) -> float:
    """Return when an entry was written, or else when the checkpoint there was made; 0 for the beginning."""
    entry = next(iter(there.source.entries(position - 1, 1)), None)
    if entry is not None and entry.position == position:
        return entry.at
    return next((info.at for info in there.source.checkpoints() if info.position == position), 0.0)


def _position_of(there: Opened, moment: Moment, end: float) -> int:
    if moment.checkpoint:
        return _named(there, moment.checkpoint)
    if moment.position is not None:
        if moment.position > there.head:
            raise Invalid(f"position {moment.position} is not in {there.what}", f"It ends at {there.head}")
        return moment.position
    if moment.at is None:
        return there.head
    if moment.at > end + _CLOCK_SECONDS:
        raise Invalid(
            f"'{moment.text}' is after the end of {there.what}",
            f"It ends at position {there.head}, of {when(end)}",
        )
    return _at(there, moment, end)


def _at(there: Opened, moment: Moment, end: float) -> int:
    """Return the last position that was reached by a moment; the checkpoint's where that came before."""
    assert moment.at is not None
    if moment.at >= end:
        return there.head
    if (found := position_at(there.source, moment.at, there.head)) >= there.first and found:
        return found
    began = written(there, max(1, there.first))
    if there.first and moment.at >= began:
        return there.first
    hint = f"The earliest is position {max(1, there.first)}, of {when(began)}"
    if not there.first:
        raise NotFound(f"the cell had no history yet at '{moment.text}'", hint)
    raise Gone(f"what was at '{moment.text}' is not in {there.what}", hint)


def _named(there: Opened, name: str) -> int:
    kept = there.source.checkpoints()
    for info in kept:
        if info.name == name:
            return info.position
    raise no_such_name(name, f"in {there.what}", (info.name for info in kept))


def _expect_written(there: Opened, position: int) -> int:
    """Return the position. Raises Gone for one that was lost, or left out, by the journal."""
    following = next(iter(there.source.entries(position - 1, 1)), None) if position > there.first else None
    if following is not None and following.position != position:
        before = next(iter(there.source.entries_before(position, 1)), None)
        raise Gone(
            f"position {position} is on a lost part of the timeline: nothing is written there",
            f"The nearest are {before.position if before else there.first} and {following.position}",
        )
    return position


def _zoned(text: str, end: float) -> str:
    """Return a time with the zone of who asks, a time of day as the latest such before the end."""
    if text.isdecimal():
        return text
    try:
        at = _time_of_day(text, end) or datetime.fromisoformat(text)
        return (at if at.tzinfo else at.astimezone()).isoformat()
    except (ValueError, OverflowError):
        return text


def _time_of_day(text: str, end: float) -> datetime | None:
    try:
        of_day = time.fromisoformat(text) if ":" in text else None
    except ValueError:
        return None
    if of_day is None:
        return None
    latest = datetime.fromtimestamp(end).astimezone()
    that_day = datetime.combine(latest.date(), of_day)
    return that_day if that_day.astimezone() <= latest else that_day - timedelta(days=1)
