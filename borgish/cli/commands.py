"""How the commands of borgctl are made, all alike."""

from typing import Any

import typer
from typer.core import TyperGroup

_MEANT = {
    "apply": ("submit", "create"),
    "cancel": ("kill",),
    "create": ("submit",),
    "delete": ("kill", "remove"),
    "describe": ("show",),
    "drain": ("taint",),
    "get": ("show", "list"),
    "info": ("show",),
    "inspect": ("show",),
    "log": ("logs",),
    "ls": ("list",),
    "ps": ("list",),
    "rm": ("kill", "remove", "delete"),
    "run": ("submit",),
    "start": ("submit", "restart"),
    "status": ("show",),
    "stop": ("kill",),
    "validate": ("check", "verify"),
}
"""What other systems call a command of ours; the first that a group has is meant."""


class Noun(TyperGroup):
    """A group of commands that knows what other systems call them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names. Ends with usage, and with what was meant."""
        if self.get_command(ctx, args[0]) is None:
            meant = next((word for word in _MEANT.get(args[0], ()) if word in self.commands), "")
            if meant:
                ctx.fail(f"No such command '{args[0]}'. Did you mean '{meant}'?")
        return super().resolve_command(ctx, args)


def noun(words: str) -> typer.Typer:
    """Return a group of commands about one noun; ``words`` say what it is."""
    return typer.Typer(
        cls=Noun, help=words, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def single() -> typer.Typer:
    """Return the home of one command that stands by itself."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)
