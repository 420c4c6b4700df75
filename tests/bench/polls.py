"""``polls``: what machines that say nothing new cost a borgmaster, and what it costs to let them in.

Machines are a process of their own, which answers each poll when its hold is over, with as little as it can.
Polls go over real sockets; the cell's machines are in its store from the start. The master's cpu is as the
kernel counts it, user and system together, and is what to go by where others work on the same host.
``joined`` is a machine let in, called, and heard for the first time; ``back`` are the machines of a cell that
all join again at once (over TLS within eight seconds), until the last is back, and the longest that somebody
else waits for an answer. What borglets take is left out, and so is a network.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from borgish.cell.model import Cell, Snapshot
from borgish.cli import local_cell as cell_folder
from borgish.cli.commands import init
from borgish.store.open import open_store
from tests.bench.apps import cpu_seconds
from tests.bench.borglets import machine_record
from tests.bench.figure import MEAN, Figure, at_most
from tests.bench.idle import IdleMachines, certified
from tests.bench.joins import AT_ONCE, Joining
from tests.bench.past import kept
from tests.bench.sizes import Sizes
from tests.bench.standing import Started, master
from tests.ports import free_port

CELL = "bench"
HEARD_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.1
MACHINES_MOST = 10_000
"""In a cell of so many the goals hold."""
MACHINES_MIN = 1_000
"""What is measured of fewer has no goal."""
COME_WITHIN_SECONDS = 8.0
PLAIN, TLS = "plain", "tls"


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what polls cost at rest, by the size of the cell, in clear and over TLS; and what joins do."""
    for kind in (PLAIN, TLS):
        for machines in sizes.poll_machines:
            yield from _at_rest(kind, machines, sizes)
    for kind, returning in ((PLAIN, sizes.returning_machines), (TLS, sizes.returning_machines_tls)):
        yield from _joined(kind, sizes.joining_machines)
        yield from _back(kind, returning)


def _at_rest(kind: str, machines: int, sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of a cell in which nothing happens."""
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        idle_cell(Path(place), kind, machines) as (started, farm),
    ):
        until_known(farm, machines)
        time.sleep(sizes.poll_settle_seconds)
        shares, each, intervals = [], [], []
        for _ in range(sizes.rounds):
            farm.clear()
            before, polls, began = cpu_seconds(started.pid), farm.count.value, time.perf_counter()
            time.sleep(sizes.poll_seconds)
            cpu = cpu_seconds(started.pid) - before
            shares.append(cpu / (time.perf_counter() - began))
            each.append(1e6 * cpu / max(1, farm.count.value - polls))
            intervals.append(farm.interval_seconds(0.95))
    name, is_largest = f"polls.{kind}.{machines}", machines == MACHINES_MOST
    yield Figure(f"{name}.master_cpu", "cores", shares, at_most(0.5) if is_largest else None, quantile=MEAN)
    goal = at_most(100.0) if kind == PLAIN and is_largest else None
    yield Figure(f"{name}.each", "us cpu", each, goal, quantile=MEAN)
    yield Figure(f"{name}.interval_p95", "s", intervals, at_most(5.0))


def _joined(kind: str, machines: int) -> Iterator[Figure]:
    """Yield what it takes to let machines into a new cell and to hear of each."""
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        idle_cell(Path(place), kind, machines, are_known=False) as (started, farm),
    ):
        joining = Joining(started.client, CELL, Path(place), farm, kind == TLS)
        requests = joining.invited()
        before = cpu_seconds(started.pid)
        with joining.asking(requests, AT_ONCE):
            until_known(farm, machines)
            cpu = cpu_seconds(started.pid) - before
    goal = at_most(3.0 if kind == TLS else 0.5) if machines >= MACHINES_MIN else None
    yield Figure(f"polls.joined.{kind}.{machines}", "ms cpu each", [1000 * cpu / machines], goal)


def _back(kind: str, machines: int) -> Iterator[Figure]:
    """Yield how soon machines are back in their cell that all come at once, and who waits for that. Over TLS
    they come within some seconds: that all of them are one process is what holds them up."""
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        idle_cell(Path(place), kind, machines) as (started, farm),
    ):
        until_known(farm, machines)
        joining = Joining(started.client, CELL, Path(place), farm, kind == TLS)
        requests = joining.known()
        before, began = cpu_seconds(started.pid), time.perf_counter()
        with joining.asking(requests, within_seconds=COME_WITHIN_SECONDS * (kind == TLS)) as joined:
            longest = joining.longest_wait(joined, machines)
            seconds, cpu = time.perf_counter() - began, cpu_seconds(started.pid) - before
    name, is_large = f"polls.back.{kind}.{machines}", machines >= MACHINES_MIN
    yield Figure(f"{name}.seconds", "s", [seconds], at_most(60.0) if is_large else None)
    yield Figure(f"{name}.each", "ms cpu each", [1000 * cpu / machines])
    yield Figure(f"{name}.others_longest_wait", "s", [longest])


@contextmanager
def idle_cell(
    folder: Path, kind: str, machines: int, *, are_known: bool = True
) -> Iterator[tuple[Started, IdleMachines]]:
    """Run a borgmaster of a cell with so many machines, none of which has joined just now; where they are not
    ``known``, none has joined at all."""
    if kind == TLS:
        init.make(folder, CELL, f"127.0.0.1:{free_port()}")
    else:
        cell_folder.make(folder, 1)
    file = folder / "cell.toml"
    rows = [row for row in file.read_text().splitlines() if row.startswith(("listen", "state"))]
    url = f"sqlite:///{folder}/{CELL}.db"
    file.write_text("\n".join([f'name = "{CELL}"', *rows, f'db = "{url}"', ""]))
    names = [f"m{number}" for number in range(machines)]
    farm = IdleMachines(names, certified(folder, CELL) if kind == TLS else None)
    records = {name: machine_record(name) for name in names}
    for name, record in records.items():
        record.host, record.port, record.tls = farm.hosts[name], farm.port, kind == TLS
    with closing(open_store(url, CELL)) as store:
        kept(store, Cell(Snapshot(CELL, 1, machines=records if are_known else {})))
    with farm.running(), master(folder) as started:
        yield started, farm


def until_known(farm: IdleMachines, machines: int) -> None:
    """Wait until the master has the report of each machine."""
    began = time.perf_counter()
    while (known := farm.known.value) < machines:
        if time.perf_counter() - began > HEARD_SECONDS_MAX:
            raise TimeoutError(f"{known} of {machines} machines are known")
        time.sleep(LOOK_SECONDS)
