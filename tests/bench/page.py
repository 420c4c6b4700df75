"""Makes the page of the documentation that says what was measured, from the records (``records``)."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.generate.markdown import code, page, prose, table
from tests.bench.figure import LARGEST, MEAN, MEDIAN, Record
from tests.bench.groups import GROUPS
from tests.bench.records import PAGE, ROOT, RUNS_MAX, Run, runs_of

_TOP = """\
# Benchmarks

<!-- Made by scripts/bench --write from docs/benchmarks and the docstrings of tests/bench. -->

What `./scripts/bench --record` measured; no figure of this page was typed.
[How benches are run](../tests/bench/README.md) has the methods, and what was compared by hand: code before
and after a change, ways that were tried and left.

- **Value**: the median of the samples of the latest run, unless the next column says otherwise.
- **Samples**: how many there are, the least and the most of them.
- **Runs**: how many runs have a value, at most {runs_max}, the least and the most of these. How far runs lie
  apart says what a small difference means.
- **Goal**: what is to be reached, and whether the latest run did.
- **Others**: what others reach for the same, as they publish it or as measured by hand on two shared cores.

How fast the host was is said as how many times as long as on an idle host of reference fixed pieces of work
took at the end of a run: `python`, a loop; `numpy`, on arrays; `append`, durable writes to the disk. Figures
of two runs are to be compared where these are alike.
"""
_OPS = {"<=": "at most", ">=": "at least", "~": "near"}
_QUANTILES = {MEDIAN: "median", MEAN: "mean", LARGEST: "largest"}

Runs = Mapping[str, Sequence[Run]]


def made() -> str:
    """Return what the page is to be."""
    runs = {name: runs_of(name) for name in GROUPS}
    sections = (_section(name, of_group) for name, of_group in runs.items())
    return page(_TOP.format(runs_max=RUNS_MAX).rstrip(), _missed(runs), _contents(runs), *sections)


def write() -> None:
    """Make the page of the repository what it is to be."""
    (ROOT / PAGE).write_text(made())


def is_as_made() -> bool:
    """Return whether the page says what the records say."""
    path = ROOT / PAGE
    return path.exists() and path.read_text() == made()


def _missed(runs: Runs) -> str:
    """Return the goals that the latest run of each group does not meet."""
    rows = [
        (code(each.name), _value(each), _goal(each), prose(each.peer), f"[{name}](#{name})")
        for name, of_group in runs.items()
        if of_group
        for each in of_group[-1].figures
        if each.met is False
    ]
    head = ("Figure", "Value", "Goal", "Others", "Group")
    return page("## Goals that are not met", table(head, rows) or "None of what is recorded.").rstrip()


def _contents(runs: Runs) -> str:
    rows = [
        (f"[{name}](#{name})", prose(GROUPS[name]), of_group[-1].day if of_group else "not recorded yet")
        for name, of_group in runs.items()
    ]
    return page("## Groups", table(("Group", "What", "Latest run"), rows)).rstrip()


def _section(name: str, runs: Sequence[Run]) -> str:
    title = f"## {name}\n\n{prose(about(name))}"
    if not runs:
        return f"{title}\n\nNot recorded yet: `./scripts/bench {name} --record`"
    rows = [
        (
            code(each.name) + (f": {prose(each.note)}" if each.note else ""),
            _value(each),
            _samples(each),
            _over(each, runs),
            _goal(each),
            prose(each.peer),
        )
        for each in runs[-1].figures
    ]
    head = ("Figure", "Value", "Samples", "Runs", "Goal", "Others")
    return page(title, table(head, rows), _when(name, runs)).rstrip()


def about(name: str) -> str:
    """Return what a group's module says of itself; to import it would take what it needs."""
    said = ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text())) or ""
    said = said.removeprefix(f"``{name}``: ")
    return said[:1].upper() + said[1:]


def _value(each: Record) -> str:
    return f"not measured: {prose(each.absent)}" if each.absent else f"{each.shown(each.value)} {each.unit}"


def _samples(each: Record) -> str:
    if each.n < 2:
        return str(each.n or "")
    how = _QUANTILES.get(each.quantile, f"p{100 * each.quantile:g}")
    return f"{how} of {each.n}: {each.shown(each.min)} to {each.shown(each.max)}"


def _over(each: Record, runs: Sequence[Run]) -> str:
    """Return how the values of a figure lie apart."""
    values = [
        other.value
        for run in runs
        for other in run.figures
        if other.name == each.name and other.value is not None
    ]
    if len(values) < 2:
        return str(len(values) or "")
    return f"{len(values)}: {each.shown(min(values))} to {each.shown(max(values))}"


def _goal(each: Record) -> str:
    if not each.goal:
        return ""
    op, _, value = each.goal.partition(" ")
    judged = {None: "", True: ": met", False: ": **MISSED**"}[each.met]
    return f"{_OPS[op]} {value}{judged}"


def _when(name: str, runs: Sequence[Run]) -> str:
    """Return when, on what and of what each run was, the latest first."""
    lines = []
    for run in reversed(runs):
        speeds = ", ".join(f"{each.name.rpartition('_')[2]} {each.shown(each.value)} x" for each in run.host)
        lines.append(
            f"- {run.day}, {prose(run.code)}, in {run.minutes:g} minutes on {prose(run.machine)}; "
            f"load {run.load:g} at the start; host: {speeds}"
        )
    return page(f"Runs, the latest first ([data](benchmarks/{name}.json)):", "\n".join(lines)).rstrip()
