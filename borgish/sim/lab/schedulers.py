"""Three ways to share a cell among schedulers: one for all, offers, and shared state.

After Omega (Schwarzkopf et al., EuroSys 2013, sections 3 to 5 and figures 5 to 9) and its lightweight
simulator. The workload has batch jobs and services, drawn from a public trace (``azure``). A decision takes
``t_job + t_task * tasks`` seconds of virtual time, which is swept: what schedulers of other workloads would
have to think about, and how that becomes the others' trouble.

- *monolithic*: one scheduler decides about one job after the other. *single path*: all jobs take the same
  time; *multi path*: batch jobs are quick, and services take long.
- *two levels* (Mesos): an allocator offers all that is free to one scheduler at a time, to that with the
  smallest dominant share first (DRF); what is offered is nobody else's until it comes back.
- *shared state* (Omega): both see the whole cell, decide side by side and commit; what does not fit any more
  is a conflict, is left out, and tried again at once.

The same code: who goes where is decided by borgish's own scheduler (``scheduler.Scheduler``: feasibility,
classes, scores, packing), one instance for each of the lab's schedulers, and the cell is changed by
borgish's own commands (``SubmitJob``, ``PlaceTasks``, ``KillTasks``). The lab's own: queues, the time that a
decision takes, offers, and the check at commit whether a task still fits its machine, which borgish has no
need of, since nobody else places.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from random import Random

import msgspec

from borgish.cell.commands import SubmitJob
from borgish.master.turn import PASS_SECONDS, TASKS_MIN
from borgish.sim.lab.azure import AZURE, Drawn, arrivals
from borgish.sim.lab.desks import (
    KINDS,
    RETRY_SECONDS,
    SHARE,
    Desk,
    Job,
    Offers,
    Shared,
    Tally,
    begun,
    spec_of,
)
from borgish.sim.lab.plots import Figure, Line
from borgish.sim.lab.report import Report, Table, number, percent
from borgish.store.codec import decode_snapshot

QUICK_JOB, PER_TASK = 0.1, 0.005
"""The seconds of a decision in Omega, for a job and for each of its tasks (section 4)."""


class Way(StrEnum):
    """How schedulers share the cell."""

    SINGLE = "monolithic, single path"
    MULTI = "monolithic, multi path"
    OFFERS = "two levels, offers"
    SHARED = "shared state"


class Setting(msgspec.Struct, frozen=True):
    """One life of a cell. ``service_job`` is the t_job of services; with a single path of all jobs.

    ``rate``: so many times as many batch jobs come, which run so many times shorter. ``wide``: services have
    so many times as many tasks, each so many times smaller. ``batch_job`` is the t_job of batch jobs, and
    ``batches`` how many schedulers share these. ``coarse``: whatever was written to a machine since is a
    conflict.
    """

    way: Way
    service_job: float
    service_task: float = PER_TASK
    rate: int = 1
    wide: int = 1
    batch_job: float = QUICK_JOB
    batches: int = 1
    coarse: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """What came of one life. Busy are those who decide about jobs of a kind, in the mean of them; of a
    monolithic scheduler both numbers are its own. ``used`` is the mean share of the cores that are."""

    batch: Tally
    service: Tally
    batch_busy: float
    service_busy: float
    used: float


def live(seed: int, setting: Setting, hours: float) -> Outcome:
    """Let a cell live for some hours."""
    body, ends = begun(seed)
    shared = Shared(decode_snapshot(body, "lab"))
    batch, service = Tally(), Tally()
    desks = _desks(seed, setting, shared, lambda job: service if job.work.is_service else batch)
    until = hours * 3600
    for key, at in ends.items():
        if at < until:
            shared.clock.after(at, partial(shared.end, key))
    jobs: list[Job] = []

    def arrive(work: Drawn) -> None:
        spec = spec_of(f"new-{len(jobs)}", work)
        shared.do(SubmitJob(spec))
        job = Job(spec.key, work, shared.now.mono)
        jobs.append(job)
        # Of several, the one with the shortest queue.
        min(desks[KINDS[work.is_service]], key=lambda desk: len(desk.queue)).add(job)

    for work in _work(seed, setting, until):
        shared.clock.after(work.at, partial(arrive, work))
    used: list[float] = []
    for minute in range(round(until / 60)):
        shared.clock.run_until(60.0 * (minute + 1))
        used.append(shared.used_share())
    shared.clock.close()
    for job in jobs:
        tally = service if job.work.is_service else batch
        tally.left += bool(job.left)
        if job.first_at is None:
            tally.waits.append(until - job.at)
    busy = [sum(desk.busy_share() for desk in desks[kind]) / len(desks[kind]) for kind in KINDS]
    return Outcome(batch, service, busy[0], busy[1], sum(used) / len(used))


def _desks(
    seed: int, setting: Setting, shared: Shared, tally: Callable[[Job], Tally]
) -> dict[str, list[Desk]]:
    """Return who decides about batch jobs, and who about services."""

    def seconds(job: Job) -> float:
        is_slow = setting.way is Way.SINGLE or job.work.is_service
        of_job, of_task = setting.service_job, setting.service_task
        if not is_slow:
            of_job, of_task = setting.batch_job, PER_TASK
        return of_job + of_task * len(job.left)

    if setting.way in (Way.SINGLE, Way.MULTI):
        desk = Desk(shared, seed, tally, seconds)
        return {"batch": [desk], "service": [desk]}
    batches = [Desk(shared, seed + place, tally, seconds) for place in range(setting.batches)]
    services = Desk(shared, seed + setting.batches, tally, seconds)
    for desk in (*batches, services):
        desk.coarse = setting.coarse
    if setting.way is Way.OFFERS:
        Offers(shared, {"batch": batches[0], "service": services})
    return {"batch": batches, "service": [services]}


def _work(seed: int, setting: Setting, until: float) -> Iterator[Drawn]:
    """Yield what arrives."""
    rate, wide = setting.rate, setting.wide
    for place in range(rate):
        chance = Random(f"{seed}:work {place}")  # noqa: S311 - chance that can be repeated, not secrets
        for work in arrivals(chance, AZURE, SHARE, until):
            if not work.is_service:
                yield msgspec.structs.replace(work, seconds=max(1.0, work.seconds / rate))
            elif place == 0:
                needs = {"cores": work.cores / wide, "gigabytes": work.gigabytes / wide}
                yield msgspec.structs.replace(work, tasks=work.tasks * wide, **needs)


JOB_SECONDS = 0.1, 1.0, 5.0, 20.0, 50.0, 100.0
TASK_SECONDS = 0.05, 0.5, 5.0
RATES = 1, 2, 4
BATCHES = 1, 2, 4, 8
LOADED = Setting(Way.SHARED, 30.0)
"""Where conflicts are looked at."""
WIDE = 16
SPLIT = Setting(Way.SHARED, 1.0, rate=2, batch_job=20.0)
"""Where batch jobs take so long that one scheduler does not keep up."""
Sweep = dict[Way, dict[float, Outcome]]
Rows = dict[Setting, Outcome]


def run(seed: int, hours: float) -> Report:
    """Sweep the decision time, then what conflicts grow with, then how many schedulers share the work."""

    def lives(settings: Iterable[Setting]) -> Rows:
        return {setting: live(seed, setting, hours) for setting in settings}

    replace = msgspec.structs.replace
    sweep = {way: {each: live(seed, Setting(way, each), hours) for each in JOB_SECONDS} for way in Way}
    ways = Way.MULTI, Way.SHARED
    by_task = lives(Setting(way, QUICK_JOB, service_task=each) for way in ways for each in TASK_SECONDS)
    fine = [*(replace(LOADED, rate=rate) for rate in RATES), replace(LOADED, rate=RATES[-1], wide=WIDE)]
    loaded = lives(each for setting in fine for each in (setting, replace(setting, coarse=True)))
    split = lives(replace(SPLIT, batches=count) for count in BATCHES)
    return Report(
        "schedulers",
        "One scheduler for all, offers, or shared state?",
        {"seed": seed, "hours": hours},
        (
            _table("Decision time of services for a job (with a single path, of all jobs)", _rows(sweep)),
            _table("Decision time of services for each task", by_task),
            _table("Conflicts, by load and by what counts as one", loaded),
            _table(
                f"Batch jobs that take {SPLIT.batch_job:g} s each, and how many schedulers share them", split
            ),
        ),
        _figures(sweep, loaded, split),
        tuple(_conclusion(seed, sweep, loaded, split, hours)),
        {
            name: [{**_words(setting), **_data(outcome)} for setting, outcome in rows.items()]
            for name, rows in (
                ("job_seconds", _rows(sweep)),
                ("task_seconds", by_task),
                ("conflicts", loaded),
                ("split", split),
            )
        },
    )


def _rows(sweep: Sweep) -> Rows:
    return {Setting(way, each): outcome for way, by in sweep.items() for each, outcome in by.items()}


def _words(setting: Setting) -> dict[str, object]:
    return {**msgspec.structs.asdict(setting), "way": str(setting.way)}


def _data(outcome: Outcome) -> dict[str, object]:
    kinds = {"batch": outcome.batch, "service": outcome.service}
    of_kinds = {
        f"{name}_{field}": getattr(tally, field)
        for name, tally in kinds.items()
        for field in ("attempts", "conflicts", "scheduled", "left", "abandoned", "conflict_fraction", "wait")
    }
    busy = {"batch_busy": outcome.batch_busy, "service_busy": outcome.service_busy}
    numbers = {**busy, "used": outcome.used, **of_kinds}
    return {name: round(value, 4) for name, value in numbers.items()}


VARIED = "service_job", "service_task", "rate", "wide", "coarse", "batches"
COLUMNS = (
    *("batch busy", "service busy", "batch wait s", "service wait s"),
    *("batch conflicts", "service conflicts", "left", "used"),
)


def _row(outcome: Outcome) -> tuple[str, ...]:
    batch, service = outcome.batch, outcome.service
    return (
        percent(outcome.batch_busy),
        percent(outcome.service_busy),
        number(batch.wait, 1),
        number(service.wait, 1),
        number(batch.conflict_fraction, 3),
        number(service.conflict_fraction, 3),
        f"{batch.left + service.left}",
        percent(outcome.used),
    )


def _table(title: str, rows: Rows) -> Table:
    """Return a table of what is varied, and what came of it."""
    varied = [name for name in VARIED if len({getattr(setting, name) for setting in rows}) > 1]
    heads = {"service_job": "t_job", "service_task": "t_task", "batches": "schedulers"}
    has_ways = len({setting.way for setting in rows}) > 1
    texts = [
        (
            *([str(setting.way)] if has_ways else []),
            *(_shown(getattr(setting, name)) for name in varied),
            *_row(outcome),
        )
        for setting, outcome in rows.items()
    ]
    columns = (*(["way"] if has_ways else []), *(heads.get(name, name) for name in varied), *COLUMNS)
    return Table(title, columns, tuple(texts), names=1 + has_ways)


def _shown(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:g}"


def _figures(sweep: Sweep, loaded: Rows, split: Rows) -> tuple[Figure, ...]:
    def lines(show: Callable[[Outcome], float]) -> tuple[Line, ...]:
        return tuple(
            Line(str(way), tuple((each, show(outcome)) for each, outcome in by.items()))
            for way, by in sweep.items()
        )

    x, seconds = "t_job of services, s", "mean seconds"
    busy = Figure(
        "Who decides about services is busy", x, "share of the time", lines(lambda o: o.service_busy)
    )
    batch = Figure("Batch jobs wait", x, seconds, lines(lambda o: o.batch.wait), is_log_y=True)
    service = Figure("Services wait", x, seconds, lines(lambda o: o.service.wait), is_log_y=True)
    of_jobs = lines(lambda o: o.service.conflict_fraction)[-1:]
    conflict = Figure("Conflicts of services", x, "for each scheduled job", of_jobs)
    conflicts = tuple(
        Line(
            name,
            tuple(
                (each.rate, o.service.conflict_fraction)
                for each, o in loaded.items()
                if is_coarse is each.coarse and each.wide == 1
            ),
        )
        for name, is_coarse in (("does it fit", False), ("was it written to", True))
    )
    by_count = (
        Line("busy", tuple((setting.batches, o.batch_busy) for setting, o in split.items())),
        Line(
            "conflicts", tuple((setting.batches, o.batch.conflict_fraction) for setting, o in split.items())
        ),
    )
    by_time = (msgspec.structs.replace(each, is_log_x=True) for each in (busy, batch, service, conflict))
    return (
        *by_time,
        Figure("Conflicts of services, by load", "times as many batch jobs", "for each job", conflicts),
        Figure("Several schedulers of slow batch jobs", "schedulers", "share, for each job", by_count),
    )


def _conclusion(seed: int, sweep: Sweep, loaded: Rows, split: Rows, hours: float) -> Iterator[str]:
    single, multi, offers, shared = sweep.values()
    low, some, long = JOB_SECONDS[1], JOB_SECONDS[2], JOB_SECONDS[-1]
    work = list(_work(seed, Setting(Way.SHARED, 1.0), hours * 3600))
    rate = len(work) / (hours * 3600)
    tasks = [each.tasks for each in work if each.is_service]
    full = next((each for each in JOB_SECONDS if single[each].service_busy > 0.99), None)
    is_full = "It is never full."
    if full is not None:
        left = single[full].batch.left + single[full].service.left
        is_full = f"At {full:g} s it is full, and {left} of {len(work)} jobs are left."
    expected = [sum(each + PER_TASK * job.tasks for job in work) / (hours * 3600) for each in (low, some)]
    yield (
        f"Monolithic, single path: at {rate:.3f} jobs a second the scheduler is busy for "
        f"{percent(single[low].service_busy)} of the time with t_job {low:g} s and for "
        f"{percent(single[some].service_busy)} with {some:g} s. To add up what arrives gives "
        f"{percent(expected[0])} and {percent(expected[1])}, so it is a line, as in Omega's figure 5, but "
        f"for jobs that are tried again since there is no room for them. {is_full}"
    )
    decided = shared[long].service.attempts, len(shared[long].service.waits)
    yield (
        f"Multi path: batch jobs take {QUICK_JOB:g} s, and wait for {multi[long].batch.wait:.1f} s in the "
        f"mean when services take {long:g} s, since they stand behind them in one queue (head-of-line "
        f"blocking). With shared state they wait for "
        f"{max(each.batch.wait for each in shared.values()):.3f} s at most, whatever services take. "
        f"Services wait for {shared[long].service.wait:.0f} s there, against "
        f"{multi[long].service.wait:.0f} s: what is in conflict is decided anew, and {decided[0]} "
        f"decisions are made for {decided[1]} jobs."
    )
    yield (
        f"Offers: what is offered to who thinks for {long:g} s is nobody else's for so long. Batch jobs "
        f"wait for {offers[long].batch.wait:.1f} s until somebody begins with them, "
        f"{offers[long].batch.attempts} attempts are made for {len(offers[long].batch.waits)} jobs where "
        f"shared state makes {shared[long].batch.attempts}, and {offers[long].batch.left} are left with "
        f"{offers[long].batch.abandoned} given up, against {shared[long].batch.left}. Omega's figure 7 "
        f"has the same, and worse: there batch schedulers are busy with offers too small to use; here an "
        f"offer that was of no use is made again when something has changed, or after {RETRY_SECONDS:g} "
        f"s, and batch schedulers are busy for {percent(offers[long].batch_busy)}."
    )
    base, *_ = loaded.values()
    top = msgspec.structs.replace(LOADED, rate=RATES[-1])
    wide = msgspec.structs.replace(top, wide=WIDE)
    coarse = {each: loaded[msgspec.structs.replace(each, coarse=True)] for each in (top, wide)}
    yield (
        f"Shared state pays by conflicts: for each service {shared[low].service.conflict_fraction:.3f} "
        f"with t_job {low:g} s and {shared[long].service.conflict_fraction:.3f} with {long:g} s; "
        f"{len(tasks)} services come, so that one conflict more is {1 / max(1, len(tasks)):.3f}. With "
        f"{LOADED.service_job:g} s they go from {base.service.conflict_fraction:.3f} to "
        f"{loaded[top].service.conflict_fraction:.3f} as {RATES[-1]} times as many batch jobs come, and "
        f"to {coarse[top].service.conflict_fraction:.3f} where any write to a machine counts. Omega had "
        f"more than one for each job at 10 s, in one of its cells. Services are small in this trace, "
        f"{sum(tasks) / len(tasks):.1f} tasks in the mean; of {WIDE} times as many tasks, each so much "
        f"smaller, it is {loaded[wide].service.conflict_fraction:.3f} and "
        f"{coarse[wide].service.conflict_fraction:.3f}."
    )
    alone, *_, many = split.values()
    yield (
        f"What speaks against one scheduler is what takes long to decide. With batch jobs of "
        f"{SPLIT.batch_job:g} s, one is busy for {percent(alone.batch_busy)} and leaves "
        f"{alone.batch.left} of {len(alone.batch.waits)} jobs; {BATCHES[-1]} side by side are busy for "
        f"{percent(many.batch_busy)} each, leave {many.batch.left}, and let jobs wait for "
        f"{many.batch.wait:.1f} s instead of {alone.batch.wait:,.0f} s, at "
        f"{many.batch.conflict_fraction:.2f} conflicts a job. No monolithic scheduler has that way out."
    )
    of_task = PASS_SECONDS / TASKS_MIN
    yield (
        f"borgish has one scheduler since its decisions are short. A pass tries at least {TASKS_MIN} "
        f"tasks and is given {1000 * PASS_SECONDS:g} ms, {1e6 * of_task:.0f} microseconds a task, far to "
        f"the left of these figures: at the 10,000 tasks a minute of the Borg paper it is busy for "
        f"{percent(10_000 / 60 * of_task)} of the time. For schedulers that think for seconds the figures "
        f"say what to do: let them work beside it and commit, and check at commit."
    )
