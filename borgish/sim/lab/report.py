"""What an experiment comes to: tables, figures and a conclusion, for people and as data."""

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

import msgspec

from borgish.sim.faux.output import table as in_columns
from borgish.sim.lab.plots import Figure, drawn


class Table(msgspec.Struct, frozen=True):
    """Rows of text below their columns, the first so many of which are names and not numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1


class Report(msgspec.Struct, frozen=True):
    """What came of one lab. ``conclusion`` has a paragraph each, and takes its numbers from the run;
    ``data`` is all that was measured."""

    lab: str
    asked: str
    arguments: dict[str, int | float]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    conclusion: tuple[str, ...]
    data: dict[str, object]


def lines(report: Report, width: int) -> Iterator[str]:
    """Yield a report as lines for a terminal that is so wide."""
    yield f"{report.asked} ({_words(report)})"
    for each in report.tables:
        yield from ("", *wrap(each.title, width), *in_columns([each.columns, *each.rows]))
    for figure in report.figures:
        yield from ("", *drawn(figure, width))
    for paragraph in report.conclusion:
        yield from ("", *wrap(paragraph, width))


def markdown(report: Report) -> str:
    """Return the tables and the conclusion for a page of the documentation."""
    command = " ".join(f"--{name} {value:g}" for name, value in report.arguments.items())
    parts = [f"Made by `fauxmaster lab {report.lab} {command}`."]
    for each in report.tables:
        rule = "|".join([*["---"] * each.names, *["---:"] * (len(each.columns) - each.names)])
        rows = "\n".join(f"| {' | '.join(row)} |" for row in each.rows)
        parts.append(f"**{each.title}**\n\n| {' | '.join(each.columns)} |\n|{rule}|\n{rows}")
    parts += ["**Conclusion**", *report.conclusion]
    return "\n\n".join(parts) + "\n"


def as_data(report: Report) -> dict[str, object]:
    """Return a report as JSON has it: what was asked, all that was measured, and the conclusion."""
    return {
        "lab": report.lab,
        "arguments": report.arguments,
        "measured": report.data,
        "conclusion": report.conclusion,
    }


def _words(report: Report) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in report.arguments.items())


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as tables show it; None is what did not come about."""
    if value is None:
        return "never"
    if value and abs(value) < 10**-digits:
        return f"{value:.1g}"
    return f"{value:,.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def never(seconds: Sequence[float]) -> int:
    """Return how many times are infinite: what they are of never came about."""
    return seconds.count(math.inf)


def longest(seconds: Sequence[float]) -> float:
    """Return the longest of the finite times; 0 where there is none."""
    return max((each for each in seconds if each != math.inf), default=0.0)


def middle(values: Sequence[float]) -> float | None:
    """Return the median, the lower of two, of values of which infinite ones are allowed; None: of none, or
    it is infinite."""
    ordered = sorted(values)
    value = ordered[(len(ordered) - 1) // 2] if ordered else math.inf
    return None if value == math.inf else value
