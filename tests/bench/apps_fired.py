"""Crons that are due at once, in a real borgmaster with machines on sockets: how late each of them begins, as
a client sees that follows the watch. A part of ``apps``.
"""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from borgish.client import Client
from borgish.clock import SystemClock
from borgish.wire.api import Accepted, EventView
from tests.bench.cli import LoneMaster
from tests.bench.figure import Figure, at_most
from tests.bench.served import served_borglets
from tests.bench.sizes import Sizes

CLOCK = SystemClock()
SET_SECONDS = 0.05
"""Time for one cron to be set; a second more, and all of them are before they are due."""
SECONDS_MAX = 60.0


def figures(master: LoneMaster, sizes: Sizes) -> Iterator[Figure]:
    """Yield how late crons that are due at one instant begin: all of some rounds together."""
    count = sizes.crons_at_once
    late: list[float] = []
    with served_borglets(master.address, master.join_token, sizes.fake_borglets):
        for number in range(sizes.rounds):
            late += _late(master, f"round{number}", count)
    name = f"apps.crons.{count}_at_once"
    yield Figure(f"{name}.p50", "s late", late)
    yield Figure(f"{name}.p99", "s late", late, at_most(1.0), quantile=0.99)
    yield Figure(f"{name}.max", "s late", late, quantile=1)


def _late(master: LoneMaster, name: str, count: int) -> list[float]:
    """Return how many seconds after they were due the runs of so many crons were in the journal."""
    due = int(CLOCK.now().wall + 2 + SET_SECONDS * count)
    schedule = datetime.fromtimestamp(due, UTC).strftime("%-S %-M %-H * * *")
    seen: dict[str, float] = {}
    all_seen = threading.Event()

    def follow() -> None:
        other = Client.find(master.folder)
        messages = other.watch({"kinds": "event"})
        for message in messages:
            at = CLOCK.now().wall
            event = msgspec.json.decode(message.data, type=EventView)
            if event.kind == "submitted" and event.job.startswith(f"bench/{name}-"):
                seen[event.job] = at - due
                if len(seen) == count:
                    break
        other.close()
        all_seen.set()

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    for number in range(count):
        cron = {
            "kind": "cron",
            "name": f"{name}-{number}",
            "user": "bench",
            "schedule": schedule,
            "run": ["work"],
            "runtime": "fake",
            "resources": {"cpu": "10m", "ram": "16MiB"},
        }
        master.client.post("/v1/crons", json.dumps(cron).encode(), Accepted)
    assert CLOCK.now().wall < due, "the crons were due before all of them were set"
    assert all_seen.wait(SECONDS_MAX), f"{len(seen)} of {count} crons began"
    for number in range(count):
        master.client.post(f"/v1/crons/bench/{name}-{number}/remove", b"", Accepted)
    return list(seen.values())
