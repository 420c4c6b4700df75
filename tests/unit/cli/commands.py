"""All commands of borgctl, as a test walks them."""

from collections.abc import Iterator
from typing import Any

from borgish.cli.borgctl import COMMANDS, load


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command and group with the words that call it, the hidden ones included."""
    for name in COMMANDS:
        yield from _walk((name,), load(name))


def leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command that is no group."""
    return ((path, command) for path, command in commands() if not hasattr(command, "commands"))


def _walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk((*path, name), inner)
