"""A lease is sums of clock readings: when it is to be renewed, and when a master has to stop."""

import queue
import threading

import pytest

from borgish.clock import Now, SystemClock
from borgish.errors import BorgishError, Fenced
from borgish.master.lease import LeaderGuard, Lease, LeaseSettings, Renewal, in_thread, wrong_with
from borgish.store.memory import MemoryStore

SETTINGS = LeaseSettings(ttl_seconds=6.0, renew_seconds=1.5, deadline_seconds=4.0)


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.mono = 100.0

    def now(self) -> Now:
        return Now(1e9, self.mono)


def test_it_counts_from_when_the_question_left() -> None:
    lease = Lease(SETTINGS, asked=100.0)
    assert (lease.due_in(100.5), lease.left(100.5)) == (1.0, 3.5)
    lease.renewed(asked=101.5)  # answered whenever
    assert (lease.due_in(103.5), lease.left(103.5)) == (0.0, 2.0)
    assert lease.left(105.5) == 0.0


def test_an_answer_that_comes_late_does_not_shorten_it() -> None:
    lease = Lease(SETTINGS, asked=100.0)
    lease.renewed(103.0)
    lease.renewed(101.0)
    assert lease.left(103.0) == 4.0


@pytest.mark.parametrize(
    ("ttl", "renew", "deadline"),
    [(4, 1.5, 4), (6, 4, 4), (6, 0, 4), (6, -1, 4), (float("nan"), 1, 2), (7200, 1, 2), (6, 2, float("nan"))],
)
def test_it_must_be_renewed_before_its_master_stops_and_that_stop_before_another_leads(
    ttl: float, renew: float, deadline: float
) -> None:
    assert "do not grow in this order" in wrong_with(LeaseSettings(ttl, renew, deadline))
    assert wrong_with(SETTINGS) == ""


def test_a_mandate_ends_with_its_lease_and_comes_back_only_by_a_renewal() -> None:
    clock = Hand()
    guard = LeaderGuard(clock, Lease(SETTINGS, 100.0))
    clock.mono = 103.9
    guard.check()
    clock.mono = 104.0
    assert guard.is_over
    with pytest.raises(Fenced, match=r"could not be renewed") as caught:
        guard.check()
    assert caught.value.exit_code == 71


def test_without_a_lease_it_has_no_end() -> None:
    clock = Hand()
    guard = LeaderGuard(clock)
    clock.mono = 1e9
    guard.check()
    assert not guard.is_over


class Renewed(MemoryStore):
    """A store that counts renewals, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__("c")
        self.asked = threading.Semaphore(0)
        self.failure: BorgishError | None = None

    def renew(self) -> None:
        self.asked.release()
        if self.failure:
            raise self.failure


QUICK = LeaseSettings(ttl_seconds=120.0, renew_seconds=0.001, deadline_seconds=60.0)
PATIENCE_SECONDS = 30.0


def test_it_is_renewed_again_and_again_until_that_fails() -> None:
    store, failures = Renewed(), queue.Queue[BorgishError]()
    clock = SystemClock()
    renewal = Renewal(store, Lease(QUICK, clock.now().mono), clock, failures.put)
    end = in_thread(renewal.step)
    for _ in range(3):
        assert store.asked.acquire(timeout=PATIENCE_SECONDS)
    store.failure = Fenced("Another one leads")
    assert failures.get(timeout=PATIENCE_SECONDS) is store.failure
    end()


def test_one_whose_loop_is_dead_or_whose_time_is_over_renews_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = Renewed(), Hand()
    renewal = Renewal(store, Lease(SETTINGS, clock.mono), clock, lambda _: None)
    clock.mono += 5.0  # longer than its deadline
    assert renewal.step() is None
    late = Renewal(store, Lease(SETTINGS, clock.mono), clock, lambda _: None)
    clock.mono += 3.0
    monkeypatch.setattr("borgish.master.lease.LOOP_SILENT_SECONDS_MAX", 2.0)
    assert late.step() is None
    assert not store.asked.acquire(blocking=False)


def test_who_resigned_leads_no_more_by_any_renewal() -> None:
    clock = Hand()
    lease = Lease(SETTINGS, 100.0)
    guard = LeaderGuard(clock, lease)
    guard.resign()
    lease.renewed(clock.mono)
    with pytest.raises(Fenced, match="no longer leads"):
        guard.check()
