"""Machines that give no answer: who is moved, how fast, whose results count; and that it is judged."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from borgish.cell import decide_machines
from borgish.master.leader import Leader
from borgish.reconcilers import stranded
from borgish.reconcilers.settings import ReconcileSettings
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.machines import Machine
from borgish.sim.world import Verdict, World
from tests.profiles import seeds

BORGLETS_AWAY = msgspec.structs.replace(NO_FAULTS, borglet_dies_seconds=10.0, away_seconds=150.0)
"""Hosts that live on without their borglets; some for longer than a minute."""
CUT_OFF = msgspec.structs.replace(NO_FAULTS, machine_cut_off_seconds=12.0, away_seconds=45.0)
"""Hosts that nobody reaches, and on which programs end meanwhile."""
BORGLETS_AND_MASTERS = msgspec.structs.replace(
    BORGLETS_AWAY, machine_cut_off_seconds=40.0, master_dies_seconds=30.0, master_stalls_seconds=60.0
)
DOWN_AFTER_3_SECONDS = ReconcileSettings(down_after_seconds=3.0, down_after_refused_seconds=3.0)
REFUSED_IS_SILENT = ReconcileSettings(down_after_refused_seconds=10.0)
HALF_AT_ONCE = ReconcileSettings(lost_share_max=0.5)

Stop = Callable[[Machine], None]


def silent(machine: Machine) -> None:
    machine.cut_off(cut=True)


def refusing(machine: Machine) -> None:
    machine.die()


def one_after_another(stop: Stop, seconds_between: float) -> Verdict:
    """Let three of four borglets be gone one after another, for two minutes."""
    world = World(1, machines=4, faults=NO_FAULTS)
    stopped = list(world.machines.values())[:3]

    def back() -> None:
        for machine in stopped:
            machine.cut_off(cut=False)
            world.begin_borglet(machine)

    for number, machine in enumerate(stopped):
        world.clock.after(60.0 + number * seconds_between, partial(stop, machine))
    world.clock.after(180.0, back)
    return world.run(storm_seconds=240.0)


@pytest.mark.parametrize(
    ("stop", "seconds_between", "moved"),
    [(silent, 0.0, 0), (silent, 2.0, 1), (silent, 5.0, 1), (refusing, 0.0, 0), (refusing, 5.0, 0)],
)
def test_of_three_in_four_borglets_that_stop_one_at_most_loses_its_tasks(
    stop: Stop, seconds_between: float, moved: int
) -> None:
    verdict = one_after_another(stop, seconds_between)
    assert verdict.problems == ()
    assert len(verdict.losses) == moved


@pytest.mark.parametrize("faults", [BORGLETS_AWAY, CUT_OFF, BORGLETS_AND_MASTERS])
def test_machines_come_and_go(faults: Faults) -> None:
    losses = 0
    for seed in seeds(quick=1, ci=1, nightly=6):
        verdict = World(seed, faults=faults).run(storm_seconds=240.0)
        assert verdict.problems == (), f"seed {seed}"
        losses += len(verdict.losses)
    assert losses  # else nothing was judged


Plant = Callable[[pytest.MonkeyPatch], None]


def judging_by(settings: ReconcileSettings) -> Plant:
    """Let masters have other times."""
    return lambda patch: patch.setattr(Leader, "_reconcile_settings", lambda _self: settings)


def without_a_rate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stranded, "loss_budget", lambda *_: 1000)


def throwing_late_results_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide_machines, "_late_endings", lambda *_: iter(()))


def is_found(faults: Faults, words: str) -> bool:
    """Return whether one of a few seeds finds a problem in these words."""
    worlds = (World(seed, faults=faults) for seed in range(8))
    verdicts = (world.run(storm_seconds=240.0, calm_seconds=0.0) for world in worlds)
    return any(words in problem for verdict in verdicts for problem in verdict.problems)


ALIVE, RATE, TWICE = "after its host was alive", "lost their tasks within 10 s", "which reported it before"


@pytest.mark.parametrize(
    ("plant", "faults", "words"),
    [
        pytest.param(judging_by(DOWN_AFTER_3_SECONDS), CUT_OFF, ALIVE, id="down after 3 s"),
        pytest.param(judging_by(REFUSED_IS_SILENT), BORGLETS_AWAY, ALIVE, id="refused is silent"),
        pytest.param(without_a_rate, CUT_OFF, RATE, id="no rate"),
        pytest.param(judging_by(HALF_AT_ONCE), CUT_OFF, RATE, id="half at once"),
        pytest.param(throwing_late_results_away, CUT_OFF, TWICE, id="late results"),
    ],
)
def test_a_planted_policy_is_found(
    plant: Plant, faults: Faults, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_found(faults, words)


def test_a_guard_that_counts_only_who_is_down_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_rate(monkeypatch)
    monkeypatch.setattr(stranded, "_is_unreachable", lambda *_: False)
    verdict = one_after_another(silent, 2.0)
    assert len(verdict.losses) >= 2
    assert any(RATE in problem for problem in verdict.problems)


def test_moving_tasks_in_a_mass_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranded, "is_mass_failure", lambda *_: False)
    assert any("were away" in problem for problem in one_after_another(silent, 0.0).problems)
