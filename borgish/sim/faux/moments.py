"""Which position a moment is, of what was opened: the words of ``--at`` on ``borgctl``, without a master."""

from datetime import datetime, time, timedelta

from borgish.api.moments import Moment, no_such_name, read_moment
from borgish.errors import Gone, Invalid, NotFound
from borgish.sim.faux.opened import Opened
from borgish.sim.faux.words import when
from borgish.store.moment import position_at

_CLOCK_SECONDS = 2.0  # a moment so little after the end is the end


def find(there: Opened, text: str) -> int:
    """Return the position that is meant; "now" is the end of what was opened.

    Raises Invalid, NotFound for what is after the end or never was, and Gone for what is not kept.
    """
    end = written(there, there.head)
    moment = read_moment(_zoned(text, end), end)
    position = _position(there, moment, end)
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


def _position(there: Opened, moment: Moment, end: float) -> int:
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
