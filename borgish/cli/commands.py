"""How the commands of borgctl are made, all alike."""

import typer


def noun(words: str) -> typer.Typer:
    """Return a group of commands about one noun; ``words`` say what it is."""
    return typer.Typer(help=words, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


def single() -> typer.Typer:
    """Return the home of one command that stands by itself."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)
