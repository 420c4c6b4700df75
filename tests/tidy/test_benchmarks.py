"""The page of the benchmarks says what their records say, and the records are of groups that there are."""

from docs.generate.markdown import prose
from tests.bench import page, records
from tests.bench.groups import GROUPS
from tests.tidy.texts import ROOT


def test_the_page_is_what_the_records_say() -> None:
    assert page.is_as_made(), "run scripts/bench --write"


def test_every_group_is_on_the_page() -> None:
    said = (ROOT / records.PAGE).read_text()
    for name, about in GROUPS.items():
        assert f"\n## {name}\n" in said
        assert f"| [{name}](#{name}) | {prose(about)} |" in said


def test_records_are_of_groups_that_there_are() -> None:
    kept = list((ROOT / records.FOLDER).glob("*"))
    assert {path.suffix for path in kept} <= {".json"}
    assert {path.stem for path in kept} <= set(GROUPS)
    for path in kept:
        runs = records.runs_of(path.stem)
        assert 0 < len(runs) <= records.RUNS_MAX
        assert all(each.name.startswith(f"{path.stem}.") for run in runs for each in run.figures)


def test_each_group_says_what_it_measures_and_what_not() -> None:
    for name in GROUPS:
        said = page.about(name)
        assert len(said.split("\n\n")) > 1, f"tests/bench/{name}.py says only its title"
