"""What is asked of the API about commands beside tasks, and copies of files."""

from typing import Annotated

import msgspec

from borgish.vocabulary import NAME_PATTERN
from borgish.wire.api import documented

NameOrNone = Annotated[str, documented(pattern=f"^({NAME_PATTERN})?$")]
Word = Annotated[str, documented(minLength=1, pattern=r"^[^\x00]+$")]
CommandSeconds = Annotated[float, documented(exclusiveMinimum=0, maximum=86400)]
SilenceSeconds = Annotated[float, documented(minimum=0, maximum=86400)]
TerminalSide = Annotated[int, documented(minimum=1, maximum=10000)]
TerminalKind = Annotated[str, documented(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$")]


class TerminalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A terminal for a command: its size in characters, and its kind as ``TERM`` has it."""

    rows: TerminalSide = 24
    columns: TerminalSide = 80
    kind: TerminalKind = "xterm"


class ExecCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``silence_seconds``: it ends when nothing came to exec/stdin for so long; 0: never. It and ``terminal``
    are for a command with a session."""

    run: Annotated[tuple[Word, ...], documented(minItems=1, maxItems=1000)]
    timeout_seconds: CommandSeconds = 60.0
    program: NameOrNone = ""  # beside which of the task's programs; "": the main one
    terminal: TerminalCall | None = None
    silence_seconds: SilenceSeconds = 0.0


class ForwardCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``port``: the name of one of the task's ports. The connection ends when nothing came to forward/stdin
    for ``silence_seconds``; 0: never."""

    port: Annotated[str, documented(minLength=1, maxLength=63)]
    timeout_seconds: CommandSeconds = 86400.0
    silence_seconds: SilenceSeconds = 0.0


class CopyCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``path``: a file or folder as the task sees it; relative: from the folder it works in. ``to_task``:
    it is read from exec/stdin, as a tar archive; else the answer is one."""

    path: Annotated[str, documented(minLength=1, maxLength=4096, pattern=r"^[^\x00]+$")]
    to_task: bool = False
    timeout_seconds: CommandSeconds = 3600.0
    program: NameOrNone = ""
    silence_seconds: SilenceSeconds = 0.0
