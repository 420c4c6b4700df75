"""What daemons log: a line a record, and nothing that opens a cell."""

import logging
import sys

import pytest

from borgish.logs import FORMAT, OneLine

SECRET = "q" * 43


def line(text: str, **more: object) -> str:
    record = logging.LogRecord("borglet", logging.INFO, "", 1, "%s", (text,), None)
    vars(record).update(more)
    return OneLine(FORMAT).format(record)


@pytest.mark.parametrize("text", ["one\n2026-01-31 INFO borglet: forged", "\x1b[2J", "a\rb", "\u202eb"])
def test_nothing_forges_a_line_or_moves_a_cursor(text: str) -> None:
    assert line(text).isprintable()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"token bgt_{SECRET} is not known", "token bgt_*** is not known"),
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
        (f"join BG1{'0f' * 32}::{SECRET} --name m1", f"join BG1{'0f' * 32}::*** --name m1"),
        (f"join BG1::{SECRET}", "join BG1::***"),
        (f"postgresql://ann:{SECRET}@db/cell", "postgresql://ann:***@db/cell"),
        ("https://m1.example:7401 answers", "https://m1.example:7401 answers"),
    ],
)
def test_what_opens_something_is_not_written(text: str, wanted: str) -> None:
    assert line(text).endswith(f" {wanted}")


def test_a_traceback_has_its_lines_marked() -> None:
    try:
        raise ValueError(f"bgt_{SECRET}\n2026-01-31 forged")
    except ValueError:
        first, *below = line("failed", exc_info=sys.exc_info()).splitlines()
    assert first.endswith("failed")
    assert len(below) > 2
    assert all(each.startswith("    | ") and SECRET not in each for each in below)
