"""The documentation has the numbers that the labs come to."""

import pytest

from borgish.sim.lab.command import LABS
from borgish.sim.lab.pages import made
from tests.tidy.texts import ROOT


@pytest.mark.nightly
@pytest.mark.parametrize("lab", LABS)
def test_a_page_and_its_figures_are_what_the_lab_comes_to(lab: str) -> None:
    for path, text in made(ROOT / "docs", lab).items():
        assert path.read_text() == text, f"{path.name} is old: run scripts/labs {lab}"
