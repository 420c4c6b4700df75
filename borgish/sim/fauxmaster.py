"""``fauxmaster``: asks the real master about a copy of a cell. Nothing it does reaches the cell.

The name and the idea are Borg's (EuroSys 2015, section 3.1): the production code, a checkpoint, and
machines that are only simulated. What can be asked is in ``faux/verbs.py``.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import borgish
from borgish.api.moments import NOW
from borgish.errors import BorgishError, Invalid
from borgish.sim.faux.verbs import VERBS
from borgish.spec.file.mistakes import show_mistakes

if TYPE_CHECKING:
    from borgish.sim.faux.session import Session

# The scheduler, the store and what they need take a second of cpu to import: help comes without them.

OPENED = "FILE|URL"
MOMENT = "TIME|POSITION|CHECKPOINT"
_OPEN = "open a prompt, or take commands from -c or a pipe, up to the first that cannot be answered"
_AT = "as it was then; the end of what is opened if not given"


def main() -> None:
    """Answer one question about a copy of a cell, or many."""
    arguments = _arguments(sys.argv[1:])
    try:
        code = _run(arguments)
    except Invalid as error:
        _print_mistakes(error, arguments)
        code = error.exit_code
    except BorgishError as error:
        _print_error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    sys.exit(code) if code else None


def _run(arguments: argparse.Namespace) -> int:
    if arguments.question == "pack":
        from borgish.sim.pack.command import run_pack

        run_pack(arguments)
        return 0
    if arguments.question == "lab":
        from borgish.sim.lab.command import run_lab

        run_lab(arguments)
        return 0
    from borgish.sim.faux.opened import opened
    from borgish.sim.faux.prompt import put
    from borgish.sim.faux.session import Session

    with opened(arguments.opened) as there, closing(Session(there, arguments.at)) as session:
        for warning in session.warnings:
            sys.stderr.write(f"warning: {warning}\n")
        if arguments.question == "open":
            return _run_prompt(session, arguments)
        answer = VERBS[arguments.question].run(session, arguments)
        put(answer, json=arguments.json)
        return answer.code


def _run_prompt(session: "Session", arguments: argparse.Namespace) -> int:
    from borgish.sim.faux.prompt import run_prompt, run_script

    if arguments.command:
        return run_script(session, arguments.command, json=arguments.json)
    if sys.stdin.isatty():
        return run_prompt(session, json=arguments.json)
    return run_script(session, _piped(), json=arguments.json)


def _piped() -> Iterable[str]:
    return (line.rstrip("\n") for line in sys.stdin)


def _print_mistakes(error: Invalid, arguments: argparse.Namespace) -> None:
    """Print what is wrong in a file of ``pack``, with its lines; of all else the error."""
    if error.mistakes and arguments.question == "pack":
        sys.stderr.write(show_mistakes(error.mistakes, "") + "\n")
    else:
        _print_error(error)


def _print_error(error: BorgishError) -> None:
    from borgish.sim.faux.prompt import print_error

    print_error(error)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return what was asked. Of all commands only the one that was asked for learns its own words."""
    asked = next((word for word in words if not word.startswith("-")), "")
    return command_line(lambda name: name == asked).parse_args(words)


def command_line(knows_words: Callable[[str], bool]) -> argparse.ArgumentParser:
    """Return what reads the command line of ``fauxmaster``, with the words of these of its commands."""
    parser = argparse.ArgumentParser(
        prog="fauxmaster",
        description="Ask the real borgmaster about a copy of a cell.",
        epilog=f"{OPENED} is what `borgctl checkpoint export` wrote, a cell's SQLite file, also while it is "
        "in use, or a database's URL. It is only read. Exit codes: 0 done, 1 failed, 2 usage, 3 somebody "
        "would be evicted or left waiting.",
    )
    parser.add_argument("--version", action="version", version=f"fauxmaster {borgish.__version__}")
    questions = parser.add_subparsers(dest="question", required=True, metavar="COMMAND")
    _add_open(questions)
    for verb in VERBS.values():
        if not verb.at_prompt_only:
            question = questions.add_parser(verb.name, help=verb.help)
            _add_common(question)
            if knows_words(verb.name):
                verb.add_arguments(question)
    _add_pack(questions, full=knows_words("pack"))
    _add_lab(questions, full=knows_words("lab"))
    return parser


def _add_pack(questions: "argparse._SubParsersAction[argparse.ArgumentParser]", *, full: bool) -> None:
    pack = questions.add_parser(
        "pack", help="how well the real scheduler packs tasks on machines that are in CSV files"
    )
    if full:
        from borgish.sim.pack.command import add_words

        add_words(pack)


def _add_lab(questions: "argparse._SubParsersAction[argparse.ArgumentParser]", *, full: bool) -> None:
    lab = questions.add_parser("lab", help="experiments: what wakes a loop, one process or many, schedulers")
    if full:
        from borgish.sim.lab.command import add_words

        add_words(lab)


def _add_open(questions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    question = questions.add_parser("open", help=_OPEN)
    _add_common(question)
    question.add_argument(
        "-c", dest="command", action="append", metavar="COMMAND", help="run this instead; may be repeated"
    )


def _add_common(question: argparse.ArgumentParser) -> None:
    question.add_argument("opened", metavar=OPENED)
    question.add_argument("--at", default=NOW, metavar=MOMENT, help=_AT)
    question.add_argument("--json", action="store_true", help="one JSON object for each answer")


if __name__ == "__main__":
    main()
