"""What callers send takes little of the master's memory, and what it took comes back."""

import contextlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted

BODIES, BODY_BYTES = 300, 1_000_000
GROWTH_BYTES_MAX = BODIES * BODY_BYTES / 3
"""What sockets and their buffers may take of the master's while it refuses nearly all of them."""

JOB = "name: held\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\nallow_exec: true\n"


def resident_bytes(pid: int) -> int:
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in each)
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def begun(made: RealCell, count: int) -> Iterator[list[socket.socket]]:
    """Have so many requests under way whose bodies lack the last byte, or were refused."""
    token = (made.folder / "tokens" / "admin.token").read_text().strip()
    host, _, port = made.client().url.rpartition("//")[2].partition(":")
    head = f"POST /v1/tasks/ann/held/0/exec/stdin?session=s HTTP/1.1\r\nHost: {host}\r\n"
    head += f"Authorization: Bearer {token}\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            made_now = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
            opened.append(stack.enter_context(made_now))
            with contextlib.suppress(ConnectionError):  # refused, and closed
                made_now.sendall(head.encode() + b"x" * (BODY_BYTES - 1))
        yield opened


def test_hundreds_of_bodies_at_once_are_few_in_memory(tidied: RealCell) -> None:
    submitted(tidied, JOB)
    pid = tidied.pid("borgmaster")
    before = resident_bytes(pid)
    with begun(tidied, BODIES) as opened:
        wait_until(lambda: len(select.select(opened, [], [], 0)[0]) >= BODIES * 0.9)
        assert resident_bytes(pid) - before < GROWTH_BYTES_MAX
    wait_until(lambda: tidied.borgctl("status").code == 0)
    assert resident_bytes(pid) - before < GROWTH_BYTES_MAX
