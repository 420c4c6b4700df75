"""What can be asked of fauxmaster, each thing by a word: as a command of its own, and at the prompt.

One table, in the order of the help: where to look, what to try, what to ask. It has all that help needs. The
scheduler, the store and what they need take a second of cpu to import, so the module of a verb is imported
when its arguments are read.
"""

import argparse
import shlex
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import msgspec

from borgish.errors import Invalid, NotFound

if TYPE_CHECKING:
    from borgish.sim.faux.output import Answer
    from borgish.sim.faux.session import Session

Arguments = Callable[[argparse.ArgumentParser], object]
Run = Callable[["Session", argparse.Namespace], "Answer"]


class Verb(msgspec.Struct, frozen=True):
    """A word, what it does in a line, and the module of ``borgish.sim.faux`` with its row in ``COMMANDS``."""

    name: str
    help: str
    module: str
    at_prompt_only: bool = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Tell a parser what may stand after the verb."""
        if (arguments := self._command()[0]) is not None:
            arguments(parser)

    def run(self, session: "Session", args: argparse.Namespace) -> "Answer":
        """Do it. Raises BorgishError."""
        return self._command()[1](session, args)

    def _command(self) -> tuple[Arguments | None, Run]:
        commands: dict[str, tuple[Arguments | None, Run]]
        commands = import_module(f"borgish.sim.faux.{self.module}").COMMANDS
        return commands[self.name]


VERBS = {
    verb.name: verb
    for verb in (
        Verb("show", "what is in the cell", "past"),
        Verb("step", "go through what really happened next", "past"),
        Verb("next", "go on to the next event of a kind", "past"),
        Verb("at", "go to another moment", "past"),
        Verb("diff", "what differs between two moments", "past"),
        Verb("submit", "on the copy: submit a job file", "changes"),
        Verb("kill", "on the copy: end a job, or one task of it", "changes"),
        Verb("restart", "on the copy: give a job, or one task of it, a fresh attempt", "changes"),
        Verb("scale", "on the copy: change a job's tasks", "changes"),
        Verb("drain", "on the copy: have everything leave a machine", "changes"),
        Verb("undrain", "on the copy: let a machine that was drained take tasks again", "changes"),
        Verb("cordon", "on the copy: place nothing new on a machine", "changes"),
        Verb("uncordon", "on the copy: place new tasks on a machine again", "changes"),
        Verb("taint", "on the copy: mark a machine", "changes"),
        Verb("untaint", "on the copy: take a mark away", "changes"),
        Verb("quota", "on the copy: set what a user may ask for in a band", "changes"),
        Verb("schedule", "on the copy: place what waits", "changes"),
        Verb("run", "on the copy: let time pass", "changes"),
        Verb("why", "on the copy: why tasks wait", "changes"),
        Verb("back", "let go of the copy", "changes", at_prompt_only=True),
        Verb("fits", "how many more tasks of a job find room", "capacity"),
        Verb("evicts", "whom a change would evict", "evictions"),
        Verb("lose", "what follows when machines die at once", "loss"),
        Verb("replay", "what would be decided otherwise today", "replay"),
        Verb("compact", "how few machines would do", "capacity"),
    )
}


class HelpRequested(Exception):
    """The help of a verb; ``args[0]`` is the text."""


class _LineParser(argparse.ArgumentParser):
    """Reads a line of the prompt. What is wrong is raised, and nothing ends the process."""

    def error(self, message: str) -> NoReturn:
        raise Invalid(f"{self.prog}: {message}", " ".join(self.format_usage().split()))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        del status  # nothing ends
        raise HelpRequested(message or "")

    def print_help(self, file: object = None) -> None:
        del file  # who called prints it
        raise HelpRequested(self.format_help())


def read(line: str) -> tuple[Verb, argparse.Namespace] | None:
    """Return what a line asks for; None for an empty one, or a remark.

    Raises Invalid, NotFound and HelpRequested.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise Invalid(f"this line cannot be read: {error}", "Close every quote") from None
    if not words:
        return None
    if words[0] in ("help", "?"):
        raise HelpRequested(overview() if len(words) == 1 else parser_of(find(words[1])).format_help())
    verb = find(words[0])
    return verb, parser_of(verb).parse_args(words[1:])


def parser_of(verb: Verb) -> argparse.ArgumentParser:
    """Return what reads the words after a verb."""
    parser = _LineParser(prog=verb.name, description=f"{verb.help[0].upper()}{verb.help[1:]}.")
    verb.add_arguments(parser)
    return parser


def find(name: str) -> Verb:
    """Return a verb by its name. Raises NotFound."""
    if name not in VERBS:
        from borgish.sim.faux.names import nearest

        raise NotFound(f"there is no command '{name}'", nearest(name, [*VERBS, "help", "quit"], "commands"))
    return VERBS[name]


def overview() -> str:
    """Return all verbs, a line each."""
    lines = [f"  {name:<9} {verb.help}" for name, verb in VERBS.items()]
    return "\n".join([*lines, "  help      of a command: help step", "  quit      leave", ""])
