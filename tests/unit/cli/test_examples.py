"""Each command has an example, and each example is a line that the command takes."""

import shlex
from typing import Any

import pytest
import typer

from borgish.cli.borgctl import app
from borgish.cli.examples import EXAMPLES
from tests.unit.cli.commands import leaves
from tests.unit.cli.conftest import Run

LINES = [(path, line) for path, lines in EXAMPLES.items() for line in lines]


def parsed(words: list[str]) -> str:
    """Read a command line as borgctl does, but do nothing; return the words of the command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("borgctl", words)
    path = []
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(path)


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert {" ".join(path) for path, _ in leaves()} == set(EXAMPLES)


@pytest.mark.parametrize(("path", "line"), LINES)
def test_an_example_can_be_typed(path: str, line: str) -> None:
    words = shlex.split(line)
    while "=" in words[0]:  # a variable of the environment
        words.pop(0)
    assert words.pop(0) == "borgctl"
    assert parsed(words) == path


def test_the_help_ends_with_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("job", "scale", "--help") == 0
    assert capsys.readouterr().out.endswith("\n  Example:\n    borgctl job scale web 5\n")
    assert run("logs", "--help") == 0
    assert "\n  Examples:\n    borgctl logs web --tail 20\n    borgctl logs -f -l" in capsys.readouterr().out
