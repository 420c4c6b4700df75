"""What tests of the process runtime share: a machine, looking at its processes, leaving none behind."""

import asyncio
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.folders import Record, RunFolder, name_of
from borgish.borglet.runtimes.leftovers import Retention
from borgish.borglet.runtimes.process import zygote
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.borglet.runtimes.process.starter import PATH
from borgish.borglet.runtimes.processes import boot_id, kill_run, program_lives, shim_lives
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.suite import Watched, attempt_spec

DEADLINE_SECONDS = 120.0


PYTHON = shutil.which("python3", path=PATH) or sys.executable
"""One that any user may run: that of the tests may be in somebody's home."""


class Machine:
    """One folder of a process runtime."""

    def __init__(self, folder: Path, *, use_cgroups: bool) -> None:
        self.folder = folder
        self.use_cgroups = use_cgroups

    def runtime(self, keep: Retention = Retention()) -> ProcessRuntime:  # noqa: B008 - frozen
        return ProcessRuntime(self.folder, use_cgroups=self.use_cgroups, keep=keep)

    @asynccontextmanager
    async def opened(self, keep: Retention = Retention()) -> AsyncIterator[Watched]:  # noqa: B008 - frozen
        watched = await Watched(self.runtime(keep)).open()
        try:
            yield watched
        finally:
            await watched.runtime.close()

    def spec(self, *run: str, **changes: object) -> AttemptSpec:
        return attempt_spec(run, Runtime.PROCESS, **changes)

    def run_folder(self, key: str) -> RunFolder:
        return RunFolder(self.folder / "runs" / name_of(key))

    def record(self, key: str) -> Record:
        record = self.run_folder(key).record()
        assert record is not None
        return record

    def log(self, key: str) -> bytes:
        files = self.run_folder(key).log_files(previous=False)
        return b"".join(file.read_bytes() for file in files if file.exists())


def lives(pid: int) -> bool:
    """Tell whether a process is there and not only waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def ends(pid: int) -> None:
    """Wait until a process that was killed is gone; it takes the kernel a moment."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while lives(pid):
            await asyncio.sleep(0.005)


def outside(pid: int, inner: int) -> int:
    """Return the number that the machine has for a process which a program, ``pid``, knows by another."""
    namespace = Path(f"/proc/{pid}/ns/pid").readlink()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (path / "status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
            if int(numbers[-1]) == inner and (path / "ns/pid").readlink() == namespace:
                return int(path.name)
    raise AssertionError(f"{pid} has no process {inner}")


def bystander() -> subprocess.Popen[bytes]:
    """Start a program that is none of ours."""
    return subprocess.Popen(["sleep", "60"], start_new_session=True)


def python(text: str, *arguments: str) -> subprocess.Popen[str]:
    """Start an interpreter on a text, with this project at hand."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def zygote_with(monkeypatch: pytest.MonkeyPatch, module: ModuleType, change: str) -> None:
    """Have the zygotes that begin from now on run a change in a module of theirs before they serve."""
    run = "module.main()\n"
    changed = zygote.LOADER.replace(
        run, f"exec({change!r}, sys.modules[{module.__name__!r}].__dict__)\n{run}"
    )
    assert changed != zygote.LOADER
    monkeypatch.setattr(zygote, "LOADER", changed)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait outside of a loop."""
    deadline = time.perf_counter() + DEADLINE_SECONDS
    while not condition():
        assert time.perf_counter() < deadline, "waited too long"
        time.sleep(0.005)


def end_all(folder: Path) -> None:
    """Kill what runs below a runtime's folder, wait until its shims are gone, remove its groups."""
    boot = boot_id()
    paths = (folder / "runs").iterdir() if (folder / "runs").is_dir() else ()
    records = [record for path in paths if (record := RunFolder(path).record())]
    for record in records:
        if program_lives(record, boot):
            kill_run(record)
    wait_until(lambda: not any(program_lives(r, boot) or shim_lives(r, boot) for r in records))
    groups = cgroups.find(folder, is_root=os.geteuid() == 0)
    for root in set(groups.roots.values()) if groups else set():
        wait_until(functools.partial(_removed, root))


def _removed(root: str) -> bool:
    try:
        for folder, inside, _ in os.walk(root, topdown=False):
            for name in inside:
                os.rmdir(os.path.join(folder, name))
        os.rmdir(root)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
