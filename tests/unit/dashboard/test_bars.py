"""Bars and shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.dashboard.columns import Piece, Role, band_bar, machine_bar, percent
from borgish.vocabulary import Band

AMOUNTS = st.integers(0, 10**15)


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, "-"),
        (5, 0, "-"),
        (0, 10, "0%"),
        (1, 1000, "<1%"),
        (5, 8, "62%"),
        (3, 2, "150%"),
        (99, 1, ">9x"),
    ],
)
def test_percent(part: float, whole: float, shown: str) -> None:
    assert percent(part, whole) == shown
    assert len(shown) <= 4


def test_bands_are_stacked_highest_first() -> None:
    uses = [(Band.MONITORING, 10), (Band.PRODUCTION, 30), (Band.BATCH, 20), (Band.FREE, 10)]
    assert text(band_bar(uses, 100, 10)) == "█▓▓▓▒▒░···"


def test_more_than_all_fills_the_bar_and_no_more() -> None:
    assert text(band_bar([(Band.PRODUCTION, 70), (Band.BATCH, 70)], 100, 10)) == "▓▓▓▓▓▓▓▒▒▒"


@pytest.mark.parametrize(
    ("used", "held", "shown"),
    [(20, 60, "━━────····"), (0, 0, "··········"), (60, 20, "━━━━━━····"), (500, 900, "━━━━━━━━━━")],
)
def test_a_machine_shows_used_and_committed(used: int, held: int, shown: str) -> None:
    assert text(machine_bar(used, held, 100, 10)) == shown


def test_use_beyond_what_is_committed_is_a_warning() -> None:
    warned = [piece.text for piece in machine_bar(60, 20, 100, 10) if piece.role is Role.WARN]
    assert warned == ["━━━━"]


@given(st.lists(st.tuples(st.sampled_from(Band), AMOUNTS), max_size=6), AMOUNTS, st.integers(0, 200))
def test_a_band_bar_has_its_width(uses: list[tuple[Band, float]], whole: int, width: int) -> None:
    assert len(text(band_bar(uses, whole, width))) == width


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 40))
def test_a_machine_bar_has_its_width(used: int, held: int, whole: int, width: int) -> None:
    assert len(text(machine_bar(used, held, whole, width))) == width
