"""``scale``: small jobs and large ones over real HTTP and real polls, and whoever asks beside them.

Users are threads that submit over HTTP to a real borgmaster with SQLite. Each machine is the core of a
borglet, for which to start a program takes no time; all of them are one process, which the master polls over
HTTP. Master, machines and users share the host. ``submit`` is until a submission is answered, ``running``
until all tasks of the job run on their machines; cpu and bytes of polls are by task. Real programs and TLS
are left out.

``asked`` has others ask meanwhile, a process each, at rest, beside 80 % of the most that just came, and
beside jobs as large as they may be. ``watched`` has hundreds follow the watch. ``azure`` has jobs arrive as
the requests of a public cloud did. ``at_rest`` is one small change in a cell with so many tasks at rest: its
cpu, without what the master takes at rest, and the ratio to the smallest cell. ``host`` stands within the
group, too: a run takes minutes.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import host, scale_arrivals, scale_at_rest, scale_beside, scale_watched
from tests.bench.figure import Figure
from tests.bench.load import LARGE, SMALL, loaded, of
from tests.bench.sizes import Sizes


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what tasks cost on machines that fill, beside others who ask or watch, as a trace has them, and
    among many at rest."""
    yield from _filled(sizes)
    yield from scale_beside.figures(sizes)
    yield from scale_watched.figures(sizes)
    yield from scale_arrivals.figures(sizes)
    yield from scale_at_rest.figures(sizes)


def _filled(sizes: Sizes) -> Iterator[Figure]:
    """Yield what a task costs in large jobs, then in small ones on the machines that the large ones fill."""
    for machines in sizes.scale_machines:
        with TemporaryDirectory(prefix="borgish-bench-") as place, loaded(Path(place), machines) as load:
            name, tasks = f"scale.{machines}", sizes.scale_tasks
            large, small = of(LARGE, tasks), of(SMALL, SMALL * sizes.scale_jobs)
            yield from load.measured(large).figures(f"{name}.of_{large[0].tasks}")
            name_full = f"{name}.{tasks // machines}_each"
            yield from load.measured(small).figures(f"{name_full}.of_{SMALL}")
            yield from load.measured(of(1, sizes.scale_jobs_of_1)).figures(f"{name_full}.of_1")
            yield from host.figures(name)
