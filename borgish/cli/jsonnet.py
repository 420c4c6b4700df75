"""Jsonnet (``*.jsonnet``): a language whose programs say what a YAML file would (Borg's BCL).

A program is not trusted: it is evaluated in a process of its own with limits on cpu, memory and output. It
reads files beneath its own folder and the library that comes with borgish, and nothing else.
"""

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from borgish.errors import Invalid, Mistake
from borgish.spec.file.mistakes import all_of, cut_line, lines_of
from borgish.vocabulary import BODY_BYTES_MAX, DOCUMENTS_BYTES_MAX

SUFFIX = ".jsonnet"
LIBRARY = "borgish.libsonnet"
CPU_SECONDS_MAX = 5
MEMORY_BYTES_MAX = 512 * 1024**2
ANSWER_SECONDS_MAX = 30.0  # for a file system that does not answer; a program is ended by its cpu time
_LIBRARY_FILE = Path(__file__).with_name(LIBRARY)
_FRAME = re.compile(
    r"^\s+(?P<file>[^<\s].*?):(?P<line>\d+):(?P<column>\d+)(?:-[\d:]+)?(?:$|:\s)", re.MULTILINE
)
_EXTERNAL = re.compile(r"std\s*\.\s*extVar\s*\(\s*(['\"])([^'\"]{1,64})\1\s*\)")
_UNDEFINED = re.compile(r"external variable is not defined: (.*)")
_CALLS_ITSELF = "look for a function that calls itself without end"
_NO_MEMORY = (b"memory", b"MemoryError", b"is_null")  # as Rust and Python say it
_OF_CALLBACK = re.compile(r"^import_callback error: \w+: ")


class _Question(msgspec.Struct, frozen=True):
    path: str
    variables: dict[str, str]
    cpu_seconds_max: int


class Evaluated(msgspec.Struct, frozen=True):
    """What a program says, as JSON; or in ``error`` what is wrong with it, in words of the library.

    ``took`` are the external variables that it, or what it imports, asks for.
    """

    text: str = ""
    took: tuple[str, ...] = ()
    error: str = ""


def evaluate(path: Path, name: str, variables: Mapping[str, str]) -> Evaluated:
    """Evaluate a file; ``name`` is how mistakes call it. Raises Invalid."""
    question = _Question(os.path.abspath(path), dict(variables), CPU_SECONDS_MAX)
    child = subprocess.Popen(
        # -P: modules that lie in the folder where borgctl is called are not meant
        [sys.executable, "-P", "-m", "borgish.cli.jsonnet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        answer, said = child.communicate(msgspec.json.encode(question), ANSWER_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        hint = "look for a file that cannot be read"
        raise _refused(name, f"it was not read in {ANSWER_SECONDS_MAX:g} s", hint) from None
    if child.returncode == 0 and answer:
        found = msgspec.json.decode(answer, type=Evaluated)
        if found.error:
            raise all_of([_mistake(found.error, path, name)])
        return found
    ended = -child.returncode
    if ended in (signal.SIGXCPU, signal.SIGKILL):
        hint = "it may never end: look for a function or an array that grows without end"
        raise _refused(name, f"the Jsonnet program takes more than {CPU_SECONDS_MAX} s of cpu", hint)
    if ended == signal.SIGSEGV:
        raise _refused(name, "stack overflow", _CALLS_ITSELF)
    if ended == signal.SIGABRT or any(word in said for word in _NO_MEMORY):
        hint = "look for an array or a text that grows without end"
        raise _refused(name, f"the Jsonnet program needs more than {MEMORY_BYTES_MAX // 1024**2} MiB", hint)
    what = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    raise _refused(name, f"the Jsonnet program cannot be evaluated: {what or f'exit {child.returncode}'}", "")


def in_program(mistake: Mistake, program: str) -> Mistake:
    """Return a mistake in what a program said, at its place there instead of in the JSON that nobody wrote.

    The line of the program is known where a field of this name is written once in it.
    """
    at = mistake.path
    message = mistake.message if not at or mistake.message.startswith(at) else f"{at}: {mistake.message}"
    key = re.sub(r"\[\d+\]$", "", at).rpartition(".")[2]
    written = rf"(?<![\w.]){re.escape(key)}['\"]?\s*\+?:{{1,3}}(?!:)"
    line, column, excerpt = _only_place(program, written) if key and "[" not in key else (0, 0, "")
    return Mistake(message, line, column, mistake.hint, excerpt, at, mistake.source)


def _mistake(error: str, path: Path, name: str) -> Mistake:
    """Return what the library said as a mistake, at the innermost place that it names."""
    message, _, rest = error.partition("\n")
    message = _OF_CALLBACK.sub("", message.removeprefix("runtime error: ")).strip()
    hint = ""
    if match := _UNDEFINED.fullmatch(message):
        message = f"the variable '{match[1]}' has no value"
        hint = f"give it one: --var {match[1]}=VALUE"
    elif message.startswith("stack overflow"):
        message, hint = "stack overflow", _CALLS_ITSELF
    elif _OF_CALLBACK.match(error) and (told := message.partition(";"))[1]:
        message, hint = told[0], told[2].strip()
    folder = path.resolve().parent
    frame = _FRAME.search(rest)
    file = path
    line, column, excerpt = 0, 0, ""
    if frame:
        line, column = int(frame["line"]), int(frame["column"])
        file = path.parent / os.path.relpath(frame["file"], folder)
        excerpt = _line_of(file, line, column)
    elif match := re.search(r"import '([^']*)'", message):
        line, column, excerpt = _only_place(
            _text(path), rf"import(?:str|bin)?\s*['\"]{re.escape(match[1])}['\"]"
        )
    source = name if file == path or not frame else str(file)
    return Mistake(message, line, column, hint, excerpt, source=source)


def _only_place(text: str, pattern: str) -> tuple[int, int, str]:
    """Return line, column and line of what is there once in a text, else zeros."""
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        return 0, 0, ""
    lines = lines_of(text[: found[0].start()])
    line, column = len(lines), len(lines[-1]) + 1
    return line, column, cut_line(lines_of(text)[line - 1], column)


def _line_of(path: Path, line: int, column: int) -> str:
    lines = lines_of(_text(path))
    return cut_line(lines[line - 1], column) if 1 <= line <= len(lines) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _refused(name: str, message: str, hint: str) -> Invalid:
    return all_of([Mistake(message, hint=hint, source=name)])


# In the process of its own


def main() -> None:
    """Answer the question on the standard input, on the standard output."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    import rjsonnet  # before the limits: what it needs itself is not the program's

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (question.cpu_seconds_max, question.cpu_seconds_max + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    path = Path(question.path)
    took: set[str] = set()
    os.chdir(path.resolve().parent)  # where the library takes a program's own imports from
    try:
        program = _read(path)
        took.update(match[2] for match in _EXTERNAL.finditer(program))
        text = rjsonnet.evaluate_snippet(
            str(path.resolve()),
            program,
            ext_vars=question.variables,
            import_callback=_importer(path.resolve().parent, took),
        )
    except (RuntimeError, ValueError, OSError) as error:
        answer = Evaluated(error=str(error) or type(error).__name__)
    else:
        if len(text.encode()) > DOCUMENTS_BYTES_MAX:
            answer = Evaluated(error=f"it says more than {DOCUMENTS_BYTES_MAX // 1024**2} MiB")
        else:
            answer = Evaluated(text, tuple(sorted(took)))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _importer(root: Path, took: set[str]) -> Callable[[str, str], tuple[str, str]]:
    """Return what finds imports: beneath a folder, wherever links lead, or the library of borgish."""

    def find(folder: str, asked: str) -> tuple[str, str]:
        if asked == LIBRARY:
            return str(_LIBRARY_FILE), _read(_LIBRARY_FILE)
        path = (Path(folder) / asked).resolve()
        if Path(asked).is_absolute() or not path.is_relative_to(root):
            raise ValueError(
                f"import '{asked}' is outside the folder of the file; only files beneath it can be imported"
            )
        if not path.is_file():
            raise ValueError(f"import '{asked}': there is no such file")
        text = _read(path)
        took.update(match[2] for match in _EXTERNAL.finditer(text))
        return str(path), text

    return find


def _read(path: Path) -> str:
    with path.open("rb") as file:
        body = file.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"{path.name} is larger than 1 MiB")
    return body.decode()


if __name__ == "__main__":
    main()
