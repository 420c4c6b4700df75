"""Which machines are given up, when, and how many at a time."""

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    LoseMachine,
    PlaceTasks,
    SetMachineDown,
    SetMachineUp,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.events import MachineLost, TasksEvicted
from borgish.cell.observed import Miss, SeenMachine, record_misses
from borgish.clock import Now
from borgish.reconcilers import RECONCILERS, stranded
from borgish.reconcilers.settings import LOST_SECONDS, ReconcileSettings
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, State
from tests.unit.cell.test_decide import NOW, Desk, machine, spec

LONG_AGO = -1e6
SETTINGS = ReconcileSettings(led_since=LONG_AGO, led_since_wall=NOW.wall - NOW.mono + LONG_AGO)


class Machines(Desk):
    """A desk with so many machines, all heard a moment ago."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for number in range(2, count + 1):
            self.do(JoinMachine(machine(f"m{number}"), f"i{number}", known=False))
        for name in self.cell.machines:
            self.observed.machines[name] = SeenMachine(heard=NOW.mono, watched_since=LONG_AGO)

    def run(self, name: str, on: str, **changes: object) -> JobSpec:
        job = spec(name, 1, **changes)
        self.do(SubmitJob(job))
        self.do(PlaceTasks(job.key, (0,), (on,)))
        return job

    def lose(self, *names: str) -> None:
        for name in names:
            self.observed.machines[name].heard = LONG_AGO
            self.do(SetMachineDown(name, "no answer for 11 s"))

    def miss(self, *names: str, polls: int = 2) -> None:
        record_misses(self.observed, {name: Miss("lost", polls=polls) for name in names})

    def given_up(self, seconds: float = 0.0, settings: ReconcileSettings = SETTINGS) -> list[str]:
        """Return the machines that are given up now, and give them up."""
        found: list[str] = []
        for command in self._wanted(seconds, settings):
            assert isinstance(command, LoseMachine)
            self.do(command, "stranded")
            found.append(command.machine)
        return found

    def _wanted(self, seconds: float, settings: ReconcileSettings) -> list[Command]:
        now = NOW.later(seconds)
        return list(stranded.reconcile(self.cell, self.observed, settings, now))


def names(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last + 1)]


def test_all_that_a_machine_holds_is_evicted_in_one_decision() -> None:
    desk = Machines(4)
    for name in ("a", "b"):
        desk.run(name, "m2")
    desk.lose("m2")
    decision = decide(desk.cell, desk.observed, LoseMachine("m2", "no answer", 5.0), "stranded", NOW)
    lost, *evicted = decision.events
    assert lost == MachineLost("m2", 5.0)
    assert [(e.job, e.cause, e.reason) for e in evicted if isinstance(e, TasksEvicted)] == [
        ("ann/a", Eviction.MACHINE_LOST, "m2 is down: no answer"),
        ("ann/b", Eviction.MACHINE_LOST, "m2 is down: no answer"),
    ]


def test_a_machine_that_is_up_again_is_not_given_up() -> None:
    desk = Machines(2)
    desk.run("a", "m2")
    desk.lose("m2")
    desk.do(SetMachineUp("m2"))
    assert desk.do(LoseMachine("m2", "no answer", 5.0)) == ("m2 holds nothing that is lost", 0)


def test_one_machine_at_a_time_with_most_production_first() -> None:
    desk = Machines(10)
    for number, (on, priority) in enumerate([("m2", 100), ("m2", 100), ("m3", 200), ("m4", 100)]):
        desk.run(f"j{number}", on, priority=priority)
    desk.lose("m2", "m3", "m4")
    assert desk.given_up() == ["m3"]
    assert desk.given_up(LOST_SECONDS - 0.1) == []
    assert desk.given_up(LOST_SECONDS) == ["m2"]
    assert desk.given_up(2 * LOST_SECONDS) == ["m4"]
    assert desk.given_up(3 * LOST_SECONDS) == []


@pytest.mark.parametrize(("share", "at_once"), [(0.02, 2), (0.0, 1), (0.29, 10), (1.0, 10)])
def test_ten_of_a_hundred_machines(share: float, at_once: int) -> None:
    desk = Machines(100)
    for name in names(1, 10):
        desk.run(f"on-{name}", name)
    desk.lose(*names(1, 10))
    settings = msgspec.structs.replace(SETTINGS, lost_share_max=share)
    taken = [len(desk.given_up(LOST_SECONDS * turn, settings)) for turn in range(10 // at_once)]
    assert taken == [at_once] * (10 // at_once)


def test_the_next_master_goes_on_at_the_same_rate() -> None:
    desk = Machines(10)
    for name in ("m2", "m3"):
        desk.run(f"on-{name}", name)
    desk.lose("m2", "m3")
    assert desk.given_up() == ["m2"]
    # Its own clocks, and the journal's wall clock; it leads for a second, and has half of the machines heard.
    began = NOW.later(4.0)
    successor = ReconcileSettings(led_since=began.mono, led_since_wall=began.wall)
    assert desk.given_up(9.9, successor) == []
    assert desk.given_up(10.1, successor) == ["m3"]


@pytest.mark.parametrize("leap_seconds", [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_changes_no_rate(leap_seconds: float) -> None:
    desk = Machines(10)
    for name in ("m2", "m3"):
        desk.run(f"on-{name}", name)
    desk.lose("m2", "m3")
    assert desk.given_up() == ["m2"]
    for seconds, expected in ((9.9, 0), (10.1, 1)):
        now = Now(NOW.wall + leap_seconds + seconds, NOW.mono + seconds)
        assert len(list(stranded.reconcile(desk.cell, desk.observed, SETTINGS, now))) == expected


def test_machines_that_missed_their_polls_count_before_they_are_down() -> None:
    desk = Machines(4)
    for name in names(1, 4):
        desk.run(f"on-{name}", name)
    desk.lose("m1")
    desk.miss("m2", "m3", polls=1)  # lost on the way, perhaps
    assert desk.given_up() == ["m1"]
    desk.lose("m2")
    desk.miss("m3")
    assert desk.given_up(20.0) == []
    assert desk.states("ann/on-m2") == [State.RUNNING]


def test_machines_that_came_back_a_moment_ago_count_for_a_while() -> None:
    desk = Machines(6)
    desk.run("a", "m1")
    desk.lose("m1")
    for name in ("m2", "m3"):
        desk.observed.machines[name].returned = NOW.mono
    assert desk.given_up(SETTINGS.recently_back_seconds - 0.1) == []  # three of six
    assert desk.given_up(SETTINGS.recently_back_seconds) == ["m1"]


@pytest.mark.parametrize(
    ("heard", "seconds", "given_up"),
    [(3, 11.0, ["m5"]), (2, 11.0, []), (2, 59.9, []), (2, 60.0, ["m5"])],
)
def test_a_new_master_waits_for_half_of_the_machines_or_a_minute(
    heard: int, seconds: float, given_up: list[str]
) -> None:
    desk = Machines(5)
    desk.run("a", "m5")
    desk.lose("m5")
    for number, seen in enumerate(desk.observed.machines.values()):
        seen.heard, seen.watched_since = (NOW.mono if number < heard else 0.0), NOW.mono
    settings = ReconcileSettings(led_since=NOW.mono, led_since_wall=NOW.wall)
    assert desk.given_up(seconds, settings) == given_up


def test_nothing_is_given_up_between_two_resyncs() -> None:
    [row] = [each for each in RECONCILERS if each.name == "stranded"]
    assert row == ("stranded", stranded.reconcile, None)


def test_a_host_that_refuses_connections_is_not_given_up_by_the_next_master() -> None:
    desk = Machines(4)
    desk.run("a", "m2")
    desk.lose("m2")
    seen = desk.observed.machines["m2"]
    seen.watched_since = NOW.mono  # a new master has just begun to ask
    seen.refused = NOW.mono + 19
    assert desk.given_up(20.0) == []
    seen.refused = NOW.mono + 60
    assert desk.given_up(61.0) == ["m2"]
