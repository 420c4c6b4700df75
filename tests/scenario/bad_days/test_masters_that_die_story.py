"""The master dies in the middle of an update, or another one takes over: the update goes on from where it
was, nothing is stopped twice, and never is more down than the budget allows."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from borgish.cell.events import Entry, JobChanged, RolloutBegan, RolloutWentOn
from borgish.sim.checkers.safety import Checker
from borgish.sim.masters import MasterHost
from borgish.sim.store import SimStore
from borgish.store.base import Records
from borgish.store.replay import cell_at
from tests.scenario.bad_days.conftest import Days
from tests.scenario.bad_days.day import CHANGED, DRAINED, SETTLE_SECONDS, TASKS, UNSEEN_SECONDS, WEB, Day, web

AWAY_SECONDS = 3.0
STALLED_SECONDS = 20.0
UPDATE_SECONDS = 20.0
"""So long the update takes when nothing happens."""

Strike = Callable[[], None]


def updating(day: Day) -> None:
    """Let all tasks be up and well, and an update begin."""
    day.submit(web(1))
    day.wait(15.0)
    day.submit(web(2))


def left_on_disk(day: Day) -> dict[int, int]:
    """Return the tasks that the update has yet to reach, as the journal has it."""
    store = day.master.store.reopen()
    rollout = cell_at(store, store.disk.cell, day.position).cell.jobs[WEB].rollout
    return dict(rollout.attempts) if rollout is not None else {}


def kill(day: Day) -> None:
    """End the master as kill -9 does, and let the next one begin soon."""
    host = day.master
    host.die()
    day.world.clock.after(AWAY_SECONDS, host.begin)


def goes_on(day: Day, left: dict[int, int]) -> None:
    """Let the next master lead: it has the same tasks to reach as the journal has."""
    day.until(lambda: day.master.core is not None)
    rollout = day.job().rollout
    assert dict(rollout.attempts if rollout is not None else {}) == left


def is_changed_once(day: Day) -> None:
    """Each task was stopped once and runs the new release, by one update."""
    day.until(day.is_over)
    assert day.stops() == [1] * TASKS
    assert day.attempts() == [2] * TASKS
    assert day.releases() == ["2"] * TASKS
    events = day.events()
    assert sum(isinstance(event, JobChanged) for event in events) == 1
    assert not any(isinstance(event, RolloutBegan) for event in events)


# Killed where it matters


def after_call(patch: pytest.MonkeyPatch, owner: type, name: str, number: int, strike: Strike) -> None:
    """Strike within the call of a method, when it has done its work so many times."""
    method, calls = getattr(owner, name), [0]

    def call(self: object, *values: Any) -> object:
        result = method(self, *values)
        calls[0] += 1
        if calls[0] == number:
            strike()
        return result

    patch.setattr(owner, name, call)


def when_committed(patch: pytest.MonkeyPatch, number: int, strike: Strike) -> None:
    """Strike when so many parts of the update are on the disk, before the master hears of it."""
    append, parts = SimStore.append, [0]

    def call(self: SimStore, entries: Sequence[Entry], records: Records) -> None:
        append(self, entries, records)
        for entry in entries:
            for event in entry.events:
                if isinstance(event, RolloutWentOn):
                    parts[0] += 1
                    if parts[0] == number:
                        strike()

    patch.setattr(SimStore, "append", call)


def when_stopping(patch: pytest.MonkeyPatch, number: int, strike: Strike) -> None:
    """Strike when the first task of that part is asked to end."""
    after_call(patch, Checker, "stopping", 2 * number - 1, strike)


def when_starting(patch: pytest.MonkeyPatch, number: int, strike: Strike) -> None:
    """Strike when the first task of that part is about to start as it is to be."""
    after_call(patch, Checker, "starting", 2 * number - 1, strike)


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("when", [when_committed, when_stopping, when_starting])
def test_killed_in_the_middle_of_a_part_of_an_update(
    days: Days, monkeypatch: pytest.MonkeyPatch, when: Callable[..., None], number: int
) -> None:
    day, left = days(CHANGED), list[dict[int, int]]()
    day.submit(web(1))
    day.wait(15.0)

    def strike() -> None:
        left.append(left_on_disk(day))
        kill(day)

    when(monkeypatch, number, strike)
    day.submit_unheard(web(2))
    day.until(lambda: bool(left))
    day.wait(0.01)
    goes_on(day, left[0])
    is_changed_once(day)
    assert len(day.master.began_at) == 2
    day.end()


def test_the_next_master_says_where_the_update_is(days: Days) -> None:
    day = days(CHANGED)
    updating(day)
    day.wait(7.0)
    day.status()
    day.tell("the master is killed (kill -9), and begins again 3 s later")
    left = left_on_disk(day)
    kill(day)
    goes_on(day, left)
    day.status()
    is_changed_once(day)
    day.status()
    day.history()
    day.end("master-killed")


@pytest.mark.parametrize("tenths", range(0, 220, 7))
def test_killed_at_any_moment_of_an_update(days: Days, tenths: int) -> None:
    day = days(CHANGED)
    updating(day)
    day.wait(tenths / 10.0)
    left = left_on_disk(day)
    kill(day)
    goes_on(day, left)
    is_changed_once(day)
    day.end()


def test_killed_again_and_again(days: Days) -> None:
    day = days(CHANGED)
    updating(day)
    while not day.is_over():
        left = left_on_disk(day)
        kill(day)
        goes_on(day, left)
        day.wait(SETTLE_SECONDS + 2.3)  # each master sees anew who has settled
    assert len(day.master.began_at) == 5
    is_changed_once(day)
    day.end()


def test_killed_when_a_machine_is_lost_as_well(days: Days) -> None:
    day = days(CHANGED._replace(unseen_seconds=AWAY_SECONDS + UNSEEN_SECONDS))
    updating(day)
    day.wait(6.2)
    day.world.machines["m2"].lose_programs()
    kill(day)
    day.until(lambda: day.is_over() and not day.core.cell.waiting)
    day.wait(2.0)
    assert day.releases() == ["2"] * TASKS
    assert max(day.stops()) == 1
    day.end(is_at_rest=False)


# Another one takes over


def die(host: MasterHost) -> None:
    host.die()


def hang(host: MasterHost) -> None:
    """Do nothing for longer than the lease, and go on as if nothing had been."""
    host.stall(STALLED_SECONDS)


def lose_session(host: MasterHost) -> None:
    """Lose the lock, while the process lives."""
    host.store.lose_session()


@pytest.mark.parametrize("tenths", range(1, 220, 31))
@pytest.mark.parametrize("strike", [die, hang, lose_session])
def test_a_standby_takes_over_at_any_moment_of_an_update(
    days: Days, strike: Callable[[MasterHost], None], tenths: int
) -> None:
    day = days(CHANGED, masters=2)
    updating(day)
    day.wait(tenths / 10.0)
    first, left = day.master, left_on_disk(day)
    strike(first)
    day.until(lambda: day.master is not first and day.master.core is not None)
    second = day.master
    # What the first one had under way may have reached the disk.
    assert left_on_disk(day).items() <= left.items()
    is_changed_once(day)
    day.wait(STALLED_SECONDS)  # the first one wakes up
    is_changed_once(day)
    assert (day.master, len(second.began_at)) == (second, 1)
    assert first.core is None
    day.end()


def test_the_standby_says_where_the_update_is(days: Days) -> None:
    day = days(CHANGED, masters=2)
    updating(day)
    day.wait(7.0)
    day.status()
    first = day.master
    day.tell("the leader hangs for 20 s; its lease is over after 6")
    hang(first)
    day.until(lambda: day.master is not first and day.master.core is not None)
    day.tell("the standby leads")
    day.status()
    is_changed_once(day)
    day.wait(STALLED_SECONDS)
    day.status()
    day.end("standby-takes-over")


# Drains


@pytest.mark.parametrize("tenths", range(0, 60, 11))
def test_killed_at_any_moment_of_a_drain(days: Days, tenths: int) -> None:
    day = days(DRAINED)
    day.submit(web(1))
    day.wait(15.0)
    day.types("borgctl machine drain m1 m2")
    day.wait(tenths / 10.0)
    kill(day)
    day.until(lambda: day.master.core is not None and not any(day.core.cell.placed[n] for n in ("m1", "m2")))
    day.wait(SETTLE_SECONDS)
    assert max(day.stops()) == 1
    assert sum(day.stops()) == 4
    assert day.releases() == ["1"] * TASKS
    day.end()
