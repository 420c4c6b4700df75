"""Every group of the bench runs, in tiny sizes: what it says of time is not looked at here."""

import json
import re
import shutil
from collections.abc import Iterable

import pytest

from borgish.cli import daemons
from tests.bench import __main__ as bench
from tests.bench.bad_days_clients import FEWER_THAN_ALLOWED, FEWER_THAN_KEPT
from tests.bench.bounds import can_bound
from tests.bench.containers import NO_BORGLET, NO_COMMAND
from tests.bench.groups import GROUPS, group
from tests.bench.journal import LITTLE_FREE
from tests.bench.pack import NO_SCIPY
from tests.bench.records import runs_of
from tests.bench.short import NO_CONTROL_GROUP, TOO_FEW
from tests.bench.sizes import TINY
from tests.forked import forked_daemons
from tests.groups import LACKS

# What `time` measures needs a dozen databases on the disk, and masters that start on them.
# What `doors` measures needs four cells, and seconds in which a few machines take cpu that can be counted.
# What `change` measures needs fleets that are updated, as tests/e2e/test_updates.py does it with one.
# What `pack` measures needs whole traces, and plots.
# What `journal` measures needs thousands of entries, in two databases.
LONG = {"change", "doors", "journal", "pack", "time"}


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons that a group starts load nothing."""
    monkeypatch.setattr(daemons, "subprocess", forked_daemons())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] if name in LONG else []) for name in GROUPS],
)
def test_a_group_measures_all_its_figures(name: str) -> None:
    figures = list(group(name)(TINY))
    names = [figure.name for figure in figures]
    assert names
    assert len(names) == len(set(names))
    assert all(figure.name.startswith(name) and figure.line() for figure in figures)
    measured = [figure for figure in figures if not figure.absent]
    assert all(figure.value > 0 for figure in measured)
    reasons = {figure.absent for figure in figures if figure.absent} - known_lacks()
    assert all(reason.startswith(f"{NO_BORGLET}: runtime_unhealthy") for reason in reasons), reasons
    # One that is absent stands for what is measured in its place.
    absent = tuple(without_sizes(figure.name for figure in figures if figure.absent))
    recorded = without_sizes(each.name for run in runs_of(name)[-1:] for each in run.figures)
    stale = {each for each in recorded - without_sizes(names) if not each.startswith(absent)}
    assert stale == set(), "docs/benchmarks has figures that this group does not measure"


def known_lacks() -> set[str]:
    """Return why figures may be absent here, and in tiny sizes."""
    found = {lacks() for lacks in LACKS.values()} | {TOO_FEW, NO_CONTROL_GROUP}
    found |= {FEWER_THAN_KEPT, FEWER_THAN_ALLOWED, LITTLE_FREE}
    if not can_bound():
        found.add(NO_SCIPY)
    if not shutil.which("docker"):
        found.add(NO_COMMAND)
    return found


def without_sizes(names: Iterable[str]) -> set[str]:
    return {re.sub(r"\d+", "N", name) for name in names}


def test_the_bench_prints_one_json_object_a_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "FULL", TINY)
    monkeypatch.setattr("sys.argv", ["bench", "control", "--json"])
    bench.main()
    printed = capsys.readouterr()
    records = [json.loads(line) for line in printed.out.splitlines()]
    speeds = [record["name"] for record in records[-3:]]
    assert speeds == ["control.host_python", "control.host_numpy", "control.host_append"]
    assert len(records) - len(speeds) == len(list(group("control")(TINY)))
    assert all(
        record.keys() >= {"name", "value", "unit", "goal", "peer", "n", "min", "max"} for record in records
    )
    assert "Python" in printed.err


def test_a_group_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "speed"])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert ended.value.code == 2
    assert "restart, submit" in capsys.readouterr().err


def test_a_group_that_breaks_leaves_the_others_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_sizes: object) -> None:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(bench, "FULL", TINY)
    monkeypatch.setattr(bench, "group", lambda name: broken if name == "store" else group(name))
    monkeypatch.setattr("sys.argv", ["bench", "store", "control"])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert "failed: store" in printed.err
    assert "control.host_python" in printed.out
