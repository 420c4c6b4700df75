"""Bytes of a terminal as keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.dashboard.keys import Click, Decoder, Key, Paste, Pressed


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("jk/?", ["j", "k", "/", "?"]),
        ("\x1b[A\x1b[B\x1b[C\x1b[D", [Key.UP, Key.DOWN, Key.RIGHT, Key.LEFT]),
        ("\x1bOA\x1bOH", [Key.UP, Key.HOME]),  # of terminals in application mode
        ("\x1b[5~\x1b[6~\x1b[1~\x1b[4~\x1b[H\x1b[F", [Key.PAGE_UP, Key.PAGE_DOWN, *[Key.HOME, Key.END] * 2]),
        ("\r\n\x7f\x08\x04\x15", [*[Key.ENTER] * 2, *[Key.BACKSPACE] * 2, Key.PAGE_DOWN, Key.PAGE_UP]),
        ("\x1b[<0;5;3M\x1b[<0;5;3m\x1b[<64;1;1M\x1b[<65;1;1M", [Click(4, 2), Key.WHEEL_UP, Key.WHEEL_DOWN]),
        ("\x1b[<2;5;3M\x1b[1;5A\x00\x01", []),  # other buttons and keys mean nothing to us
        ("\x1bq", [Key.ESCAPE, "q"]),
        ("\t\x1b[Z", [Key.TAB, Key.BACK_TAB]),
        ("\x1b\x1b[A", [Key.ESCAPE, Key.UP]),
        ("ä漢", ["ä", "漢"]),
        ("x\x1b[200~a\ry\x1b[A\x1b[201~j", ["x", Paste("a y [A"), "j"]),
    ],
)
def test_what_terminals_send(sent: str, keys: list[Pressed]) -> None:
    assert Decoder().feed(sent) == keys
    one_by_one, decoder = [], Decoder()
    for character in sent:
        one_by_one += decoder.feed(character)
    assert one_by_one == keys
    assert not decoder.is_unfinished


def test_an_escape_alone_is_a_key_when_nothing_follows_in_time() -> None:
    decoder = Decoder()
    assert decoder.feed("\x1b") == []
    assert decoder.is_unfinished
    assert decoder.feed("") == [Key.ESCAPE]
    assert not decoder.is_unfinished
    assert decoder.feed("") == []


def test_a_paste_without_an_end_ends_by_itself() -> None:
    decoder = Decoder()
    assert decoder.feed("\x1b[200~rm -rf") == []
    assert decoder.is_unfinished
    assert decoder.feed("") == [Paste("rm -rf")]
    assert decoder.feed("q") == ["q"]


@given(st.lists(st.text(st.sampled_from("\x1b[<O01;25MAz~"), max_size=8), max_size=8))
def test_no_bytes_are_held_back_for_good(pieces: list[str]) -> None:
    decoder = Decoder()
    for piece in pieces:
        decoder.feed(piece)
    for _ in range(2):
        decoder.feed("")
    assert not decoder.is_unfinished
    assert decoder.feed("q")[-1] == "q"
