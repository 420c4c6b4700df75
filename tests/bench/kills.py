"""``kills``: kill -9 of the real borgmaster under load, at random moments, and what its clients lost.

Clients work over HTTP all the while. A kill counts as survived when everything that was acknowledged is in
the store exactly once, nothing is there by half, and replay, tables and checkpoints agree. All is judged at
every fiftieth and at the end. A host that loses power is left out.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench import peers
from tests.bench.figure import Figure, at_least, at_most
from tests.bench.sizes import Sizes
from tests.faults.kills import Report, kill_at_random
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege
from tests.fixtures_postgres import durable_server
from tests.groups import postgres_lacks

JUDGED_EACH = 50


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of SQLite, then of Postgres where there is one."""
    with Nursery(measured=True) as nursery:
        yield from _all_of("sqlite", _report(nursery, "", sizes.master_kills), sizes.master_kills)
        if lacking := postgres_lacks():
            yield Figure("kills.postgres", "survived", absent=lacking)
            return
        with durable_server() as server:
            report = _report(nursery, server.fresh_url(), sizes.master_kills)
        yield from _all_of("postgres", report, sizes.master_kills)


def _report(nursery: Nursery, url: str, count: int) -> Report:
    with (
        tempfile.TemporaryDirectory(prefix="borgish-kills-") as folder,
        Siege(nursery, Path(folder), url) as siege,
    ):
        report = kill_at_random(siege, count, count, JUDGED_EACH, _tell)
        for problem in report.problems:
            print(problem, file=sys.stderr)
        return report


def _tell(kills: int) -> None:
    if kills % JUDGED_EACH == 0:
        print(f"{kills} killed", file=sys.stderr, flush=True)


def _all_of(kind: str, report: Report, count: int) -> Iterator[Figure]:
    survived = report.kills - bool(report.problems)
    yield Figure(f"kills.{kind}", "survived", [survived], at_least(count))
    yield Figure(f"kills.{kind}.acknowledged", "commands", [report.acknowledged])
    yield Figure(
        f"kills.{kind}.start", "s", report.start_seconds, at_most(5.0), peers.BORG_RECOVERY, quantile=0.99
    )
