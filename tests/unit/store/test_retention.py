"""Which checkpoints stay by rule, and which may go."""

from typing import Literal

import pytest

from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import DAY_SECONDS, HOUR_SECONDS, Retention, expired

NOTHING = Retention(latest=0, hourly=0, daily=0)


def info(position: int, at: float, name: str = "") -> CheckpointInfo:
    return CheckpointInfo(position, at, "test", "", 1, name)


def stay(kept: list[CheckpointInfo], retention: Retention, journal_begins: int = 1) -> list[int]:
    gone = expired(kept, retention, journal_begins)
    assert gone == sorted(gone, key=lambda one: -one.position)
    return sorted(one.position for one in kept if one not in gone)


def each(seconds: float, count: int) -> list[CheckpointInfo]:
    return [info(number, number * seconds) for number in range(1, count + 1)]


def test_the_latest_stay() -> None:
    assert stay(each(60, 30), Retention(3, 0, 0)) == [28, 29, 30]


def test_the_newest_stays_whatever_the_rule() -> None:
    assert stay(each(60, 30), NOTHING) == [30]
    assert stay([], NOTHING) == []


def test_the_newest_of_each_hour_stays() -> None:
    every_ten_minutes = each(HOUR_SECONDS / 6, 24)  # the sixth is of the next hour
    assert stay(every_ten_minutes, Retention(0, 3, 0)) == [17, 23, 24]
    assert stay(every_ten_minutes, Retention(0, 99, 0)) == [5, 11, 17, 23, 24]


def test_hours_without_any_do_not_count() -> None:
    kept = [info(1, 0), info(2, 50 * HOUR_SECONDS), info(3, 900 * HOUR_SECONDS)]
    assert stay(kept, Retention(0, 2, 0)) == [2, 3]


def test_rules_add_up() -> None:
    hourly = each(HOUR_SECONDS, 24 * 10)  # the last is the first of its day
    assert stay(hourly, Retention(latest=2, hourly=4, daily=3)) == [9 * 24 - 1, 237, 238, 239, 240]


@pytest.mark.parametrize(("named", "expected"), [("all", [1, 2, 3, 9]), (2, [2, 3, 9]), (0, [9])])
def test_named_ones_have_a_rule_of_their_own(named: int | Literal["all"], expected: list[int]) -> None:
    kept = [*(info(position, 0.0, f"n{position}") for position in (1, 2, 3)), info(8, 1.0), info(9, 2.0)]
    keep = Retention(0, 0, 0, named)
    assert stay(kept, keep) == expected


def test_where_the_journal_begins_is_not_let_go() -> None:
    kept = each(DAY_SECONDS, 20)
    assert stay(kept, Retention(1, 0, 0), journal_begins=5) == [4, 20]
    assert stay(kept, Retention(1, 0, 0), journal_begins=6) == [5, 20]
    assert stay(kept, Retention(1, 0, 0), journal_begins=1) == [20]


def test_a_week_of_ten_minutes_comes_down_to_some_dozens() -> None:
    assert len(stay(each(600, 6 * 24 * 30), Retention())) == 33
