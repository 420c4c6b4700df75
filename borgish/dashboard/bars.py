"""Bars that read without colour: each kind of use has a mark of its own. Pure."""

from collections.abc import Iterable

from borgish.dashboard.fit import Piece, Role
from borgish.vocabulary import Band

FREE_MARK = "·"
USED_MARK = "━"
HELD_MARK = "─"
BAND_MARKS = {Band.MONITORING: "█", Band.PRODUCTION: "▓", Band.BATCH: "▒", Band.FREE: "░"}


def share(part: float, whole: float) -> float:
    """Return a part of a whole, >= 0; 0 where there is nothing to share."""
    return max(0.0, part / whole) if whole > 0 else 0.0


def percent(part: float, whole: float) -> str:
    """Return a share as people read it, in at most four columns: ``62%``, ``<1%``; ``-`` of nothing."""
    if whole <= 0:
        return "-"
    shown = round(100 * share(part, whole))
    if shown == 0 and part > 0:
        return "<1%"
    return f"{shown}%" if shown <= 999 else ">9x"


def band_bar(uses: Iterable[tuple[Band, float]], whole: float, width: int) -> list[Piece]:
    """Return what each band may use of the whole, stacked, ``width`` columns in all."""
    pieces: list[Piece] = []
    filled, total = 0, 0.0
    for band, amount in uses:
        total += amount
        end = min(width, round(share(total, whole) * width))  # rounded sums: the bars end where the sum does
        pieces.append(Piece(BAND_MARKS[band] * (end - filled), Role(band)))
        filled = end
    return [*pieces, Piece(FREE_MARK * (width - filled), Role.DIM)]


def machine_bar(used: float, held: float, whole: float, width: int) -> list[Piece]:
    """Return what is used and what is committed of the whole. Use beyond what is committed is a warning."""
    used_end = min(width, round(share(used, whole) * width))
    held_end = min(width, round(share(held, whole) * width))
    inside = min(used_end, held_end)
    return [
        Piece(USED_MARK * inside, Role.USED),
        Piece(USED_MARK * (used_end - inside), Role.WARN),
        Piece(HELD_MARK * (held_end - inside if used_end < held_end else 0), Role.HELD),
        Piece(FREE_MARK * (width - max(used_end, held_end)), Role.DIM),
    ]
