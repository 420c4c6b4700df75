"""What callers send takes little of the master's memory, and what it took comes back."""

import contextlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted

BODIES, BODY_BYTES = 300, 1_000_000
DURING_BYTES_MAX = BODIES * BODY_BYTES / 3
"""What sockets and their buffers may take of the master's while it refuses nearly all of them."""
AFTER_BYTES_MAX = 30e6
"""What its allocator may keep of them. Of ``ANSWERED`` a third is more."""

JOB = "name: held\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\nallow_exec: true\n"
CRON = "kind: cron\nname: nightly\nschedule: '0 3 * * *'\nrun: [sleep, '1']\n"
STDIN = "/v1/tasks/ann/held/0/exec/stdin?session=s"
APPLY, PLAN, JOBS, CRONS = "/v1/apply", "/v1/plan", "/v1/jobs", "/v1/crons"
ANSWERED = [
    *[(PLAN, JOB, 200), (CRONS, CRON, 200)] * 5,
    *[(path, "\0", 400) for path in (APPLY, PLAN, JOBS, CRONS)] * 20,
]
"""Requests, and how they are answered: it takes longest to read a file that is right."""


def resident_bytes(pid: int) -> int:
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in each)
    return int(line.split()[1]) * 1024


def connected(made: RealCell, path: str, body_bytes: int) -> tuple[socket.socket, bytes]:
    """Return a connection, and the head of a request to send on it."""
    token = (made.folder / "tokens" / "admin.token").read_text().strip()
    host, _, port = made.client().url.rpartition("//")[2].partition(":")
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\n"
    head += f"Authorization: Bearer {token}\r\nContent-Length: {body_bytes}\r\n\r\n"
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS), head.encode()


@contextlib.contextmanager
def begun(made: RealCell, path: str, count: int) -> Iterator[list[socket.socket]]:
    """Have so many requests under way whose bodies lack the last byte, or were refused."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection, head = connected(made, path, BODY_BYTES)
            opened.append(stack.enter_context(connection))
            with contextlib.suppress(ConnectionError):  # refused, and closed
                connection.sendall(head + b"x" * (BODY_BYTES - 1))
        yield opened


def answered(made: RealCell, path: str, body: str) -> tuple[socket.socket, int]:
    """Return a connection that stays open, and the status with which its request was answered."""
    data = body.encode().ljust(BODY_BYTES, b"#")
    connection, head = connected(made, path, len(data))
    connection.sendall(head + data)
    return connection, int(connection.recv(1000).split(b" ")[1])


def test_hundreds_of_bodies_at_once_are_few_in_memory(own: RealCell) -> None:
    submitted(own, JOB)
    pid = own.pid("borgmaster")
    before = resident_bytes(pid)
    for path in (STDIN, APPLY, PLAN, JOBS, STDIN):
        with begun(own, path, BODIES) as opened:
            wait_until(lambda held=opened: len(select.select(held, [], [], 0)[0]) >= BODIES * 0.9)
            assert resident_bytes(pid) - before < DURING_BYTES_MAX
        wait_until(lambda: own.borgctl("status").code == 0)
        wait_until(lambda: resident_bytes(pid) - before < AFTER_BYTES_MAX, 5.0)


def test_bodies_that_were_answered_are_gone_while_their_connections_stay(own: RealCell) -> None:
    pid = own.pid("borgmaster")
    before = resident_bytes(pid)
    with contextlib.ExitStack() as stack:
        for path, body, status in ANSWERED:
            connection, said = answered(own, path, body)
            stack.enter_context(connection)
            assert said == status
        wait_until(lambda: resident_bytes(pid) - before < AFTER_BYTES_MAX, 5.0)
    wait_until(lambda: resident_bytes(pid) - before < AFTER_BYTES_MAX, 5.0)
