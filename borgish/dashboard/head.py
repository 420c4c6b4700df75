"""The top of the screen: the cell, its master, what its tasks do, and how full it is. Pure."""

from datetime import datetime

from borgish.dashboard.bars import BAND_MARKS, band_bar, percent
from borgish.dashboard.fit import Line, Piece, Role, fit, line, words
from borgish.resources import show_bytes, show_cpu
from borgish.text import age
from borgish.vocabulary import Band
from borgish.wire.api import BandUse, StatusView

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
        _bar("cpu", cpu, has.cpu_millis, show_cpu(has.cpu_millis), width),
        _bar("ram", ram, has.ram_bytes, show_bytes(has.ram_bytes), width),
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
    starting = status.running - (status.up or 0)
    pieces = [
        words(f"machines {status.machines_up}/{status.machines} up", Role.BAD if down else Role.PLAIN),
        *([words(f"{status.machines_silent} not answering", Role.WARN)] if status.machines_silent else ()),
        words(f"jobs {status.jobs}"),
        words(f"tasks {status.tasks}:"),
        words(f"{status.up} up", Role.GOOD if status.up else Role.PLAIN),
    ]
    pieces += [words(f"{starting} not up", Role.WARN)] if starting > 0 else []
    pieces += [words(f"{status.pending} pending", Role.WARN)] if status.pending else []
    pieces += [words(f"{status.failed} failed", Role.BAD)] if status.failed else []
    pieces += [words(f"{status.finished} finished", Role.DIM)] if status.finished else []
    pieces += [words(f"{status.killed} killed", Role.DIM)] if status.killed else []
    return line(pieces, width)


def _bar(label: str, uses: list[tuple[Band, int]], whole: int, shown_whole: str, width: int) -> Line:
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
