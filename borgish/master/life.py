"""One borgmaster from start to end: it stands by while another leads, then leads, and lets go in order."""

import asyncio
import gc
import logging
import signal
import socket

from borgish.api.auth import Tokens
from borgish.api.door import Door, hosts_of
from borgish.api.standby import StandbyApp
from borgish.clock import SystemClock
from borgish.credentials import make_credentials, read_credentials, tell_clients
from borgish.errors import UnsafeConfiguration
from borgish.master.daemon import Daemon, seen_by_machines
from borgish.master.front import Front
from borgish.master.settings import Settings
from borgish.master.standby import Standby
from borgish.store.candidate import candidate
from borgish.store.sql import SqlStore

FILES_SECONDS_MAX = 5.0
"""How long a standby waits for secrets that the leader of the same folder is about to write."""
_LOOK_SECONDS = 0.1

log = logging.getLogger("borgmaster")


async def live(settings: Settings, *, may_wait: bool, take_over: bool) -> None:
    """Live until a signal asks to stop. Raises what ended it otherwise.

    ``may_wait``: stand by while another leads, rather than refuse to run. ``take_over`` a store that is
    older than what the machines have seen.
    """
    stopping = _stop_signals()
    one = candidate(
        settings.db_url, settings.name, settings.folder, settings.checkpoints.keep, settings.lease.ttl_seconds
    )
    standby = Standby(settings.name, one, SystemClock())
    store = None
    try:
        store = await standby.at_once(stopping, may_wait=may_wait)
        await _secrets_there(settings, stopping, is_leader=store is not None)
        front = await _opened(settings, standby)
        try:
            if store is None:
                log.info("standing by for %s on %s", settings.name, front.url)
                if one.is_alone and not (settings.folder / "client.json").exists():
                    _tell_clients(settings, standby.address)
            store = store or await standby.until_won(stopping)
            if store is not None:
                await _lead(settings, standby, store, front, stopping, take_over=take_over)
        finally:
            await front.stop()
    finally:
        one.close()
        if store is not None:
            store.close()


async def _opened(settings: Settings, standby: Standby) -> Front:
    """Listen, as a standby first."""
    tokens = Tokens.read(settings.folder / "tokens.toml")
    front = Front(Door(StandbyApp(standby.health), tokens, hosts_of(settings.host)))
    await front.open(settings)
    standby.address = _advertised(settings, front.url)
    return front


async def _lead(
    settings: Settings,
    standby: Standby,
    store: SqlStore,
    front: Front,
    stopping: "asyncio.Future[None]",
    *,
    take_over: bool,
) -> None:
    """Take in what the copy lacks, become the leader, and be it to the end."""
    credentials = make_credentials(settings.folder)
    _tell_clients(settings, standby.address)
    await asyncio.to_thread(standby.follow, store)
    cell = standby.copy.cell
    assert cell is not None, "it was just read"
    seen = await seen_by_machines(settings, cell, credentials, take_over=take_over)
    daemon = Daemon(settings, store, credentials, cell, standby.address, seen)
    # What was loaded stays: a full collection need not walk 200,000 tasks each time.
    gc.collect()
    gc.freeze()
    try:
        await daemon.run(front, stopping)
    finally:
        daemon.close()


async def _secrets_there(settings: Settings, stopping: "asyncio.Future[None]", *, is_leader: bool) -> None:
    """Return when the secrets of the cell are there. Who leads has the folder to itself, and makes what is
    missing; for others they come, or UnsafeConfiguration is raised."""
    if is_leader:
        make_credentials(settings.folder)
        return
    loop = asyncio.get_running_loop()
    end = loop.time() + FILES_SECONDS_MAX
    while not stopping.done():
        try:
            read_credentials(settings.folder)
            return
        except UnsafeConfiguration:
            if loop.time() > end:
                raise
        await asyncio.wait({stopping}, timeout=_LOOK_SECONDS)


def _tell_clients(settings: Settings, address: str) -> None:
    tell_clients(settings.folder, address, settings.tls.ca if settings.tls else "", settings.masters)


def _advertised(settings: Settings, listening: str) -> str:
    """Return where others find us: as the file says, or where we listen; who listens everywhere is found by
    the host's name."""
    if settings.advertise:
        return settings.advertise.rstrip("/")
    if settings.host not in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not listened on
        return listening
    scheme, port = listening.partition(":")[0], listening.rpartition(":")[2]
    return f"{scheme}://{socket.gethostname()}:{port}"


def _stop_signals() -> "asyncio.Future[None]":
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[None] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _settle, stopping)
    return stopping


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
