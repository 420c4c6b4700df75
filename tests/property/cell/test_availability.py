"""What is kept of who is down is what looking at every task finds, whatever happens in between."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.command import Command
from borgish.cell.commands import (
    EvictTasks,
    ForgetJob,
    JoinMachine,
    KillTasks,
    Observe,
    RemoveBudget,
    RemoveMachine,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SetBudget,
    SetMachineDown,
    SetMachineUp,
    SubmitJob,
)
from borgish.cell.limits.availability import count_of, down_of, find_down
from borgish.cell.limits.budgets import Budget
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import Observed
from borgish.cell.updates.rollout import known_remaining, not_ready, remaining
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.rollout import reconcile_hurried
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.fleet.usage import KINDS
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import Constraint, Health
from borgish.spec.shares import Share
from borgish.vocabulary import Ending, Eviction, JobKind, Phase
from tests.profiles import examples
from tests.property.cell.test_random_lives import indexes, jobs, machine, machines, spec
from tests.unit.cell.test_decide import spec as spec_with

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
apps = st.sampled_from(["x", "y"])
specs = st.one_of(
    st.builds(
        lambda small, app: msgspec.structs.replace(small, labels={"app": app}),
        st.builds(spec, names, st.integers(1, 5), st.just(100), st.just(0), st.just(()), st.just("")),
        apps,
    ),
    st.builds(
        lambda name, tasks: spec_with(name, tasks, user="u", health=Health(command=("true",))),
        names,
        st.integers(1, 5),
    ),
    st.builds(
        lambda name: spec_with(name, 2, user="u", kind=JobKind.ALLOC_SET),
        names,
    ),
)
commands: st.SearchStrategy[Command] = st.one_of(
    specs.map(SubmitJob),
    st.builds(ScaleJob, jobs, st.integers(1, 6)),
    st.builds(KillTasks, jobs, indexes),
    st.builds(RestartTasks, jobs, indexes),
    st.builds(EvictTasks, jobs, st.just((0,)), st.just(Eviction.MACHINE_LOST)),
    st.builds(ForgetJob, jobs),
    st.builds(JoinMachine, st.builds(machine, machines, st.just(7000)), st.just("i"), st.just(True)),
    st.builds(RemoveMachine, machines),
    st.builds(SetMachineDown, machines, st.just("silent")),
    st.builds(SetMachineUp, machines),
    st.builds(
        lambda name, app: SetBudget(Budget(name, (Constraint("app", "==", (app,)),), Share())), names, apps
    ),
    st.builds(RemoveBudget, names),
)


class Said(msgspec.Struct):
    """What a machine says of its attempts: of each a phase, or nothing."""

    machine: str
    phases: list[Phase | None]
    ended: Ending | None
    whole: bool


reports = st.builds(
    Said,
    machines,
    st.lists(st.sampled_from([None, *Phase]), min_size=6, max_size=6),
    st.sampled_from([None, None, *Ending]),
    st.booleans(),
)
asked = st.sets(st.sampled_from([f"u/{name}" for name in NAMES]))


def report(core: Core, said: Said) -> Observe:
    """Return a report about what runs on a machine."""
    placed = sorted(core.cell.placed.get(said.machine, ()))
    found = []
    for (job, index), phase in zip(placed, said.phases, strict=False):
        if phase is not None:
            attempt = core.cell.jobs[job].tasks[index].attempt
            found.append(SeenAttempt(f"{job}/{index}", attempt, phase, ended=said.ended, exit_code=1))
    return Observe(said.machine, "b", "i", tuple(found), whole=said.whole)


def check_rows(core: Core, now: Now) -> None:
    """Check that the scheduler has to read again those machines only that it is told of."""
    scheduler = core._scheduler._scheduler
    assert isinstance(scheduler, Scheduler)
    if scheduler._memory is None:
        return
    kept, anew = scheduler._memory.fleet, Fleet.of(core.cell, core.observed, 0, now.mono)
    for name in sorted(kept.row.keys() - core._unread() - scheduler._planned):
        row, fresh = kept.row[name], anew.row[name]
        assert kept.free[:KINDS, row].tolist() == anew.free[:KINDS, fresh].tolist(), name
        assert (kept.stuck[row], kept.silent[row]) == (anew.stuck[fresh], anew.silent[fresh]), name


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(commands | reports, asked), max_size=40))
def test_what_is_kept_is_what_is_found(moves: list[tuple[Command | Said, set[str]]]) -> None:
    now = Now(100.0, 100.0)
    core = Core(Cell(Snapshot("p")), ReconcileSettings(), now)
    core.begin(1, "me", now)
    core.step([CommandRequest(1, JoinMachine(machine("m1", 7000), "i", known=True), "ann", "r", "d")], now)
    for move, ask in moves:
        now = now.later(0.6)  # most second steps are resyncs
        command = report(core, move) if isinstance(move, Said) else move
        heard = PollsAnswered(dict.fromkeys(core.cell.machines, now.mono))
        core.step([heard, CommandRequest(1, command, "ann", f"r{now.mono}", "d")], now)
        for key in sorted(ask & core.cell.jobs.keys()):
            job = core.cell.jobs[key]
            assert down_of(core.cell, core.observed, job) == find_down(core.cell, core.observed, job), key
        anew = Observed()
        anew.machines, anew.refused = core.observed.machines, core.observed.refused
        for key in sorted(core.cell.rolling):
            job = core.cell.jobs[key]
            assert known_remaining(core.observed, job) == remaining(job)
            kept = not_ready(core.cell, core.observed, job, now)
            assert kept == not_ready(core.cell, anew, job, now)
        between = [
            [*reconcile_hurried(core.cell, observed, ReconcileSettings(), now)]
            for observed in (core.observed, anew)
        ]
        assert between[0] == between[1]
        check_rows(core, now)
        for name in sorted({key.removeprefix("u/") for key in ask} & core.cell.budgets.keys()):
            members = {
                key for key, job in core.cell.jobs.items() if core.cell.budgets[name].chooses(job.spec)
            }
            assert core.cell.members.of(name) == members
            assert count_of(core.cell, core.observed, name) == count_of(core.cell, anew, name)
