"""Tasks that tell of themselves: each sends its number to a port when it begins to run.

So a bench sees a program by its own sign of life, without asking a daemon and without looking again and
again, which on a small machine would slow down what is measured.
"""

import json
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from borgish.client import Client
from borgish.wire.api import Accepted, JobDetail, KillRequest, TaskList, TaskView

SIGN_SECONDS_MAX = 60.0
UP_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.005
LOOK_SHARE = 0.01  # of the time so far: looking more often would take the master's time from the tasks


class SignsOfLife:
    """A port of this machine that programs write to: of what is outside of their folders, all that they
    reach however they are confined."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(SIGN_SECONDS_MAX)

    def next(self) -> int:
        """Return the index of the next program that began. Raises TimeoutError."""
        return int(self._socket.recv(64))

    def command(self) -> list[str]:
        """Return a program that tells of itself and then sleeps."""
        port = self._socket.getsockname()[1]
        return ["bash", "-c", f'echo "$BORGISH_INDEX" > /dev/udp/127.0.0.1/{port}; exec sleep 100000']

    def close(self) -> None:
        self._socket.close()


class BenchJob:
    """A job of its own name, submitted, watched and ended through the API."""

    def __init__(
        self, client: Client, tasks: int, run: list[str], image: str = "", more: dict[str, Any] | None = None
    ) -> None:
        """``more``: fields of the job file."""
        self.name = f"bench-{secrets.token_hex(4)}"
        self.key = f"bench/{self.name}"
        self._client = client
        self._tasks = tasks
        fields = {
            "name": self.name,
            "user": "bench",
            "tasks": tasks,
            "run": run,
            "resources": {"cpu": "5m", "ram": "16MiB", "disk": "1MiB"},
            "stop": {"grace": "1s"},
        }
        self._fields = fields | ({"image": image} if image else {}) | (more or {})

    def submit(self, **changed: Any) -> None:
        """Submit it, or update it to what is changed."""
        self._client.post("/v1/jobs", json.dumps(self._fields | changed).encode(), Accepted)

    def until_up(self) -> None:
        """Return when the master says that all of it is up."""
        began = time.perf_counter()
        while ((job := self._client.get(f"/v1/jobs/{self.key}", None, JobDetail).job).up or 0) < self._tasks:
            spent = time.perf_counter() - began
            if spent > UP_SECONDS_MAX or job.failed:
                raise TimeoutError(f"{self.key}: {job.up} of {self._tasks} tasks are up; {job.reason}")
            time.sleep(max(LOOK_SECONDS, LOOK_SHARE * spent))

    def tasks(self) -> tuple[TaskView, ...]:
        return self._client.get("/v1/tasks", {"job": self.key}, TaskList).items

    def end(self) -> None:
        """Kill it and wait until no machine has any of it."""
        pids = [task.pid for task in self.tasks() if task.pid]
        self._client.post(f"/v1/jobs/{self.key}/kill", KillRequest(max_affected=self._tasks), Accepted)
        began = time.perf_counter()
        while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
            if time.perf_counter() - began > UP_SECONDS_MAX:
                raise TimeoutError(f"{self.key}: {len(left)} of its programs do not end")
            time.sleep(LOOK_SECONDS)
