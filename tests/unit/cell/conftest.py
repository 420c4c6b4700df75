"""What tests of the cell begin with."""

import pytest

from borgish.cell.commands import SubmitJob
from tests.unit.cell.lived import Lived, spec


@pytest.fixture
def lived() -> Lived:
    """A cell with one job, ``ann/web``."""
    made = Lived()
    made.do(SubmitJob(spec()))
    return made
