"""Crontab syntax: known tables, what is refused, and what clocks that are put on or back make of it."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from borgish.spec.schedule import NEVER, BadSchedule, Schedule, is_time_zone, schedule_of, show_time


def at(text: str) -> float:
    """Return a moment in UTC; a bare date is its beginning."""
    return datetime.fromisoformat(f"{text}+00:00" if "T" in text else f"{text}T00:00+00:00").timestamp()


def shown(schedule: str, start: str, count: int = 3, zone: str = "UTC") -> list[str]:
    """Return the first times after a moment, by the clocks of a time zone."""
    return [show_time(each, zone)[4:20] for each in Schedule(schedule, zone).next_times(at(start), count)]


# 22 November 2026 is a Sunday. What is expected is as crontab(5) and crontab.guru have it.
KNOWN = {
    "* * * * *": ["2026-11-22 00:01", "2026-11-22 00:02", "2026-11-22 00:03"],
    "*/20 * * * *": ["2026-11-22 00:20", "2026-11-22 00:40", "2026-11-22 01:00"],
    "5/20 * * * *": ["2026-11-22 00:05", "2026-11-22 00:25", "2026-11-22 00:45"],
    "0 */9 * * *": ["2026-11-22 09:00", "2026-11-22 18:00", "2026-11-23 00:00"],
    "30 2,14 * * *": ["2026-11-22 02:30", "2026-11-22 14:30", "2026-11-23 02:30"],
    "0 0 * * 0": ["2026-11-29 00:00", "2026-12-06 00:00", "2026-12-13 00:00"],
    "0 0 * * 7": ["2026-11-29 00:00", "2026-12-06 00:00", "2026-12-13 00:00"],
    "0 0 * * 1": ["2026-11-23 00:00", "2026-11-30 00:00", "2026-12-07 00:00"],
    "0 0 * * mon": ["2026-11-23 00:00", "2026-11-30 00:00", "2026-12-07 00:00"],
    "0 0 * * SUN": ["2026-11-29 00:00", "2026-12-06 00:00", "2026-12-13 00:00"],
    "0 0 * * 1-5": ["2026-11-23 00:00", "2026-11-24 00:00", "2026-11-25 00:00"],
    "0 0 * * 5-7": ["2026-11-27 00:00", "2026-11-28 00:00", "2026-11-29 00:00"],
    "0 0 * * sat-sun": ["2026-11-28 00:00", "2026-11-29 00:00", "2026-12-05 00:00"],
    "0 0 1,15 * *": ["2026-12-01 00:00", "2026-12-15 00:00", "2027-01-01 00:00"],
    # Both days restricted: either of them (POSIX).
    "0 0 1 * mon": ["2026-11-23 00:00", "2026-11-30 00:00", "2026-12-01 00:00"],
    "0 0 13 * 5": ["2026-11-27 00:00", "2026-12-04 00:00", "2026-12-11 00:00"],
    # One that begins with * is not restricted (crontab(5)): both of them.
    "0 0 */2 * mon": ["2026-11-23 00:00", "2026-12-07 00:00", "2026-12-21 00:00"],
    "0 0 31 * *": ["2026-12-31 00:00", "2027-01-31 00:00", "2027-03-31 00:00"],
    "0 0 29 2 *": ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"],
    "0 12 * jan-mar *": ["2027-01-01 12:00", "2027-01-02 12:00", "2027-01-03 12:00"],
    "0 0 1 */5 *": ["2027-01-01 00:00", "2027-06-01 00:00", "2027-11-01 00:00"],
    "@hourly": ["2026-11-22 01:00", "2026-11-22 02:00", "2026-11-22 03:00"],
    "@daily": ["2026-11-23 00:00", "2026-11-24 00:00", "2026-11-25 00:00"],
    "@weekly": ["2026-11-29 00:00", "2026-12-06 00:00", "2026-12-13 00:00"],
    "@monthly": ["2026-12-01 00:00", "2027-01-01 00:00", "2027-02-01 00:00"],
}


@pytest.mark.parametrize("schedule", KNOWN)
def test_known_schedules(schedule: str) -> None:
    assert shown(schedule, "2026-11-22") == KNOWN[schedule]


def test_seconds_come_first_where_there_are_six_fields() -> None:
    times = Schedule("*/20 30 2 * * *")
    assert [each - at("2026-11-22T02:30") for each in times.next_times(at("2026-11-22"), 4)] == [
        *(0, 20, 40),
        24 * 3600,
    ]
    assert times.has_seconds
    assert not Schedule("30 2 * * *").has_seconds


# In Berlin clocks are put on at 02:00 on 29 March 2026, and back at 03:00 on 25 October.
@pytest.mark.parametrize(
    ("schedule", "start", "times"),
    [
        ("30 2 * * *", "2026-03-28T12:00", ["2026-03-29 03:30", "2026-03-30 02:30"]),
        ("0 3 * * *", "2026-03-28T12:00", ["2026-03-29 03:00", "2026-03-30 03:00"]),
        ("0,30 2,3 * * *", "2026-03-28T12:00", ["2026-03-29 03:00", "2026-03-29 03:30", "2026-03-30 02:00"]),
        ("30 * * * *", "2026-03-29T00:00", ["2026-03-29 01:30", "2026-03-29 03:30", "2026-03-29 04:30"]),
        ("30 2 * * *", "2026-10-24T12:00", ["2026-10-25 02:30", "2026-10-26 02:30"]),
        ("30 * * * *", "2026-10-25T00:00", ["2026-10-25 02:30", "2026-10-25 02:30", "2026-10-25 03:30"]),
    ],
)
def test_clocks_that_are_put_on_or_back(schedule: str, start: str, times: list[str]) -> None:
    assert shown(schedule, start, len(times), "Europe/Berlin") == times


def test_a_night_that_has_an_hour_twice_has_each_fixed_time_once() -> None:
    """Also for who asks between the two."""
    times = schedule_of("30 2 * * *", "Europe/Berlin")
    first = at("2026-10-25T00:30")
    assert times.after(at("2026-10-25T00:00")) == first
    for minutes in range(0, 120, 7):
        assert times.after(first + 60 * minutes) == at("2026-10-26T01:30")


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca"],
)
@pytest.mark.parametrize("clock", ["01:45", "02:00", "02:30", "03:00", "00:00"])
def test_over_ten_years_a_time_of_day_comes_once_a_day(zone: str, clock: str) -> None:
    """Lord Howe changes by half an hour, Santiago at midnight, and Casablanca back for Ramadan."""
    days, last = 3653, at("2020-01-01T12:00")
    first = datetime.fromtimestamp(last, ZoneInfo(zone)).date()
    times = schedule_of(f"{int(clock[3:])} {int(clock[:2])} * * *", zone)
    dates = []
    for _ in range(days):
        last = times.after(last)
        dates.append(datetime.fromtimestamp(last, ZoneInfo(zone)).date())
    assert dates == [first + timedelta(days=1 + day) for day in range(days)]


REFUSED = {
    "": "0 fields",
    "* * * *": "4 fields",
    "* * * * * * *": "7 fields",
    "60 * * * *": "minute: 60 is outside 0 to 59",
    "* 24 * * *": "hour: 24 is outside 0 to 23",
    "* * 0 * *": "day of the month: 0 is outside 1 to 31",
    "* * * 13 *": "month: 13 is outside 1 to 12",
    "* * * * 8": "day of the week: 8 is outside 0 to 7",
    "* * * * someday": "'someday' is no day of the week",
    "*/0 * * * *": "a step of 0",
    "30-10 * * * *": "30-10 ends before it begins",
    "1,, * * * *": "'' is no minute",
    "-1 * * * *": "'' is no minute",
    "1e3 * * * *": "'1e3' is no minute",
    "0 0 30 2 *": "no month that it names has such a day",
    "0 0 31 4,6,9,11 *": "no month that it names has such a day",
    "* * * * * *": "every 1 s; at most every 10 s",
    "0,55 * * * * *": "every 5 s; at most every 10 s",
    "@yearly": "'@yearly' is not one of @hourly",
    "@reboot": "'@reboot' is not one of @hourly",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_schedule_is_told_with_the_way_out(text: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        Schedule(text)
    assert REFUSED[text] in caught.value.message
    assert caught.value.hint


def test_what_lies_between_is_not_walked_over() -> None:
    times = Schedule("*/10 * * * * *")
    now = at("2026-11-22")
    assert times.latest(at("2016-11-22"), now, 10) == [now - 10.0 * each for each in range(9, -1, -1)]
    assert times.latest(now - 25, now, 10) == [now - 20, now - 10, now]
    assert times.latest(now, now + 5, 10) == []
    yearly = Schedule("0 0 29 2 *")
    assert yearly.latest(at("2000-01-01"), now, 2) == [at("2020-02-29"), at("2024-02-29")]


def test_there_is_an_end() -> None:
    assert Schedule("0 0 1 1 *").after(at("2199-06-01")) == NEVER


def test_time_zones_are_those_of_the_iana() -> None:
    assert is_time_zone("UTC")
    assert is_time_zone("America/Argentina/Buenos_Aires")
    none = ("", "berlin", "../etc/passwd", "right/UTC", "posix/UTC", "localtime", "Factory")
    assert not any(map(is_time_zone, none))
