"""Figures of the labs: as SVG and of plain characters."""

from xml.etree import ElementTree

import pytest

from borgish.sim.lab.plots import Figure, Line, drawn, svg
from borgish.sim.lab.report import longest, middle, never, number, percent

RISING = Line("a <b>", ((1.0, 1.0), (10.0, 10.0), (100.0, 100.0)))
FLAT = Line("flat", ((1.0, 10.0), (100.0, 10.0)))
LINEAR = Figure("Title & more", "time", "size", (RISING, FLAT))
LOGARITHMIC = Figure("Both", "time", "size", (RISING, FLAT), is_log_x=True, is_log_y=True)


def polylines(figure: Figure) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(svg([figure]))
    found = root.iter("{http://www.w3.org/2000/svg}polyline")
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in each.attrib["points"].split())]
        for each in found
    ]


@pytest.mark.parametrize("figure", [LINEAR, LOGARITHMIC])
def test_an_svg_file_can_be_read_and_has_all_lines(figure: Figure) -> None:
    rising, flat = polylines(figure)
    assert [x for x, _ in rising] == sorted(x for x, _ in rising)
    assert [y for _, y in rising] == sorted((y for _, y in rising), reverse=True)  # y goes down in SVG
    assert flat[0][1] == flat[1][1]
    text = svg([figure])
    assert "a &lt;b&gt;" in text
    assert "<b>" not in text


def test_equal_steps_are_equally_long_where_the_axis_is_logarithmic() -> None:
    (first, second, third), _ = polylines(LOGARITHMIC)
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)


def test_what_a_logarithmic_axis_has_no_place_for_is_left_out() -> None:
    figure = Figure("t", "x", "y", (Line("a", ((0.0, 1.0), (1.0, 0.0), (10.0, 10.0))),), True, True)
    assert len(polylines(figure)[0]) == 1


@pytest.mark.parametrize("width", [40, 72, 100])
@pytest.mark.parametrize("figure", [LINEAR, LOGARITHMIC, Figure("empty", "x", "y", (Line("none", ()),))])
def test_a_plot_of_characters_keeps_to_its_width(figure: Figure, width: int) -> None:
    lines = list(drawn(figure, width))
    assert max(len(line) for line in lines[1:-1]) <= width
    assert all(line.isprintable() for line in lines)


def test_lines_that_cross_are_marked() -> None:
    assert any("=" in line for line in list(drawn(LINEAR, 80))[1:-2])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "never"), (0.0, "0.00"), (0.001, "0.001"), (1.234, "1.23"), (12345.6, "12,346")],
)
def test_numbers_are_shown_as_tables_have_them(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_the_median_is_none_where_most_never_came_about() -> None:
    inf = float("inf")
    assert middle([1.0, 2.0, inf]) == 2.0
    assert middle([1.0, inf, inf]) is None
    assert middle([]) is None


def test_what_never_came_about_is_counted_and_is_not_the_longest() -> None:
    seconds = [1.0, float("inf"), 3.0]
    assert (never(seconds), longest(seconds)) == (1, 3.0)
    assert (never([]), longest([])) == (0, 0.0)


def test_shares_are_shown_in_percent() -> None:
    assert [percent(each) for each in (0.0, 0.034, 0.3, 1.0)] == ["0.0 %", "3.4 %", "30 %", "100 %"]
