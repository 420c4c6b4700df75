"""The commands as they are, read from what parses them: typer's for borgctl, argparse's for the daemons."""

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from borgish.borglet import main as borglet
from borgish.cli import borgctl
from borgish.cli.examples import EXAMPLES
from borgish.master import main as borgmaster
from borgish.sim import fauxmaster


class Word(NamedTuple):
    """An argument or an option: how it is written, and what it says."""

    form: str
    about: str


class Command(NamedTuple):
    """A command, with those inside it. ``text`` has paragraphs, with code in backticks."""

    name: str
    about: str  # in a sentence
    usage: str
    text: str
    arguments: tuple[Word, ...]
    options: tuple[Word, ...]
    inside: tuple["Command", ...]

    def walk(self) -> Iterator["Command"]:
        """Return this command, and all inside it."""
        yield self
        for command in self.inside:
            yield from command.walk()


def programs() -> tuple[Command, ...]:
    """Return all programs of borgish."""
    joining = _of_argparse("borglet join", "", borglet.join_command_line())
    agent = _of_argparse("borglet", "", borglet.command_line())
    return (
        _of_borgctl(),
        _of_argparse("borgmaster", "", borgmaster.command_line()),
        agent._replace(inside=(joining,)),
        _of_argparse("fauxmaster", "", fauxmaster.command_line(lambda _name: True)),
    )


def _of_borgctl() -> Command:
    root = typer.main.get_command(borgctl.app)
    inside = {name: borgctl.load(name) for name in borgctl.COMMANDS}
    return _of_typer(root, None, "borgctl", inside)


def _of_typer(command: Any, above: typer.Context | None, name: str, inside: dict[str, Any]) -> Command:
    context = typer.Context(command, info_name=name, parent=above, **command.context_settings)
    words = {"argument": list[Word](), "option": list[Word]()}
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) and parameter.name != "help":
            words[parameter.param_type_name].append(Word(*record))
    text = (command.help or "").partition("\f")[0].strip()
    if lines := EXAMPLES.get(context.command_path.partition(" ")[2]):
        text += f"\n\nFor example {', or '.join(f'`{line}`' for line in lines)}."
    return Command(
        name=context.command_path,
        about=text.partition("\n\n")[0].replace("\n", " "),
        usage=" ".join(command.get_usage(context).split()).removeprefix("Usage: "),
        text=text,
        arguments=tuple(words["argument"]),
        options=tuple(words["option"]),
        inside=tuple(
            _of_typer(found, context, each, getattr(found, "commands", {})) for each, found in inside.items()
        ),
    )


def _of_argparse(name: str, about: str, parser: argparse.ArgumentParser) -> Command:
    """Read a parser. That of argparse has no public list of what it takes; ``_actions`` is what all read."""
    arguments, options, inside = list[Word](), list[Word](), list[Command]()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            abouts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            inside = [
                _of_argparse(f"{name} {each}", abouts.get(each, ""), found)
                for each, found in action.choices.items()
            ]
        elif action.dest != "help":
            help_ = (action.help or "") % {**vars(action), "prog": name}
            (options if action.option_strings else arguments).append(Word(_form(action), help_))
    parts = (parser.description or about, parser.epilog or "")
    return Command(
        name=name,
        about=about or parser.description or "",
        usage=" ".join(parser.format_usage().split()).removeprefix("usage: "),
        text="\n\n".join(_sentence(part) for part in parts if part),
        arguments=tuple(arguments),
        options=tuple(options),
        inside=tuple(inside),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def _form(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else None
    value = metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"[{value.strip('[]')}]" if action.nargs in ("?", "*") else value
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    return f"{names} [{value}]" if action.nargs == "?" else f"{names} {value}"
