"""A machine whose programs are ended after the test, with control groups where allowed, and without."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtimes.machine import Machine, end_all


@pytest.fixture(params=[True, False], ids=["cgroups", "rlimits"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    yield Machine(tmp_path / "m1", use_cgroups=request.param)
    end_all(tmp_path / "m1")
