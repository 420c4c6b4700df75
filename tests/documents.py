"""What the documentation shows, for tests that hold it to what is so."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^( *)```(\S*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_EXIT_CODE = re.compile(r"# exit code (\d+)$")
_PROMPT = re.compile(r"[\w-]*\$ ")


class Block(NamedTuple):
    """A fenced block: its language, the name of the file that it shows, or "", and its lines."""

    language: str
    title: str
    lines: list[str]


class Example(NamedTuple):
    """A command as it is typed, and the lines that it says."""

    command: str
    said: list[str]

    @property
    def exit_code(self) -> int:
        """What stands behind it as a comment, where it is not 0."""
        found = _EXIT_CODE.search(self.command)
        return int(found[1]) if found else 0


def page(name: str, heading: str = "") -> str:
    """Return the text of a page, as ``how-to/updates``, or of one of its sections."""
    text = (DOCS / f"{name}.md").read_text()
    if not heading:
        return text
    _, found, after = text.partition(f"\n## {heading}\n")
    assert found, f"docs/{name}.md has no section '{heading}'"
    return after.split("\n## ")[0]


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a text in Markdown, in their order."""
    found = []
    for indent, language, rest, body in _BLOCK.findall(text):
        title = _TITLE.search(rest)
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        found.append(Block(language, title[1] if title else "", lines))
    return found


def examples(block: Block) -> list[Example]:
    """Return the commands of a console block, each with what it says; empty lines are left out."""
    found: list[Example] = []
    for line in block.lines:
        if prompt := _PROMPT.match(line):
            found.append(Example(line[prompt.end() :], []))
        elif line.strip():
            found[-1].said.append(line)
    return found


def typed(text: str) -> list[Example]:
    """Return all that a text has people type into a shell; of a block in sh nothing is shown that it says."""
    found = []
    for block in blocks(text):
        if block.language == "console":
            found += examples(block)
        elif block.language == "sh":
            found += [Example(line, []) for line in block.lines if line.strip()]
    return found


def consoles(text: str) -> list[Example]:
    """Return the examples of all console blocks of a text."""
    return [example for block in blocks(text) if block.language == "console" for example in examples(block)]
