"""Foreign text takes exactly the columns it is given, and nothing in it acts on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from borgish.dashboard.columns import Piece, Role, fit, line, name, words
from tests.unit.dashboard.summaries import HOSTILE

TEXTS = st.text() | st.sampled_from(HOSTILE)


def columns_of(text: str) -> int:
    """Count columns as terminals without joined emoji do; on its own tables, not rich's."""
    return sum(
        0
        if unicodedata.category(c) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


@given(TEXTS, st.integers(-2, 90), st.booleans())
def test_text_is_exactly_as_wide_as_asked(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(text, width, right=right)) == max(0, width)


@given(TEXTS, st.integers(0, 90))
def test_nothing_in_a_text_acts_on_a_terminal(text: str, width: int) -> None:
    shown = fit(text, width)
    assert shown.isprintable()
    assert not set(shown) & set("\ufe0f\u3164\U0001f3fd")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_another_way_to_count_agrees(text: str, width: int) -> None:
    assert columns_of(fit(text, width)) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("web", 5, "web  "),
        ("website", 5, "webs…"),
        ("漢字かな", 8, "漢字かな"),
        ("漢字かな", 7, "漢字か…"),
        ("漢字かな", 6, "漢字 …"),
        ("a\x1b[31m", 10, "a\\x1b[31m "),
        ("a\u202eb", 8, "a\\u202eb"),
        ("[b]x[/b]", 8, "[b]x[/b]"),
        ("❤\ufe0f", 8, "❤\\ufe0f "),
        ("\ud800", 8, "\\ud800  "),
        ("👍🏽", 12, "👍\\U0001f3fd"),
        ("a\u3164b", 8, "a\\u3164b"),
        ("", 3, "   "),
        ("x", 0, ""),
    ],
)
def test_how_texts_look(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown


def test_a_huge_text_is_cut_before_it_is_looked_at() -> None:
    assert fit("\u0301" * 10_000_000, 3).endswith("…")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("m1", "m1        "), ("rack-07-machine-00012", "rack-…0012"), ("漢字かな漢字かな", "漢字かな …")],
)
def test_a_long_name_keeps_both_its_ends(text: str, shown: str) -> None:
    assert name(text, 10).text == f"{shown} "


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (20, "5 pending  2 killed "),
        (19, "5 pending  2 killed"),
        (18, "5 pending  2 kill…"),
        (11, "5 pending …"),
        (10, "5 pending…"),
        (9, "5 pendin…"),
        (1, "…"),
        (0, ""),
    ],
)
def test_a_line_that_is_cut_says_so(width: int, shown: str) -> None:
    made = line([words("5 pending"), words("2 killed")], width)
    assert "".join(piece.text for piece in made) == shown


@given(st.lists(TEXTS, max_size=4), TEXTS, st.integers(0, 60))
def test_a_line_is_exactly_as_wide_as_asked(texts: list[str], rest: str, width: int) -> None:
    made = line([Piece(fit(text, 20), Role.PLAIN) for text in texts], width, rest)
    assert sum(cell_len(piece.text) for piece in made) == width
