"""The lab of schedulers: who holds what, what is a conflict, and that what it finds is found again."""

import json
import sys

import pytest
from msgspec.structs import replace

from borgish.cell.commands import SubmitJob
from borgish.cell.invariants import violations
from borgish.cell.model import Snapshot
from borgish.sim import fauxmaster
from borgish.sim.lab import schedulers
from borgish.sim.lab.azure import Drawn
from borgish.sim.lab.desks import MACHINE, USED_AT_START, Desk, Job, Offers, Shared, Tally, begun, spec_of
from borgish.sim.lab.plots import svg
from borgish.sim.lab.schedulers import LOADED, PER_TASK, SPLIT, Outcome, Setting, Way, live
from borgish.sim.pack.packing import machine_of
from borgish.store.codec import decode_snapshot

HOURS = 0.5


def cell(machines: int) -> Shared:
    names = [f"m{number}" for number in range(machines)]
    return Shared(Snapshot("lab", machines={name: machine_of(name, MACHINE, {}) for name in names}))


def job(shared: Shared, name: str, tasks: int, cores: float, *, is_service: bool = False) -> Job:
    work = Drawn(0.0, 1000.0, tasks, cores, 1.0, is_service)
    spec = spec_of(name, work)
    shared.do(SubmitJob(spec))
    return Job(spec.key, work, shared.now.mono)


def desk(shared: Shared, seconds: float) -> tuple[Desk, Tally]:
    tally = Tally()
    return Desk(shared, 1, lambda _job: tally, lambda _job: seconds), tally


def test_who_decides_on_what_another_takes_meanwhile_is_in_conflict_and_tries_again() -> None:
    shared = cell(1)
    (slow, of_slow), (quick, of_quick) = desk(shared, 10.0), desk(shared, 1.0)
    slow.add(job(shared, "slow", 1, 9.0))
    quick.add(job(shared, "quick", 1, 9.0))  # there is room for one of them
    shared.clock.run_until(15.0)
    assert (of_quick.scheduled, of_quick.conflicts) == (1, 0)
    assert (of_slow.scheduled, of_slow.conflicts, of_slow.attempts) == (0, 1, 2)
    assert shared.free("m0")[0] == 7000
    shared.clock.run_until(1100.0)  # the quick one is over
    assert (of_slow.scheduled, shared.free("m0")[0]) == (1, 7000)
    assert violations(shared.cell) == []


@pytest.mark.parametrize(("coarse", "conflicts"), [(False, 0), (True, 1)])
def test_where_any_write_counts_what_fits_is_a_conflict_too(coarse: bool, conflicts: int) -> None:
    shared = cell(1)
    (slow, of_slow), (quick, _) = desk(shared, 10.0), desk(shared, 1.0)
    slow.coarse = coarse
    slow.add(job(shared, "slow", 1, 4.0))
    quick.add(job(shared, "quick", 1, 4.0))
    shared.clock.run_until(25.0)
    assert (of_slow.scheduled, of_slow.conflicts) == (1, conflicts)


def test_what_fits_is_committed_and_only_the_rest_is_tried_again() -> None:
    shared = cell(2)
    (slow, of_slow), (quick, _) = desk(shared, 10.0), desk(shared, 1.0)
    waiting = job(shared, "slow", 2, 9.0)  # one on each machine
    slow.add(waiting)
    quick.add(job(shared, "quick", 1, 9.0))
    shared.clock.run_until(11.0)
    assert (len(waiting.left), of_slow.conflicts) == (1, 1)


def test_what_is_offered_to_one_is_nobody_elses_until_it_comes_back() -> None:
    shared = cell(2)
    (services, of_services), (batches, of_batches) = desk(shared, 50.0), desk(shared, 1.0)
    Offers(shared, {"batch": batches, "service": services})
    services.add(job(shared, "service", 1, 1.0, is_service=True))
    batches.add(job(shared, "batch", 1, 1.0))
    shared.clock.run_until(49.0)
    assert (of_batches.attempts, of_services.attempts) == (0, 1)
    shared.clock.run_until(52.0)
    assert (of_batches.scheduled, of_services.scheduled) == (1, 1)
    assert of_batches.waits == [50.0]


def test_what_comes_free_meanwhile_is_offered_to_the_other() -> None:
    shared = cell(1)
    (services, _), (batches, of_batches) = desk(shared, 50.0), desk(shared, 1.0)
    Offers(shared, {"batch": batches, "service": services})
    first = job(shared, "first", 1, 15.0)
    batches.add(first)
    shared.clock.run_until(2.0)
    services.add(job(shared, "service", 1, 1.0, is_service=True))
    batches.add(job(shared, "second", 1, 15.0))
    shared.clock.run_until(10.0)
    assert of_batches.scheduled == 1
    shared.end(first.key)
    shared.clock.run_until(20.0)
    assert of_batches.scheduled == 2


def test_a_cell_begins_as_it_is_after_days_of_work() -> None:
    body, ends = begun(1)
    shared = Shared(decode_snapshot(body, "lab"))
    assert shared.used_share() == pytest.approx(USED_AT_START, abs=0.01)
    assert not shared.cell.waiting
    assert ends.keys() == shared.cell.jobs.keys()
    assert violations(shared.cell) == []


@pytest.fixture(scope="module")
def lives() -> dict[Way, Outcome]:
    return {way: live(1, Setting(way, 60.0), HOURS) for way in Way}


def test_a_queue_behind_services_makes_batch_jobs_wait_and_shared_state_does_not(
    lives: dict[Way, Outcome],
) -> None:
    assert lives[Way.SHARED].batch.wait < 0.1
    assert lives[Way.MULTI].batch.wait > 5.0
    assert lives[Way.SINGLE].batch.wait > lives[Way.MULTI].batch.wait
    assert lives[Way.OFFERS].batch.wait > lives[Way.SHARED].batch.wait


def test_only_shared_state_has_conflicts(lives: dict[Way, Outcome]) -> None:
    for way in (Way.SINGLE, Way.MULTI, Way.OFFERS):
        assert (lives[way].batch.conflicts, lives[way].service.conflicts) == (0, 0)


def test_how_busy_one_scheduler_is_can_be_added_up() -> None:
    outcome = live(1, Setting(Way.SINGLE, 2.0), HOURS)
    jobs = list(schedulers._work(1, Setting(Way.SINGLE, 2.0), HOURS * 3600))
    expected = sum(2.0 + PER_TASK * each.tasks for each in jobs) / (HOURS * 3600)
    assert expected <= outcome.service_busy < 1.5 * expected  # some are tried again
    assert outcome.batch.scheduled + outcome.service.scheduled + outcome.batch.left == len(jobs)


def test_conflicts_grow_with_the_load_and_with_what_counts_as_one() -> None:
    fine, coarse = (live(1, replace(LOADED, rate=3, coarse=each), HOURS) for each in (False, True))
    few = live(1, replace(LOADED, service_job=0.1), HOURS)
    assert few.service.conflict_fraction <= fine.service.conflict_fraction
    assert fine.service.conflict_fraction < coarse.service.conflict_fraction


def test_several_schedulers_keep_up_where_one_does_not() -> None:
    alone, four = (live(1, replace(SPLIT, batches=count), HOURS) for count in (1, 4))
    assert alone.batch_busy > 0.99 > four.batch_busy
    assert alone.batch.left > four.batch.left
    assert four.batch.conflicts > alone.batch.conflicts


def test_the_same_seed_gives_the_same_picture_and_the_words_their_numbers(
    lives: dict[Way, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live(1, Setting(Way.SHARED, 60.0), HOURS) == lives[Way.SHARED]
    # Each way lives once, and what it came to stands for all decision times.
    monkeypatch.setattr(schedulers, "live", lambda _seed, setting, _hours: lives[setting.way])
    one, other = (schedulers.run(seed=1, hours=HOURS) for _ in range(2))
    assert one == other
    assert svg(one.figures) == svg(other.figures)
    assert f"wait for {lives[Way.MULTI].batch.wait:.1f} s in the mean" in one.conclusion[1]
    assert f"Batch jobs wait for {lives[Way.OFFERS].batch.wait:.1f} s" in one.conclusion[2]


@pytest.mark.parametrize("lives_all", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_command_makes_the_lab(
    lives_all: bool,
    lives: dict[Way, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not lives_all:
        monkeypatch.setattr(schedulers, "live", lambda _seed, setting, _hours: lives[setting.way])
    few = {"JOB_SECONDS": (0.1, 1.0, 5.0), "TASK_SECONDS": (0.05,), "RATES": (1, 2), "BATCHES": (1, 2)}
    for name, values in few.items():
        monkeypatch.setattr(schedulers, name, values)
    monkeypatch.setattr(sys, "argv", ["fauxmaster", "lab", "schedulers", "--hours", "0.5", "-o", "json"])
    fauxmaster.main()
    report = json.loads(capsys.readouterr().out)
    assert report["arguments"] == {"seed": 1, "hours": 0.5}
    ways = {row["way"] for row in report["measured"]["job_seconds"]}
    assert ways == set(Way)
    assert len(report["conclusion"]) == 6
