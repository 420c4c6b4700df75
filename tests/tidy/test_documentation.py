"""The documentation is true of the commands, whole, and can be built; README.md is a page and not a book."""

import ast
import contextlib
import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from borgish.borglet import main as borglet
from borgish.cli import borgctl
from borgish.master import main as borgmaster
from borgish.sim import fauxmaster
from borgish.sim.faux.verbs import HelpRequested, read
from docs.generate.commands import Command, programs
from docs.generate.linked import linked_pages
from docs.generate.man import man_pages
from docs.generate.reference import reference
from tests.documents import DOCS, typed
from tests.e2e import test_several_machines, test_tutorial
from tests.tidy.texts import ROOT, name

README_LINES_MAX = 150
PROGRAMS = ("borgctl", "borglet", "borgmaster", "fauxmaster")
_OPERATOR = re.compile(r"[()|&;<>]+")
_FAUX_PROMPT = re.compile(r"\S+@\S+> (.+)")
_SPAN = re.compile(r"`([^`]+)`")


class Shown(NamedTuple):
    """A command that a page shows: as it is to be typed, or only mentioned in a sentence."""

    where: str
    words: tuple[str, ...]
    typed: bool


def pages() -> dict[str, str]:
    """Return README.md and every page, those made from the code too, by where they are."""
    written = {name(path): path.read_text() for path in (ROOT / "README.md", *DOCS.rglob("*.md"))}
    return written | {f"docs/{place}": text for place, text in reference().items()}


@functools.cache
def groups() -> frozenset[str]:
    """Return the commands of borgctl that have others inside: pages may name these without borgctl."""
    return frozenset(command.name.split()[1] for command in programs()[0].inside if command.inside)


def shown() -> Iterator[Shown]:
    for where, text in pages().items():
        by_hand = not where.startswith("docs/reference/")
        for example in typed(text):
            for words in commands_in(example.command):
                yield Shown(where, words, typed=True)
        for span in _SPAN.findall(outside_blocks(text)):
            words = tuple(word.strip("[]") for word in span.split())
            if by_hand and re.match(rf"({'|'.join(groups())})\s[a-z-]+(\s|$)", span):
                words = ("borgctl", *words)
            if words[0] in PROGRAMS and len(words) > 1:
                yield Shown(where, words, typed=False)


def outside_blocks(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands_in(line: str) -> Iterator[tuple[str, ...]]:
    """Return the commands of ours in a line of a shell, without what stands around them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    begins = [
        at
        for at, word in enumerate(words)
        if word in PROGRAMS and (at == 0 or words[at - 1] == "--" or _OPERATOR.fullmatch(words[at - 1]))
    ]
    for at in begins:
        rest = words[at:]
        end = next((i for i, word in enumerate(rest) if _OPERATOR.fullmatch(word)), len(rest))
        yield tuple(rest[:end])


def wrong_with(command: Shown) -> str:
    """Return what is wrong with a command; "" for nothing."""
    return misread(command.words) if command.typed else unknown(command.words)


def misread(words: tuple[str, ...]) -> str:
    """Have a command read by what reads it in its program, and return what it complains of."""
    try:
        match words:
            case ("borgctl", *rest):
                root = typer.main.get_command(borgctl.app)
                parse(root, typer.Context(root, info_name="borgctl", **root.context_settings), list(rest))
            case ("borgmaster", *rest):
                borgmaster.command_line().parse_args(rest)
            case ("borglet", "join", *rest):
                borglet.join_command_line().parse_args(rest)
            case ("borglet", *rest):
                borglet.command_line().parse_args(rest)
            case ("fauxmaster", *rest):
                fauxmaster.command_line(lambda _name: True).parse_args(rest)
    except typer.BadParameter as error:
        return str(error)
    except SystemExit as ended:
        return f"exit code {ended.code}" if ended.code else ""
    except Exception as error:  # typer has no public name for all that it finds wrong with usage
        return f"{type(error).__name__}: {error}"
    return ""


def parse(command: Any, context: typer.Context, words: list[str]) -> None:
    """Read the words after a command of borgctl, and those after the commands inside it."""
    given, rest, _ = command.make_parser(context).parse_args(list(words))
    if hasattr(command, "resolve_command"):
        if not rest and command.invoke_without_command:
            return
        assert rest, f"{context.command_path} needs a command"
        each, found, rest = command.resolve_command(context, rest)
        parse(found, typer.Context(found, info_name=each, parent=context, **found.context_settings), rest)
        return
    assert not rest, f"{context.command_path}: what is {' '.join(rest)}?"
    for parameter in command.get_params(context):
        found = given.get(parameter.name)
        if parameter.required and parameter.param_type_name == "argument":
            assert found, f"{context.command_path}: {parameter.name} is missing"
        # One of several words, or what is read by a function of its own, as the forms of output.
        is_read = getattr(parameter.type, "choices", None) or hasattr(parameter.type, "func")
        if is_read and isinstance(found, str):
            parameter.type.convert(found, parameter, context)


@functools.cache
def known() -> dict[str, Command]:
    return {command.name: command for program in programs() for command in program.walk()}


def unknown(words: tuple[str, ...]) -> str:
    """Return the command or the option of a sentence that there is not; arguments may be left out there."""
    at = 1
    while " ".join(words[: at + 1]) in known() and at < len(words):
        at += 1
    command = known()[" ".join(words[:at])]
    if command.inside and at < len(words) and re.fullmatch(r"[a-z][a-z-]+", words[at]):
        return f"there is no command {' '.join(words[: at + 1])}"
    taken = {part.split(" ")[0] for word in command.options for part in re.split(r", ", word.form)}
    above = known()[words[0]]
    taken |= {part.split(" ")[0] for word in above.options for part in re.split(r", ", word.form)}
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[at:end] if re.match(r"--?[a-z]", word)]
    spare = [one for one in options if one.partition("=")[0] not in taken | {"-h", "--help", "-it"}]
    return f"{command.name} has no {', '.join(spare)}" if spare else ""


def test_every_command_that_is_shown_can_be_read() -> None:
    found = list(shown())
    assert len([command for command in found if command.typed]) > 140
    assert len([command for command in found if not command.typed]) > 150
    wrong = [f"{one.where}: {' '.join(one.words)}: {why}" for one in found if (why := wrong_with(one))]
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("borgctl jbo list", "jbo"),
        ("borgctl job lst", "lst"),
        ("borgctl job list --colour red", "--colour"),
        ("borgctl job scale web", "missing"),
        ("borgctl job list -o tabel", "tabel"),
        ("borgctl status web", "what is web"),
        ("borgmaster --standbye", "exit code 2"),
        ("fauxmaster fitz cell.db web.yaml", "exit code 2"),
    ],
)
def test_what_cannot_be_read_is_found(words: str, why: str) -> None:
    assert why in misread(tuple(words.split()))


@pytest.mark.parametrize(
    "words", ["borgctl job lst", "borgctl job list --colour", "borgctl task cpy web/0:x"]
)
def test_what_there_is_not_is_found(words: str) -> None:
    assert unknown(tuple(words.split()))


def test_each_page_with_commands_is_typed_by_a_test() -> None:
    """By a test that follows it with a ``Guide``, or by one that reads the page itself."""
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "e2e").glob("test_guides*.py"))
    followed = {
        *re.findall(r'Guide\(\s*"([^"]+)"', tests),
        *(f"tutorial/{name}" for name in test_tutorial.PAGES),
        test_several_machines.PAGE,
    }
    paths = (ROOT / "README.md", *DOCS.rglob("*.md"))
    shown = {os.path.relpath(path.with_suffix(""), DOCS) for path in paths if typed(path.read_text())}
    assert followed == shown


def test_each_command_of_borgctl_is_run_on_a_real_cell() -> None:
    """By a test in tests/e2e or tests/integration: in its own words, or typed from a page."""
    run = {example.command.split("#")[0] for text in pages().values() for example in typed(text)}
    for path in (*(ROOT / "tests/e2e").glob("test_*.py"), *(ROOT / "tests/integration").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call | ast.Tuple | ast.List):
                parts = node.args if isinstance(node, ast.Call) else node.elts
                words = [each.value for each in parts if isinstance(each, ast.Constant)]
                run.add(" ".join(str(word) for word in words))
    said = "\n".join(run)
    commands = [each.name.removeprefix("borgctl ") for each in programs()[0].walk() if not each.inside]
    assert len(commands) > 90
    begins = r"(?:^(?:--\S+ )*|\bborgctl )"
    assert [each for each in commands if not re.search(rf"{begins}{each}\b", said, re.MULTILINE)] == []


def test_what_is_typed_at_the_prompt_of_fauxmaster_can_be_read() -> None:
    lines = [match[1] for text in pages().values() for match in _FAUX_PROMPT.finditer(text)]
    assert len(lines) > 2
    for line in lines:
        with contextlib.suppress(HelpRequested):
            assert read(line)


def test_the_readme_is_a_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_links_lead_somewhere() -> None:
    """In the repository, where pages are read as well. Anchors and pictures are for MkDocs to judge."""
    written = pages()
    lost = [
        f"{where}: {link}"
        for where, text in written.items()
        for link in re.findall(r"(?<!!)\[[^\]]*\]\((?![a-z]+:|#)([^)#\s]+)", text)
        if (target := os.path.normpath(Path(where).parent / link)) not in written
        and not (ROOT / target).exists()
    ]
    assert lost == []
    assert "files/configs/cell.toml.md" in linked_pages(written)


def test_each_command_is_in_the_reference_and_in_a_man_page() -> None:
    described, manual = "".join(reference().values()), "".join(man_pages().values())
    for command in known().values():
        assert f"# {command.name}\n" in described
        assert f'.SS "{command.name}"'.replace(
            "-", "\\-"
        ) in manual or f"{command.name.replace(' ', '-')}.1" in (man_pages())


def test_the_documentation_can_be_built(tmp_path: Path) -> None:
    """Strictly, without a network: each link and anchor leads somewhere, each page is in the nav."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("MkDocs is not here; scripts/env dev installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {path: path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    assert len(built) > 60
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"?https?:|<link[^>]+rel=\"?(?:stylesheet|preconnect)[^>]+https?:"
    )
    assert [path for path, text in built.items() if loads.search(text)] == []
