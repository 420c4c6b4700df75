"""How what people read is written: texts of decisions and of refusals."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from borgish.errors import BorgishError

_SHOUTED = re.compile(r"[A-Z]{2}[a-z]|[a-z][A-Z]{2}|[A-Z]{2,} [A-Z]{2,}")
_NO_WAY_OUT = re.compile(r" is (pending|running|dead)$")
"""What asks for a state that excludes the one there is; what to do instead depends on what was meant."""


def check_sentence(text: str) -> None:
    """Assert that a text is one sentence without its full stop, in which no word is shouted."""
    assert text
    assert text == text.strip()
    assert not text.endswith(".")
    assert not _SHOUTED.search(text), text


def check_refusal(refused: BorgishError, *named: str) -> None:
    """Assert that the message names the thing and the reason, and that the hint is a way out."""
    check_sentence(refused.message)
    if not _NO_WAY_OUT.search(refused.message):
        check_sentence(refused.hint)
    for name in named:
        assert name in refused.message


@contextmanager
def refusals_checked() -> Iterator[None]:
    """Let through what is refused in this context, if it is written so."""
    try:
        yield
    except BorgishError as refused:
        check_refusal(refused)
        raise
