"""Whatever is asked for, in whatever order, several things in one step: no user comes to ask for more than
their quota, not even between two events, and nobody is refused what they may have.

What is used and what is allowed are worked out here from the records alone, entry by entry.
"""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.bands import Bands
from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    ForgetJob,
    JoinMachine,
    KillTasks,
    Observe,
    RemoveQuota,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SetQuota,
    SubmitJob,
)
from borgish.cell.events import Entry
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Rules, Snapshot
from borgish.clock import Now
from borgish.errors import OverQuota
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import JobSpec, Override
from borgish.vocabulary import Band, Ending, JobKind, Phase, State
from tests.profiles import examples
from tests.property.cell.test_random_lives import machine

USERS, NAMES = ("u", "v"), ("a", "b")
Used = Counter[tuple[str, str]]  # by what and, of devices and named resources, its name
START = Now(100.0, 100.0)

keys = st.integers(0, 7).map(str)  # which of the jobs that there are; ``meant`` puts its name there
indexes = st.none() | st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
small = st.integers(0, 4)
amounts = st.builds(
    Resources,
    small,
    small,
    st.integers(0, 1),
    st.dictionaries(st.sampled_from(["licence", "gpu"]), small, max_size=1),
    st.dictionaries(st.just("gpu"), st.sampled_from([0, 500, 1000]), max_size=1),
)


def job(
    name: str, user: str, tasks: int, priority: int, needs: Resources, own: dict[int, Resources], inside: int
) -> JobSpec:
    overrides = {index: Override(resources=limits) for index, limits in own.items() if index < tasks}
    return JobSpec(
        name,
        user,
        tasks,
        ("true",),
        priority=priority,
        resources=needs,
        overrides=overrides,
        kind=JobKind.ALLOC_SET if inside == 1 else JobKind.JOB,
        inside="u/a" if inside == 2 else "",
    )


specs = st.builds(
    job,
    st.sampled_from(NAMES),
    st.sampled_from(USERS),
    st.integers(1, 5),
    st.sampled_from([0, 115, 125, 399]),
    amounts,
    st.dictionaries(st.integers(0, 4), amounts, max_size=2),
    st.sampled_from([0, 0, 0, 1, 2]),
)
bands = st.sampled_from([Band.MONITORING, Band.PRODUCTION, Band.BATCH])
limits = st.builds(
    Resources,
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(["licence", "gpu"]), st.integers(0, 8)),
    st.dictionaries(st.just("gpu"), st.sampled_from([0, 1000, 2500])),
)
untils = st.sampled_from([0.0, 0.0, 104.0, 130.0])
commands: st.SearchStrategy[Command] = st.one_of(
    specs.map(SubmitJob),
    specs.map(SubmitJob),
    st.builds(ScaleJob, keys, st.integers(1, 6)),
    st.builds(KillTasks, keys, indexes),
    st.builds(RestartTasks, keys, indexes),
    st.builds(ForgetJob, keys),
    st.builds(SetQuota, st.sampled_from(USERS), bands, limits, untils, st.booleans()),
    st.builds(RemoveQuota, st.sampled_from(USERS), bands),
)
first_quotas = st.builds(SetQuota, st.sampled_from(USERS), bands, limits, untils, st.just(True))
ends = st.tuples(st.integers(0, 30), st.sampled_from([Ending.FINISH, Ending.FAIL]))
steps = st.tuples(
    st.lists(first_quotas, min_size=4, max_size=8),
    st.lists(specs.map(SubmitJob), min_size=4, max_size=8),
    st.lists(st.lists(commands | ends, min_size=1, max_size=3), min_size=6, max_size=15),
).map(lambda parts: [parts[0], *([one] for one in parts[1]), *parts[2]])
rules = st.builds(
    Rules, st.sampled_from([Bands(), Bands(monitoring=360, production=120, batch=110)]), st.booleans()
)


def of(needs: Resources) -> Used:
    used = Counter(
        {("cpu", ""): needs.cpu_millis, ("ram", ""): needs.ram_bytes, ("disk", ""): needs.disk_bytes}
    )
    used.update({("device", name): amount for name, amount in needs.devices.items()})
    used.update({("named", name): amount for name, amount in needs.named.items()})
    return used


def used_by(cell: Cell, user: str, band: Band) -> Used:
    used: Used = Counter()
    for one in cell.jobs.values():
        if one.spec.user == user and cell.rules.bands.of(one.spec.priority) is band and not one.spec.inside:
            for task in one.tasks:
                if task.state is not State.DEAD:
                    used.update(of(one.spec.needs(task.index)))
    return used


def allowed(cell: Cell, user: str, band: Band, wall: float) -> Used | None:
    """Return what a user may have; None for anything."""
    quota = cell.quotas.get(f"{user}/{band}")
    if band is Band.FREE or (quota is None and not cell.rules.quota_required):
        return None
    ended = quota is None or (quota.until and quota.until <= wall)
    return Counter() if ended or quota is None else of(quota.limits)


def exceeds(used: Used, limit: Used | None, before: Used) -> bool:
    return limit is not None and any(used[kind] > max(limit[kind], before[kind]) for kind in used)


def live(shadow: Cell, entry: Entry) -> None:
    """Apply one entry to a cell of the test's own, and look at every user and band."""
    who = [(user, band) for user in USERS for band in Band]
    before = {one: (used_by(shadow, *one), allowed(shadow, *one, entry.at)) for one in who}
    apply_entry(shadow, entry)
    for one in who:
        used, limit = before[one]
        assert not exceeds(used_by(shadow, *one), limit, used), (one, entry)
        assert of(shadow.demand.of("/".join(one))) == +used_by(shadow, *one)


def end(core: Core, pick: int, ending: Ending) -> Observe | None:
    """Return a report that one of the running tasks has ended."""
    placed = sorted((name, task) for name, tasks in core.cell.placed.items() for task in tasks)
    if not placed:
        return None
    name, (key, index) = placed[pick % len(placed)]
    attempt = core.cell.jobs[key].tasks[index].attempt
    return Observe(name, "b", "i", (SeenAttempt(f"{key}/{index}", attempt, Phase.UP, ended=ending),))


def meant(core: Core, command: Command) -> Command | None:
    """Return a command about a job that there is."""
    if not isinstance(command, ScaleJob | KillTasks | RestartTasks | ForgetJob):
        return command
    there = sorted(core.cell.jobs)
    pick = int(command.job)
    return msgspec.structs.replace(command, job=there[pick % len(there)]) if there else None


def check_refusal(shadow: Cell, command: SubmitJob, wall: float) -> None:
    """It would have been too much."""
    spec = command.spec
    assert not spec.inside
    band = shadow.rules.bands.of(spec.priority)
    asked: Used = Counter()
    for index in range(spec.tasks):
        asked.update(of(spec.needs(index)))
    used = used_by(shadow, spec.user, band)
    assert exceeds(used + asked, allowed(shadow, spec.user, band, wall), used)


@settings(max_examples=examples(100))
@given(rules, steps)
def test_no_user_comes_to_ask_for_more_than_their_quota(
    cell_rules: Rules, moves: list[list[Command | tuple[int, Ending]]]
) -> None:
    core, shadow, now = Core(Cell(Snapshot("p")), ReconcileSettings(), START), Cell(Snapshot("p")), START
    entries = [*core.begin(1, "me", now, cell_rules).entries]
    entries += core.step(
        [CommandRequest(1, JoinMachine(machine("m1", 7000), "i", known=False), "m1")], now
    ).entries
    for move in moves:
        for entry in entries:
            live(shadow, entry)
        now = now.later(1.5)
        given_now = [end(core, *one) if isinstance(one, tuple) else meant(core, one) for one in move]
        asks = [CommandRequest(n, command, "root") for n, command in enumerate(given_now) if command]
        step = core.step([PollsAnswered({"m1": now.mono}), *asks], now)
        (_, first) = step.replies[0] if step.replies else (0, None)
        if isinstance(first, OverQuota) and isinstance(asks[0].command, SubmitJob):
            check_refusal(shadow, asks[0].command, now.wall)
        assert violations(core.cell) == []
        entries = [*step.entries]
    for entry in entries:
        live(shadow, entry)
    assert msgspec.to_builtins(shadow.snapshot()) == msgspec.to_builtins(core.cell.snapshot())
