"""Schedules over ten changes of clocks, against a reference that walks over every minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from borgish.spec.schedule import Schedule

# The zones differ in when, by how much and in which hour: Lord Howe's by half an hour, Troll's by two.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Australia/Lord_Howe", "2027-04-04"),
    ("America/Santiago", "2026-09-06"),
    ("America/Santiago", "2027-04-04"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Antarctica/Troll", "2026-10-25"),
]
MINUTE = timedelta(minutes=1)


def reference(minutes: set[int], hours: set[int] | None, zone: ZoneInfo, day: datetime) -> list[float]:
    """Return when clocks show these times, from a day before to a day after; ``hours`` None: each hour."""
    found = set()
    for index in range(3 * 24 * 60):
        moment = day - timedelta(days=1) + index * MINUTE
        if hours is None:
            if moment.astimezone(zone).minute in minutes:
                found.add(moment.timestamp())
            continue
        wall = moment.replace(tzinfo=zone)  # as if each time were on each day, once
        if wall.hour in hours and wall.minute in minutes:
            found.add(wall.timestamp())
    return sorted(found)


@given(
    change=st.sampled_from(CHANGES),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    hours=st.none() | st.sets(st.integers(0, 6), min_size=1, max_size=3),
)
def test_every_time_of_three_days_is_there_once(
    change: tuple[str, str], minutes: set[int], hours: set[int] | None
) -> None:
    zone, day = ZoneInfo(change[0]), datetime.fromisoformat(change[1]).replace(tzinfo=UTC)
    joined = "*" if hours is None else ",".join(map(str, sorted(hours)))
    times = Schedule(f"{','.join(map(str, sorted(minutes)))} {joined} * * *", change[0])
    expected = reference(minutes, hours, zone, day)
    # What is near the ends belongs to a day that the reference has not.
    low, high = day.timestamp() - 10 * 3600, day.timestamp() + 32 * 3600
    wanted = [each for each in expected if low < each <= high]
    found, at = [], low
    while (at := times.after(at)) <= high:
        found.append(at)
    assert found == wanted
    assert times.latest(low, high, 5) == wanted[-5:]


@given(st.sampled_from(CHANGES), st.floats(-7200, 7200), st.booleans())
def test_what_comes_next_does_not_depend_on_when_one_asks(
    change: tuple[str, str], shift: float, every_hour: bool
) -> None:
    """However often somebody asks: the next after a moment is the first of those after an earlier one."""
    times = Schedule("*/13 * * * *" if every_hour else "*/13 1-4 * * *", change[0])
    day = datetime.fromisoformat(change[1]).replace(tzinfo=ZoneInfo(change[0])).timestamp()
    moment = day + 2 * 3600 + shift
    following = times.after(moment)
    assert following > moment
    assert following == next(each for each in times.next_times(day - 86400, 500) if each > moment)
