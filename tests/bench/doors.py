"""``doors``: what TLS, confinement and strangers cost: cpu of the master, time to start, answers to others.

Machines are stand-ins on real sockets, of one process; they are plain, or show certificates that the cell's
authority signed. What is counted of the master is its cpu, user and system together. ``start`` is from the
submission of a job over HTTP to its only task's own sign of life, in a cell as ``borgctl up`` makes it,
confined and not. Wrong tokens come from a process on the same host, which takes cpu of its own.
"""

import contextlib
import multiprocessing
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from urllib.parse import urlsplit

from borgish.cli import daemons
from borgish.cli import local_cell as cell_folder
from borgish.cli.commands import init
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.ids import new_token
from borgish.join_token import digest_of
from borgish.tls.authority import new_key, request_to_sign
from borgish.tls.contexts import borglet_listener, caller
from borgish.tls.files import AUTHORITY_FILE
from borgish.tls.folder import read_authority
from borgish.wire.api import Accepted, MachineList, StatusView
from borgish.wire.api_access import InvitationRequest
from tests.bench.changed_served import JOINED_SECONDS_MAX, TICKS, cpu_of, machines, ticks
from tests.bench.cli import STOP_SECONDS_MAX, LoneMaster, lone_master, until_served
from tests.bench.figure import MEAN, Figure, at_most, quantile
from tests.bench.programs import BenchJob, SignsOfLife
from tests.bench.served import Secure
from tests.bench.sizes import Sizes
from tests.cells import RealCell, cell, wait_until
from tests.ports import free_port

WRONG_A_SECOND = 2_000
CONNECTIONS = 8
ASK_SECONDS = 0.01
"""Between two requests of somebody who has a token."""
SLOWER_MAX = 2.0


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what strangers cost others, what confinement costs a start, and what TLS costs the master."""
    yield from _refused(sizes)
    yield from _starts(sizes)
    yield from _links(sizes)


# Strangers


def _refused(sizes: Sizes) -> Iterator[Figure]:
    """Calm and flooded seconds take turns, so that both see the same machine."""
    calm: list[tuple[float, float]] = []
    flooded: list[tuple[float, float]] = []
    answered: list[float] = []
    with lone_master() as master:
        for _ in range(sizes.rounds):
            calm.append(_asked(master, sizes.door_seconds))
            with _strangers(master.address) as refused:
                before, began = refused.value, time.perf_counter()
                flooded.append(_asked(master, sizes.door_seconds))
                answered.append((refused.value - before) / (time.perf_counter() - began))
    yield Figure("doors.refused", "answers/s", answered)
    for name, found in (("calm", calm), ("wrong_tokens", flooded)):
        yield Figure(f"doors.master_cpu.{name}", "ms cpu/s", [cpu for _, cpu in found])
    waits = [wait for wait, _ in calm]
    yield Figure("doors.others_p99.calm", "ms", waits)
    goal = at_most(SLOWER_MAX * quantile(waits, 0.5))
    yield Figure("doors.others_p99.wrong_tokens", "ms", [wait for wait, _ in flooded], goal)


def _asked(master: LoneMaster, seconds: float) -> tuple[float, float]:
    """Return which wait for an answer 99 of 100 are not above, in milliseconds, for somebody who asks for so
    long, and the milliseconds of cpu that the master takes in a second meanwhile."""
    before, began = ticks(master.pid), time.perf_counter()
    wait = quantile(_waits(master.client, seconds), 0.99)
    return wait, 1000 * (ticks(master.pid) - before) / TICKS / (time.perf_counter() - began)


def _waits(client: Client, seconds: float) -> list[float]:
    """Return how many milliseconds somebody waits for answers, who asks for so long."""
    found: list[float] = []
    ends = time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        client.get("/v1/status", None, StatusView)
        found.append(1000 * (time.perf_counter() - began))
        time.sleep(ASK_SECONDS)
    return found


@contextmanager
def _strangers(address: str) -> Iterator["Synchronized[int]"]:
    """Have wrong tokens sent, by a process of its own; gives how many were answered so far."""
    context = multiprocessing.get_context("fork")
    answered = context.Value("q", 0)
    process = context.Process(target=_send_wrong, args=(address, answered), daemon=True)
    process.start()
    try:
        wait_until(lambda: answered.value)
        yield answered
    finally:
        process.kill()
        process.join()


def _send_wrong(address: str, answered: "Synchronized[int]") -> None:
    host, _, port = address.partition(":")
    head = f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer bgt_wrong\r\n\r\n".encode()
    opened = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    for connection in opened:
        connection.setblocking(False)
    due = time.perf_counter()
    while True:
        for connection in opened:
            with contextlib.suppress(BlockingIOError):
                connection.send(head)
            with contextlib.suppress(BlockingIOError):
                answered.value += connection.recv(2**16).count(b"HTTP/1.1 4")
        due += CONNECTIONS / WRONG_A_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))


# Starts


def _starts(sizes: Sizes) -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder,
        cell(Path(folder) / "cell", forked=sizes.forked) as real,
    ):
        confined = _submitted(real, sizes.kills)
        config = real.folder / "machines" / "m1" / "borglet.toml"
        config.write_text(f"{config.read_text()}\n[process]\nconfine = false\n")
        real.kill("m1")
        real.ok("up")
        plain = _submitted(real, sizes.kills)
    yield Figure("doors.start.plain", "ms", plain)
    yield Figure("doors.start.confined", "ms", confined)


def _submitted(real: RealCell, times: int) -> list[float]:
    """Return the milliseconds from each submission to the sign of life of its only task."""
    found: list[float] = []
    client = real.client()
    for _ in range(times):
        signs = SignsOfLife()
        job = BenchJob(client, 1, signs.command())
        began = time.perf_counter()
        job.submit()
        signs.next()
        found.append(1000 * (time.perf_counter() - began))
        job.until_up()
        job.end()
        signs.close()
    return found


# Links


def _links(sizes: Sizes) -> Iterator[Figure]:
    """In each round machines join a new cell, in clear and then over TLS. They are polled in the last one."""
    count = sizes.door_machines
    joined: dict[str, list[float]] = {"plain": [], "tls": []}
    polled: dict[str, list[float]] = {}
    for left in reversed(range(sizes.rounds)):
        with (
            lone_master() as master,
            _joined(master.client, master.pid, master.join_token, count) as cpu,
        ):
            joined["plain"].append(cpu)
            if not left:
                polled["plain"] = _polled(master.client, master.pid, sizes)
        with _secure_master() as (client, pid, folder):
            secret = new_token()
            invited = InvitationRequest(digest_of(secret), uses=10_000, for_seconds=3600)
            client.post("/v1/invitations", invited, Accepted)
            with _joined(client, pid, secret, count, _certified(folder)) as cpu:
                joined["tls"].append(cpu)
                if not left:
                    polled["tls"] = _polled(client, pid, sizes)
    for name, each in joined.items():
        yield Figure(f"doors.joined.{name}.{count}", "ms cpu each", each)
    for name, seconds in polled.items():
        yield Figure(f"doors.polls.{name}.{count}", "ms cpu/s", seconds, quantile=MEAN)


@contextmanager
def _joined(
    client: Client, pid: int, token: str, count: int, secure: Secure | None = None
) -> Iterator[float]:
    """Have machines join that are called then; gives the milliseconds of the master's cpu until each was
    heard, for one of them."""
    before = ticks(pid)
    with machines(urlsplit(client.url).netloc, token, count, secure):
        _until_heard(client, count)
        yield 1000 * (ticks(pid) - before) / TICKS / count


def _polled(client: Client, pid: int, sizes: Sizes) -> list[float]:
    """Return the milliseconds of cpu of each second in which machines that were heard are polled."""
    time.sleep(sizes.door_settle_seconds)
    return cpu_of(pid, sizes.rounds * sizes.door_seconds)


def _until_heard(client: Client, count: int) -> None:
    def heard() -> bool:
        found = client.get("/v1/machines", None, MachineList).items
        return len([each for each in found if each.heard_seconds_ago is not None]) == count

    wait_until(heard, JOINED_SECONDS_MAX)


@contextmanager
def _secure_master() -> Iterator[tuple[Client, int, Path]]:
    """Run a borgmaster of a cell with an authority; gives its client, its pid and its folder."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as parent:
        folder = Path(parent) / "cell"
        folder.mkdir()
        init.make(folder, "bench", f"127.0.0.1:{free_port()}")
        daemon = cell_folder.master_of(folder)
        process = daemons.start(daemon)
        try:
            client = Client.find(folder)
            until_served(client, process, daemon)
            yield client, process.pid, folder
        finally:
            daemons.stop([daemon], STOP_SECONDS_MAX)
            process.wait()


def _certified(folder: Path) -> Secure:
    """Return what makes stand-ins machines of a cell, by the key of its authority."""
    authority, trusted = read_authority(folder), str(folder / AUTHORITY_FILE)
    now = SystemClock().now().wall

    def listener(machine: str) -> ssl.SSLContext:
        key = new_key()
        file = folder / "stand-in.pem"
        file.write_bytes(authority.sign_machine("bench", machine, request_to_sign(key, machine), now) + key)
        return borglet_listener(str(file), trusted)

    return Secure(caller(trusted), listener)
