"""What one frame shows: a summary and a size in, lines of exactly that size out. Pure.

The cell, its master, what its tasks do and how full it is stand at the top. Narrow screens have the lists
below each other, wide ones in two columns. Rows go to the lists by weight; what one does not need, the others
get.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from borgish.dashboard import lists
from borgish.dashboard.columns import (
    BAND_MARKS,
    FREE_MARK,
    HELD_MARK,
    USED_MARK,
    Line,
    Piece,
    Role,
    band_bar,
    fit,
    line,
    percent,
    words,
)
from borgish.dashboard.lists import Listing
from borgish.resources import show_bytes, show_cpu
from borgish.text import age, local_times
from borgish.vocabulary import Band
from borgish.wire.api import BandUse, StatusView, SummaryView

WIDE_COLUMNS_MIN = 140
_GUTTER = Piece(" │ ", Role.DIM)
_GUTTER_COLUMNS = 3
_KEYS = "q quits  p pauses    "


class Shown(msgspec.Struct, frozen=True):
    """All that a frame depends on but its size."""

    view: SummaryView
    elapsed_seconds: float = 0.0  # since the view was true
    banner: str = ""  # what is wrong with what is shown
    keys: bool = True  # somebody can press keys


class Frame(msgspec.Struct, frozen=True):
    """Lines that are ``width`` columns wide, each; ``height`` of them, or fewer when not filled up."""

    width: int
    height: int
    lines: tuple[Line, ...]


def frame(shown: Shown, width: int, height: int, *, filled: bool = True) -> Frame:
    """Return what to show on a screen of this size. Without ``filled`` it ends after its last row."""
    width, height = max(1, width), max(1, height)
    top = [line([], width, shown.banner, Role.BANNER)] if shown.banner else []
    top += [
        line([], width, refused, Role.BANNER)
        for refused in (*shown.view.status.refusing, *shown.view.status.busy)
    ]
    if shown.view.status.frozen:
        top.append(line([], width, f"The cell is {local_times(shown.view.status.frozen)}", Role.BANNER))
    top += head(shown.view.status, shown.elapsed_seconds, width)
    bottom = [_foot(shown, width)]
    room = height - len(top) - len(bottom)
    body = _wide(shown.view, width, room) if width >= WIDE_COLUMNS_MIN else _narrow(shown.view, width, room)
    if filled:
        body += [line([], width)] * (room - len(body))
    return Frame(width, height, tuple([*top, *body, *bottom][:height]))


def _foot(shown: Shown, width: int) -> Line:
    keys = _KEYS if shown.keys else ""
    return line([], width, f"{keys}{USED_MARK} used  {HELD_MARK} committed  {FREE_MARK} free", Role.DIM)


def _narrow(view: SummaryView, width: int, height: int) -> list[Line]:
    listings = [lists.machines(view), lists.jobs(view), lists.pending(view), lists.events(view)]
    return _stack(listings, (3, 3, 3, 3), width, height)


def _wide(view: SummaryView, width: int, height: int) -> list[Line]:
    left_width = (width - _GUTTER_COLUMNS) // 2
    right_width = width - _GUTTER_COLUMNS - left_width
    left = _stack([lists.machines(view), lists.events(view)], (3, 2), left_width, height)
    right = _stack([lists.jobs(view), lists.pending(view)], (3, 2), right_width, height)
    rows = max(len(left), len(right))
    left += [line([], left_width)] * (rows - len(left))
    right += [line([], right_width)] * (rows - len(right))
    return [(*ours, _GUTTER, *theirs) for ours, theirs in zip(left, right, strict=True)]


def _stack(listings: Sequence[Listing], weights: Sequence[int], width: int, height: int) -> list[Line]:
    """Return the lists below each other, in at most ``height`` lines."""
    rows = shares([max(1, listing.rows) for listing in listings], weights, height - len(listings))
    drawn = [row for listing, count in zip(listings, rows, strict=True) for row in listing.draw(width, count)]
    return drawn[: max(0, height)]


def shares(wanted: Sequence[int], weights: Sequence[int], rows: int) -> list[int]:
    """Return how many rows each gets: by weight, never more than it wants, nothing left over in vain."""
    given = [0] * len(wanted)
    for _ in range(max(0, rows)):
        unfilled = [i for i in range(len(wanted)) if given[i] < wanted[i]]
        if not unfilled:
            break
        given[min(unfilled, key=lambda i: given[i] / weights[i])] += 1
    return given


_CELL_NAME_COLUMNS_MAX = 24
_LABEL_COLUMNS = 4
_SHARE_COLUMNS = 20


def head(status: StatusView, elapsed_seconds: float, width: int) -> list[Line]:
    """Return the five lines about the cell as a whole."""
    uses = {use.band: use for use in status.bands}
    bands = [uses.get(band, BandUse(band, 0, 0, 0)) for band in Band]
    cpu = [(use.band, use.cpu_millis) for use in bands]
    ram = [(use.band, use.ram_bytes) for use in bands]
    has = status.capacity
    return [
        _master(status, elapsed_seconds, width),
        _counts(status, width),
        _usage_bar("cpu", cpu, has.cpu_millis, show_cpu(has.cpu_millis), width),
        _usage_bar("ram", ram, has.ram_bytes, show_bytes(has.ram_bytes), width),
        _legend(status, bands, width),
    ]


def _master(status: StatusView, elapsed_seconds: float, width: int) -> Line:
    now = datetime.fromisoformat(status.now).timestamp() + elapsed_seconds
    pieces = [
        words(f"cell {fit(status.cell, _CELL_NAME_COLUMNS_MAX).rstrip()}", Role.TITLE),
        words(f"master up {age(status.started_at, now)}"),
        words(f"epoch {status.epoch}"),
        words(f"timeline {status.timeline}"),
        words(f"position {status.position}"),
    ]
    return line(pieces, width, f"{status.store}, {status.version}", Role.DIM)


def _counts(status: StatusView, width: int) -> Line:
    down = status.machines - status.machines_up
    up = status.running if status.up is None else status.up  # of the past it is not known
    starting = status.running - up
    pieces = [
        words(f"machines {status.machines_up}/{status.machines} up", Role.BAD if down else Role.PLAIN),
        *([words(f"{status.machines_silent} not answering", Role.WARN)] if status.machines_silent else ()),
        words(f"jobs {status.jobs}"),
        words(f"tasks {status.tasks}:"),
        words(f"{up} {'running' if status.up is None else 'up'}", Role.GOOD if up else Role.PLAIN),
    ]
    pieces += [words(f"{starting} not up", Role.WARN)] if starting > 0 else []
    pending = status.pending - status.waiting
    pieces += [words(f"{pending} pending", Role.WARN)] if pending else []
    pieces += [words(f"{status.waiting} after other jobs", Role.DIM)] if status.waiting else []
    pieces += [words(f"{status.failed} failed", Role.BAD)] if status.failed else []
    pieces += [words(f"{status.finished} finished", Role.DIM)] if status.finished else []
    pieces += [words(f"{status.killed} killed", Role.DIM)] if status.killed else []
    return line(pieces, width)


def _usage_bar(label: str, uses: list[tuple[Band, int]], whole: int, shown_whole: str, width: int) -> Line:
    total = sum(amount for _, amount in uses)
    bar = band_bar(uses, whole, max(0, width - _LABEL_COLUMNS - _SHARE_COLUMNS))
    of = f" {percent(total, whole):>4} of {shown_whole}" if whole else " no machine is up"
    return line(
        [Piece(label.ljust(_LABEL_COLUMNS)), *bar], width, of, Role.WARN if total > whole else Role.PLAIN
    )


def _legend(status: StatusView, bands: list[BandUse], width: int) -> Line:
    """Return the marks of the bands with the share of cpu and ram that each may use."""
    has = status.capacity
    pieces = [Piece(" " * _LABEL_COLUMNS)]
    for use in bands:
        cpu, ram = percent(use.cpu_millis, has.cpu_millis), percent(use.ram_bytes, has.ram_bytes)
        shares = cpu if cpu == ram else f"{cpu.removesuffix('%')}/{ram}"
        pieces.append(words(f"{BAND_MARKS[use.band]} {use.band} {shares}", Role(use.band)))
    return line(pieces, width, "cpu/ram", Role.DIM)
