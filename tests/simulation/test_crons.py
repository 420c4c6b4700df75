"""Crons among masters that die, fail over and stall, clocks that step, and people who change their mind."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import SetCron
from borgish.cell.crons import decide as decide_crons
from borgish.cell.crons import runs as cron_runs
from borgish.cell.events import CronFired, JobSubmitted
from borgish.sim import workload
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import RestartPolicy, Runtime
from tests.profiles import seeds

MASTERS = msgspec.structs.replace(
    NO_FAULTS,
    master_dies_seconds=25.0,
    master_stalls_seconds=20.0,
    clock_steps_seconds=25.0,
    session_lost_seconds=40.0,
    task_lives_seconds=15.0,
)

NEVER = 1e9


@pytest.fixture(autouse=True)
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what people ask is about crons."""
    monkeypatch.setattr(workload, "CRONS_SHARE", 0.8)


def life(seed: int, faults: Faults, masters: int = 1) -> tuple[tuple[str, ...], int]:
    """Return what was wrong in one life, and how often a cron was dealt with."""
    world = World(seed, machines=3, faults=faults, masters=masters, pause_seconds=2.5)
    problems = world.run(150.0).problems
    entries = world.master.store.reopen().entries(0)
    return problems, sum(isinstance(event, CronFired) for entry in entries for event in entry.events)


@pytest.mark.parametrize("masters", [1, 3])
@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=40))
def test_what_is_due_begins_once_or_as_missed_says(seed: int, masters: int) -> None:
    problems, fired = life(seed, MASTERS, masters)
    assert problems == ()
    assert fired


@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=20))
def test_among_all_faults(seed: int) -> None:
    assert life(seed, Faults())[0] == ()


# In Berlin clocks are put on at 01:00 UTC on 29 March 2026, and back at 01:00 UTC on 25 October.
NIGHTS: dict[str, tuple[str, dict[str, list[str]]]] = {
    "put on": (
        "2026-03-29T00:59",
        {"30 2 * * *": ["01:30"], "0 3 * * *": ["01:00"], "*/30 * * * *": ["01:00", "01:30"]},
    ),
    "put back": (
        "2026-10-25T00:29",
        {"30 2 * * *": ["00:30"], "0 2 * * *": [], "*/30 * * * *": ["00:30", "01:00", "01:30"]},
    ),
}


def _ask(world: World, command: Command) -> None:
    world.master.command(command, lambda _: None, "ann", str(command), "digest")


@pytest.mark.parametrize("night", NIGHTS)
@pytest.mark.parametrize(
    ("dies_at", "masters"), [(-0.4, 1), (0.1, 1), (0.1, 3), pytest.param(-0.4, 3, marks=pytest.mark.nightly)]
)
def test_the_nights_in_which_clocks_are_changed(night: str, masters: int, dies_at: float) -> None:
    """The leader dies in the second of each firing."""
    begins, schedules = NIGHTS[night]
    start = datetime.fromisoformat(f"{begins}+00:00").timestamp()
    world = World(1, machines=1, faults=NO_FAULTS, masters=masters, pause_seconds=NEVER)
    world.clock.step_wall(start - world.clock.now().wall)
    for number, schedule in enumerate(schedules):
        job = JobSpec(f"cron-{number}", "ann", 1, ("sim",), runtime=Runtime.FAKE, labels={"sim": "batch"})
        job = msgspec.structs.replace(job, restart=Restart(RestartPolicy.NEVER))
        ask = SetCron(CronSpec(schedule, job, "Europe/Berlin"))
        world.clock.after(20.0, partial(_ask, world, ask))
    wanted = {
        f"ann/cron-{number}": [datetime.fromisoformat(f"{begins[:11]}{at}+00:00").timestamp() for at in times]
        for number, times in enumerate(schedules.values())
    }
    for due in {due for times in wanted.values() for due in times}:
        world.clock.after(due - start + dies_at, lambda: world.master.die())
    last = max(due for times in wanted.values() for due in times)
    assert world.run(last - start + 30.0, 30.0).problems == ()
    begun: dict[str, list[float]] = {cron: [] for cron in wanted}
    for entry in world.master.store.reopen().entries(0):
        for event in entry.events:
            if isinstance(event, JobSubmitted) and event.cron:
                begun[event.cron].append(event.due)
    assert begun == wanted


@pytest.fixture
def applications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most crons run applications, which come and go."""
    monkeypatch.setattr(workload, "APPS_SHARE", 0.3)
    monkeypatch.setattr(workload, "APP_CRONS_SHARE", 0.9)


@pytest.mark.parametrize("masters", [1, 3])
@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=40))
@pytest.mark.usefixtures("applications")
def test_runs_of_applications_begin_as_a_whole(seed: int, masters: int) -> None:
    assert life(seed, MASTERS, masters)[0] == ()


@pytest.mark.usefixtures("applications")
def test_runs_of_applications_that_lack_a_stage_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, seen = cron_runs.jobs_of, 0

    def without_one(spec: CronSpec, run: str, found: Sequence[Any]) -> tuple[Any, ...]:
        nonlocal seen
        jobs = whole(spec, run, found)
        seen += len(jobs) > 1
        return jobs[1:] if len(jobs) > 1 else jobs

    monkeypatch.setattr(decide_crons, "jobs_of", without_one)
    problems = (problem for seed in range(6) for problem in life(seed, MASTERS)[0])
    assert any(" began ['" in problem for problem in problems)
    assert seen


def the_one_before_too(_spec: CronSpec, due: Sequence[float], _until: float) -> list[float]:
    return [due[-1] - 10.0, due[-1]]


PLANTED: dict[str, tuple[str, Any, str]] = {
    "what was dealt with begins again": ("_chosen", the_one_before_too, "began runs for"),
    "runs overlap that may not": ("_live", lambda _cell, _cron: [], "began runs for"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, instead, words = PLANTED[bug]
    monkeypatch.setattr(decide_crons, name, instead)
    problems = (problem for seed in range(6) for problem in life(seed, MASTERS)[0])
    assert any(words in problem for problem in problems)


def test_instants_that_are_passed_over_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a master that counts on from when it looked, rather than from what was due."""

    def later(cron: str, last: float, following: float, *rest: Any) -> CronFired:
        return CronFired(cron, last, following + 60.0, *rest)

    monkeypatch.setattr(decide_crons, "CronFired", later)
    assert any("comes first" in problem for problem in life(0, MASTERS)[0])
