"""What a runtime must do (Kubernetes' container runtime interface, CRI; Nomad's task driver).
``tests/contract`` holds every implementation to it, the fake too.

A *run* is one program started for an attempt; a local restart is a new run of the same attempt,
``run`` counting from 1. Runs outlive the borglet: everything here can be asked again by a new one.

The programs beside an attempt's main one have keys, runs and output of their own (``AttemptSpec.beside``).
They can be started while the main program runs, in its network and within its limits, and end by
themselves or when asked to, as it does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from borgish.errors import BorgishError
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Exit, LogWanted, Terminal, Usage

Write = Callable[[bytes], Awaitable[None]]

END_TYPED = b"\x04"
"""Control-D: how the end of the input is said to a terminal."""

HELD = "held"
"""What is said of a part of the confinement that is as it should be; anything else is the reason why not."""


class StartFailed(BorgishError):
    """A program could not be started. ``permanent`` when trying again here will not help: no such
    command, no such image. ``port`` when a port it was given is held by a foreign program."""

    def __init__(self, message: str, hint: str = "", *, permanent: bool = False, port: int = 0) -> None:
        super().__init__(message, hint)
        self.permanent = permanent
        self.port = port


class RunState(msgspec.Struct, frozen=True):
    """One run as its runtime knows it. ``exit`` is None while it runs."""

    key: str  # of the attempt: user/job/3@1207; of a program beside its main one user/job/3@1207:proxy
    run: int
    pid: int
    started_at: float  # seconds since 1970
    exit: Exit | None = None
    note: str = ""  # something people should know: 3 MiB of output dropped, disk full


class Input(Protocol):
    """What a command reads; ``stdin.Stdin`` is one."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield it as it comes, to its end. Asking for the first piece signals that the command has begun."""
        ...

    def sizes(self) -> AsyncIterator[tuple[int, int]]:
        """Yield the rows and columns of its terminal each time that these change; never ends."""
        ...

    def close(self) -> None:
        """Take no more: the command has ended, or closed its input."""
        ...


class TaskRuntime(Protocol):
    """Starts, watches and ends programs. ``changed`` (given at construction) is called with the
    attempt's key, from the event loop, whenever a run ended or its note changed."""

    kind: Runtime

    async def open(self, changed: Callable[[str], None]) -> list[RunState]:
        """Begin, and return the latest run of each attempt found here, running or ended: adoption."""
        ...

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        """Start a run; idempotent in (key, run). Raises StartFailed."""
        ...

    def renew(self, key: str, until: float) -> None:
        """Let the run of an attempt with a lease, or its next one, go on until then, in seconds on
        CLOCK_BOOTTIME. When that is over the run is asked to end, and killed after its grace, whether or not
        there is a borglet; the exit says so. Raises OSError. A runtime without leases does nothing."""
        ...

    def look(self, key: str) -> RunState | None:
        """Return the latest run of an attempt, without waiting; None when nothing is known of it."""
        ...

    async def signal(self, key: str, signal: str) -> None:
        """Send a signal (TERM, INT ...; without SIG) to the run, all its processes. Gone is no error."""
        ...

    async def kill(self, key: str) -> None:
        """End all processes of the run now. Gone is no error."""
        ...

    async def forget(self, key: str, keep_seconds: float = 0.0) -> None:
        """Let go of an ended attempt: its folder, container and logs, by the runtime's own rule of age.
        ``keep_seconds``: that rule lets what is the last of its task stay for so long at least."""
        ...

    async def sample(self) -> list[Usage]:
        """Return what each running program uses, under its attempt: of one with several there are several."""
        ...

    def logs(self, key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        """Yield what is wanted of the output of the latest run (or the one before): of one that wrote nothing
        an empty piece, and nothing where there is none."""
        ...

    def removed(self, key: str) -> str:
        """Return why the output of an attempt that was let go is not there any more, "" when nobody knows."""
        ...

    async def exec(
        self,
        key: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        stdin: Input | None = None,
        write: Write | None = None,
        terminal: Terminal | None = None,
    ) -> tuple[bytes, int, bool]:
        """Run a command beside the task; return output (at most 1 MiB), exit code, whether it was cut.

        With ``stdin`` it reads that, else nothing. With ``write`` all output goes there as it comes, and
        none is returned. With a ``terminal`` it leads a session that has one, and the end of ``stdin`` is
        typed as Control-D. Whatever it started ends with it; of a command in a container, where it was given
        up, or has ``write``.
        """
        ...

    def images(self) -> dict[str, str]:
        """Return the images that are here, by ``name:tag``, each with its architecture as amd64 or arm64."""
        ...

    def trouble(self) -> str:
        """Return what is wrong with the runtime as a whole, "" when nothing is."""
        ...

    def measures(self) -> dict[str, str]:
        """Return of each measure that keeps its runs in, by name, ``held``, how it is, or why it is not."""
        ...

    async def close(self) -> None:
        """Let go; runs go on."""
        ...
