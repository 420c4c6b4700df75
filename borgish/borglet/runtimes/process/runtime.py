"""Plain programs of this machine, each with its shim, its folder, and its control group where allowed.

The truth about a run is on disk and in the kernel; what is kept here is only a copy, made again by
``open``. What starts, carries and collects programs is ``shim``; this asks for it and watches.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import msgspec

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.base import Input, RunState, StartFailed, Write
from borgish.borglet.runtimes.disk import WATCHED, DiskWatch, Tree
from borgish.borglet.runtimes.folders import (
    REBOOTED,
    UNKNOWN,
    Record,
    RunFolder,
    name_of,
    read_log,
    spread,
)
from borgish.borglet.runtimes.leftovers import KeptFolders, Retention
from borgish.borglet.runtimes.process.commands import run_beside
from borgish.borglet.runtimes.process.confinement import Confinement, ConfineRules
from borgish.borglet.runtimes.process.shim.lease import FILE, write_lease
from borgish.borglet.runtimes.process.shim.program import sweep_session
from borgish.borglet.runtimes.process.shims import Carried
from borgish.borglet.runtimes.process.starter import PATH, Starter, check_ports
from borgish.borglet.runtimes.process.zygote import Zygote
from borgish.borglet.runtimes.processes import (
    Used,
    boot_id,
    cpu_seconds_of,
    kill_run,
    measure,
    open_process,
    pids_of,
    program_lives,
    signal_number,
    signal_run,
)
from borgish.borglet.runtimes.secrets import NO_SECRETS, SecretFolders
from borgish.clock import Clock, SystemClock
from borgish.errors import Conflict
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, LogWanted, Terminal, Usage, main_key, split_attempt_key

LOOK_SECONDS = 1.0
WRITTEN = ("work", "tmp")  # the folders of a run into which its programs write
SWEEP_SECONDS_MAX = 0.2  # what is left of a run that lost both program and shim; the loop waits for it


class Known(msgspec.Struct):
    """The latest run of an attempt, as last seen."""

    folder: RunFolder
    record: Record
    state: RunState
    ram_bytes_max: int = 0  # watched here where the kernel does not; 0: not
    disk_bytes_max: int = 0  # 0: as much as it likes
    carried: Carried | None = None  # by a shim that is ours
    watched_fd: int = -1  # of its shim, where that was another borglet's


class ProcessRuntime:
    """A TaskRuntime for plain programs. ``folder`` is its own; ``isolation`` names what holds the limits.

    ``rules`` say how they are confined.
    """

    kind = Runtime.PROCESS

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock | None = None,
        use_cgroups: bool = True,
        path: str = PATH,
        keep: Retention = Retention(),  # noqa: B008 - frozen
        disk_bytes: int = 0,
        rules: ConfineRules = ConfineRules(),  # noqa: B008 - frozen
        secrets: SecretFolders = NO_SECRETS,
    ) -> None:
        self._folder = folder
        self._clock = clock or SystemClock()
        self._use_cgroups = use_cgroups
        self._kept = KeptFolders(folder, self._clock, keep)
        self._zygote = Zygote(folder / "shim.log")
        self._boot = boot_id()
        self._confinement = Confinement(folder, rules, (secrets.base,) * bool(secrets.base))
        self._starter = Starter(self._zygote, self._boot, self._confinement, path, disk_bytes, secrets)
        self._disk = DiskWatch(self._clock, self._written, self._end_for_disk)
        self._known: dict[str, Known] = {}
        self._used: dict[str, Used] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._changed: Callable[[str], None] = lambda _key: None
        self._watching: tuple[asyncio.Task[None], ...] = ()

    @property
    def isolation(self) -> str:
        """Return what holds the limits: ``cgroups v1``, ``cgroups v2``, or ``weak`` without either."""
        return f"cgroups v{self._starter.groups.version}" if self._starter.groups else "weak"

    @property
    def zygote_pid(self) -> int:
        return self._zygote.pid

    # Open and close

    async def open(self, changed: Callable[[str], None]) -> list[RunState]:
        """Begin: adopt what is on disk. What was let go is removed from then on, by the rule of ``keep``."""
        self._changed = changed
        runs = self._folder / "runs"
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        spread(runs)
        self._zygote.begin()
        if self._use_cgroups:
            self._starter.groups = cgroups.find(self._folder, is_root=os.geteuid() == 0)
        await self._confinement.find_out(self._starter.ask, self._starter.command(("true",), {}, "/"))
        for path in sorted(runs.iterdir()):
            folder = RunFolder(path)
            if at := folder.forgotten_at():
                self._kept.found(folder, at, folder.keep_seconds())
            elif record := folder.record():
                self._adopt(folder, record)
        if self._starter.groups:
            records = [known.record for known in self._known.values()]
            groups = [group for record in records for group, _ in record.within or record.groups]
            self._starter.groups.remove_stale({os.path.basename(group) for group in groups})
        self._watching = tuple(map(asyncio.create_task, (self._look_regularly(), self._disk.run())))
        self._kept.begin()
        return [known.state for known in self._known.values()]

    async def close(self) -> None:
        """Let go; runs go on."""
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self._kept.close()
        for known in self._known.values():
            self._unwatch(known)
        self._starter.shims.close()
        await self._zygote.close()
        if self._starter.groups:
            self._starter.groups.close()

    def images(self) -> dict[str, str]:
        """Return none: a program has no image."""
        return {}

    def measures(self) -> dict[str, str]:
        """Return of what holds programs in whether it is held here, or how it is, or why not."""
        return {"disk": WATCHED, **self._confinement.measures}

    def trouble(self) -> str:
        """Return what keeps programs from being started at all."""
        return self._starter.trouble

    # Runs

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        """Start a run; idempotent in (key, run). Raises StartFailed."""
        async with self._locks.setdefault(spec.key, asyncio.Lock()):
            known = self._known.get(spec.key)
            if known and known.state.run >= run:
                return known.state
            if not spec.run:
                raise StartFailed("nothing to run", "give 'run' of the job a command", permanent=True)
            check_ports(spec)
            folder = RunFolder(self._path_of(spec.key))
            if self._kept.give_back(spec.key) and known is None:
                folder.begin_anew()
            record, carried = await self._starter.launch(spec, run, folder, self._main_of(spec))
            limits = spec.resources.ram_bytes, self._starter.disk_bytes_of(spec)
            known = self._adopt(folder, record, carried, limits)
            if known.state.exit is not None:  # too short a run for anybody to have watched
                asyncio.get_running_loop().call_soon(self._changed, spec.key)
            return known.state

    def _main_of(self, spec: AttemptSpec) -> tuple[RunFolder, Record] | None:
        """Return the main program that one runs beside; None when it is one itself. Raises StartFailed."""
        if not spec.program:
            return None
        main = self._known.get(main_key(spec.key))
        if main is None or main.state.exit is not None:
            raise StartFailed("the task's main program does not run", "it is started with it")
        return main.folder, main.record

    def renew(self, key: str, until: float) -> None:
        """Let the run of an attempt, or its next one, go on until then. Raises OSError."""
        folder = self._path_of(key)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_lease(str(folder / FILE), until, self._boot)

    def look(self, key: str) -> RunState | None:
        """Return the latest run of an attempt."""
        known = self._known.get(key)
        return known.state if known else None

    async def signal(self, key: str, signal: str) -> None:
        """Send a signal to all processes of the run."""
        number = signal_number(signal)
        known = self._known.get(key)
        if known and known.state.exit is None:
            signal_run(known.record, number)

    async def kill(self, key: str) -> None:
        """End all processes of the run now; ``changed`` is called when they have ended."""
        known = self._known.get(key)
        if known and known.state.exit is None:
            kill_run(known.record)

    async def forget(self, key: str, keep_seconds: float = 0.0) -> None:
        """Let go of an ended attempt. Its output stays readable by the rule of ``keep``."""
        known = self._known.get(key)
        if known is not None and known.state.exit is None:
            return
        if known is not None:
            self._unwatch(self._known.pop(key))
        self._used.pop(key, None)
        self._locks.pop(key, None)
        folder = RunFolder(self._path_of(key))
        await self._kept.take(folder, has_run=known is not None, keep_seconds=keep_seconds)

    def removed(self, key: str) -> str:
        """Return why the output of an attempt was removed; "" when it was not, or nobody knows."""
        return self._kept.removed.why(key)

    # What people and the borglet want to know

    async def sample(self) -> list[Usage]:
        """Return what each running attempt uses; cpu is the mean since the sample before."""
        running = {key: known.record for key, known in self._known.items() if known.state.exit is None}
        found = await asyncio.to_thread(measure, running, self._clock.now().mono)
        before, self._used = self._used, found
        usages = []
        for key, used in found.items():
            millis = used.cpu_millis_since(before[key]) if key in before else 0
            if who := split_attempt_key(key):
                usages.append(Usage(who[0], who[1], millis, used.ram_bytes))
            self._hold_memory(key, used.ram_bytes)
        return usages

    def logs(self, key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        """As in the protocol."""
        state = self.look(key)
        run = state.run if state else 0

        def ended() -> bool:
            now = self.look(key)
            return wanted.previous or now is None or now.run != run or now.exit is not None

        return read_log(RunFolder(self._path_of(key)), wanted, ended)

    async def exec(
        self,
        key: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        stdin: Input | None = None,
        write: Write | None = None,
        terminal: Terminal | None = None,
    ) -> tuple[bytes, int, bool]:
        """Run a command in the task's folder, environment and limits. Raises Conflict when it is not up."""
        known = self._known.get(key)
        program = known.folder.program() if known else None
        if known is None or program is None or known.state.exit is not None:
            raise Conflict(f"{key} does not run here", "look at the task: it may have ended or moved")
        record = known.record
        env = program.env | ({"TERM": terminal.kind} if terminal else {})
        request = self._starter.command(run, env, program.workdir)
        request |= {"groups": record.groups, "inside": record.inside, "init": record.init}
        request["secret_env"] = program.secret_env
        return await run_beside(self._zygote, request, timeout_seconds, stdin, write, terminal)

    # Watching

    def _adopt(
        self,
        folder: RunFolder,
        record: Record,
        carried: Carried | None = None,
        limits: tuple[int, int] | None = None,
    ) -> Known:
        """Know a run from now on, and hear of its end. ``limits``: what it may have of memory and disk, None
        where only its folder knows."""
        if limits is None:
            program = folder.program()
            limits = (program.ram_bytes, program.disk_bytes) if program else (0, 0)
        if carried and not carried.is_over:
            state = RunState(folder.key, record.run, record.pid, record.at)  # there is nothing to read yet
        else:
            state = folder.state(record)
        ram_bytes = 0 if record.groups else limits[0]
        known = Known(folder, record, state, ram_bytes, limits[1], carried)
        before = self._known.get(folder.key)
        if before:
            self._unwatch(before)
            self._used.pop(folder.key, None)
        self._known[folder.key] = known
        if known.state.exit is None:
            self._watch(known)
        return known

    def _watch(self, known: Known) -> None:
        if known.carried:
            known.carried.when_over(partial(self._shim_ended, known))
            return
        record = known.record
        fd = open_process(record.shim, record.shim_ticks) if record.boot == self._boot else None
        loop = asyncio.get_running_loop()
        if fd is None:
            self._settle(known)
        else:
            known.watched_fd = fd
            loop.add_reader(fd, self._shim_ended, known)

    def _unwatch(self, known: Known) -> None:
        if known.carried:
            known.carried.when_over(None)
            known.carried = None
        if known.watched_fd >= 0:
            asyncio.get_running_loop().remove_reader(known.watched_fd)
            os.close(known.watched_fd)
            known.watched_fd = -1

    def _shim_ended(self, known: Known) -> None:
        self._unwatch(known)
        self._settle(known)
        if known.state.exit is not None:
            self._changed(known.folder.key)

    def _settle(self, known: Known) -> None:
        """Find out what became of a run whose shim is gone. A program without one is given another."""
        known.state = known.folder.state(known.record)
        if known.state.exit is None and not program_lives(known.record, self._boot):
            same_boot = known.record.boot == self._boot
            if same_boot:
                sweep_session(msgspec.structs.asdict(known.record), SWEEP_SECONDS_MAX)
            known.folder.write_end(known.record, UNKNOWN if same_boot else REBOOTED, self._clock.now().wall)
            known.state = known.folder.state(known.record)

    async def _look_regularly(self) -> None:
        """Find what reports nothing by itself: notes, programs without a shim, output grown old."""
        while True:
            for known in [known for known in self._known.values() if known.state.exit is None]:
                note = known.folder.note()
                if note != known.state.note:
                    known.state = msgspec.structs.replace(known.state, note=note)
                    self._changed(known.folder.key)
                if known.watched_fd < 0 and known.carried is None:
                    await self._give_shim(known)
            self._starter.shims.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _give_shim(self, known: Known) -> None:
        """Have a new shim carry the output of a program whose own was killed, and see its end."""
        request = {"role": "watch", "folder": str(known.folder.path), "run": known.record.run}
        with contextlib.suppress(StartFailed):
            await self._starter.ask(request)
        record = known.folder.record()
        if self._known.get(known.folder.key) is known and record and record.run == known.record.run:
            known.record = record
            self._watch(known)
            if known.state.exit is not None:
                self._changed(known.folder.key)

    def _hold_memory(self, key: str, ram_bytes: int) -> None:
        """Without groups nothing else holds a task to its memory: kill what was seen above its limit."""
        known = self._known.get(key)
        if known and 0 < known.ram_bytes_max < ram_bytes and known.state.exit is None:
            with contextlib.suppress(OSError):
                (known.folder.path / "over_memory").touch(mode=0o600)
            kill_run(known.record)

    def _written(self) -> list[Tree]:
        return [
            Tree(
                key,
                known.state.run,
                known.disk_bytes_max,
                tuple(str(known.folder.path / name) for name in WRITTEN),
                partial(pids_of, known.record),
                cpu_seconds=partial(cpu_seconds_of, known.record),
            )
            for key, known in self._known.items()
            if known.state.exit is None
        ]

    async def _end_for_disk(self, tree: Tree, why: str) -> None:
        """End all programs of the task: whoever wrote it, it is in the folder of the main one. One that is
        just being started may have written it, and is known as soon as that is done."""
        task = main_key(tree.key)
        for key in [key for key in {**self._known, **self._locks} if main_key(key) == task]:
            async with self._locks.setdefault(key, asyncio.Lock()):
                known = self._known.get(key)
                if known is not None and known.state.exit is None:
                    known.folder.write_over_disk(known.record, why)
                    kill_run(known.record)

    # Folders

    def _path_of(self, key: str) -> Path:
        return self._folder / "runs" / name_of(key)
