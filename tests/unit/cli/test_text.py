"""Foreign text made safe; times, indexes and amounts as people read them."""

import time
from collections.abc import Callable

import pytest

from borgish.cli.render import as_json, as_yaml, parse_indexes, safe_output
from borgish.errors import BorgishError
from borgish.text import age, local_times, safe, show_indexes, span

NASTY = "a\x1b[2J\x07\r\n\x9b31m\u202eb\u2028c"


def test_safe_escapes_everything_that_acts_on_a_terminal() -> None:
    assert safe(NASTY) == "a\\x1b[2J\\x07\\x0d\\x0a\\x9b31m\\u202eb\\u2028c"
    assert safe("ä 漢字 [bold]x[/bold]") == "ä 漢字 [bold]x[/bold]"


def test_output_keeps_lines_and_characters_split_over_pieces() -> None:
    pieces = ["ä".encode()[:1], "ä".encode()[1:] + b"\t\x1b]0;x\x07\n", b"\xff\n"]
    assert "".join(safe_output(pieces)) == "ä\t\\x1b]0;x\\x07\n\\xff\n"


@pytest.mark.parametrize("form", [as_json, as_yaml])
def test_json_and_yaml_are_printable(form: Callable[[object], str]) -> None:
    shown = form({"reason": NASTY})
    assert all(character.isprintable() or character == "\n" for character in shown)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d"), (-5, "0s")]
)
def test_span(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_age_counts_from_utc() -> None:
    assert age("1970-01-01T00:00:10Z", now=310.0) == "5m"
    assert age(None) == "-"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("since 2026-01-02T03:04:05.678Z, and", "since 2026-01-02 05:04:05, and"),
        ("2026-01-02T23:04:05.678Z", "2026-01-03 01:04:05"),
        ("--since=2026-01-02T03:04:05.678Z", None),
        ("invalid '2026-01-02T03:04:05.678Z'", None),
        ("2026-01-02T03:04:05Z of a program", None),
        ("2026-99-02T03:04:05.678Z", None),
        ("", None),
    ],
)
def test_instants_of_the_master_are_told_in_the_zone_of_who_asks(
    text: str, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EAST-02:00")
        time.tzset()
        assert local_times(text) == (text if shown is None else shown)
    time.tzset()


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("see what its #! line names", "no program '/x'. See what its #! line names"),
        ("`borgctl up` starts one", "no program '/x'. `borgctl up` starts one"),
        ("ann/web has it", "no program '/x'. ann/web has it"),
        ("Ask an admin", "no program '/x'. Ask an admin"),
        ("", "no program '/x'"),
    ],
)
def test_an_error_in_one_line_is_made_of_sentences(hint: str, shown: str) -> None:
    assert str(BorgishError("no program '/x'", hint)) == shown


def test_indexes_there_and_back() -> None:
    assert parse_indexes("5,0-2") == (0, 1, 2, 5)
    assert show_indexes((5, 0, 1, 2)) == "0-2,5"


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "3-1", "99999", "٣"])
def test_wrong_indexes(text: str) -> None:
    with pytest.raises(ValueError, match="indexes"):
        parse_indexes(text)
