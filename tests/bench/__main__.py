"""``scripts/bench``: measures the figures that borgish promises, and prints them with their goals."""

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from borgish.clock import SystemClock
from tests.bench import host, page, records
from tests.bench.figure import Figure, Record
from tests.bench.groups import GROUPS, group
from tests.bench.sizes import FULL, Sizes


def main() -> None:
    """Measure what was asked for; exit 1 when a group ended with an error."""
    arguments = _arguments()
    if arguments.check and not page.is_as_made():
        sys.exit(f"{records.PAGE} is not what the records say: run scripts/bench --write")
    if arguments.write:
        page.write()
    if arguments.check or arguments.write:
        return
    machine = f"machine: {host.described()}, load {host.load():.1f} at the start"
    print(machine, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    count = arguments.count
    sizes = msgspec.structs.replace(FULL, master_kills=count, failovers=count) if count else FULL
    code, failed = records.code_here(), []
    for name in arguments.groups or GROUPS:
        run = _measured(name, sizes, code, as_json=arguments.json)
        if run is None:
            failed.append(name)
        elif arguments.record:
            records.keep(name, run)
            page.write()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def _measured(name: str, sizes: Sizes, code: str, *, as_json: bool) -> records.Run | None:
    """Print a group's figures as they come, then the host's speed; return all, None where it broke."""
    load, began = host.load(), time.perf_counter()
    try:
        figures = tuple(_printed(group(name)(sizes), as_json=as_json))
        speeds = tuple(_printed(host.figures(name), as_json=as_json))
    except Exception:  # one group that breaks must not cost the figures of the others
        traceback.print_exc()
        return None
    return records.Run(
        day=f"{datetime.fromtimestamp(SystemClock().now().wall, UTC):%Y-%m-%d}",
        code=code,
        machine=host.described(),
        load=round(load, 1),
        minutes=round((time.perf_counter() - began) / 60, 1),
        host=speeds,
        figures=figures,
    )


def _printed(figures: Iterable[Figure], *, as_json: bool) -> Iterator[Record]:
    for figure in figures:
        record = figure.record()
        print(msgspec.json.encode(record).decode() if as_json else figure.line(), flush=True)
        yield record


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure figures and print one line for each, medians of five or more.",
        epilog="groups: " + "; ".join(f"{name}: {about}" for name, about in GROUPS.items()),
    )
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="all, unless named")
    parser.add_argument("--json", action="store_true", help="one JSON object a line; the machine on stderr")
    parser.add_argument("--count", type=_count, default=0, metavar="N", help="kills of the master")
    doing = parser.add_mutually_exclusive_group()
    record = f"keep what each group measured in {records.FOLDER}, and write {records.PAGE}"
    doing.add_argument("--record", action="store_true", help=record)
    doing.add_argument("--write", action="store_true", help=f"write {records.PAGE} anew; measure nothing")
    doing.add_argument("--check", action="store_true", help="exit 1 where that would change it")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.groups if name not in GROUPS]:
        parser.error(f"no group {unknown[0]}; there are {', '.join(GROUPS)}")
    if arguments.record and arguments.count:
        parser.error("--record keeps runs of full size only, and --count is another one")
    return arguments


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # cells and containers are taken down
    main()
