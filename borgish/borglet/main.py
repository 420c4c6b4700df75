"""The daemon ``borglet``: reads its configuration, takes its folder, serves until it is told to end.

SIGTERM and SIGINT end it in order with exit 0. Tasks go on in any case, and the next one adopts them.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from borgish import __version__
from borgish.addresses import several
from borgish.borglet import facts
from borgish.borglet.agent import Agent
from borgish.borglet.facts import task_disk_bytes
from borgish.borglet.joining import invited
from borgish.borglet.joining.identity import NEXT_KEY_FILE, Identity, identity_in
from borgish.borglet.joining.join import HttpJoin, Joiner
from borgish.borglet.ledger import Ledger
from borgish.borglet.opening import Factories
from borgish.borglet.runtimes.base import TaskRuntime
from borgish.borglet.runtimes.docker.socket import expect_socket, socket_path
from borgish.borglet.runtimes.secrets import SecretFolders, memory_folder
from borgish.borglet.server import BorgletApp, expect_usable, make_server, reload_tls
from borgish.borglet.settings import LIVE, USABLE_RUNTIMES, File, Settings, checked, own_files, read
from borgish.borglet.state_folder import MEMBERSHIP_NAME, FolderLock, Membership, membership_in
from borgish.borglet.stop_all import stop_all
from borgish.clock import SystemClock
from borgish.credentials import expect_private, keep_off_disk
from borgish.errors import BorgishError, UnsafeConfiguration
from borgish.ids import new_instance
from borgish.logs import log_to_stderr
from borgish.reload import Hangup, Pem, changes, merged, read_pem, reload
from borgish.tls.files import MACHINE_FILE
from borgish.vocabulary import Runtime
from borgish.wire.bounded_http import BoundedServer
from borgish.wire.link import JoinRequest

log = logging.getLogger("borglet")

BACKLOG = 128


def main(arguments: list[str] | None = None) -> None:
    """Run the daemon; ends the process with an exit code of ``borgish.errors``."""
    hangup = Hangup()
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    keep_off_disk()
    os.umask(0o077)  # whatever that of who started it is; what tasks are given has modes of its own
    log_to_stderr()
    try:
        if "token" in options:
            options.config = _join(options)
            if options.no_start:
                return
            # As anybody would start it: the token is not to stand in its command line.
            command = [sys.executable, "-m", "borgish.borglet.main", "--config", str(options.config)]
            os.execv(sys.executable, command)  # noqa: S606 - no shell, on purpose
        file = read(options.config)
        settings = checked(options.config, file)
        lock = _take_folder(settings.state)
        uvloop.run(_stop_all(settings) if options.stop_all else _serve(options.config, file, hangup))
        lock.release()
    except BorgishError as error:
        log.critical("%s", error)
        sys.exit(error.exit_code)
    except OSError as error:
        log.critical("%s", error)
        sys.exit(1)


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line: options, or ``join`` with its own."""
    if arguments[:1] != ["join"]:
        return command_line().parse_args(arguments)
    return join_command_line().parse_args(arguments[1:], argparse.Namespace(stop_all=False))


def _join(options: argparse.Namespace) -> Path:
    config = invited.join(options)
    log.info("this machine is in the cell; from now on it is started by: borglet --config %s", config)
    return config


def join_command_line() -> argparse.ArgumentParser:
    """Return what reads the words after ``borglet join``."""
    parser = argparse.ArgumentParser("borglet join", description="Get this machine into a cell, and run it.")
    invited.add_options(parser)
    return parser


def command_line() -> argparse.ArgumentParser:
    """Return what reads the command line of ``borglet``, but for ``join``."""
    parser = argparse.ArgumentParser(
        "borglet",
        description="The agent of a borgish cell on one machine.",
        epilog="`borglet join URL TOKEN` gets an invited machine into a cell: see `borglet join --help`.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("configs/borglet.toml"),
        metavar="FILE",
        help="the machine's file (%(default)s)",
    )
    parser.add_argument(
        "--stop-all", action="store_true", help="end everything that runs here, forget it, and exit"
    )
    parser.add_argument("--version", action="version", version=f"borglet {__version__}")
    return parser


def _take_folder(state: Path) -> FolderLock:
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        expect_private(state, MEMBERSHIP_NAME, MACHINE_FILE, NEXT_KEY_FILE)
        return FolderLock(state)
    except OSError as error:
        raise UnsafeConfiguration(
            f"the state folder {state} cannot be used: {error.strerror}",
            "Correct 'state' in the configuration, or the folder's owner.",
        ) from None


def _factories(settings: Settings, secrets: SecretFolders, *, leaving: bool = False) -> Factories:
    """How each wanted runtime is made. Docker's library is imported only where its engine may be.

    ``leaving``: nothing outside of the state folder may stay of this machine, so no container, either.
    """

    def process(_cell: str) -> TaskRuntime:
        from borgish.borglet.runtimes.process.runtime import ProcessRuntime

        return ProcessRuntime(
            settings.state / "process",
            keep=settings.keep,
            disk_bytes=task_disk_bytes(settings),
            rules=settings.process,
            secrets=secrets,
        )

    def docker(cell: str) -> TaskRuntime:
        expect_socket()
        from borgish.borglet.runtimes.cgroups import group_name
        from borgish.borglet.runtimes.docker.host import Rules, host_address
        from borgish.borglet.runtimes.docker.runtime import DockerRuntime
        from borgish.borglet.runtimes.leftovers import KEEP_NOTHING
        from borgish.borglet.runtimes.mounts import MountRules

        mark = group_name(settings.state).removeprefix("borgish-")
        rules = Rules(
            host_address(settings.host, urlsplit(several(settings.master)[0]).hostname or ""),
            MountRules(settings.mounts, (*own_files(settings), socket_path())),
            settings.without,
            task_disk_bytes(settings),
            settings.process.uids.ranges,
        )
        keep = KEEP_NOTHING if leaving else settings.keep
        return DockerRuntime(cell, settings.machine, mark=mark, rules=rules, keep=keep, secrets=secrets)

    known: Factories = {Runtime.PROCESS: process, Runtime.DOCKER: docker}
    return {kind: known[kind] for kind in settings.runtimes or USABLE_RUNTIMES}


async def _stop_all(settings: Settings) -> None:
    ledger = Ledger(settings.state, settings.machine)
    try:
        cell = membership_in(settings.state).cell
        secrets = SecretFolders(memory_folder(settings.state))
        ended = await stop_all(ledger, _factories(settings, secrets, leaving=True), cell)
        secrets.leave()
    finally:
        ledger.close()
    log.info("ended %d programs", ended)  # `borgctl down` reads it


async def _serve(path: Path, file: File, hangup: Hangup) -> None:
    settings = checked(path, file)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    listener = _listen(settings)
    membership = membership_in(settings.state)
    agent = _make_agent(settings)
    await agent.begin(membership.cell)
    identity = identity_in(settings.state, settings.machine) if settings.tls is None else None
    app = BorgletApp(agent, membership, by_certificate=identity is not None)
    server = make_server(app, settings.tls, identity.listener() if identity else None)
    ask = _join_by_http(settings, membership, agent, listener, identity)
    if identity:
        agent.trusted, agent.certificate_ends = identity.settled, lambda: identity.ends
    masters, is_due = several(settings.master), ask.is_due if identity else None
    joiner = Joiner(masters, membership, SystemClock(), ask, lambda: agent.heard, agent.joined, is_due)

    def expect_believed() -> None:
        if identity is not None and membership.cell:
            identity.expect_believed(membership.cell)

    hangup.handle(asyncio.get_running_loop(), Reload(path, file, joiner, ask, server, expect_believed))
    joining = asyncio.create_task(joiner.run())
    watching = asyncio.create_task(_end(ending, app, server))
    log.info("machine %s listens on %s:%d", settings.machine, *listener.getsockname()[:2])
    await server.serve(sockets=[listener])
    watching.cancel()
    joining.cancel()
    await agent.close()
    log.info("ended; tasks go on")


class Reload:
    """Goes by what the borglet's file and certificate are now, and logs each change. What is broken is
    reported, and then nothing changes."""

    def __init__(
        self,
        path: Path,
        file: File,
        joiner: Joiner,
        ask: HttpJoin,
        server: BoundedServer,
        expect_believed: Callable[[], None],
    ) -> None:
        """``expect_believed`` raises UnsafeConfiguration for files of the machine's own that no master would
        know it by."""
        self._path, self._file, self._joiner, self._ask, self._server = path, file, joiner, ask, server
        self._expect_believed = expect_believed
        self._pem = _read_pem(checked(path, file))

    def __call__(self) -> None:
        """Do it; the hangup's handler."""
        reload(log, self._read, self._apply)

    def _read(self) -> tuple[File, File, Pem]:
        """Return what is in the file, what of it to go by, and what is in the files that it names."""
        new = read(self._path)
        checked(self._path, new)
        file = merged(self._file, new, LIVE)
        settings = checked(self._path, file)
        expect_usable(settings.tls)
        self._expect_believed()
        return new, file, _read_pem(settings)

    def _apply(self, found: tuple[File, File, Pem]) -> list[str]:
        new, file, pem = found
        settings = checked(self._path, file)
        lines = [str(change) for change in changes(self._file, new, LIVE)] + self._pem.changes(pem)
        if file != self._file:
            self._ask.settings = settings
            self._joiner.change(several(settings.master))
        self._file = file
        reload_tls(self._server, settings.tls)
        self._pem = pem
        return lines


def _read_pem(settings: Settings) -> Pem:
    return read_pem(settings.tls.certificate) if settings.tls else Pem()  # each join reads `ca` anew


async def _end(ending: asyncio.Event, app: BorgletApp, server: BoundedServer) -> None:
    """Once told to: end what is open, then the server."""
    await ending.wait()
    app.end()
    server.should_exit = True


def _make_agent(settings: Settings) -> Agent:
    ledger = Ledger(settings.state, settings.machine)
    if ledger.damaged_lines:
        log.warning("%d damaged lines of the ledger were left out", ledger.damaged_lines)
    secrets = SecretFolders(memory_folder(settings.state))
    return Agent(
        settings.machine,
        facts.boot_id(),
        new_instance(),
        facts.measure(settings),
        state=settings.state,
        ledger=ledger,
        factories=_factories(settings, secrets),
        clock=SystemClock(),
        secrets=secrets,
    )


def _join_by_http(
    settings: Settings,
    membership: Membership,
    agent: Agent,
    listener: socket.socket,
    identity: Identity | None,
) -> HttpJoin:
    host, port = listener.getsockname()[:2]
    core, tls = agent.core, settings.tls is not None or identity is not None

    def request() -> JoinRequest:
        return JoinRequest(settings.machine, host, port, core.boot_id, core.instance, core.facts, tls=tls)

    return HttpJoin(settings, membership, request, SystemClock(), identity, told=lambda: agent.authorities)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnsafeConfiguration(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            "Choose another 'listen' in the configuration; port 0 is any free one.",
        ) from None
    return listener


if __name__ == "__main__":
    main()
