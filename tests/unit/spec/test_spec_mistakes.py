"""Mistakes as people see them."""

import pytest

from borgish.errors import Invalid, Mistake
from borgish.spec.file.mistakes import (
    MISTAKES_MAX,
    Mistakes,
    caret_offset,
    cut_line,
    quote,
    safe,
    show_mistakes,
)


def test_a_mistake_is_shown_like_a_compiler_does() -> None:
    mistake = Mistake("tasks: 0 is outside 1 to 10000", 2, 8, "write 1", "tasks: 0", "tasks")
    other = Mistake("and 3 more mistakes, not shown")
    assert show_mistakes((mistake, other), "web.yaml") == (
        "web.yaml:2:8: tasks: 0 is outside 1 to 10000\n"
        "  tasks: 0\n"
        "         ^\n"
        "  hint: write 1\n"
        "web.yaml: and 3 more mistakes, not shown"
    )


def test_user_text_cannot_move_the_cursor() -> None:
    mistake = Mistake("x\x1b[2J", 1, 3, "\r", "\x1b\u202eab\tc", "")
    shown = show_mistakes((mistake,), "a\nb")
    assert shown.isascii()
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown.splitlines()[:3] == ["a\\nb:1:3: x\\x1b[2J", "  \\x1b\\u202eab\\tc", "  " + " " * 10 + "^"]


def test_the_caret_stands_below_wide_characters() -> None:
    shown = show_mistakes((Mistake("m", 1, 4, excerpt="名前: x"),), "f")
    assert shown.splitlines()[2] == "  " + " " * 5 + "^"


@pytest.mark.parametrize("column", [1, 100, 160, 161, 500, 5000])
def test_long_lines_are_cut_around_the_column(column: int) -> None:
    line = "".join(chr(0x4E00 + i) for i in range(5000))
    cut = cut_line(line, column)
    assert len(cut) <= 161
    assert cut[caret_offset(column)] == line[column - 1]


def test_reading_ends_at_a_flood_of_mistakes() -> None:
    found = Mistakes("a\n" * 300)
    for line in range(300, 300 - MISTAKES_MAX, -1):
        found.report(line, 1, "m")
    with pytest.raises(Invalid) as caught:
        found.report(1, 1, "one too many")
    assert caught.value.message == "the job file has more than 100 mistakes; line 201: m"
    assert len(caught.value.mistakes) == MISTAKES_MAX + 1
    assert caught.value.mistakes[-1].message == "more than 100 mistakes; the rest was not checked"


def test_quote_is_short_and_safe() -> None:
    assert quote("a\nb") == "'a\\nb'"
    assert len(quote("x" * 1000)) < 70
    assert safe("\U000e0001") == "\\U000e0001"
    assert safe("é 名") == "é 名"
