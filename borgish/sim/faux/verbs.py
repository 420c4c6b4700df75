"""What can be asked of fauxmaster, each thing by a word: as a command of its own, and at the prompt."""

import argparse
import shlex
from collections.abc import Callable
from typing import NoReturn

import msgspec

from borgish.errors import Invalid, NotFound
from borgish.sim.faux import asking, past, replaying, trying
from borgish.sim.faux.changes import CHANGES, file_words
from borgish.sim.faux.helps import HELP
from borgish.sim.faux.names import nearest
from borgish.sim.faux.session import Session
from borgish.sim.faux.words import Answer

Parser = argparse.ArgumentParser
Run = Callable[[Session, argparse.Namespace], Answer]


class Verb(msgspec.Struct, frozen=True):
    """A word, the words after it, and what it does."""

    name: str
    help: str
    words: Callable[[Parser], object]
    run: Run


class Asked(Exception):
    """The help of a verb; ``args[0]`` is the text."""


def _none(_parser: Parser) -> None:
    """No words."""


_ASKED: dict[str, tuple[Callable[[Parser], object], Run]] = {
    "show": (past.show_words, past.show),
    "step": (past.step_words, past.step),
    "next": (past.next_words, past.next_event),
    "at": (past.at_words, past.at),
    "diff": (past.diff_words, past.diff),
    **{name: (change.words, trying.changer(change)) for name, change in CHANGES.items()},
    "schedule": (_none, trying.schedule),
    "run": (trying.run_words, trying.run),
    "why": (trying.why_words, trying.why),
    "back": (_none, trying.back),
    "fits": (file_words, asking.fits),
    "evicts": (asking.evicts_words, asking.evicts),
    "lose": (asking.lose_words, asking.lose),
    "replay": (replaying.replay_words, replaying.replay_all),
    "compact": (asking.compact_words, asking.compact),
}

VERBS: dict[str, Verb] = {name: Verb(name, text, *_ASKED[name]) for name, text in HELP.items()}


class _Words(Parser):
    """Reads the words of a line. What is wrong is raised, and nothing ends the process."""

    def error(self, message: str) -> NoReturn:
        raise Invalid(f"{self.prog}: {message}", " ".join(self.format_usage().split()))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        del status  # nothing ends
        raise Asked(message or "")

    def print_help(self, file: object = None) -> None:
        del file  # who called prints it
        raise Asked(self.format_help())


def read(line: str) -> tuple[Verb, argparse.Namespace] | None:
    """Return what a line asks for; None for an empty one, or a remark. Raises Invalid, NotFound and Asked."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise Invalid(f"this line cannot be read: {error}", "Close each quote") from None
    if not words:
        return None
    if words[0] in ("help", "?"):
        raise Asked(overview() if len(words) == 1 else parser_of(find(words[1])).format_help())
    verb = find(words[0])
    return verb, parser_of(verb).parse_args(words[1:])


def parser_of(verb: Verb) -> Parser:
    """Return what reads the words after a verb."""
    parser = _Words(prog=verb.name, description=f"{verb.help[0].upper()}{verb.help[1:]}.")
    verb.words(parser)
    return parser


def find(name: str) -> Verb:
    """Return a verb by its name. Raises NotFound."""
    if name not in VERBS:
        raise NotFound(f"there is no command '{name}'", nearest(name, [*VERBS, "help", "quit"], "commands"))
    return VERBS[name]


def overview() -> str:
    """Return all verbs, a line each."""
    lines = [f"  {name:<9} {verb.help}" for name, verb in VERBS.items()]
    return "\n".join([*lines, "  help      of a command: help step", "  quit      leave", ""])
