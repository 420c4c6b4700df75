"""Machines that give no answer: who is moved, how fast, whose results count; and that it is judged."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from borgish.cell.commands import SubmitJob
from borgish.cell.machines import decide as decide_machines
from borgish.master.leader import Leader
from borgish.reconcilers import settings as reconcile_settings
from borgish.reconcilers import stranded
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.machines import Machine
from borgish.sim.world import Verdict, World
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import RestartPolicy, Runtime
from tests.profiles import seeds

BORGLETS_AWAY = msgspec.structs.replace(NO_FAULTS, borglet_dies_seconds=20.0, away_seconds=150.0)
"""Hosts that live on without their borglets; some for longer than a minute."""
CUT_OFF = msgspec.structs.replace(NO_FAULTS, machine_cut_off_seconds=12.0, away_seconds=45.0)
"""Hosts that nobody reaches, and on which programs end meanwhile."""
BORGLETS_AND_MASTERS = msgspec.structs.replace(
    BORGLETS_AWAY, machine_cut_off_seconds=40.0, master_dies_seconds=30.0, master_stalls_seconds=60.0
)
DOWN_AFTER_3_SECONDS = ReconcileSettings(down_after_seconds=3.0, down_after_refused_seconds=3.0)
REFUSED_IS_SILENT = ReconcileSettings(down_after_refused_seconds=10.0)
HALF_AT_ONCE = ReconcileSettings(lost_share_max=0.5)

NEVER = 1e9
Stop = Callable[[Machine], None]


def silent(machine: Machine) -> None:
    machine.cut_off(cut=True)


def refusing(machine: Machine) -> None:
    machine.die()


def with_job(does: str, tasks: int, restart: Restart, seed: int = 1) -> World:
    """Return a cell of four machines in which one job is all that there is."""
    world = World(seed, machines=4, faults=NO_FAULTS, pause_seconds=NEVER)
    spec = JobSpec(
        "web",
        "ann",
        tasks,
        ("sim",),
        runtime=Runtime.FAKE,
        resources=Resources(100),
        labels={"sim": does},
        restart=restart,
    )
    submit = partial(world.master.command, SubmitJob(spec), lambda _: None, "ann", "r", "d")
    world.clock.after(5.0, submit)
    return world


def one_after_another(stop: Stop, seconds_between: float) -> Verdict:
    """Let three of four borglets be gone one after another, for more than a minute."""
    world = with_job("service", 12, Restart())
    stopped = list(world.machines.values())[:3]

    def back() -> None:
        for machine in stopped:
            machine.cut_off(cut=False)
            world.begin_borglet(machine)

    for number, machine in enumerate(stopped):
        world.clock.after(20.0 + number * seconds_between, partial(stop, machine))
    world.clock.after(100.0, back)
    return world.run(storm_seconds=120.0, calm_seconds=60.0)


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
        verdict = World(seed, faults=faults).run(storm_seconds=180.0, calm_seconds=220.0)
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


ALIVE, RATE, TWICE = "after its host was alive", "lost their tasks within 10 s", "which reported it before"


@pytest.mark.parametrize(
    ("plant", "stop", "words"),
    [
        pytest.param(judging_by(DOWN_AFTER_3_SECONDS), silent, ALIVE, id="down after 3 s"),
        pytest.param(judging_by(REFUSED_IS_SILENT), refusing, ALIVE, id="refused is silent"),
        pytest.param(without_a_rate, silent, RATE, id="no rate"),
        pytest.param(judging_by(HALF_AT_ONCE), silent, RATE, id="half at once"),
    ],
)
def test_a_planted_policy_is_found(
    plant: Plant, stop: Stop, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(words in problem for problem in one_after_another(stop, 5.0).problems)


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
def test_a_result_that_comes_late_counts(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_planted:
        throwing_late_results_away(monkeypatch)
    world = with_job("batch", 24, Restart(RestartPolicy.ON_FAILURE, attempts=3))
    away = world.machines["m1"]
    world.clock.after(7.0, partial(away.cut_off, cut=True))
    # Given up meanwhile, and what ran there ends there; but not all that took its place has ended yet.
    world.clock.after(22.0, partial(away.cut_off, cut=False))
    verdict = world.run(storm_seconds=60.0, calm_seconds=60.0)
    assert [loss.machine for loss in verdict.losses] == [away.name]
    if is_planted:
        assert any(TWICE in problem for problem in verdict.problems)
    else:
        assert verdict.problems == ()


def test_a_guard_that_counts_only_who_is_down_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_rate(monkeypatch)
    monkeypatch.setattr(reconcile_settings, "_is_unreachable", lambda *_: False)
    verdict = one_after_another(silent, 2.0)
    assert len(verdict.losses) >= 2
    assert any(RATE in problem for problem in verdict.problems)


def test_moving_tasks_in_a_mass_failure_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranded, "is_mass_failure", lambda *_: False)
    assert any("were away" in problem for problem in one_after_another(silent, 0.0).problems)
