"""Programs in processes of their own that load nothing: each is forked from a process that has loaded all.

``Forked`` runs a program's ``main`` as ``python -m`` would, with arguments, streams and environment of its
own; ``call`` also waits for its end. The daemons of a local cell that such a program starts are forked as
well, and outlive it as always. Loading takes most of a short command's time, and the tests call a thousand.
Tests of what a process is (terminals, what is imported, what is in /proc) start programs by exec.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NamedTuple, cast

import borgish.cli

ROOT = Path(__file__).resolve().parent.parent
BORGCTL, FAUXMASTER = "borgish.cli.borgctl", "borgish.sim.fauxmaster"
_DAEMONS = ("borgish.borglet.main", "borgish.master.main")
_LOADED_LATER = (
    *("alembic.config", "apscheduler.executors.asyncio", "apscheduler.triggers.interval"),
    *(
        "borgish.api.standby",
        "borgish.master.process",
        "borgish.store.open",
        "psycopg",
        "uvicorn.lifespan.off",
    ),
    *(
        "borgish.borglet.runtimes.docker.runtime",
        "borgish.borglet.runtimes.process.runtime",
        "encodings.idna",
        "uvloop",
    ),
)
_DESCRIPTORS_MAX = 4096


class Ended(NamedTuple):
    """How a program ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


def plain_environment() -> dict[str, str]:
    """Return the environment of a user who has set nothing of borgish's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BORGISH_")}
    return kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


class Forked:
    """A program that runs."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[object],
        streams: tuple[IO[bytes], IO[bytes], IO[bytes]],
        cwd: str | Path = ".",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment``: what it has besides that of a user who has set nothing."""
        request = {
            "module": module,
            "arguments": [str(argument) for argument in arguments],
            "environment": plain_environment() | dict(environment or {}),
            "cwd": os.path.abspath(cwd),
        }
        ours, theirs = socket.socketpair()
        with theirs:
            _nursery().send(*streams, theirs)
        self._socket, self._conversation = ours, ours.makefile("rw")
        self._conversation.write(json.dumps(request) + "\n")
        self._conversation.flush()
        self.args = [module, *request["arguments"]]
        self.pid = int(self._conversation.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code; raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._socket], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._conversation.readline())
            self._conversation.close()
            self._socket.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def call(
    module: str,
    arguments: Sequence[object],
    stdin: str = "",
    seconds_max: float = 300.0,
    cwd: str | Path = ".",
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a module's ``main`` in a process and wait for it; raises TimeoutExpired when it takes longer."""
    read, write = map(os.fdopen, os.pipe(), ("rb", "wb"))
    with write, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with read:
            process = Forked(module, arguments, (read, out, err), cwd, environment)
        try:
            with contextlib.suppress(BrokenPipeError), write:  # it may not want all of it
                write.write(stdin.encode())
            return Ended(process.wait(seconds_max), _written(out), _written(err))
        finally:
            process.kill()
            process.wait()


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class _Nursery:
    """The process that forks, as who wants something forked sees it. It ends when that one does."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=plain_environment(),
                pass_fds=[theirs.fileno()],
            )

    def send(self, *files: IO[bytes] | socket.socket) -> None:
        socket.send_fds(self._control, [b"!"], [file.fileno() for file in files])


@functools.cache
def _nursery() -> _Nursery:
    """Return this process's."""
    return _Nursery()


def forked_daemons() -> SimpleNamespace:
    """Return what stands in for ``subprocess`` in a module that starts daemons, which are forked then."""

    def popen(command: list[str], **how: Any) -> "Forked | subprocess.Popen[bytes]":
        module = command[2]
        if (
            command[:2] != [sys.executable, "-m"]
            or module not in _DAEMONS
            or how["stdout"] == subprocess.PIPE
        ):
            return subprocess.Popen(command, **how)
        with open(os.devnull, "rb") as nothing:
            streams = nothing, how["stdout"], how["stdout"]
            return Forked(module, command[3:], streams, how["cwd"], how["env"])

    return SimpleNamespace(**vars(subprocess) | {"Popen": popen})


def load_daemons() -> None:
    """Do what daemons do alike each time they start: import, compile SQL, put the routes together."""
    for module in (*_DAEMONS, *_LOADED_LATER):
        importlib.import_module(module)
    from litestar import Litestar
    from litestar.datastructures import State

    from borgish.api import app
    from borgish.store.open import open_store

    with tempfile.TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/cell.db", "loaded").close()
    routes = app.create_routes(cast(Any, None))

    def with_state(*_: object, state: State, **__: object) -> Litestar:
        routes.state = state
        return routes

    vars(app)["Litestar"] = with_state


def keep_for_good() -> None:
    """Take what is loaded as there to stay: the first garbage collection of what is forked would write to all
    of it, and have every page copied."""
    gc.collect()
    gc.freeze()


def _main() -> None:
    """Fork for each message until nobody can send any more, and tell of each end."""
    load_daemons()
    commands = (module.name for module in pkgutil.walk_packages(borgish.cli.__path__, "borgish.cli."))
    for module in (FAUXMASTER, "rich.table", "yaml", *commands):
        importlib.import_module(module)
    keep_for_good()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        ready = select.select([control.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, _DESCRIPTORS_MAX)
            _tell_of_ends(running)
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 4)
            if not message:
                return
            *streams, conversation = descriptors
            answers = socket.socket(fileno=conversation)
            with answers.makefile("r") as lines:
                asked = lines.readline()
            if asked:
                running[_begun(json.loads(asked), streams, answers)] = answers
            else:  # who asked was cut off
                answers.close()
            for descriptor in streams:
                os.close(descriptor)


def _begun(request: dict[str, Any], streams: list[int], answers: socket.socket) -> int:
    """Fork the program that is asked for, and return its pid, which is said as well."""
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _take(streams)
        os.closerange(3, _DESCRIPTORS_MAX)
        daemons = importlib.import_module("borgish.cli.daemons")
        vars(daemons)["subprocess"] = SimpleNamespace(**vars(subprocess) | {"Popen": _popen})
        os._exit(_run(request["module"], request["arguments"], request["environment"], request["cwd"]))
    _say(answers, pid)
    return pid


def _tell_of_ends(running: dict[int, socket.socket]) -> None:
    """Say how those ended that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as answers:
            _say(answers, os.waitstatus_to_exitcode(status))


def _say(answers: socket.socket, number: int) -> None:
    with contextlib.suppress(ConnectionError):  # who asked may be gone
        answers.sendall(f"{number}\n".encode())


def _popen(command: list[str], **how: Any) -> "Any":
    """Fork a daemon that borgctl starts; start anything else."""
    if not _is_daemon(command):
        return subprocess.Popen(command, **how)
    said, saying = os.pipe() if how["stdout"] == subprocess.PIPE else (-1, how["stdout"].fileno())
    with open(os.devnull, "rb") as nothing:
        pid = os.fork()
        if pid:
            if said >= 0:
                os.close(saying)
            return _Daemon(pid, said)
        if how.get("start_new_session"):
            os.setsid()
        _take([nothing.fileno(), saying, saying])
        os.closerange(3, _DESCRIPTORS_MAX)
        os._exit(_run(command[2], command[3:], how["env"], how["cwd"]))


def _is_daemon(command: Sequence[str]) -> bool:
    return [*command[:2]] == [sys.executable, "-m"] and command[2] in _DAEMONS


class _Daemon:
    """A daemon as borgctl looks after it while it starts, or has it end all tasks: what it says then is read
    from a pipe."""

    def __init__(self, pid: int, said: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._said = said

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> tuple[bytes, None]:
        with open(self._said, "rb") as said:
            everything = said.read()
        self.wait()
        return everything, None

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode


def _take(streams: Sequence[int]) -> None:
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)


def _run(module: str, arguments: Sequence[str], environment: Mapping[str, str], cwd: str | Path) -> int:
    """Take on what a process started by exec has of its own, be the program, return its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    program = importlib.import_module(module)
    sys.argv = [str(program.__file__), *arguments]
    code = 0
    try:
        program.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code


if __name__ == "__main__":
    _main()
