"""``scripts/bench``: measures the figures that borgish promises, and prints them with their goals."""

import argparse
import importlib
import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from tests.bench import host
from tests.bench.figure import Figure
from tests.bench.sizes import FULL, Sizes

GROUPS = {
    "restart": "a task is killed: how soon its replacement runs",
    "submit": "submit to all up, with real programs and containers",
    "short": "tasks that live for milliseconds, submit to all ended",
    "simulator": "virtual seconds a cpu second",
    "control": "submit to running, durable, on simulated machines",
    "cli": "borgctl's wall time and borgmaster's memory",
    "dashboard": "first frame, keys, cpu and memory on the largest summary of a cell",
    "schedule": "passes of the scheduler over large cells",
    "pack": "how full cells get on public traces, by policy",
    "store": "appends, checkpoints and loads",
    "time": "start, checkpoints, rollback and reads of the past, of a large cell",
    "kills": "kill -9 of the master at random moments, and what was lost",
    "change": "updates and drains: decisions, time, and failed requests",
    "apps": "an application of many jobs; jobs that wait, and crons: cost at rest, and how late they begin",
    "doors": "what TLS, confinement and wrong tokens cost",
    "scale": "small jobs over real HTTP and polls, beside others who ask or watch, and among many at rest",
    "polls": "machines at rest: the master's cpu for polls; and for letting thousands in",
    "failover": "kill -9 of the leader: how soon a standby commits a write",
}
"""Each is a module here with ``figures(sizes)``."""


def main() -> None:
    """Measure what was asked for; exit 1 when a group ended with an error."""
    arguments = _arguments()
    print(f"machine: {host.described()}", file=sys.stderr if arguments.json else sys.stdout, flush=True)
    count = arguments.count
    sizes = msgspec.structs.replace(FULL, master_kills=count, failovers=count) if count else FULL
    wanted = arguments.groups or GROUPS
    failed = [name for name in wanted if not _print_group(name, sizes, as_json=arguments.json)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def _print_group(name: str, sizes: Sizes, *, as_json: bool) -> bool:
    """Print a group's figures as they come, then the host's speed; return whether all could be taken."""
    try:
        for figure in chain(group(name)(sizes), host.figures(name)):
            print(json.dumps(figure.record()) if as_json else figure.line(), flush=True)
    except Exception:  # one group that breaks must not cost the figures of the others
        traceback.print_exc()
        return False
    return True


def group(name: str) -> Callable[[Sizes], Iterator[Figure]]:
    """Return what measures a group; only then is imported what it needs."""
    figures: Callable[[Sizes], Iterator[Figure]] = importlib.import_module(f"tests.bench.{name}").figures
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure figures and print one line for each, medians of five or more.",
        epilog="groups: " + "; ".join(f"{name}: {about}" for name, about in GROUPS.items()),
    )
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="all, unless named")
    parser.add_argument("--json", action="store_true", help="one JSON object a line; the machine on stderr")
    parser.add_argument("--count", type=_count, default=0, metavar="N", help="kills of the master")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.groups if name not in GROUPS]:
        parser.error(f"no group {unknown[0]}; there are {', '.join(GROUPS)}")
    return arguments


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # cells and containers are taken down
    main()
