"""The man pages, one for each program and one for each group of commands of borgctl, made from the same
commands as the reference: ``python -m docs.generate.man FOLDER``."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import borgish
from docs.generate.commands import Command, Word, programs


def man_pages() -> dict[str, str]:
    """Return the pages by their file names, in the language of man(7)."""
    pages: dict[str, str] = {}
    for program in programs():
        groups = [command for command in program.inside if command.inside]
        rest = [command for command in program.inside if not command.inside]
        pages[f"{program.name}.1"] = _page(program, groups, rest)
        for group in groups:
            commands = [command for command in group.walk() if command is not group]
            pages[f"{group.name.replace(' ', '-')}.1"] = _page(group, [], commands)
    return pages


def _page(command: Command, groups: list[Command], inside: list[Command]) -> str:
    name = command.name.replace(" ", "-")
    lines = [f'.TH {name.upper()} 1 "" "borgish {borgish.__version__}" "borgish"', ".SH NAME"]
    lines += [f"{_text(name)} \\- {_text(command.about.rstrip('.'))}", ".SH SYNOPSIS", _bold(command.usage)]
    lines += [".SH DESCRIPTION", *_paragraphs(command.text)]
    lines += _words("ARGUMENTS", command.arguments) + _words("OPTIONS", command.options)
    pages = [Word(f"{group.name.replace(' ', '-')}(1)", group.about) for group in groups]
    lines += _words("GROUPS OF COMMANDS", tuple(pages))
    if inside:
        lines.append(".SH COMMANDS")
    for each in inside:
        lines += [f".SS {_quoted(each.name)}", _bold(each.usage), ".PP", *_paragraphs(each.text)]
        lines += [line for word in (*each.arguments, *each.options) for line in _word(word)]
    return "\n".join(line for line in lines if line) + "\n"


def _words(title: str, words: tuple[Word, ...]) -> list[str]:
    return [f".SH {title}", *(line for word in words for line in _word(word))] if words else []


def _word(word: Word) -> Iterator[str]:
    yield from (".TP", _bold(word.form), _text(word.about) or "\\&")


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each as one line of input."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines += [_text(" ".join(paragraph.split())), ".PP"]
    return lines[:-1]


def _text(text: str) -> str:
    """Return a text of one line, with what stands in backticks in bold."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _quoted(text: str) -> str:
    return f'"{_text(text)}"'


def main() -> None:
    """Write all pages into the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs.generate.man FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in man_pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
