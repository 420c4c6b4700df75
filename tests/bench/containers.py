"""What the Docker engine does by itself, without a cell: the floor that borgish is measured against."""

import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from borgish.borglet.runtimes.docker.container import (
    LABEL_OWNER,
    LABEL_TASK,
    Owner,
    container_config,
)
from borgish.borglet.runtimes.docker.host import Rules, look_at_host, remove_network
from borgish.borglet.runtimes.docker.inventory import is_gone
from borgish.cli.changes import Deadline
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.resources import Resources
from borgish.spec.job import Restart, Stop
from borgish.vocabulary import Runtime
from borgish.wire.api import MachineList
from borgish.wire.link import AttemptSpec
from tests.cells import pauses
from tests.groups import docker_lacks

IMAGE = "borgish-bench/busybox:1"
SLEEP = ["sleep", "100000"]
CLIENTS = 8
NO_COMMAND = "no docker command to compare with; install docker-cli"
NO_BORGLET = "no borglet can use the engine"
FOUND_SECONDS_MAX = 30.0
GONE_SECONDS_MAX = 120.0
NEWS_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1
IMAGE_SCRIPT = Path(__file__).parents[2] / "scripts" / "image"


def lacks(client: Client) -> str:
    """Return why nothing can be measured with containers in this cell, "" when it can."""
    if lacking := docker_lacks():
        return lacking
    if shutil.which("docker") is None:
        return NO_COMMAND
    patience = Deadline(FOUND_SECONDS_MAX)  # a borglet looks for it when it runs already
    for _ in pauses():
        if not (lacking := _unusable(client)) or not patience.left:
            break
    return lacking


def _unusable(client: Client) -> str:
    machines = client.get("/v1/machines", None, MachineList).items
    faults = [fault for machine in machines for fault in machine.conditions if "docker" in fault]
    found = any(Runtime.DOCKER in machine.runtimes for machine in machines)
    return "" if found and not faults else f"{NO_BORGLET}: {'; '.join(faults) or 'none found it'}"


class BareEngine:
    """The engine as its own clients see it."""

    def __init__(self) -> None:
        import docker

        self._owner = Owner("bench", "bare", secrets.token_hex(4))
        self._clients = [docker.APIClient(version="auto") for _ in range(CLIENTS)]
        self._client = self._clients[0]
        without = Rules(without=("seccomp", "network"))
        self._place = look_at_host(self._client, self._owner.cell, without).place

    def make_image(self) -> None:
        if not self._client.images(name=IMAGE):
            subprocess.run([IMAGE_SCRIPT, IMAGE], check=True, capture_output=True)

    @contextmanager
    def news(self, event: str, **filters: str) -> Iterator[Callable[[], None]]:
        """Listen for one kind of event from now on; what is given waits for the next."""
        since = f"{SystemClock().now().wall:.9f}"
        news = self._client.events(since=since, filters={"event": event, **filters}, decode=True)
        limit = threading.Timer(NEWS_SECONDS_MAX, news.close)  # reading it has no limit of its own
        limit.start()

        def wait() -> None:
            if next(news, None) is None:
                raise TimeoutError(f"the engine told of no {event} within {NEWS_SECONDS_MAX:g} s")

        try:
            yield wait
        finally:
            limit.cancel()
            news.close()

    def run_bare(self) -> float:
        """Return the seconds of ``docker run --rm IMAGE true``: a program came, ran, and went."""
        return self._run("--rm", IMAGE, "true")[0]

    def run_detached(self) -> float:
        """Return the seconds of ``docker run -d``, from the command to its end: the container runs."""
        seconds, container = self._run("-d", IMAGE, *SLEEP)
        self._remove(0, container)
        return seconds

    def _run(self, how: str, *what: str) -> tuple[float, str]:
        network = [] if self._place.bridge else ["--network", "host"]
        label = f"{LABEL_OWNER}={self._owner.mark}"
        command = ["docker", "run", how, "--label", label, *network, *what]
        began = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return time.perf_counter() - began, done.stdout.strip()

    def replace_bare(self) -> float:
        """Return the seconds from the kill of a container to the start of another, by the shortest way.

        Not the fastest way: the engine is still undoing the network of the one that ended.
        """
        killed = self._start(0)
        pid = self._client.inspect_container(killed)["State"]["Pid"]
        with self.news("die", container=killed) as ended:
            began = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            ended()
            started = self._start(1)
            seconds = time.perf_counter() - began
        for container in (killed, started):
            self._remove(0, container)
        return seconds

    def start_many(self, count: int) -> float:
        """Return the seconds in which 8 clients bring up containers like those of a task."""
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as threads:
            ids = list(threads.map(self._start, range(count)))
        seconds = time.perf_counter() - began
        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(self._remove, range(count), ids))
        return seconds

    def until_gone(self, job: str) -> None:
        """Return when the borglets have let go of all containers of a job that was ended."""
        began = time.perf_counter()
        while left := sum(_is_left(row, job) for row in self._containers(LABEL_TASK)):
            if time.perf_counter() - began > GONE_SECONDS_MAX:
                raise TimeoutError(f"{left} containers of {job} are still there")
            time.sleep(LOOK_SECONDS)

    def _containers(self, label: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._client.containers(all=True, filters={"label": label})
        return rows

    def _start(self, number: int) -> str:
        client = self._clients[number % CLIENTS]
        config = container_config(_spec(number), 1, self._owner, self._place)
        made: str = client.create_container(**config)["Id"]
        client.start(made)
        return made

    def _remove(self, number: int, container: str) -> None:
        self._clients[number % CLIENTS].remove_container(container, force=True, v=True)

    def close(self) -> None:
        """Remove what a broken run may have left, and let go."""
        for left in self._containers(f"{LABEL_OWNER}={self._owner.mark}"):
            self._remove(0, left["Id"])
        remove_network(self._client, self._owner.cell)
        for client in self._clients:
            client.close()


def _is_left(row: dict[str, Any], job: str) -> bool:
    """Whether a container is one of a job's, and not merely kept for its output."""
    return str(row["Labels"][LABEL_TASK]).startswith(f"{job}/") and not is_gone(row)


def _spec(number: int) -> AttemptSpec:
    return AttemptSpec(
        task=f"bench/bare/{number}",
        attempt=1,
        run=tuple(SLEEP),
        env={"BORGISH_INDEX": str(number)},
        runtime=Runtime.DOCKER,
        resources=Resources(5, 16 * 1024**2),
        restart=Restart(),
        stop=Stop(),
        image=IMAGE,
    )
