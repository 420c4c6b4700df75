"""``scripts/bench load URL``: submits jobs to a cell that is there already, and says what its users wait for.

A job runs when all its tasks are placed, durably, as the watch tells it. The jobs are killed at the end, also
those of a load that is broken off. Who has the token has the limits that the cell sets for one user.
"""

import argparse
import os
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from borgish.client import Client
from borgish.errors import BorgishError, NotFound
from borgish.resources import Resources
from borgish.wire.api import Accepted, EventView, KillRequest
from tests.bench import host
from tests.bench.cli import LOOK_SECONDS, MIB
from tests.bench.figure import Figure
from tests.bench.load import PACED_USERS, USERS, Asked, named, spread, submit_all

TOLD_SECONDS_MAX = 30.0
RUNNING_SECONDS_MAX = 600.0
NEEDS = Resources(10, 16 * MIB)


def main(words: Sequence[str] | None = None) -> None:
    """Load a cell as the words of a command ask for, and print one line for each figure."""
    asked = _arguments(words)
    print(f"load from: {host.described()}", flush=True)
    try:
        for figure in _figures(asked):
            print(figure.line(), flush=True)
    except (BorgishError, OSError) as error:
        sys.exit(f"error: {error}")


def _figures(asked: argparse.Namespace) -> Iterator[Figure]:
    """Yield the tasks a second until all of them run, and what users wait for."""
    token = asked.token_file.read_text().strip()
    users = PACED_USERS if asked.per_second else USERS
    clients = [Client(asked.url, token, asked.ca) for _ in range(users)]
    due = [number / asked.per_second if asked.per_second else None for number in range(asked.jobs)]
    jobs = named(f"load-{secrets.token_hex(4)}-", [Asked(asked.tasks, NEEDS, each) for each in due])
    keys = {name: f"{asked.user}/{name}" for name, _ in jobs}
    placed = _Placed(clients[0], dict.fromkeys(keys.values(), asked.tasks))
    began = time.perf_counter()
    try:
        answered = submit_all(clients, jobs, asked.user, asked.run)
        placed.until_all_run()
    finally:
        _kill(clients[0], keys.values(), asked.tasks)
    running = placed.running
    rate = asked.jobs * asked.tasks / (max(running.values()) - began)
    yield Figure("load.rate", "tasks/s", [rate])
    yield from spread("load.submit", [1000 * (at - due) for _, due, at in answered])
    yield from spread("load.running", [1000 * (running[keys[name]] - due) for name, due, _ in answered])
    yield from host.figures("load")


class _Placed:
    """Follows what happens. ``running`` is when the last task was placed of each job that runs."""

    def __init__(self, client: Client, tasks: dict[str, int]) -> None:
        """``tasks`` are how many each job has. What happens after this is not missed."""
        self.running = dict[str, float]()
        self._client = client
        self._left = {job: set(range(count)) for job, count in tasks.items()}
        self._is_told = False
        self._broken: BorgishError | None = None
        threading.Thread(target=self._follow, daemon=True).start()
        self._until(lambda: self._is_told, TOLD_SECONDS_MAX, "the master does not tell what happens")

    def until_all_run(self) -> None:
        """Wait until all jobs run. Raises TimeoutError, and the error that the watch ended with."""
        self._until(lambda: len(self.running) == len(self._left), RUNNING_SECONDS_MAX, "not all jobs run yet")

    def _until(self, is_so: Callable[[], bool], seconds_max: float, else_said: str) -> None:
        began = time.perf_counter()
        while not is_so():
            if self._broken is not None:
                raise self._broken
            if time.perf_counter() - began > seconds_max:
                raise TimeoutError(else_said)
            time.sleep(LOOK_SECONDS)

    def _follow(self) -> None:
        try:
            for message in self._client.watch({"kinds": "event,summary"}):
                self._is_told = True  # a summary comes at once
                if message.kind == "event":
                    self._take(msgspec.json.decode(message.data, type=EventView))
        except BorgishError as error:
            self._broken = error

    def _take(self, event: EventView) -> None:
        if event.kind == "placed" and (left := self._left.get(event.job)) is not None:
            left.difference_update(event.indexes)
            if not left:
                self.running.setdefault(event.job, time.perf_counter())


def _kill(client: Client, keys: Iterable[str], tasks: int) -> None:
    """Kill all jobs that were submitted."""
    for key in keys:
        try:
            client.post(f"/v1/jobs/{key}/kill", KillRequest(max_affected=tasks), Accepted)
        except NotFound:
            continue  # it was not submitted any more


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench load",
        description="Submit jobs to a cell; print what their submission takes, and until all of each runs.",
    )
    parser.add_argument("url", metavar="URL", help="of the master, or of several with commas")
    file, ca = os.environ.get("BORGISH_TOKEN_FILE", ""), os.environ.get("BORGISH_CA", "")
    parser.add_argument("--token-file", type=Path, default=file or None, required=not file, metavar="FILE")
    parser.add_argument("--ca", default=ca, metavar="FILE", help="the authority that signs the master")
    parser.add_argument("--user", default="load", help="whose jobs they are (%(default)s)")
    parser.add_argument("--jobs", type=_positive, default=50, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--tasks", type=_positive, default=20, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--per-second", type=float, default=0.0, metavar="N", help="0: as fast as they go")
    parser.add_argument(
        "--run", type=shlex.split, default="sleep infinity", metavar="PROGRAM", help="(%(default)s)"
    )
    return parser.parse_args(words)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    main()
