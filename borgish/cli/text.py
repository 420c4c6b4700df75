"""What programs wrote, made fit for a terminal; states, counts and indexes as people write them."""

import codecs
from collections.abc import Iterable, Iterator

from borgish.text import safe_lines
from borgish.vocabulary import TASKS_PER_JOB_MAX, Outcome, State


def safe_output(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield what a program wrote, fit for a terminal; a character may be split over two pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in pieces:
        yield safe_lines(decoder.decode(piece).replace("\r\n", "\n"))
    yield safe_lines(decoder.decode(b"", final=True))


def plural(count: int, noun: str) -> str:
    """Return ``1 task``, ``2 tasks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def state_text(state: State, outcome: Outcome | None) -> str:
    """Return the state, of what is dead with its outcome: ``dead (failed)``."""
    return f"{state} ({outcome})" if outcome else state


def outcomes(finished: int, failed: int, killed: int) -> list[str]:
    """Return ``2 finished``, ``1 failed``: how dead tasks came out, those that are none left out."""
    counts = ((finished, "finished"), (failed, "failed"), (killed, "killed"))
    return [f"{count} {word}" for count, word in counts if count]


def parse_indexes(text: str) -> tuple[int, ...]:
    """Read ``0-2,5`` as 0, 1, 2 and 5. Raises ValueError with the reason."""
    indexes: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isdecimal() and low.isascii()) or (dash and not (high.isdecimal() and high.isascii())):
            raise ValueError("is not a list of task indexes like 0-2,5")
        first, last = int(low), int(high or low)
        if not first <= last < TASKS_PER_JOB_MAX:
            raise ValueError(f"names indexes outside 0 to {TASKS_PER_JOB_MAX - 1}, or backwards")
        indexes.update(range(first, last + 1))
    return tuple(sorted(indexes))
