"""The example jobs are what their comments say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from borgish.bands import DEFAULT_BANDS
from borgish.borglet.attempts.failures import what_follows
from borgish.cell.apps.decide import uses
from borgish.spec.cron import CronSpec, read_job_or_cron
from borgish.spec.job import After, JobSpec, Update
from borgish.spec.shares import Share
from borgish.vocabulary import (
    Appclass,
    Band,
    JobKind,
    OnExit,
    OnFailure,
    Recheck,
    RestartPolicy,
    Runtime,
    Until,
)
from borgish.wire.link import Exit

JOBS = Path(__file__).parents[3] / "configs" / "jobs"
ALL = sorted(path.stem for path in JOBS.glob("*.yaml"))


def example(name: str) -> JobSpec:
    """Return a job; of a cron that of its runs."""
    found = read_job_or_cron((JOBS / f"{name}.yaml").read_bytes(), "ann")
    return found.job if isinstance(found, CronSpec) else found


def test_all_are_known() -> None:
    assert [
        *("allocs", "array", "batch", "child", "container", "dedicated", "devices", "exclusive", "gang"),
        *("handover", "in-allocs", "nightly", "ordered"),
        *("placed", "preemptor", "retried", "rolling", "sidecar", "spread", "ticker", "variables", "web"),
    ] == ALL


@pytest.mark.parametrize("name", ALL)
def test_it_is_read_and_commented(name: str) -> None:
    spec = example(name)
    assert spec.run or spec.kind is JobKind.ALLOC_SET
    assert (JOBS / f"{name}.yaml").read_text().startswith("# ")


def test_ordered() -> None:
    web = After("ann/web", Until.HEALTHY)
    assert example("ordered").after == (web, After("ann/primes", Until.FINISHED, 600.0))
    assert example("child").parent == "ann/web"


def test_the_jobs_that_others_name_are_among_them() -> None:
    jobs = {job.key: job for job in map(example, ALL)}
    used = {key for job in jobs.values() for key in uses(job)}
    assert used == {"ann/web", "ann/primes", "ann/allocs"}
    assert used <= jobs.keys()


def test_handover() -> None:
    spec = example("handover")
    assert spec.update.handover
    assert spec.update.on_failure is OnFailure.UNDO
    assert spec.deregister_seconds == 3.0


def test_variables() -> None:
    spec = example("variables")
    assert (spec.tasks, spec.env) == (1, {"LOG_LEVEL": "info"})
    assert "echo hello from {{task.index}};" in spec.run[2]


def test_web() -> None:
    spec = example("web")
    assert (spec.tasks, spec.ports, DEFAULT_BANDS.of(spec.priority)) == (3, ("http",), Band.PRODUCTION)
    assert spec.health is not None
    assert spec.health.http == "/"
    assert spec.is_service


@pytest.mark.parametrize(("index", "code"), [("0", 0), ("4", 42), ("9", 3)])
def test_array_has_a_rule_for_each_of_its_codes(index: str, code: int) -> None:
    spec = example("array")
    assert (spec.tasks, spec.max_failures, spec.restart.counts_for_life) == (10, Share(2), True)
    environment = {"PATH": os.defpath, "BORGISH_INDEX": index, **spec.env}
    assert subprocess.run(spec.run, env=environment, check=False, timeout=30).returncode == code
    ruled = what_follows(spec.on_exit, Exit(code=code))
    assert ruled is {0: None, 42: OnExit.FAIL, 3: OnExit.FINISH}[code]


def test_batch_runs_to_completion() -> None:
    spec = example("batch")
    assert spec.restart.policy is RestartPolicy.ON_FAILURE
    assert (DEFAULT_BANDS.of(spec.priority), spec.appclass) == (Band.BATCH, Appclass.BATCH)
    environment = {"PATH": os.defpath, "RANGE": "100", "BORGISH_INDEX": "1"}
    program = [sys.executable, *spec.run[1:]]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "21 primes from 100 to 199\n"


def test_ticker_is_free() -> None:
    assert DEFAULT_BANDS.of(example("ticker").priority) is Band.FREE


def test_container() -> None:
    spec = example("container")
    assert (spec.runtime, spec.image) == (Runtime.DOCKER, "busybox:1")
    assert (spec.container.ids, spec.container.read_only) == ((1000, 1000), True)


def test_sidecar_has_a_program_beside_its_main_one() -> None:
    spec = example("sidecar")
    assert [(program.name, program.env) for program in spec.group] == [("writer", {"PAUSE": "1"})]
    assert spec.run[0] == "python3"


def test_exclusive_is_a_service_that_ends_in_time() -> None:
    spec = example("exclusive")
    assert (spec.exclusive, spec.is_service, spec.stop.grace_seconds) == (True, True, 5.0)


def test_rolling_begins_with_a_canary_and_undoes_what_fails() -> None:
    spec = example("rolling")
    assert spec.update == Update(Share(2), 5.0, 120.0, 1, 0, OnFailure.UNDO)
    assert spec.deregister_seconds == 3.0
    assert spec.disruption.max_unavailable == Share(1)


def test_devices_asks_for_whole_ones() -> None:
    assert example("devices").resources.devices == {"gpu": 2000}


def test_placed_has_what_its_comments_show() -> None:
    spec = example("placed")
    assert len(spec.constraints) == 3
    assert spec.needs(0).ram_bytes == 2 * spec.needs(1).ram_bytes
    assert spec.needs(0).disk_bytes == spec.needs(1).disk_bytes


def test_spread_shows_every_way_to_say_where() -> None:
    spec = example("spread")
    assert [(each.over, each.max) for each in spec.spread] == [("rack", 2), ("zone", 0)]
    assert (spec.prefer[0].weight, spec.near[0].weight) == (10, 5)
    assert spec.apart[0].weight == 0


def test_dedicated_may_stay_for_a_time() -> None:
    spec = example("dedicated")
    assert [each.for_seconds for each in spec.tolerations] == [None, 3600.0]
    assert spec.recheck is Recheck.EVICT


def test_preemptor_is_in_a_hurry_and_in_production() -> None:
    spec = example("preemptor")
    assert (DEFAULT_BANDS.of(spec.priority), spec.preempt_within_seconds) == (Band.PRODUCTION, 5.0)


def test_gang_is_one() -> None:
    assert example("gang").gang


def test_allocs_and_what_runs_in_them() -> None:
    allocs, inside = example("allocs"), example("in-allocs")
    assert allocs.kind is JobKind.ALLOC_SET
    assert inside.inside == allocs.key
    assert inside.resources.plus(inside.resources) == allocs.resources
