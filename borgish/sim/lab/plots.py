"""Line plots: as SVG, and of plain characters for a terminal. The same figure gives the same bytes."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

import msgspec

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d", "#8c564b")
"""Okabe and Ito's, which those who see few colours tell apart too."""
DASHES = ("", "7 3", "2 3", "9 3 2 3", "", "7 3", "2 3", "9 3 2 3")
MARKS = "*o+x#%@&"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 330, 64, 212, 34, 46
ROWS = 14
TICKS = 5


class Line(msgspec.Struct, frozen=True):
    """One line of a figure, by its points from left to right."""

    name: str
    points: tuple[tuple[float, float], ...]


class Figure(msgspec.Struct, frozen=True):
    """Lines over one pair of axes. Of a logarithmic axis the values above 0 are drawn."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    is_log_x: bool = False
    is_log_y: bool = False
    from_zero: bool = True


class _Axis:
    """Where values come to lie between 0 and 1."""

    def __init__(self, values: Sequence[float], *, is_log: bool, from_zero: bool) -> None:
        self.is_log = is_log
        ends = [self._place(value) for value in values if value > 0 or not is_log] or [0.0]
        self.low, self.high = min(ends), max(ends)
        if is_log:
            self.low, self.high = math.floor(self.low + 1e-9), math.ceil(self.high - 1e-9)
        elif from_zero:
            self.low = min(0.0, self.low)
        if self.high <= self.low:
            self.high = self.low + 1.0

    def _place(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    def at(self, value: float) -> float | None:
        """Return where a value is; None where the axis has no place for it."""
        if self.is_log and value <= 0:
            return None
        return (self._place(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.is_log:
            return [10.0**power for power in range(int(self.low), int(self.high) + 1)]
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _axes(figure: Figure) -> tuple[_Axis, _Axis]:
    points = [point for line in figure.lines for point in line.points]
    across = _Axis([x for x, _ in points], is_log=figure.is_log_x, from_zero=False)
    return across, _Axis([y for _, y in points], is_log=figure.is_log_y, from_zero=figure.from_zero)


def _places(line: Line, axes: tuple[_Axis, _Axis]) -> Iterator[tuple[float, float]]:
    for x, y in line.points:
        across, up = axes[0].at(x), axes[1].at(y)
        if across is not None and up is not None:
            yield across, up


def svg(figures: Sequence[Figure]) -> str:
    """Return figures, one below the other, as an SVG file."""
    height = HEIGHT * len(figures)
    box = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, figure in enumerate(figures):
        parts += [f'<g transform="translate(0 {HEIGHT * number})">', *_figure(figure), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _figure(figure: Figure) -> Iterator[str]:
    axes = _axes(figure)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    foot = TOP + high
    yield f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(figure.title)}</text>'
    for value in axes[0].ticks():
        x = LEFT + wide * (axes[0].at(value) or 0.0)
        yield f'<path d="M{x:.1f} {TOP}V{foot}" stroke="#e4e4e4"/>'
        yield f'<text x="{x:.1f}" y="{foot + 16}" text-anchor="middle">{value:g}</text>'
    for value in axes[1].ticks():
        y = foot - high * (axes[1].at(value) or 0.0)
        yield f'<path d="M{LEFT} {y:.1f}H{LEFT + wide}" stroke="#e4e4e4"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    yield f'<path d="M{LEFT} {TOP}V{foot}H{LEFT + wide}" fill="none" stroke="#444444"/>'
    yield f'<text x="{LEFT + wide / 2:g}" y="{foot + 36}" text-anchor="middle">{escape(figure.x)}</text>'
    middle = TOP + high / 2
    yield (
        f'<text x="16" y="{middle:g}" text-anchor="middle" '
        f'transform="rotate(-90 16 {middle:g})">{escape(figure.y)}</text>'
    )
    for place, line in enumerate(figure.lines):
        colour, dash = COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]
        style = f'fill="none" stroke="{colour}" stroke-width="2"' + f' stroke-dasharray="{dash}"' * bool(dash)
        points = " ".join(
            f"{LEFT + wide * across:.1f},{foot - high * up:.1f}" for across, up in _places(line, axes)
        )
        yield f'<polyline points="{points}" {style}/>'
        x, y = LEFT + wide + 12, TOP + 10 + 18 * place
        yield f'<path d="M{x} {y}h22" {style}/><text x="{x + 28}" y="{y + 4}">{escape(line.name)}</text>'


def drawn(figure: Figure, width: int) -> Iterator[str]:
    """Yield a figure as lines of plain characters, no longer than that."""
    axes = _axes(figure)
    labels = {round((ROWS - 1) * (axes[1].at(value) or 0.0)): f"{value:g}" for value in axes[1].ticks()}
    edge = max(map(len, labels.values()), default=0)
    columns = max(20, width - edge - 3)
    grid = [[" "] * columns for _ in range(ROWS)]
    for place, line in enumerate(figure.lines):
        mark = MARKS[place % len(MARKS)]
        for column, row in _dots(list(_places(line, axes)), columns):
            grid[row][column] = mark if grid[row][column] in (" ", mark) else "="
    yield f"{figure.title}; up: {figure.y}"
    for row in reversed(range(ROWS)):
        yield f"{labels.get(row, ''):>{edge}} |{''.join(grid[row])}".rstrip()
    yield f"{'':>{edge}} +{'-' * columns}"
    foot = [" "] * columns
    for value in axes[0].ticks():
        text = f"{value:g}"
        start = min(
            columns - len(text), max(0, round((columns - 1) * (axes[0].at(value) or 0.0)) - len(text) // 2)
        )
        if all(there == " " for there in foot[max(0, start - 1) : start + len(text) + 1]):
            foot[start : start + len(text)] = text
    yield f"{'':>{edge}}  {''.join(foot)}".rstrip()
    keys = (f"{MARKS[place % len(MARKS)]} {line.name}" for place, line in enumerate(figure.lines))
    for words in folded(f"{figure.x};", *keys, "= several", width=columns):
        yield f"{'':>{edge}}  {words}"


def _dots(places: Sequence[tuple[float, float]], columns: int) -> Iterator[tuple[int, int]]:
    """Yield column and row of each character that a line passes through, once each."""
    cells = [((columns - 1) * across, (ROWS - 1) * up) for across, up in places]
    found: dict[tuple[int, int], None] = {(round(x), round(y)): None for x, y in cells[:1]}
    for (x, y), (to_x, to_y) in pairwise(cells):
        steps = max(1, round(abs(to_x - x)), round(abs(to_y - y)))
        for step in range(1, steps + 1):
            share = step / steps
            found[round(x + share * (to_x - x)), round(y + share * (to_y - y))] = None
    yield from found


def folded(*pieces: str, width: int) -> Iterator[str]:
    """Yield pieces of text in lines no longer than that, where no piece is longer."""
    line = ""
    for piece in pieces:
        if line and len(line) + 2 + len(piece) > width:
            yield line
            line = ""
        line = f"{line}  {piece}" if line else piece
    yield line
