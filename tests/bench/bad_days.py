"""``bad_days``: a cell with somebody or something at its worst: what stays bounded, and what others wait for.

Everything is from outside, by HTTP and polls over real sockets, with a real borgmaster on SQLite; machines,
clients and master share the host, so that others also wait for the cores. ``others`` ask for health, 50 ms
after each answer, and submit jobs of one task, twenty a second; ``at_rest`` is without a bad day.

``cycles`` is a user who submits a job and kills it, for ever. The store grows by the journal, which is kept
for good unless ``journal.keep_days`` says otherwise. The master grows until it has 10,000 messages of the
watch and 32 MiB of the store's pages, and by each dead job that has a new name.

``watched`` are clients that open a watch and never read it, while jobs come as fast as they are taken in;
``by_0`` is the same without them. The master keeps 10,000 messages for all of them together. Who is behind
that is ``let_go``, which it hears when it reads at last; until then it has its connection, and up to 4 MiB of
the kernel's memory, which are not the master's.

``crowd`` are clients of one user, from one address, each with a connection and a request, all at once; and
all ``again`` right after, when the user has spent what is allowed (``limits``, as shipped).

``large`` is a user whose jobs have 0.92 MiB of environment each, and who submits them until the cell keeps no
more of one user (``quota.footprint_mib``), and then kills each for the next one: ``turned_over``. The store
grows by the journal.

``dead`` is a cell of jobs that are over. They are forgotten by themselves after a day
(``keep.dead_jobs_hours``), the oldest of a user sooner where more than 100,000 tasks of this user are dead
(``keep.dead_tasks``), 500 jobs a second; ``forgotten`` is while that goes on.

``machines`` has one that answers each poll after four seconds, and then one whose answers are 10 MiB of
garbage; nothing is to run on them.

The change of the leader under full load is in ``failover``, the return of all machines at once in ``polls``,
wrong tokens are in ``doors``.
"""

from collections.abc import Iterator

from tests.bench import bad_days_clients, bad_days_jobs, bad_days_machines
from tests.bench.figure import Figure
from tests.bench.sizes import Sizes


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what others wait for on each bad day, and how large master and store become."""
    yield from bad_days_jobs.cycled(sizes)
    yield from bad_days_clients.watched(sizes)
    yield from bad_days_clients.crowded(sizes)
    yield from bad_days_jobs.large(sizes)
    yield from bad_days_jobs.dead(sizes)
    yield from bad_days_machines.figures(sizes)
