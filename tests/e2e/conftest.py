"""Every failure here shows the end of the daemons' logs of the cells that run at that moment."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.cells import RealCell
from tests.e2e.watched import OPEN, end_jobs, watched_cell


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"daemons of {made.folder}", made.logs()) for made in OPEN]
    return report


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCell, None, None]:
    """A cell with two machines for all tests that leave its daemons alone and end their jobs."""
    with watched_cell(tmp_path_factory.mktemp("shared") / "cell", machines=2) as made:
        yield made


@pytest.fixture
def tidied(shared: RealCell) -> Generator[RealCell, None, None]:
    """The shared cell; behind the test its jobs are ended."""
    yield shared
    end_jobs(shared)


@pytest.fixture
def own(tmp_path: Path) -> Generator[RealCell, None, None]:
    """A cell with one machine for one test."""
    with watched_cell(tmp_path / "cell") as made:
        yield made
