"""What reaches the terminal: only codes of our own, and the frame's size exactly."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from borgish.dashboard.app import Picture, plain
from borgish.dashboard.frame import Shown, frame
from tests.unit.dashboard import summaries

STYLE = re.compile(r"\x1b\[[0-9;]*m")
SIZES = [(80, 24), (200, 60)]


def drawn(width: int, height: int, *, ascii_only: bool = False, no_color: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=True,
        color_system="truecolor",
        width=width,
        height=height,  # with both, it asks neither the terminal nor TERM
        no_color=no_color,
    )
    console.print(Picture(frame(Shown(summaries.hostile()), width, height), ascii_only=ascii_only), end="")
    return out.getvalue()


@pytest.mark.parametrize("size", SIZES)
def test_hostile_text_is_drawn_and_acts_on_nothing(size: tuple[int, int]) -> None:
    shown = STYLE.sub("", drawn(*size))
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "[bold]x[/bold]" in shown
    assert "\\x1b]0;owned\\x07" in shown


@pytest.mark.parametrize("size", SIZES)
def test_rich_neither_wraps_nor_adds(size: tuple[int, int]) -> None:
    rows = STYLE.sub("", drawn(*size)).split("\n")[: size[1]]
    assert len(rows) == size[1]
    assert {cell_len(row) for row in rows} == {size[0]}


def test_without_colour_there_is_none() -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*(3|4|9)[0-7][0-9;]*m")
    assert coloured.search(drawn(80, 24))
    assert not coloured.search(drawn(80, 24, no_color=True))


def test_in_ascii_every_line_has_the_same_width() -> None:
    rows = STYLE.sub("", drawn(80, 24, ascii_only=True)).split("\n")[:24]
    assert all(row.isascii() for row in rows)
    assert {len(row) for row in rows} == {80}


def test_plain_text_has_no_codes() -> None:
    shown = plain(frame(Shown(summaries.busy()), 100, 40, filled=False))
    assert "\x1b" not in shown
    assert all(row == row.rstrip() for row in shown.split("\n"))
    assert plain(frame(Shown(summaries.hostile()), 100, 40), ascii_only=True).isascii()
