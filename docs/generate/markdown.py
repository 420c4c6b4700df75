"""The little of Markdown that generated pages are made of."""

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\*_<\[|])")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or "" for one without rows. Cells are Markdown; line ends in them become spaces."""
    lines = [" | ".join(" ".join(cell.split()) for cell in row) for row in rows]
    if not lines:
        return ""
    return "\n".join(f"| {line} |" for line in (" | ".join(head), " | ".join("---" for _ in head), *lines))


def prose(text: str) -> str:
    """Return a text in which only backticks mean something, with its paragraphs, as Markdown."""
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """Return a word as code."""
    return f"`{text}`"


def fenced(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def page(*parts: str) -> str:
    """Return parts of a page with an empty line between them; empty parts are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"
