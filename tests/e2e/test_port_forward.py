"""borgctl port-forward on a real cell: connections to a port of a task, carried through the borgmaster."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted, task_of
from tests.forked import plain_environment

ECHO = """\
import os, socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""
JOB = {
    "name": "served",
    "run": ["python3", "-c", ECHO, "{{port.echo}}"],
    "ports": ["echo", "silent"],
    "health": {"tcp": True, "port": "echo", "interval": "100ms"},
    "resources": {"cpu": "50m", "ram": "64MiB"},
}


@contextmanager
def forwarded(made: RealCell, port: str) -> Iterator[int]:
    """Forward a port of the task, and return the one here."""
    command = [sys.executable, "-m", "borgish.cli.borgctl", "--dir", str(made.folder), "port-forward"]
    with subprocess.Popen(
        [*command, "served/0", port], stdout=subprocess.PIPE, env=plain_environment()
    ) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline().decode()
            assert said.startswith("127.0.0.1:"), said
            yield int(said.split()[0].rpartition(":")[2])
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 143


def echoed(port: int, data: bytes) -> bytes:
    """Send something, close that direction, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        with ThreadPoolExecutor(1) as sender:
            sent = sender.submit(connection.sendall, data)
            back = b""
            while len(back) < len(data):
                back += (part := connection.recv(65536))
                assert part
            sent.result()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        return back


def noted(made: RealCell) -> int:
    """Return how many connections to the task the audit has."""
    entries = made.items("audit", "-n", 1000)
    return [each["object"] for each in entries if each["action"] == "port-forward"].count("ann/served/0")


def test_connections_are_carried_to_a_port_and_noted(tidied: RealCell) -> None:
    submitted(tidied, json.dumps(JOB))
    noted_before = noted(tidied)
    with forwarded(tidied, "echo") as port, ThreadPoolExecutor(4) as people:
        data = [os.urandom(size) for size in (1, 1000, 300_000, 70_000)]
        assert list(people.map(lambda each: echoed(port, each), data)) == data
        before = task_of(tidied, "ann/served/0").pid
        tidied.ok("job", "restart", "served", "--now", "--max-affected", 1)
        wait_until(lambda: task_of(tidied, "ann/served/0").pid not in (None, before), PATIENCE_SECONDS)
        tidied.ok("job", "wait", "served", "--settle", 0)
        assert echoed(port, b"after a restart") == b"after a restart"
    assert noted(tidied) == noted_before + 5


def test_where_nothing_listens_the_connection_ends(tidied: RealCell) -> None:
    submitted(tidied, json.dumps(JOB))
    with forwarded(tidied, "silent") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"never"
        except (http.client.BadStatusLine, ConnectionError):
            pass
        finally:
            connection.close()
    said = tidied.borgctl("port-forward", "served/0", "nosuch")
    assert (said.code, "has no port 'nosuch'" in said.err, "echo, silent" in said.err) == (1, True, True)
    said = tidied.borgctl("port-forward", "served/0", "x:echo")
    assert (said.code, "8080:http" in said.err) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = tidied.borgctl("port-forward", "served/0", f"{port}:echo")
    assert said.code == 1
    assert f"error: cannot listen on 127.0.0.1:{port}: address already in use\nhint: Give another" in said.err
