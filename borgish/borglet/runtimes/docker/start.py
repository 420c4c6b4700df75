"""Starting a container: nothing but create and start stands between a wish and a program that runs. Images
are never pulled (Kubernetes' image pull): a start without one fails, is tried again with back-off (its
ImagePullBackOff), and the reason says how to bring it.

What can go wrong is looked into once it has. Each container has the engine's small init as its first
process, so the engine reports a start before the program itself was found. The init tries once, at
once; what became of it shows in /proc, where this machine's own engine keeps its processes, and in the
init's last words.
"""

import asyncio
import re
import socket
from contextlib import suppress
from pathlib import Path

from docker.errors import APIError, NotFound
from msgspec.structs import replace

from borgish.borglet.runtimes.base import RunState, StartFailed
from borgish.borglet.runtimes.docker import container as containers
from borgish.borglet.runtimes.docker.container import WITH_SECRET_ENV, Container, Owner
from borgish.borglet.runtimes.docker.engine import Engine, Inspected
from borgish.borglet.runtimes.docker.inventory import Inventory
from borgish.borglet.runtimes.mounts import MountRules
from borgish.borglet.runtimes.secrets import Place as Secrets
from borgish.borglet.runtimes.secrets import SecretFolders, give
from borgish.clock import Clock
from borgish.errors import Unreachable
from borgish.wire.link import AttemptSpec, main_key

EARLY_END_SECONDS_MAX = 3.0
SETTLE_SECONDS = 0.04
NAME_TAKEN_STATUS = 409
NAME_TRIES = 20
NAME_PAUSE_SECONDS = 0.1
NEVER_RAN = ("created", "removing")
PROGRAM_LOOK_SECONDS = 0.003
PROGRAM_LOOKS_MAX = 60
CANNOT_RUN_CODES = (126, 127)
_LAST_WORDS = re.compile(r"\[FATAL tini \(\d+\)\] exec (.*) failed: (.*)")


class Starter:
    """Makes containers and enters them into the inventory."""

    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        clock: Clock,
        inventory: Inventory,
        mounts: MountRules,
        secrets: SecretFolders,
    ) -> None:
        self._engine, self._owner, self._clock, self._inventory = engine, owner, clock, inventory
        self._mounts, self._secrets = mounts, secrets

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        """Start a run. Raises StartFailed; nothing is left then, but for a start that hangs."""
        name = self._owner.container_name(spec, run)
        self._inventory.starting.add(name)
        try:
            self._refuse_taken_ports(spec)
            await self._let_settle()
            container = await self._create(spec, run, name)
            if container.state is None:
                await self._run(container, name)
                container.state = await self._confirm(container, spec)
        finally:
            self._inventory.starting.discard(name)
        self._inventory.enter(container)
        if not container.alive:
            self._inventory.changed(container.key)
        return container.state

    async def _let_settle(self) -> None:
        """Wait a moment after an end: the engine is still undoing that container's network, and a start
        beside it takes 100 ms longer than one that comes just after.

        Measured from a kill to its replacement: 430 ms without the pause, 325 ms with 30 to 60 ms.
        """
        seconds = self._inventory.died_at + SETTLE_SECONDS - self._clock.now().mono
        if self._inventory.place.bridge and seconds > 0:
            await asyncio.sleep(seconds)

    def _refuse_taken_ports(self, spec: AttemptSpec) -> None:
        """The engine looks at the ports that it publishes; on the machine's own network nobody does."""
        for port in () if self._inventory.place.bridge else spec.ports.values():
            with socket.socket() as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    trial.bind(("", port))
                except OSError:
                    raise containers.port_taken(port) from None

    async def _create(self, spec: AttemptSpec, run: int, name: str) -> Container:
        """Make the container, or adopt the one that has its name."""
        for _ in range(NAME_TRIES):
            try:
                return await self._make(spec, run)
            except APIError as error:
                if error.status_code != NAME_TAKEN_STATUS:
                    raise containers.not_created(error, spec) from None
            if (adopted := await self._adopt_existing(spec, run, name)) is not None:
                return adopted
        raise StartFailed(
            f"the engine is still making or removing a container named {name}", "It is tried again."
        )

    async def _make(self, spec: AttemptSpec, run: int) -> Container:
        main, place = self._main_of(spec), self._inventory.place
        mounts = self._mounts.real(spec.container.mounts)
        mounted = replace(spec, container=replace(spec.container, mounts=mounts))
        secrets = self._give_secrets(spec)
        program = await self._program(spec) if secrets.env else ()
        config = containers.container_config(mounted, run, self._owner, place, main, secrets, program)
        try:
            made = await self._engine.slow(
                lambda client: client.create_container(**config), "create a container"
            )
        except Unreachable as error:
            raise StartFailed(error.message, error.hint) from None
        return self._inventory.know(Container(made["Id"], spec.key, run))

    def _give_secrets(self, spec: AttemptSpec) -> Secrets:
        """Let the user of a container read its secrets, and return where they are. Raises StartFailed."""
        found = self._secrets.place(spec)
        try:
            for folder in filter(None, found):
                give(folder, *spec.container.ids)
        except OSError as error:
            raise StartFailed(f"its secrets are not there: {error.strerror}", "they come again") from None
        return found

    async def _program(self, spec: AttemptSpec) -> tuple[str, ...]:
        """Return what a container of the image runs: its entry point, and the job's command or its own.

        Raises APIError, and StartFailed.
        """
        try:
            image: Inspected = await self._engine.quick(lambda client: client.inspect_image(spec.image))
        except Unreachable as error:
            raise StartFailed(error.message, error.hint) from None
        config = image.get("Config") or {}
        return (*(config.get("Entrypoint") or ()), *(spec.run or config.get("Cmd") or ()))

    def _main_of(self, spec: AttemptSpec) -> str:
        """Return the container of the main program that one runs beside; "" when it is one itself.

        Raises StartFailed.
        """
        if not spec.program:
            return ""
        main = self._inventory.latest.get(main_key(spec.key))
        if main is None or not main.alive:
            raise StartFailed("the task's main program does not run", "it is started with it")
        return main.id

    async def _adopt_existing(self, spec: AttemptSpec, run: int, name: str) -> Container | None:
        """It was made already, by a borglet that is gone or a start that hung. One that never ran goes."""
        try:
            seen: Inspected = await self._engine.quick(lambda client: client.inspect_container(name))
        except Unreachable as error:
            raise StartFailed(error.message, error.hint) from None
        except NotFound:  # its name is taken before it is there, and after it is gone
            await asyncio.sleep(NAME_PAUSE_SECONDS)
            return None
        container = Container(seen["Id"], spec.key, run)
        if seen["State"]["Status"] in NEVER_RAN:
            await self._inventory.remove(container)
            return None
        container.state = containers.run_state(spec.key, run, seen, self._inventory.place)
        return self._inventory.know(container)

    async def _run(self, container: Container, name: str) -> None:
        try:
            await self._engine.slow(lambda client: client.start(container.id), "start a container")
        except APIError as error:
            self._inventory.let_go(container)
            raise containers.not_started(error) from None
        except Unreachable as error:
            self._inventory.disregard(container)
            self._inventory.stuck.add(name)
            raise StartFailed(error.message, error.hint) from None
        self._inventory.stuck.discard(name)

    async def _confirm(self, container: Container, spec: AttemptSpec) -> RunState:
        """Return its state; raise StartFailed when there was no such program."""
        unseen = RunState(container.key, container.run, pid=0, started_at=self._clock.now().wall)
        state = await self._inventory.inspect(container) or unseen
        if state.pid and not await program_runs(state.pid, container.id):
            state = await self._early_end(container, state)
        exit_ = container.exit or state.exit
        if exit_ and exit_.code in CANNOT_RUN_CODES and (why := await self._last_words(container)):
            self._inventory.let_go(container)
            raise cannot_run(why, spec)
        return replace(state, exit=exit_)

    async def _early_end(self, container: Container, state: RunState) -> RunState:
        """Its process is gone, and the news of it on the way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EARLY_END_SECONDS_MAX):
                await container.ended.wait()
                return state
        return await self._inventory.inspect(container) or state

    async def _last_words(self, container: Container) -> str:
        try:
            return why_not(await self._engine.quick(lambda client: client.logs(container.id, tail=3)))
        except (APIError, Unreachable):
            return ""


# -- Whether a container's program could be run at all ------------------------------------------------------


async def program_runs(pid: int, container: str) -> bool:
    """Wait until the init has become two, the program beside it, or none: then return False.

    True also when it takes too long to find out, or cannot be found out: an engine on another machine.
    """
    for _ in range(PROGRAM_LOOKS_MAX):
        if (verdict := _is_running(pid, container)) is not None:
            return verdict
        await asyncio.sleep(PROGRAM_LOOK_SECONDS)
    return True


def _is_running(pid: int, container: str) -> bool | None:
    base = Path("/proc") / str(pid)
    try:
        if container not in (base / "cgroup").read_text():
            return True
        children = (base / "task" / str(pid) / "children").read_text().split()
        names = {(Path("/proc") / child / "comm").read_text() for child in children}
        return True if names - {(base / "comm").read_text()} else None
    except OSError:  # something of it has just gone: the whole, or one try
        return None if base.exists() else False


def cannot_run(why: str, spec: AttemptSpec) -> StartFailed:
    """Return the error for a program that the init could not run, which ``why`` begins with."""
    if spec.secret_env and why.startswith(WITH_SECRET_ENV[0]):
        return StartFailed(
            f"{spec.image} has no {WITH_SECRET_ENV[0]}, by which secrets come into the environment",
            "have them as files: secret_files",
            permanent=True,
        )
    return StartFailed(f"cannot run {why}", "Is it in the image, and executable?", permanent=True)


def why_not(output: bytes) -> str:
    """Return why the init could not run the program, "" when it could."""
    last = _LAST_WORDS.search(output.decode(errors="replace"))
    return f"{last[1]}: {last[2].strip()}" if last else ""
