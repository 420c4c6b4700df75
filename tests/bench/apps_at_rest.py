"""Thousands of crons, and of jobs that wait for others: what they cost a borgmaster's core at rest, and how
crons that are due at once are spread. A part of ``apps``; time is simulated (``stand_in``).

Beside them as many jobs run. What is compared was measured in turns, some seconds each: a host that is shared
with others changes its speed.
"""

from collections.abc import Iterator

from borgish.cell.commands import (
    SetCron,
    SubmitJob,
)
from borgish.master.host.garbage import settle
from borgish.resources import Resources
from borgish.spec.cron import CronSpec
from borgish.spec.job import After, JobSpec, Restart
from borgish.text import instant
from borgish.vocabulary import Overlap, RestartPolicy, Runtime, Until
from tests.bench.figure import MEAN, Figure, at_most
from tests.bench.sizes import Sizes
from tests.bench.stand_in import StandIn

TURN_SECONDS = 5
DUE_AFTER_SECONDS = 20
SPREAD_SECONDS_MAX = 600
SLACK = 1.1
"""Within so much of what nothing costs, a cost counts as unchanged."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what a second takes with nothing, crons, and jobs that wait; then how crons are spread."""
    count = sizes.waiting_jobs
    cells = {what: _cell(sizes) for what in ("nothing", "crons", "after_each", "after_one")}
    cells["crons"].ask(*(SetCron(_cron(number, "0 4 * * *")) for number in range(count)))
    cells["after_each"].ask(*(SubmitJob(_waiting(number, f"bench/job-{number}")) for number in range(count)))
    cells["after_one"].ask(*(SubmitJob(_waiting(number, "bench/job-0")) for number in range(count)))
    for what in ("after_each", "after_one"):
        assert len(cells[what].core.cell.deferred) == count
    assert len(cells["crons"].core.cell.crons) == count
    for cell in cells.values():
        cell.seconds(TURN_SECONDS)  # what follows from the beginning is over
    settle()
    rest: dict[str, list[float]] = {what: [] for what in cells}
    for _ in range(max(1, sizes.changing_seconds // TURN_SECONDS)):
        for what, cell in cells.items():
            rest[what] += (1000 * each for each in cell.seconds(TURN_SECONDS))
    nothing = Figure(f"apps.turn.{count}_jobs.at_rest", "ms/s", rest.pop("nothing"), quantile=MEAN)
    yield nothing
    for what, each in rest.items():
        goal = at_most(SLACK * nothing.value)
        yield Figure(f"apps.turn.{count}_{what}", "ms/s", each, goal, quantile=MEAN)
    yield from _spread(_cell(sizes), count)


def _spread(cell: StandIn, count: int) -> Iterator[Figure]:
    """Yield how crons that are due at one instant begin."""
    there = cell.core.cell
    clock = instant(cell.wall + 60 + DUE_AFTER_SECONDS)  # 2026-11-22T02:00:...
    schedule = f"{int(clock[14:16])} {int(clock[11:13])} * * *"
    cell.ask(*(SetCron(_cron(number, schedule)) for number in range(count)))
    (due,) = {cron.next for cron in there.crons.values()}
    settle()
    steps = []
    until = due + SPREAD_SECONDS_MAX
    while len(there.runs) < count:
        assert cell.wall < until, f"{len(there.runs)} of {count} crons began"
        before = cell.cpu_seconds
        cell.step()
        steps.append(1000 * (cell.cpu_seconds - before))
    late = [there.jobs[key].present.at - due for runs in there.runs.values() for key in runs]
    seconds = [0] * (int(max(late)) + 1)
    for each in late:
        seconds[int(each)] += 1
    yield Figure(f"apps.crons.{count}_at_once.last", "s late", late, at_most(60), quantile=1)
    yield Figure(f"apps.crons.{count}_at_once.in_a_second", "crons", seconds, quantile=1)
    yield Figure(f"apps.crons.{count}_at_once.longest_step", "ms cpu", steps, quantile=1)


def _cell(sizes: Sizes) -> StandIn:
    return StandIn(sizes.cell_machines, [_job(f"job-{number}") for number in range(sizes.waiting_jobs)])


def _job(name: str, after: tuple[After, ...] = ()) -> JobSpec:
    return JobSpec(
        name,
        "bench",
        1,
        ("work",),
        runtime=Runtime.FAKE,
        resources=Resources(100, 16 * 1024**2),
        restart=Restart(RestartPolicy.NEVER),
        after=after,
    )


def _waiting(number: int, job: str) -> JobSpec:
    return _job(f"waiting-{number}", (After(job, Until.FINISHED),))


def _cron(number: int, schedule: str) -> CronSpec:
    return CronSpec(schedule, _job(f"cron-{number}"), overlap=Overlap.ALLOW)
