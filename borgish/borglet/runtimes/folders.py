"""What is on disk of a run, and what it says: ``runs/<attempt>/`` of the runtime's folder.

    run.json       the latest run: its number, processes, boot, control groups, environment
    starting.json  the same while it is being started; stays when its shim was killed right then
    exit.json      how it ended; exit.new is the room kept for that
    over_memory    there when it was killed for its memory by the borglet, not the kernel
    note           what people should know: output dropped
    output         the pipe between program and shim
    log log.1 log.2    output, newest first; previous.log* is that of the run before
    work/          where the program runs
    forgotten      there once the attempt was let go

The shim writes nearly all of it, and holds a lock on the folder itself while it lives.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from borgish.borglet.runtimes.base import RunState
from borgish.borglet.runtimes.processes import is_alive
from borgish.borglet.runtimes.shim.basics import replace_json
from borgish.borglet.runtimes.shim.output import LOG_NAMES
from borgish.wire.link import Exit

T = TypeVar("T")

UNKNOWN = "exit unknown: what watched it was killed"
REBOOTED = "exit unknown: the machine was booted since"


class Record(msgspec.Struct, frozen=True):
    """A run as its shim wrote it down."""

    run: int
    boot: str
    pid: int
    ticks: int
    shim: int
    shim_ticks: int
    at: float
    groups: list[Any]  # see shim.groups
    oom: str  # the file that counts what the kernel ended for memory; "" where nothing does
    within: list[Any] = []  # groups around these, of all programs of the task; empty where it is the only one


class EndRecord(Exit, frozen=True, kw_only=True):
    """How a run ended, with its number: a run without an end must not be given that of another."""

    run: int


class Program(msgspec.Struct, frozen=True):
    """What commands beside a run need to know."""

    env: dict[str, str]
    workdir: str
    ram_bytes: int


class _WithProgram(msgspec.Struct, frozen=True):
    program: Program


def name_of(key: str) -> str:
    """Return the file name of an attempt: ``ann+web+3@1207``. Reversible for any key."""
    return quote(key, safe="@").replace("%2F", "+").replace(".", "%2E")


def key_of(name: str) -> str:
    """Return the attempt whose file name this is."""
    return unquote(name.replace("+", "%2F"))


class RunFolder:
    """One attempt's folder. Reading never fails: what is missing or torn is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return key_of(self.path.name)

    def record(self) -> Record | None:
        """Return the latest run that began here."""
        return self._read("starting.json", Record) or self._read("run.json", Record)

    def program(self) -> Program | None:
        """Return what commands beside the latest run need to know."""
        found = self._read("starting.json", _WithProgram) or self._read("run.json", _WithProgram)
        return found.program if found else None

    def end_of(self, record: Record) -> Exit | None:
        """Return how that run ended, if it is written down."""
        found = self._read("exit.json", EndRecord)
        if found is None or found.run != record.run:
            return None
        return Exit(found.code, found.signal, found.oom, found.reason, found.at)

    def write_end(self, record: Record, reason: str, at: float) -> None:
        """Write down an end that no shim saw."""
        with contextlib.suppress(OSError):  # then it is found out again
            replace_json(str(self.path / "exit.json"), {"run": record.run, "reason": reason, "at": at})

    def note(self) -> str:
        try:
            return (self.path / "note").read_text().strip()
        except OSError:
            return ""

    def state(self, record: Record) -> RunState:
        """Return what there is to say of a run."""
        return RunState(self.key, record.run, record.pid, record.at, self.end_of(record), self.note())

    def log_files(self, *, previous: bool) -> list[Path]:
        """Return where the output of a run is, oldest first; not all need be there."""
        return [self.path / (("previous." if previous else "") + name) for name in reversed(LOG_NAMES)]

    def forget(self) -> None:
        """Give the space back, but for the output, and mark the attempt as let go."""
        with contextlib.suppress(OSError):
            (self.path / "forgotten").touch(mode=0o600)
            shutil.rmtree(self.path / "work", ignore_errors=True)

    def forgotten_at(self) -> float:
        """Return when the attempt was let go, in seconds since 1970; 0 when it was not."""
        try:
            return (self.path / "forgotten").stat().st_mtime
        except OSError:
            return 0.0

    def begin_anew(self) -> None:
        """Take back that the attempt was let go: its runs never were, but for the output. Raises OSError."""
        # The mark goes last: killed in between, we begin here again.
        for name in ("starting.json", "run.json", "exit.json", "forgotten"):
            (self.path / name).unlink(missing_ok=True)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError):
            return None


def program_lives(record: Record, boot: str) -> bool:
    """Tell whether a run's program is there; ``boot`` is that of now."""
    return record.boot == boot and is_alive(record.pid, record.ticks)


def shim_lives(record: Record, boot: str) -> bool:
    """Tell whether a run's shim is there."""
    return record.boot == boot and is_alive(record.shim, record.shim_ticks)
