"""A process that has loaded borgmaster, and forks one whenever a test wants one.

What is forked is the daemon's own ``main`` in a process of its own; only what is alike at each start is
saved, which counts where a test kills it a hundred times. Requests and answers are lines of JSON.
"""

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.forked import Forked, keep_for_good, load_daemons

ROOT = Path(__file__).resolve().parents[2]
MEASURED = "measured"


class Nursery:
    """Starts borgmasters. Whatever still runs when it is closed is killed.

    ``measured``: each puts its routes together itself, as one that is started by people does.
    """

    def __init__(self, *, measured: bool = False) -> None:
        read, asking = os.pipe()
        answers, write = os.pipe()
        with (
            open(read, "rb") as requests,
            open(write, "wb") as answering,
            open(2, "wb", closefd=False) as errors,
        ):
            streams, how = (requests, answering, errors), [MEASURED] * measured
            self._process = Forked("tests.faults.nursery", how, streams, ROOT)
        self._asking, self._answers = os.fdopen(asking, "w"), os.fdopen(answers)

    def start(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        before: str = "",
        file_bytes_max: int = 0,
    ) -> int:
        """Start one and return its pid. ``before`` names a function, ``module:function``, to call first."""
        return self._ask(
            {
                "arguments": list(arguments),
                "log": str(log),
                "environment": dict(environment or {}),
                "before": before,
                "file_bytes_max": file_bytes_max,
            }
        )

    def wait(self, pid: int) -> int:
        """Wait for the end of one; return its exit code, or the negative number of a signal."""
        return self._ask({"wait": pid})

    def _ask(self, request: dict[str, Any]) -> int:
        self._asking.write(json.dumps(request) + "\n")
        self._asking.flush()
        return int(self._answers.readline())

    def close(self) -> None:
        """End it, and what it started."""
        self._asking.close()
        self._process.wait()
        self._answers.close()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main() -> None:
    """Serve requests until nobody can send any more."""
    from litestar import Litestar

    from borgish.api import app

    load_daemons()
    if MEASURED in sys.argv:
        vars(app)["Litestar"] = Litestar
    keep_for_good()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the test that was interrupted closes us
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            children.discard(request["wait"])
            print(os.waitstatus_to_exitcode(status), flush=True)
        else:
            children.add(pid := _forked(request))
            print(pid, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _forked(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _become(request)
        code = _run()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become(request: dict[str, Any]) -> None:
    """Take on what a process that was started by exec has of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.environ.update(request["environment"])
    sys.argv = ["borgmaster", *request["arguments"]]
    if request["file_bytes_max"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes_max"],) * 2)
    if request["before"]:
        module, _, function = request["before"].partition(":")
        getattr(importlib.import_module(module), function)()


def _run() -> int:
    from borgish.master.main import main as borgmaster

    try:
        borgmaster()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
