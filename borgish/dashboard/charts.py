"""Pictures of many numbers: machines as a map by rack, usage over time. Pure."""

from collections.abc import Callable, Iterator, Sequence

from borgish.dashboard.columns import Line, Piece, Role, line, name, percent, piece, share, spark, sparkline
from borgish.resources import Resources, show_bytes, show_cpu
from borgish.text import clock_time
from borgish.wire.api_figures import RackView, UsageSeries

_RACK_COLUMNS = 12
_FULL = 0.9  # of a machine: what is fuller stands out

# Of a machine that is not simply up. They say without colour what it is.
_STATE_MARKS = {
    "silent": ("?", Role.WARN),
    "down": ("x", Role.BAD),
    "revoked": ("x", Role.BAD),
    "draining": ("d", Role.WARN),
    "cordoned": ("c", Role.WARN),
    "quarantined": ("q", Role.WARN),
}
MAP_LEGEND = "▁ empty  █ full  x down  ? silent  d draining  c cordoned  q quarantined"


def rack_map(racks: Sequence[RackView], width: int, height: int) -> list[Line]:
    """Return all machines, one column each, a rack in a line or in several; those that do not fit are
    counted in the last one."""
    rows = list(_rack_lines(racks, width))
    if len(rows) <= height:
        return rows
    shown = rows[: max(0, height - 1)]
    left = len(rows) - len(shown)
    return [*shown, *([line([], width, f"and {left} lines more", Role.DIM)] if height > 0 else [])]


def _rack_lines(racks: Sequence[RackView], width: int) -> Iterator[Line]:
    columns = max(1, width - _RACK_COLUMNS - 1)
    for rack in racks:
        marks = [_mark(state, full) for state, full in zip(rack.states, rack.full_percent, strict=True)]
        for first in range(0, max(1, len(marks)), columns):
            label = name(rack.rack or "no rack", _RACK_COLUMNS, Role.HEADING)
            blank = piece("", _RACK_COLUMNS)
            yield line([blank if first else label, *_runs(marks[first : first + columns])], width)


def _mark(state: str, full_percent: int) -> tuple[str, Role]:
    if known := _STATE_MARKS.get(state):
        return known
    full = full_percent / 100
    return spark(full, 1), Role.WARN if full >= _FULL else Role.GOOD


def _runs(marks: Sequence[tuple[str, Role]]) -> Iterator[Piece]:
    """Yield neighbours of one kind as one piece: a line is drawn by pieces."""
    text, role = "", Role.PLAIN
    for mark, kind in marks:
        if kind is not role and text:
            yield Piece(text, role)
            text = ""
        text, role = text + mark, kind
    if text:
        yield Piece(text, role)


def usage_lines(series: UsageSeries, limit: Resources, width: int) -> list[Line]:
    """Return cpu and ram over time, a line each, as shares of the most there was; the times stand below."""
    points = series.items
    if not points:
        words = f"No samples yet: one is taken every {series.sample_seconds:.0f} s."
        return [line([], width, words, Role.DIM)]
    columns = max(0, width - _LABEL_COLUMNS - _NOW_COLUMNS)
    first, last = clock_time(points[0].at), clock_time(points[-1].at)
    start = columns - max(min(columns, len(points)), len(first))  # below the first bar, and left of ``last``
    times = f"{'':{max(0, start)}}{first}"
    cpu, ram = [each.cpu_millis for each in points], [each.ram_bytes for each in points]
    return [
        _series("cpu", cpu, limit.cpu_millis, show_cpu, columns, width),
        _series("ram", ram, limit.ram_bytes, show_bytes, columns, width),
        line(
            [piece("", _LABEL_COLUMNS - 1)], width, f"{times[: columns + 1]:<{columns + 1}}{last}", Role.DIM
        ),
    ]


_LABEL_COLUMNS = 5
_NOW_COLUMNS = 34


def _series(
    label: str, amounts: Sequence[int], limit: int, show: Callable[[int], str], columns: int, width: int
) -> Line:
    most = max(amounts)
    of = f" ({percent(amounts[-1], limit)})" if limit else ""
    role = Role.WARN if limit and share(amounts[-1], limit) >= _FULL else Role.USED
    drawn = Piece(sparkline(amounts, most, columns), role)
    return line(
        [piece(label, _LABEL_COLUMNS - 1), drawn], width, f" {show(amounts[-1])}{of}, most {show(most)}"
    )
