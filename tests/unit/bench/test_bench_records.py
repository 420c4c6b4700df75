"""What is kept of a run, and what the page says of it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as bench
from tests.bench import host, page, records
from tests.bench.figure import MEAN, Figure, at_least, at_most
from tests.bench.groups import GROUPS
from tests.bench.sizes import Sizes

Group = Callable[[Sizes], Iterator[Figure]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own, in which nothing is recorded."""
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(records, "code_here", lambda: "borgish 1.2.3 at abc")
    speeds = [Figure(f"host_{kind}", "x", [1.25]) for kind in ("python", "append")]
    monkeypatch.setattr(host, "figures", lambda _name: iter(speeds))
    (tmp_path / "docs").mkdir()
    return tmp_path


def of(*values: float, name: str = "store.append", **more: Any) -> Group:
    return lambda _sizes: iter([Figure(name, "ms", values, **more)])


def record(monkeypatch: pytest.MonkeyPatch, *words: str, **groups: Group) -> int:
    """Run the bench with groups of a test, and return its exit code."""
    monkeypatch.setattr(bench, "group", groups.__getitem__)
    monkeypatch.setattr("sys.argv", ["bench", *(words or (*groups, "--record"))])
    try:
        bench.main()
    except SystemExit as ended:
        return 1 if isinstance(ended.code, str) else int(ended.code or 0)
    return 0


def shown(name: str) -> str:
    """Return a group's section of the page."""
    return page.made().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_a_group_that_was_measured_is_kept_and_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = of(3.0, 1.0, 2.0, goal=at_most(5), peer="a_b: < 9 ms", note="on one disk")
    assert record(monkeypatch, store=measured) == 0
    (run,) = records.runs_of("store")
    (figure,) = run.figures
    assert (figure.value, figure.min, figure.max, figure.n, figure.met) == (2.0, 1.0, 3.0, 3, True)
    said = (here / records.PAGE).read_text()
    assert said == page.made()
    row = (
        "| `store.append`: on one disk | 2 ms | median of 3: 1 to 3 | 1 | at most 5: met | a\\_b: \\< 9 ms |"
    )
    assert row in said
    assert f"{run.day}, borgish 1.2.3 at abc, in 0 minutes on " in said
    assert "; host: python 1.25 x, append 1.25 x" in said
    assert "None of what is recorded." in said


def test_a_run_without_record_keeps_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record(monkeypatch, "store", store=of(1.0)) == 0
    assert list((here / "docs").iterdir()) == []


def test_runs_are_added_and_the_page_has_their_range(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in range(1, 8):
        record(monkeypatch, store=of(float(value)))
    assert [run.figures[0].value for run in records.runs_of("store")] == [3, 4, 5, 6, 7]
    assert "| `store.append` | 7 ms | 1 | 5: 3 to 7 |" in shown("store")
    assert shown("store").count("abc, in") == 5


def test_a_group_leaves_the_others_as_they_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, store=of(1.0))
    before = (here / records.FOLDER / "store.json").read_bytes()
    record(monkeypatch, cli=of(2.0, name="cli.help"))
    assert (here / records.FOLDER / "store.json").read_bytes() == before
    assert "`store.append`" in shown("store")
    assert "`cli.help`" in shown("cli")


@pytest.mark.parametrize("stopped", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_group_that_ends_half_way_changes_nothing_of_its_record(
    here: Path, monkeypatch: pytest.MonkeyPatch, stopped: type[BaseException]
) -> None:
    def half(_sizes: Sizes) -> Iterator[Figure]:
        yield Figure("store.append", "ms", [9.0])
        raise stopped(1)

    record(monkeypatch, store=of(1.0))
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    if stopped is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            record(monkeypatch, store=half)
    else:
        assert record(monkeypatch, store=half) == 1
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_a_group_that_fails_does_not_cost_the_record_of_the_next(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_sizes: Sizes) -> Iterator[Figure]:
        raise ZeroDivisionError

    assert record(monkeypatch, store=breaks, cli=of(2.0, name="cli.help")) == 1
    assert records.runs_of("store") == ()
    assert len(records.runs_of("cli")) == 1


def test_what_was_not_measured_says_why_and_keeps_its_range(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(monkeypatch, store=of(1.0, goal=at_least(3)))
    record(monkeypatch, store=of(2.0, goal=at_least(3)))
    record(monkeypatch, store=of(goal=at_least(3), absent="no Postgres"))
    assert "| `store.append` | not measured: no Postgres |  | 2: 1 to 2 | at least 3 |" in shown("store")
    assert "None of what is recorded." in page.made()


def test_goals_that_are_missed_stand_at_the_top(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, store=of(9.0, 11.0, goal=at_most(5), quantile=MEAN))
    top = page.made().partition("## Groups")[0]
    assert "| `store.append` | 10 ms | at most 5: **MISSED** |  | [store](#store) |" in top
    assert "at most 5: **MISSED**" in shown("store")
    assert "mean of 2: 9 to 11" in shown("store")


def test_groups_without_a_record_say_so(here: Path) -> None:
    for name in GROUPS:
        assert f"Not recorded yet: `./scripts/bench {name} --record`" in shown(name)


def test_reduced_sizes_are_not_recorded(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(monkeypatch, "kills", "--record", "--count", "3", kills=of(1.0)) == 2
    assert "--count" in capsys.readouterr().err
    assert list((here / "docs").iterdir()) == []


def test_the_page_is_written_and_checked_without_a_measurement(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert record(monkeypatch, "--check") == 1
    assert record(monkeypatch, "--write") == 0
    assert record(monkeypatch, "--check") == 0


def test_the_code_is_named_with_what_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        names = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(records, "ROOT", tmp_path)
    assert "not from a repository" in records.code_here()
    git("init")
    git("commit", "--allow-empty", "-m", "begin")
    (tmp_path / records.FOLDER).mkdir(parents=True)
    (tmp_path / records.FOLDER / "store.json").write_text("[]")
    assert "not committed" not in records.code_here()
    (tmp_path / "code.py").write_text("")
    assert "not committed" in records.code_here()
