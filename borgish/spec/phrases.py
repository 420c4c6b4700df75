"""What the YAML parsers complain of, in words that say what to do.

There are two parsers, in C and in Python, which find the same faults and name them differently.
"""

from typing import Any

import msgspec

from borgish.spec.mistakes import Found, lines_of, safe


class _Phrase(msgspec.Struct, frozen=True):
    """``at_start``: the fault is best shown where the thing that is not finished began."""

    part: str  # of the words of either parser
    message: str
    hint: str
    at_start: bool = False


_NOT_FITTING = "this does not fit what stands above it"
_ONE_LEVEL = "give keys of one level the same indentation, and put nothing after a closing quote"

_PHRASES = (
    _Phrase(
        "mapping values are not allowed",
        "a ':' that cannot stand here",
        "quote text that holds ': ', and give keys of one level the same indentation",
    ),
    _Phrase("unexpected end of stream", "a quote that is never closed", "close the quote", at_start=True),
    _Phrase("',' or ']'", "a list that is not closed, or lacks a comma", "close it with ']'", at_start=True),
    _Phrase(
        "',' or '}'", "a mapping that is not closed, or lacks a comma", "close it with '}'", at_start=True
    ),
    _Phrase("could not find expected ':'", "a key without a ':'", "write it as 'key: value'", at_start=True),
    _Phrase(
        "unknown escape",
        "an escape that double quotes do not know",
        "write \\\\ for a backslash, or use single quotes",
        at_start=True,
    ),
    _Phrase(
        "sequence entries are not allowed",
        "a '-' that cannot stand here",
        "begin a list in the line after its key, or write it as [a, b]",
    ),
    _Phrase("expected key", _NOT_FITTING, _ONE_LEVEL),
    _Phrase("expected '-' indicator", _NOT_FITTING, "begin every item of a list with '- '"),
    _Phrase("expected <block end>", _NOT_FITTING, _ONE_LEVEL),
    _Phrase("document start", "text after the end of the job", "remove it; look for a '}' or ']' too many"),
    _Phrase("node content", "a value is missing here", "give the value, or remove the line"),
)


def tell_parser_error(error: Any, text: str, found: Found) -> None:
    """Add what a parser raised (a yaml.YAMLError) to the mistakes found."""
    lines = lines_of(text.rstrip("\r\n"))
    problem = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    start = getattr(error, "context_mark", None) or mark
    line, column = _inside(mark, lines)
    if "cannot start any token" in problem:
        found.tell(line, column, *_bad_start(lines[line - 1][column - 1 : column]))
        return
    for phrase in _PHRASES:
        if phrase.part in problem:
            place = _inside(start, lines) if phrase.at_start else (line, column)
            found.tell(*place, phrase.message, phrase.hint)
            return
    found.tell(line, column, f"this is not YAML: {safe(problem)}", "see the line and the one before it")


def _bad_start(char: str) -> tuple[str, str]:
    if char == "\t":
        return "a tab cannot be used to indent", "indent with spaces"
    return f"text without quotes cannot begin with {char}", "put the text in quotes"


def _inside(mark: Any, lines: list[str]) -> tuple[int, int]:
    """Return line and column, from 1; what lies behind the last line is its end."""
    if mark is None:
        return 1, 1
    if mark.line < len(lines):
        return mark.line + 1, mark.column + 1
    return len(lines), len(lines[-1]) + 1
