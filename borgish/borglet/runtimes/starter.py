"""Asks shims to start programs: with which command, environment, limits, and what to make of the answer."""

import asyncio
import resource
from typing import Any

import msgspec

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.folders import Record, RunFolder
from borgish.borglet.runtimes.refusals import start_failed
from borgish.borglet.runtimes.zygote import Zygote
from borgish.wire.link import AttemptSpec

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STARTS_AT_ONCE = 8
HELD_SECONDS_MAX = 5.0
HELD_PAUSE_SECONDS = 0.02
OPEN_FILES_MAX = 65_536
PROCESSES_OF_USER_MAX = 8192  # without groups; the kernel counts all of a user's, so it is no task's limit
MAIN_GROUP = "main"  # inside that of its task; those of other programs end with the number of their run
OOM_SCORE = 200  # short of memory, the kernel should end tasks before daemons


class Starter:
    """Starts programs through a zygote. ``groups`` is where runs have their control groups, None for nowhere;
    ``trouble`` is why none can be started, "" when they can."""

    def __init__(self, zygote: Zygote, boot: str, path: str = PATH) -> None:
        self.zygote = zygote
        self.groups: cgroups.Groups | None = None
        self.trouble = ""
        self._boot = boot
        self._path = path
        self._room = asyncio.Semaphore(STARTS_AT_ONCE)

    async def launch(
        self, spec: AttemptSpec, run: int, folder: RunFolder, main: tuple[RunFolder, Record] | None = None
    ) -> Record:
        """Have a shim start the program, and return its record. Raises StartFailed.

        ``main`` is the main program that it runs beside: in its folder, and within its limits.
        """
        request = self._request(spec, run, folder, main)
        for _ in range(int(HELD_SECONDS_MAX / HELD_PAUSE_SECONDS)):
            async with self._room:
                answer = await self.ask(request)
            if answer and "error" in answer:
                raise start_failed(spec.run[0], spec.workdir, answer)
            if answer and "held" not in answer:
                return msgspec.convert(answer, Record)
            # Another shim has the folder, or ours was killed: the folder knows what became of it.
            record = folder.record()
            if record and record.run >= run:
                return record
            await asyncio.sleep(HELD_PAUSE_SECONDS)
        raise StartFailed(f"the folder of {spec.key} is held by a run before", "it is tried again")

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return a shim's first answer; None when it was killed before it could."""
        try:
            answer = await self.zygote.ask(request)
        except OSError as error:
            self.trouble = f"cannot start programs: {error.strerror or error}"
            raise StartFailed(self.trouble, "see the machine's memory, processes and open files") from error
        try:
            found = await answer.next()
        finally:
            answer.close()
        self.trouble = ""
        return found

    def _plan(self, spec: AttemptSpec, name: str, main: tuple[RunFolder, Record] | None) -> cgroups.Plan:
        """Return the groups of a run: its own, or inside those of a task that has several programs."""
        if not self.groups:
            return cgroups.Plan()
        if main is not None:
            return self.groups.plan_inside(main[1].within, name) if main[1].within else cgroups.Plan()
        if spec.programs:
            return self.groups.plan_inside(self.groups.plan_shared(name, spec.resources), MAIN_GROUP)
        return self.groups.plan(name, spec.resources)

    def _request(
        self, spec: AttemptSpec, run: int, folder: RunFolder, main: tuple[RunFolder, Record] | None
    ) -> dict[str, Any]:
        work = (main[0] if main else folder).path / "work"
        env = {"PATH": self._path, "HOME": str(work), "LANG": "C.UTF-8"} | spec.env
        plan = self._plan(spec, f"{spec.program or folder.path.name}.{run}", main)
        command = self.command(spec.run, env, str(work / spec.workdir))
        return command | {
            "role": "start",
            "ram_bytes": spec.resources.ram_bytes,
            "folder": str(folder.path),
            "run": run,
            "boot": self._boot,
            "groups": plan.groups,
            "oom": plan.oom,
            "within": plan.within,
        }

    def command(self, run: tuple[str, ...], env: dict[str, str], workdir: str) -> dict[str, Any]:
        """Return the part of a request that says what to run."""
        rlimits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, OPEN_FILES_MAX)]
        if not self.groups:
            rlimits.append((resource.RLIMIT_NPROC, PROCESSES_OF_USER_MAX))
        return {"argv": run, "env": env, "workdir": workdir, "rlimits": rlimits, "oom_score_adj": OOM_SCORE}
