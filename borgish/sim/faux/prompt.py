"""A line at a time: from a terminal, with history and completion, or from a pipe."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from borgish.errors import BorgishError
from borgish.sim.faux.changes import CHANGES, InvalidJobFile
from borgish.sim.faux.output import Answer
from borgish.sim.faux.past import EVENTS
from borgish.sim.faux.session import Session
from borgish.sim.faux.verbs import VERBS, HelpRequested, read

LEAVE = ("quit", "exit", "q")
HISTORY_FILE = "~/.fauxmaster_history"
HISTORY_LINES = 1000
_OF_MACHINES = ("drain", "undrain", "cordon", "uncordon", "taint", "untaint")
_OF_JOBS = ("kill", "restart", "scale", "why")


def answered(session: Session, line: str) -> Answer | None:
    """Return the answer to a line; None for an empty one. Raises BorgishError."""
    try:
        asked = read(line)
        if asked is None:
            return None
        verb, words = asked
        return verb.run(session, words)
    except HelpRequested as help_:
        return Answer(tuple(str(help_).rstrip("\n").split("\n")), {"help": str(help_)})


def put(answer: Answer, *, json: bool) -> None:
    """Print an answer, as lines or as one JSON object a line."""
    text = msgspec.json.encode(answer.data).decode() + "\n" if json else answer.text()
    sys.stdout.write(text)
    sys.stdout.flush()


def print_error(error: BorgishError) -> None:
    """Print an error and the way out."""
    if isinstance(error, InvalidJobFile):
        sys.stderr.write(f"{error.message}\n")
        return
    sys.stderr.write(f"error: {error.message}\n")
    if error.hint:
        sys.stderr.write(f"hint: {error.hint}\n")
    sys.stderr.flush()


def run_script(session: Session, lines: Iterable[str], *, json: bool) -> int:
    """Answer lines, and end with the first that cannot be answered; return the exit code."""
    code = 0
    for line in lines:
        if line.strip() in LEAVE:
            break
        answer = answered(session, line)
        if answer is not None:
            put(answer, json=json)
            code = answer.code
    return code


def run_prompt(session: Session, *, json: bool) -> int:
    """Answer what is typed until the end of input. What is wrong is printed, and the prompt comes again."""
    for line in _typed(session):
        try:
            answer = answered(session, line)
        except BorgishError as error:
            print_error(error)
        else:
            if answer is not None:
                put(answer, json=json)
    return 0


def _typed(session: Session) -> Iterator[str]:
    _remember(session)
    while True:
        try:
            line = input(prompt_of(session))
        except EOFError:
            sys.stdout.write("\n")
            return
        except KeyboardInterrupt:  # this line is dropped, not the session
            sys.stdout.write("\n")
            continue
        if line.strip() in LEAVE:
            return
        yield line


def prompt_of(session: Session) -> str:
    """Return the prompt: the cell and the position, and a mark when it is on a copy."""
    mark = "+copy" if session.changed_copy is not None else ""
    return f"{session.opened.cell}@{session.cell.position}{mark}> "


def _remember(session: Session) -> None:
    """Have lines be edited, completed, and kept for the next time."""
    try:
        import atexit
        import readline
    except ImportError:  # a Python without it reads lines all the same
        return
    file = os.path.expanduser(HISTORY_FILE)
    with suppress(OSError):  # none yet, or not ours to read
        readline.read_history_file(file)
    readline.set_history_length(HISTORY_LINES)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    readline.set_completer(
        lambda text, state: _nth(completions(session, readline.get_line_buffer(), text), state)
    )
    atexit.register(_keep, file)


def _keep(file: str) -> None:
    import readline

    with suppress(OSError):  # a home that cannot be written to keeps no history
        readline.write_history_file(file)


def _nth(words: list[str], state: int) -> str | None:
    return words[state] if state < len(words) else None


def completions(session: Session, line: str, text: str) -> list[str]:
    """Return the words that may stand where ``text`` begins, at the end of a line."""
    before = line[: len(line) - len(text)].split() if text else line.split()
    return sorted(word for word in _candidates(session, before, text) if word.startswith(text))


def _candidates(session: Session, before: list[str], text: str) -> Iterable[str]:
    cell = session.here
    if not before or before == ["help"]:
        return (*VERBS, "help", "quit") if not before else tuple(VERBS)
    verb = before[-1] if before[0] == "evicts" and len(before) > 1 else before[0]
    if verb in ("submit", "fits"):
        return _files(text)
    if verb == "evicts":
        return (*CHANGES, *_files(text))
    if verb == "next":
        return EVENTS if len(before) == 1 else (*cell.jobs, *cell.machines)
    if verb == "lose":
        pairs = {f"{k}={v}" for m in cell.machines.values() for k, v in m.attributes.items()}
        return (*pairs, *(f"machine={name}" for name in cell.machines))
    names = {"show": (*cell.jobs, *cell.machines)}
    names |= dict.fromkeys(_OF_MACHINES, tuple(cell.machines)) | dict.fromkeys(_OF_JOBS, tuple(cell.jobs))
    return names.get(verb, ())


def _files(text: str) -> list[str]:
    folder = Path(text).parent if not text.endswith("/") else Path(text)
    try:
        there = sorted(folder.iterdir())
    except OSError:
        return []
    shown = [str(path) + "/" * path.is_dir() for path in there]
    return [f"./{name}" for name in shown] if text.startswith("./") else shown
