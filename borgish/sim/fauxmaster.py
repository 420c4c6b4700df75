"""``fauxmaster``: asks the real master about a copy of a cell. Nothing it does reaches the cell.

The name and the idea are Borg's (EuroSys 2015, section 3.1): the production code, a checkpoint, and
machines that are only simulated. What can be asked is in ``faux/verbs.py``.
"""

import argparse
import sys
from collections.abc import Iterable

import borgish
from borgish.api.moments import NOW
from borgish.errors import BorgishError, Invalid
from borgish.sim.faux.opened import opened
from borgish.sim.faux.prompt import put, run_prompt, run_script, tell
from borgish.sim.faux.session import Session
from borgish.sim.faux.verbs import AT_THE_PROMPT_ONLY, VERBS
from borgish.sim.pack_command import add_pack, run_pack
from borgish.spec.mistakes import show_mistakes

OPENED = "FILE|URL"
MOMENT = "TIME|POSITION|CHECKPOINT"
_OPEN = "open a prompt, or take commands from -c or a pipe, up to the first that cannot be answered"
_AT = "as it was then; the end of what is opened if not given"


def main() -> None:
    """Answer one question about a copy of a cell, or many."""
    arguments = _arguments()
    try:
        code = _run(arguments)
    except Invalid as error:
        _tell_mistakes(error, arguments)
        code = error.exit_code
    except BorgishError as error:
        tell(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    sys.exit(code) if code else None


def _run(arguments: argparse.Namespace) -> int:
    if arguments.question == "pack":
        run_pack(arguments)
        return 0
    with opened(arguments.opened) as there:
        session = Session(there, arguments.at)
        for warning in session.warnings:
            sys.stderr.write(f"warning: {warning}\n")
        if arguments.question == "open":
            return _converse(session, arguments)
        answer = VERBS[arguments.question].run(session, arguments)
        put(answer, json=arguments.json)
        return answer.code


def _converse(session: Session, arguments: argparse.Namespace) -> int:
    if arguments.command:
        return run_script(session, arguments.command, json=arguments.json)
    if sys.stdin.isatty():
        return run_prompt(session, json=arguments.json)
    return run_script(session, _piped(), json=arguments.json)


def _piped() -> Iterable[str]:
    return (line.rstrip("\n") for line in sys.stdin)


def _tell_mistakes(error: Invalid, arguments: argparse.Namespace) -> None:
    """Tell what is wrong in a file of ``pack``; all else tells its own."""
    if error.mistakes and arguments.question == "pack":
        sys.stderr.write(show_mistakes(error.mistakes, "") + "\n")
    else:
        tell(error)


def _arguments() -> argparse.Namespace:
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
    for name, verb in VERBS.items():
        if name not in AT_THE_PROMPT_ONLY:
            question = questions.add_parser(name, help=verb.help)
            _add_common(question)
            verb.words(question)
    add_pack(questions)
    return parser.parse_args()


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
