"""The one place where errors become words on stderr and an exit code.

0 done, 1 failed, 2 usage, 3 accepted but not all placed in the time given, 4 not reachable or not allowed; of
a job that was to finish, 5 killed and 6 gone. Of ``doctor`` 3 means warnings, and 1 what fails. 130: it ended
by Ctrl-C, and what was asked for goes on.
"""

import os
import sys

from borgish.cli.screen import print_err, styled
from borgish.durable import NO_ROOM
from borgish.errors import BorgishError, Invalid
from borgish.text import safe_lines

DONE, FAILED, USAGE, NOT_PLACED, NOT_ALLOWED, KILLED, GONE = range(7)


def report(error: BaseException) -> int:
    """Say what went wrong and what to do next; return the exit code."""
    if isinstance(error, BorgishError):
        return _report_known(error)
    if isinstance(error, OSError):
        return _report_system(error)
    print_error(f"borgctl itself failed: {type(error).__name__}: {error}")
    print_hint("Set BORGISH_DEBUG=1 to see where; include that in a bug report")
    return FAILED


def _report_known(error: BorgishError) -> int:
    if isinstance(error, Invalid) and any(mistake.line or mistake.source for mistake in error.mistakes):
        from borgish.spec.file.mistakes import show_mistakes

        print_err(show_mistakes(error.mistakes, error.message).rstrip("\n"))
        return USAGE
    print_error(error.message)
    if isinstance(error, Invalid) and len(error.mistakes) > 1:
        print_err("\n".join(f"  {mistake.path or 'it'}: {mistake.message}" for mistake in error.mistakes))
    if error.hint:
        print_hint(error.hint)
    return error.exit_code if error.exit_code in (FAILED, USAGE, NOT_ALLOWED) else FAILED


def _report_system(error: OSError) -> int:
    if isinstance(error, FileNotFoundError) and not error.filename and not os.stat(os.curdir).st_nlink:
        print_error("the current folder was removed")
        print_hint("Change to one that is there")
        return FAILED
    where = f"{error.filename}: " if error.filename else ""
    print_error(f"{where}{(error.strerror or str(error)).lower()}")
    if error.errno in NO_ROOM:
        file = str(error.filename or "")
        print_hint(f"Make room on the disk{file and f' of {os.path.dirname(os.path.abspath(file))}'}")
    return FAILED


def print_error(text: str) -> None:
    """Write one error to stderr."""
    _labelled("error:", "red", text)


def print_hint(text: str) -> None:
    """Write the way out to stderr."""
    _labelled("hint:", "cyan", text)


def print_note(text: str) -> None:
    """Write what is doubtful, and yet done, to stderr."""
    _labelled("note:", "yellow", text)


def wants_traceback() -> bool:
    """Whether an unexpected error should show where it came from."""
    return os.environ.get("BORGISH_DEBUG", "") not in ("", "0")


def _labelled(label: str, style: str, text: str) -> None:
    sys.stderr.write(f"{styled(label, style, sys.stderr)} {safe_lines(text)}\n")
