"""The token of an invitation: written, read back, and refused with the reason when it is damaged."""

import pytest

from borgish.errors import Invalid
from borgish.join_token import JoinToken, parse

SECRET = "s" * 43
HASH = "a1" * 32


@pytest.mark.parametrize("authority", [HASH, ""])
def test_what_is_written_is_read(authority: str) -> None:
    token = JoinToken(authority, SECRET)
    assert parse(f" {token}\n") == token
    assert SECRET not in repr(token)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a join token"),
        ("bgt_" + SECRET, "not a join token"),
        ("BG1" + "a" * 300, "not a join token"),
        ("BG1" + HASH, "cut off"),
        (f"BG1{HASH[:-1]}::{SECRET}", "64 digits"),
        (f"BG1{HASH.upper()}::{SECRET}", "64 digits"),
        (f"BG1{HASH}::{SECRET[:-1]}", "cut off"),
        (f"BG1{HASH}::{SECRET[:-1]}!", "cut off"),
    ],
)
def test_what_is_damaged_is_refused_and_not_repeated(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words) as refused:
        parse(text)
    assert SECRET[:-1] not in str(refused.value)
    assert "borgctl machine invite" in refused.value.hint
