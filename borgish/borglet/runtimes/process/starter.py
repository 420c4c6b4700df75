"""Asks shims to start programs: with which command, environment, limits, and what to make of the answer.

What is reported when a program cannot be started is the thing, the reason, the way out.
"""

import asyncio
import errno
import os
import resource
import socket
from pathlib import Path
from typing import Any

import msgspec

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.folders import Record, RunFolder
from borgish.borglet.runtimes.process.confinement import HOME_IN_ROOT, Confinement
from borgish.borglet.runtimes.process.shim.runs import RECORDED
from borgish.borglet.runtimes.process.shim.view import SECRETS_SEEN
from borgish.borglet.runtimes.process.shims import Carried, Shims
from borgish.borglet.runtimes.process.zygote import Zygote
from borgish.borglet.runtimes.processes import signal_number
from borgish.borglet.runtimes.secrets import NO_SECRETS, Place, SecretFolders, give
from borgish.wire.link import AttemptSpec

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STARTS_AT_ONCE = 8
HELD_SECONDS_MAX = 5.0
HELD_PAUSE_SECONDS = 0.02
OPEN_FILES_MAX = 65_536
PROCESSES_OF_USER_MAX = 8192  # without groups; the kernel counts all of a user's, so it is no task's limit
MAIN_GROUP = "main"  # inside that of its task; those of other programs end with the number of their run
OOM_SCORE = 200  # short of memory, the kernel should end tasks before daemons
# What may be otherwise the next time; any other error of a command is the same at each try.
PASSING = {errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY, errno.EMFILE, errno.ENFILE, errno.EIO}


class Starter:
    """Starts programs through a zygote. ``groups`` is where runs have their control groups, None for nowhere;
    ``trouble`` is why none can be started, "" when they can. ``disk_bytes`` is what a program may write whose
    job does not say; 0: as much as it likes."""

    def __init__(
        self,
        zygote: Zygote,
        boot: str,
        confinement: Confinement,
        path: str = PATH,
        disk_bytes: int = 0,
        secrets: SecretFolders = NO_SECRETS,
    ) -> None:
        self._secrets = secrets
        self.zygote, self._confinement = zygote, confinement
        self.shims = Shims(zygote)
        self.groups: cgroups.Groups | None = None
        self.trouble = ""
        self._boot = boot
        self._path = path
        self._disk_bytes = disk_bytes
        self._room = asyncio.Semaphore(STARTS_AT_ONCE)

    async def launch(
        self, spec: AttemptSpec, run: int, folder: RunFolder, main: tuple[RunFolder, Record] | None = None
    ) -> tuple[Record, Carried | None]:
        """Have a shim start the program, and return its record. Raises StartFailed.

        With it comes what tells of the end of the run; None where another shim than the one asked has it.
        ``main`` is the main program that it runs beside: in its folder, and within its limits.
        """
        request = self._request(spec, run, folder, main)
        for _ in range(int(HELD_SECONDS_MAX / HELD_PAUSE_SECONDS)):
            async with self._room:
                carried = await self._carried(request)
            answer = carried.answer.result()
            if answer and "error" in answer:
                raise self._failed(spec, answer)
            if answer and "held" not in answer:
                return msgspec.convert({name: request[name] for name in RECORDED} | answer, Record), carried
            # Another shim has the folder, or ours was killed: the folder knows what became of it.
            record = folder.record()
            if record and record.run >= run:
                return record, None
            await asyncio.sleep(HELD_PAUSE_SECONDS)
        raise StartFailed(f"the folder of {spec.key} is held by a run before", "it is tried again")

    async def _carried(self, request: dict[str, Any]) -> Carried:
        """Return a run that a shim was asked to carry, and has answered to, or was killed before it could."""
        try:
            carried = await self.shims.ask(request)
        except OSError as error:
            raise self._no_shim(error) from error
        await carried.answer
        self.trouble = ""
        return carried

    def _no_shim(self, error: OSError) -> StartFailed:
        self.trouble = f"cannot start programs: {error.strerror or error}"
        return StartFailed(self.trouble, "see the machine's memory, processes and open files")

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return a shim's first answer; None when it was killed before it could. Not for runs."""
        try:
            answer = await self.zygote.ask(request)
        except OSError as error:
            raise self._no_shim(error) from error
        try:
            found = await answer.next()
        finally:
            answer.close()
        self.trouble = ""
        return found

    def disk_bytes_of(self, spec: AttemptSpec) -> int:
        """Return what a program may write; 0: as much as it likes."""
        return spec.resources.disk_bytes or self._disk_bytes

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
        try:
            inside = self._confinement.inside(spec, folder.path, work, main[1].init if main else None)
        except OSError as error:
            raise StartFailed(
                f"no uid can be had for it: {error}", "see the borglet's disk, and /run"
            ) from None
        home = Path(HOME_IN_ROOT) if inside and inside["root"] else work
        env = {"PATH": self._path, "HOME": str(home), "LANG": "C.UTF-8"} | spec.env
        plan = self._plan(spec, f"{spec.program or folder.path.name}.{run}", main)
        secrets = self._give_secrets(spec, inside)
        if secrets.files:
            env["BORGISH_SECRETS"] = SECRETS_SEEN if inside and inside["secrets"] else secrets.files
        command = self.command(spec.run, env, str(home / spec.workdir))
        return command | {
            "secret_env": secrets.env,
            "inside": inside,
            "role": "start",
            "ram_bytes": spec.resources.ram_bytes,
            "disk_bytes": self.disk_bytes_of(spec),
            "folder": str(folder.path),
            "run": run,
            "boot": self._boot,
            "groups": plan.groups,
            "oom": plan.oom,
            "within": plan.within,
            "lease": lease_rule(spec),
        }

    def _give_secrets(self, spec: AttemptSpec, inside: dict[str, Any] | None) -> Place:
        """Let a program have its secrets, and return where they are. Raises StartFailed."""
        place = self._secrets.place(spec)
        if not place.files:
            return place
        try:
            give(place.files, *((inside["uid"], inside["gid"]) if inside else (-1, -1)))
        except OSError as error:
            raise StartFailed(f"its secrets are not there: {error.strerror}", "they come again") from None
        if inside and inside["namespaces"]:
            inside["secrets"] = place.files
        return place

    def _failed(self, spec: AttemptSpec, answer: dict[str, Any]) -> StartFailed:
        """Return the error for a shim's answer; what the task's user may not see or read is named."""
        path = spec.workdir if answer["error"] == "workdir" else spec.run[0]
        is_path = answer["error"] in ("command", "workdir") and os.path.isabs(path)
        is_barred = is_path and answer["errno"] in (errno.EACCES, errno.ENOENT)
        barred = self._confinement.barred(path, spec) if is_barred else None
        return barred or start_failed(spec.run[0], spec.workdir, answer)

    def command(self, run: tuple[str, ...], env: dict[str, str], workdir: str) -> dict[str, Any]:
        """Return the part of a request that has what to run."""
        rlimits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, OPEN_FILES_MAX)]
        if not self.groups:
            rlimits.append((resource.RLIMIT_NPROC, PROCESSES_OF_USER_MAX))
        return {"argv": run, "env": env, "workdir": workdir, "rlimits": rlimits, "oom_score_adj": OOM_SCORE}


def lease_rule(spec: AttemptSpec) -> tuple[int, float] | None:
    """Return with which signal and grace a run ends whose lease is over; None for one that needs none."""
    if not spec.lease_seconds:
        return None
    return signal_number(spec.stop.signal), spec.stop.grace_seconds


# -- Why a program cannot be started ------------------------------------------------------------------------


def check_ports(spec: AttemptSpec) -> None:
    """Raise StartFailed when another program holds a port of the attempt."""
    for name, port in spec.ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - a probe that never listens
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise StartFailed(
                        f"port {port} ('{name}') is in use by another program",
                        "it will be placed elsewhere; keep foreign programs off the ports that tasks get",
                        port=port,
                    ) from None


def start_failed(name: str, workdir: str, answer: dict[str, Any]) -> StartFailed:
    """Return the error for a shim's answer: the stage that failed, the error number, the system's text.

    ``name`` and ``workdir`` are those asked for.
    """
    code, text = int(answer["errno"] or 0), str(answer["text"])
    match answer["error"]:
        case "command":
            return _no_command(name, code, text)
        case "workdir":
            return StartFailed(
                f"cannot work in '{workdir}': {text}", "correct 'workdir' of the job", permanent=True
            )
        case "group":
            return StartFailed(f"cannot set its limits: {text}", "see whether the borglet may make cgroups")
        case "secrets":
            return StartFailed(f"cannot read its secrets: {text}", "they come again with the next word of it")
        case "lease":
            return StartFailed(
                "its lease is over", "it starts when its machine hears of the borgmaster again"
            )
        case stage if str(stage).startswith("confine."):
            return StartFailed(
                f"it cannot be confined ({str(stage).removeprefix('confine.')}): {text}",
                "it could be when the borglet was started: see what has changed on its machine",
            )
        case "fork":
            return StartFailed(f"cannot make a process: {text}", "see what uses up the machine's processes")
        case _:
            return StartFailed(
                f"cannot write in its folder: {text}", "see whether the borglet's disk is full"
            )


def _no_command(name: str, code: int, text: str) -> StartFailed:
    if code in PASSING:
        return StartFailed(f"cannot start '{name}': {text}")
    if code == errno.ENOENT and os.sep not in name:
        message, hint = f"no command '{name}' in PATH", "install it on the machine or give its whole path"
    elif code == errno.ENOENT:
        message, hint = (
            f"no program '{name}'",
            "see whether it is on this machine, and what its #! line names",
        )
    elif code == errno.EACCES:
        message, hint = f"'{name}' may not be executed", "see its mode and that of its folders"
    elif code == errno.E2BIG:
        message, hint = (
            f"'{name}' is given words or variables that are too long",
            "put what is long into a file",
        )
    elif code == errno.ENOEXEC:
        message, hint = f"'{name}' is no program for this machine", "see its architecture; a script needs #!"
    else:
        message, hint = f"cannot start '{name}': {text}", "correct 'run' of the job"
    return StartFailed(message, hint, permanent=True)
