"""The pages of the labs: numbers go between marks, and each lab has its page."""

from pathlib import Path

import pytest

from borgish.sim.lab.command import LABS
from borgish.sim.lab.pages import BEGIN, END, filled
from tests.tidy.texts import ROOT

DOCS = ROOT / "docs"


def test_only_what_is_between_the_marks_is_written() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert filled(page, "new") == f"before\n{BEGIN}\n\nnew\n{END}\nafter\n"
    assert filled(filled(page, "new"), "new") == filled(page, "new")


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}{BEGIN}"])
def test_a_page_without_marks_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        filled(page, "new")


@pytest.mark.parametrize("lab", LABS)
def test_each_lab_has_its_page_with_its_figure_and_its_numbers(lab: str) -> None:
    page = (DOCS / "explanation" / f"lab-{lab}.md").read_text()
    assert f"../images/lab-{lab}.svg" in page
    assert (DOCS / "images" / f"lab-{lab}.svg").is_file()
    _, _, numbers = page.partition(BEGIN)
    assert "**Conclusion**" in numbers.partition(END)[0]
    defaults = " ".join(f"--{option.name} {option.default:g}" for option in LABS[lab].options)
    assert f"fauxmaster lab {lab} {defaults}`" in page


def test_the_script_runs_them() -> None:
    assert "borgish.sim.lab.pages" in Path(ROOT / "scripts" / "labs").read_text()
