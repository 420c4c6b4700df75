"""When a cron is due: crontab syntax (POSIX ``crontab``, ``crontab(5)``) in a time zone becomes instants.

The calendar is APScheduler's ``CronTrigger``, which is asked for wall clock times only. Translated here,
since it reads crontabs otherwise than everybody else, is: days of the week, which it counts from Monday; that
a day meets a schedule with both days restricted where it meets either of them; and what wall clock times mean
where clocks are put on or back, which follows RFC 5545 (section 3.3.5):

- A schedule of certain hours is due once for each of its times. One that a day leaves out, as 02:30 where
  clocks are put on at 02:00, is as long after that moment as it would have been: 03:30. Of one that a day has
  twice it is the first.
- A schedule of every hour (``*`` or ``*/N``) is due whenever a clock on the wall shows such a time: both
  times where it is shown twice, and never where it is not.

Instants are whole seconds since 1970. What is asked for is the same wherever the rules of time zones are.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import msgspec

NEVER = 0.0
INTERVAL_SECONDS_MIN = 10
SHORTHANDS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
UTC_ZONE = "UTC"
TIMES_SHOWN = 5

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_DAYS_IN_MONTH_MAX = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
_HOUR_SECONDS = 3600
_SHIFT_HOURS_MAX = 3  # of clocks that are put on or back: Antarctica/Casey's were


class BadSchedule(ValueError):
    """A text that is no schedule."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class _Part(msgspec.Struct, frozen=True):
    """One of the fields of a crontab: what it may hold."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = {}


_PARTS = (
    _Part("second", 0, 59),
    _Part("minute", 0, 59),
    _Part("hour", 0, 23),
    _Part("day of the month", 1, 31),
    _Part("month", 1, 12, _MONTHS),
    _Part("day of the week", 0, 7, _DAYS),
)
_HINT = "write minute, hour, day of the month, month, day of the week, like 30 2 * * mon-fri"


def is_time_zone(name: str) -> bool:
    """Return whether there is such a time zone (IANA), like Europe/Berlin."""
    return name == UTC_ZONE or name in time_zones()


@cache
def time_zones() -> frozenset[str]:
    """Return the names of all time zones, but for those that mean another on each host, or none."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})


def show_time(at: float, time_zone: str) -> str:
    """Return an instant as the clocks of a time zone show it: ``Sun 2026-11-22 02:00:00 CET``."""
    return datetime.fromtimestamp(at, ZoneInfo(time_zone)).strftime("%a %Y-%m-%d %H:%M:%S %Z")


@lru_cache(maxsize=20_000)
def schedule_of(text: str, time_zone: str) -> "Schedule":
    """Return a schedule. Raises BadSchedule. Those of 10,000 crons are kept: to make one takes 0.1 ms."""
    return Schedule(text, time_zone)


class Schedule:
    """The instants of a crontab in a time zone."""

    def __init__(self, text: str, time_zone: str = UTC_ZONE) -> None:
        # It takes 50 ms to import, and who only reads job files never needs it.
        from apscheduler.triggers.cron import CronTrigger

        fields = _fields(text)
        seconds, minutes, hours, days, months, weekdays = map(_values, fields, _PARTS)
        weekdays = frozenset(day % 7 for day in weekdays)
        _check_interval(seconds)
        # As crontab(5) has it, which goes further than POSIX: what begins with * does not restrict.
        either = not fields[3].startswith("*") and not fields[5].startswith("*")
        if not either and not any(min(days) <= _DAYS_IN_MONTH_MAX[month - 1] for month in months):
            raise BadSchedule("no month that it names has such a day", "name a day that there is")
        pairs = [(days, None), (None, weekdays)] if either else [(days, weekdays)]
        self._triggers = [
            CronTrigger(
                month=_expression(months, _PARTS[4]),
                day=_expression(day, _PARTS[3]),
                day_of_week=_expression(
                    weekday and frozenset((each - 1) % 7 for each in weekday), _Part("", 0, 6)
                ),
                hour=_expression(hours, _PARTS[2]),
                minute=_expression(minutes, _PARTS[1]),
                second=_expression(seconds, _PARTS[0]),
                timezone=UTC,
            )
            for day, weekday in pairs
        ]
        self.has_seconds = seconds != {0}
        self._every_hour = fields[2].startswith("*")
        self._zone = None if time_zone == UTC_ZONE else ZoneInfo(time_zone)

    def after(self, at: float) -> float:
        """Return the first instant after a moment; NEVER where there is none before 2200."""
        start = int(at // 1)
        if self._zone is None:
            return self._bounded(self._wall_after(start))
        shift = _shift_near(self._zone, start)
        wall = self._wall_after(start + (_offset(self._zone, start) if shift is None else shift.low))
        best: int | None = None
        while wall is not None and wall < _END:
            first, second = self._offsets(wall)
            for shown in self._shown(wall, first, second):
                if shown > start and (best is None or shown < best):
                    best = shown
            # A time that a day left out is later than some of those after it.
            if best is not None and wall - (shift.high if shift else max(first, second)) >= best:
                break
            wall = self._wall_after(wall)
        return self._bounded(best)

    def next_times(self, at: float, count: int) -> list[float]:
        """Return the first so many instants after a moment."""
        return self._between(at, _END, count)

    def latest(self, after: float, until: float, count: int) -> list[float]:
        """Return the last so many instants after one moment and up to another, in order. What lies between
        may be years: it is not walked over."""
        seconds, start = 60.0, until
        while True:
            start = max(after, until - seconds)
            found = self._between(start, until, 2 * count + 1)
            if len(found) >= count or start <= after:
                break
            seconds *= 4
        low, high = start, until  # too many instants lie after ``low``, and too few after ``high``
        while len(found) > 2 * count:
            middle = (low + high) / 2
            tried = self._between(middle, until, 2 * count + 1)
            if len(tried) < count:
                high = middle
            else:
                low, found = middle, tried
        return found[-count:]

    def _between(self, after: float, until: float, most: int) -> list[float]:
        found: list[float] = []
        while len(found) < most and (at := self.after(after)) != NEVER and at <= until:
            found.append(at)
            after = at
        return found

    def _bounded(self, found: int | None) -> float:
        return NEVER if found is None or found >= _END else float(found)

    def _wall_after(self, wall: int) -> int | None:
        """Return the first time after this one that a clock on the wall shows, as if all days were alike."""
        begin = _EPOCH + timedelta(seconds=wall + 1)
        times = [found for each in self._triggers if (found := each.get_next_fire_time(None, begin))]
        return int(min(times).timestamp()) if times else None

    def _offsets(self, wall: int) -> tuple[int, int]:
        """Return how far a clock that shows this is ahead of UTC: the first time, and the second."""
        shown = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
        return _seconds(shown), _seconds(shown.replace(fold=1))

    def _shown(self, wall: int, first: int, second: int) -> tuple[int, ...]:
        """Return the instants that a time on the wall stands for."""
        if first == second or not self._every_hour:
            return (wall - first,)
        return (wall - first, wall - second) if first > second else ()


class _Shift(msgspec.Struct, frozen=True):
    """Clocks are put on or back nearby: the least and the most that they are ahead of UTC."""

    low: int
    high: int


def _shift_near(zone: ZoneInfo, at: int) -> _Shift | None:
    """Return how clocks are put on or back so near that wall clock times are not in their order."""
    for moment, shift in _shifts(zone, at // _HOUR_SECONDS):
        if abs(at - moment) <= shift.high - shift.low:
            return shift
    return None


@lru_cache(maxsize=4096)
def _shifts(zone: ZoneInfo, hour: int) -> tuple[tuple[int, _Shift], ...]:
    """Return what shifts there are around an hour since 1970, and when."""
    found = []
    for each in range(hour - _SHIFT_HOURS_MAX, hour + _SHIFT_HOURS_MAX + 1):
        low, high = each * _HOUR_SECONDS, (each + 1) * _HOUR_SECONDS
        before, after = _offset(zone, low), _offset(zone, high)
        if before == after:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
        found.append((high, _Shift(min(before, after), max(before, after))))
    return tuple(found)


def _offset(zone: ZoneInfo, at: int) -> int:
    return _seconds((_EPOCH + timedelta(seconds=at)).astimezone(zone))


def _seconds(shown: datetime) -> int:
    offset = shown.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


# Reading


def _fields(text: str) -> list[str]:
    """Return the six fields, seconds first."""
    found = text.split()
    if text.startswith("@"):
        if text not in SHORTHANDS:
            raise BadSchedule(
                f"'{text[:40]}' is not one of {', '.join(SHORTHANDS)}",
                f"write the times: {_HINT.removeprefix('write ')}",
            )
        found = SHORTHANDS[text].split()
    if len(found) == len(_PARTS) - 1:
        found = ["0", *found]
    if len(found) != len(_PARTS):
        raise BadSchedule(
            f"{len(found)} field{'s' * (len(found) != 1)}; a schedule has 5, or 6 with seconds first", _HINT
        )
    return [each.lower() for each in found]


def _values(field: str, part: _Part) -> frozenset[int]:
    return frozenset(value for each in field.split(",") for value in _range(each, part))


def _range(text: str, part: _Part) -> range:
    """Return what one element of a field stands for: ``*``, ``5``, ``1-5``, any of them with ``/N``."""
    whole, slash, step_text = text.partition("/")
    step = _number(step_text, part, part.high) if slash else 1
    if step < 1:
        raise _wrong(part, f"a step of {step}", "a step is 1 or more, like */15")
    if whole == "*":
        return range(part.low, min(part.high, 6 if part.names is _DAYS else part.high) + 1, step)
    first, dash, last = whole.partition("-")
    low = _value(first, part)
    high = _value(last, part) if dash else part.high if slash else low
    if high < low:
        if part.names is _DAYS and high == 0:
            high = 7  # sat-sun
        else:
            ranges = f"{first}-{part.high},{part.low}-{last}"
            raise _wrong(part, f"{whole} ends before it begins", f"write two ranges: {ranges}")
    return range(low, high + 1, step)


def _value(text: str, part: _Part) -> int:
    if text in part.names:
        return part.names[text]
    return _number(text, part, part.high, part.low)


def _number(text: str, part: _Part, high: int, low: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        like = f"{next(iter(part.names))} or " if part.names else ""
        raise _wrong(
            part, f"'{text[:20]}' is no {part.name}", f"write {like}{part.low} to {part.high}, * or */2"
        )
    if not low <= int(text) <= high:
        raise _wrong(part, f"{text} is outside {low} to {high}", f"write {part.low} to {part.high}")
    return int(text)


def _wrong(part: _Part, message: str, hint: str) -> BadSchedule:
    return BadSchedule(f"{part.name}: {message}", hint)


def _check_interval(seconds: frozenset[int]) -> None:
    """Raise BadSchedule for times that are too close to each other (F111 of the catalogue of faults)."""
    ordered = sorted(seconds)
    gaps = [b - a for a, b in zip(ordered, [*ordered[1:], ordered[0] + 60], strict=True)]
    if min(gaps) < INTERVAL_SECONDS_MIN:
        raise BadSchedule(
            f"it would run every {min(gaps)} s; at most every {INTERVAL_SECONDS_MIN} s is possible",
            f"write */{INTERVAL_SECONDS_MIN} for the seconds, or let one service do it again and again",
        )


def _expression(values: frozenset[int] | None, part: _Part) -> str:
    """Return the values as ``CronTrigger`` has them, which is quicker the shorter they are."""
    if values is None or values == frozenset(range(part.low, part.high + 1)):
        return "*"
    ordered = sorted(values)
    steps = {b - a for a, b in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1:
        return f"{ordered[0]}-{ordered[-1]}/{steps.pop()}"
    return ",".join(map(str, ordered))
