"""Files that are read together: files, folders and Jsonnet on the command line become texts with names."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from borgish.errors import Invalid, Mistake
from borgish.vocabulary import BODY_BYTES_MAX

if TYPE_CHECKING:
    from borgish.spec.file.documents import Source

STDIN = Path("-")
JSONNET = ".jsonnet"
SUFFIXES = (".yaml", ".yml", ".json", JSONNET)
"""Of the files that are taken from a folder."""

VarOption = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help="Value of a variable of the files. Can be repeated."),
]


class Loaded(msgspec.Struct, frozen=True):
    """Texts to be read together, and what is wrong with files that gave none."""

    sources: "list[Source]"
    mistakes: list[Mistake]
    programs: dict[str, str]  # Jsonnet, by the name of its source
    taken: set[str]  # the variables that Jsonnet asks for

    def left(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the texts are to be read with: without those that were for Jsonnet alone,
        which no document need declare."""
        return {
            name: value
            for name, value in variables.items()
            if name not in self.taken or any(f"var.{name}" in source.text for source in self.sources)
        }

    def located(self, mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
        """Return mistakes in the texts where people look for them: those in what Jsonnet said, in Jsonnet."""
        if not self.programs:
            return tuple(mistakes)
        from borgish.cli.jsonnet import in_program

        return tuple(
            in_program(mistake, self.programs[mistake.source]) if mistake.source in self.programs else mistake
            for mistake in mistakes
        )


def load(paths: Sequence[Path], variables: Mapping[str, str]) -> Loaded:
    """Return the texts of files, of the files in folders, and what Jsonnet says, with what is wrong beside
    what can be read. A file that is named twice is read once."""
    loaded = Loaded([], [], {}, set())
    for path in dict.fromkeys(paths):
        try:
            for file in _files(path):
                _load_one(file, variables, loaded)
        except OSError as error:
            loaded.mistakes.append(_of_system(path, error))
        except Invalid as error:
            loaded.mistakes.extend(error.mistakes)
    return loaded


def _load_one(path: Path, variables: Mapping[str, str], loaded: Loaded) -> None:
    from borgish.spec.file.documents import Source

    name = name_of(path)
    if any(source.name == name for source in loaded.sources):
        return
    try:
        text = read_text(path)
        if path.suffix == JSONNET:
            from borgish.cli.jsonnet import evaluate

            said = evaluate(path, name, variables)
            loaded.programs[name] = text
            loaded.taken.update(said.took)
            loaded.sources.append(Source(name, said.text))
        else:
            loaded.sources.append(Source(name, text))
    except OSError as error:
        loaded.mistakes.append(_of_system(path, error))
    except Invalid as error:
        loaded.mistakes.extend(error.mistakes)


def _files(path: Path) -> list[Path]:
    if path == STDIN or not path.is_dir():
        return [path]
    found = sorted(
        file
        for file in path.iterdir()
        if file.suffix in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )
    if not found:
        what = "the folder has no file that ends in " + ", ".join(SUFFIXES)
        raise _refused(Mistake(what, hint="folders inside it are not looked into", source=name_of(path)))
    return found


def name_of(path: Path) -> str:
    """Return how mistakes call a file."""
    return "stdin" if path == STDIN else str(path)


def read_text(path: Path) -> str:
    """Return the text of a file. Raises Invalid, and OSError."""
    name = name_of(path)
    if path == STDIN:
        body = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    else:
        with path.open("rb") as file:
            body = file.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        message = "the file is larger than 1 MiB, the most that one may have"
        raise _refused(Mistake(message, hint="divide it into several files", source=name))
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        mistake = Mistake("this is not UTF-8 text", line, 1, "save the file as UTF-8", source=name)
        raise _refused(mistake) from None


def values_of(given: Sequence[str] | None) -> dict[str, str]:
    """Return the variables that ``--var`` gives, by name. Ends with usage where they are written wrongly."""
    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"write NAME=VALUE, not {each!r}", param_hint="--var")
        if name in found:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--var")
        found[name] = value
    return found


def _of_system(path: Path, error: OSError) -> Mistake:
    return Mistake((error.strerror or str(error)).lower(), source=name_of(path))


def _refused(mistake: Mistake) -> Invalid:
    from borgish.spec.file.mistakes import all_of

    return all_of([mistake])
