"""``apps``: what an application of many jobs takes to apply, what thousands that wait for others or for their
time cost at rest, and how late crons begin.

``apply`` is over HTTP, its cpu that of the borgmaster and its children as the kernel counts it; no machine is
there to run the jobs. ``turn``, and thousands of ``crons`` due at one instant, are the core in simulated
time, beside as many jobs that run: what polls, store and requests take is left out. A hundred ``crons`` due
at one instant are those of a real borgmaster with machines on sockets, as a client hears of it that follows
the watch.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from borgish.client import Client
from borgish.wire.api import Accepted, HealthView
from borgish.wire.api_apps import AppKillRequest, ApplyRequest, AppPlanView, SourceText
from borgish.wire.api_past import HistoryList
from tests.bench import apps_at_rest, apps_fired
from tests.bench.changed_served import TICKS
from tests.bench.cli import LoneMaster, lone_master
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes

ASK_SECONDS = 0.005
"""Between two questions of the one who asks how the master is."""

ENTRIES_MAX = 50
"""So many of the latest entries of the journal are looked at for those of an application."""
_CPU_CLOCK = 2
"""What makes the id of a process the id of the clock of its cpu time: see ``clock_getcpuclockid(3)``."""

_JOB = """\
name: {name}-{number}
user: bench
run: [serve, --port, "{{{{port.http}}}}"]
runtime: fake
ports: [http]
env: {{RELEASE: "{release}"}}
health: {{http: /healthz, port: http, interval: 5s}}
resources: {{cpu: 10m, ram: 16MiB}}
labels: {{team: shop, tier: "{number}"}}
update: {{settle: 5s, at_a_time: 20%}}
"""


class Taken(msgspec.Struct, frozen=True):
    """What a request took."""

    wall: float  # seconds, until the answer was there
    cpu: float  # seconds, of the borgmaster and its children
    entries: int  # of the journal


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what an apply takes, then what is at rest, then how late crons begin."""
    with lone_master() as master:
        yield from _applied(master, sizes)
    yield from apps_at_rest.figures(sizes)
    with lone_master() as master:
        yield from apps_fired.figures(master, sizes)


def _applied(master: LoneMaster, sizes: Sizes) -> Iterator[Figure]:
    """As the kernel counts cpu: HTTP, reading the files in a process of its own, the turn and the store. Each
    application comes to a cell in which those before it are over; no machine is there to run it."""
    jobs = sizes.app_jobs
    first = _taken(master, _request("warm", jobs, 1))
    client = master.client
    found: dict[str, list[Taken]] = {}
    longest: dict[str, list[float]] = {}
    plans = []
    for number in range(2 * sizes.rounds):
        name = f"app{number}"
        is_asked = number % 2 == 1  # who asks meanwhile takes cpu, too
        plans.append(_plan(master, _request(name, jobs, 1)))
        for what, release in (("new", 1), ("again", 1), ("changed", 2)):
            request = _request(name, jobs, release)
            if is_asked:
                longest.setdefault(what, []).append(_longest_answer(master, request))
            else:
                found.setdefault(what, []).append(_taken(master, request))
        client.post(f"/v1/apps/bench/{name}/kill", AppKillRequest(), Accepted)
    group = f"apps.apply.{jobs}"
    yield Figure(f"{group}.first.cpu", "s", [first.cpu], note="the process that reads files is started")
    yield Figure(f"{group}.plan.cpu", "s", [plan.cpu for plan in plans])
    for what, taken in found.items():
        goal = at_most(0.5) if what == "new" else None
        yield Figure(f"{group}.{what}.cpu", "s", [each.cpu for each in taken], goal)
        yield Figure(f"{group}.{what}.wall", "s", [each.wall for each in taken])
        entries = [each.entries for each in taken]
        yield Figure(f"{group}.{what}.entries", "entries", entries, at_most(1), quantile=1)
        waits = [1000 * each for each in longest[what]]
        yield Figure(f"{group}.{what}.longest_answer", "ms", waits, note="of /v1/health, to another client")


def _request(name: str, jobs: int, release: int) -> ApplyRequest:
    texts = (_JOB.format(name=name, number=number, release=release) for number in range(jobs))
    return ApplyRequest((SourceText("jobs.yaml", "---\n".join(texts)),), app=name, user="bench")


def _taken(master: LoneMaster, request: ApplyRequest) -> Taken:
    body = msgspec.json.encode(request)
    before, cpu = master.client.get("/v1/health", None, HealthView).position, cpu_seconds(master.pid)
    began = time.perf_counter()
    master.client.post("/v1/apply", body, Accepted)
    wall, cpu = time.perf_counter() - began, cpu_seconds(master.pid) - cpu
    latest = master.client.get("/v1/history", {"limit": ENTRIES_MAX}, HistoryList).items
    subject = f"{request.user}/{request.app}"
    entries = sum(each.subject == subject for each in latest if each.position > before)
    return Taken(wall, cpu, entries)


def _plan(master: LoneMaster, request: ApplyRequest) -> Taken:
    body, cpu = msgspec.json.encode(request), cpu_seconds(master.pid)
    began = time.perf_counter()
    master.client.post("/v1/apply/plan", body, AppPlanView)
    return Taken(time.perf_counter() - began, cpu_seconds(master.pid) - cpu, 0)


def _longest_answer(master: LoneMaster, request: ApplyRequest) -> float:
    """Return the seconds that another client waited longest for an answer while this was applied."""
    over = threading.Event()
    waits = []

    def ask() -> None:
        other = Client.find(master.folder)
        while True:  # once in any case: what is applied may be done before this thread has begun
            began = time.perf_counter()
            other.get("/v1/health", None, HealthView)
            waits.append(time.perf_counter() - began)
            if over.wait(ASK_SECONDS):
                break
        other.close()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    body = msgspec.json.encode(request)
    try:
        master.client.post("/v1/apply", body, Accepted)
    finally:
        over.set()
        asking.join()
    return max(waits)


def own_cpu_seconds(pid: int) -> float:
    """Return the cpu that a process has taken, without its children, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def cpu_seconds(pid: int) -> float:
    """Return the cpu that a process has taken, and all children of it: those that are there, and those that
    it has waited for."""
    waited_for = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    children = (
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    )
    return own_cpu_seconds(pid) + sum(map(int, waited_for)) / TICKS + sum(map(cpu_seconds, children))
