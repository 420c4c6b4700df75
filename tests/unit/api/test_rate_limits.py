"""Who asks too often, or is refused too often, waits; nobody else does."""

import pytest

from borgish.api.rate_limits import SOURCES_MAX, Limits, LimitSettings
from borgish.cell.access.model import Principal
from borgish.clock import Now
from borgish.errors import TooManyRequests

ANN, BOB = Principal("ann", "user"), Principal("bob", "user")
MACHINES = Principal("machines", "join")
HERE, THERE = "10.0.0.1", "10.0.0.2"
SETTINGS = LimitSettings(
    requests_per_second=2,
    requests_burst=4,
    refused_per_second=0.5,
    refused_burst=2,
    unauthenticated_per_minute=3,
)


class Standing:
    """A clock that is set by hand."""

    mono = 100.0

    def now(self) -> Now:
        return Now(0.0, self.mono)


@pytest.fixture
def clock() -> Standing:
    return Standing()


@pytest.fixture
def limits(clock: Standing) -> Limits:
    return Limits(SETTINGS, clock)


def admitted(limits: Limits, who: Principal, times: int) -> int:
    for number in range(times):
        try:
            limits.admit(who, HERE)
        except TooManyRequests:
            return number
    return times


def test_a_burst_is_answered_and_then_a_rate(limits: Limits, clock: Standing) -> None:
    assert admitted(limits, ANN, 10) == 4
    assert admitted(limits, BOB, 10) == 4, "each has their own"
    clock.mono += 1
    assert admitted(limits, ANN, 10) == 2
    with pytest.raises(TooManyRequests, match="too many requests of ann") as caught:
        limits.admit(ANN, HERE)
    assert caught.value.retry_after_seconds == pytest.approx(0.5)
    clock.mono += 1000
    assert admitted(limits, ANN, 10) == 4, "no more is saved up than a burst"


def test_who_is_refused_too_often_waits_longer(limits: Limits, clock: Standing) -> None:
    assert admitted(limits, ANN, 3) == 3
    for _ in range(3):  # the last one was under way already
        limits.refused(ANN, HERE)
    with pytest.raises(TooManyRequests, match="requests of ann were refused") as caught:
        limits.admit(ANN, HERE)
    assert caught.value.retry_after_seconds == pytest.approx(4)
    limits.admit(BOB, HERE)
    clock.mono += 4
    limits.admit(ANN, HERE)


def test_a_machine_that_is_refused_keeps_no_other_out(limits: Limits, clock: Standing) -> None:
    for _ in range(3):
        limits.refused(MACHINES, HERE)
    limits.admit(MACHINES, THERE)
    with pytest.raises(TooManyRequests, match="requests of machines were refused"):
        limits.admit(MACHINES, HERE)
    for number in range(SOURCES_MAX):
        limits.refused(MACHINES, f"10.1.0.{number}")
    limits.admit(MACHINES, HERE)  # forgotten: nothing grows with who asks
    for _ in range(3):
        limits.refused(ANN, HERE)
    with pytest.raises(TooManyRequests, match="requests of ann were refused"):
        limits.admit(ANN, THERE)  # a user has one bucket, wherever they are


def test_strangers_are_counted_by_their_address(limits: Limits, clock: Standing) -> None:
    for _ in range(3):
        limits.unauthenticated("10.0.0.1")
    with pytest.raises(TooManyRequests, match=r"from 10\.0\.0\.1") as caught:
        limits.unauthenticated("10.0.0.1")
    assert caught.value.retry_after_seconds == pytest.approx(20)
    limits.unauthenticated("10.0.0.2")
    for number in range(SOURCES_MAX):
        limits.unauthenticated(f"10.1.0.{number}")
    limits.unauthenticated("10.0.0.1")  # forgotten: nothing grows with who asks


def test_changed_limits_count_at_once(limits: Limits) -> None:
    assert admitted(limits, ANN, 10) == 4
    limits.change(LimitSettings(requests_per_second=1, requests_burst=8))
    assert admitted(limits, ANN, 10) == 8


def test_a_rate_of_nothing_is_no_limit(clock: Standing) -> None:
    limits = Limits(LimitSettings(0, 1, 0, 1, 0), clock)
    for _ in range(5):
        limits.refused(ANN, HERE)
        limits.unauthenticated("10.0.0.1")
    assert admitted(limits, ANN, 5000) == 5000
