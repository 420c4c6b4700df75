"""The example jobs are what their comments say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from borgish.bands import DEFAULT_BANDS
from borgish.spec.job import JobSpec
from borgish.spec.read import read_job
from borgish.vocabulary import Appclass, Band, RestartPolicy, Runtime

JOBS = Path(__file__).parents[3] / "configs" / "jobs"
ALL = sorted(path.stem for path in JOBS.glob("*.yaml"))


def example(name: str) -> JobSpec:
    return read_job((JOBS / f"{name}.yaml").read_bytes(), "ann")


def test_all_are_known() -> None:
    assert ALL == ["batch", "container", "devices", "placed", "sidecar", "ticker", "web"]


@pytest.mark.parametrize("name", ALL)
def test_it_is_read_and_commented(name: str) -> None:
    assert example(name).run
    assert (JOBS / f"{name}.yaml").read_text().startswith("# ")


def test_web() -> None:
    spec = example("web")
    assert (spec.tasks, spec.ports, DEFAULT_BANDS.of(spec.priority)) == (3, ("http",), Band.PRODUCTION)
    assert spec.health is not None
    assert spec.health.http == "/"
    assert spec.is_service


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


def test_sidecar_has_a_program_beside_its_main_one() -> None:
    spec = example("sidecar")
    assert [(program.name, program.env) for program in spec.group] == [("writer", {"PAUSE": "1"})]
    assert spec.run[0] == "python3"


def test_devices_asks_for_whole_ones() -> None:
    assert example("devices").resources.devices == {"gpu": 2000}


def test_placed_has_what_its_comments_show() -> None:
    spec = example("placed")
    assert len(spec.constraints) == 3
    assert spec.needs(0).ram_bytes == 2 * spec.needs(1).ram_bytes
    assert spec.needs(0).disk_bytes == spec.needs(1).disk_bytes
