"""Whatever is asked of a cell, in whatever order: it stays sound, and its journal tells it again."""

import copy

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    CancelMaintenance,
    CordonMachine,
    DrainMachines,
    EvictTasks,
    ForgetJob,
    JoinMachine,
    KillApp,
    KillTasks,
    MaintainMachines,
    Observe,
    RemoveApp,
    RemoveMachine,
    RestartTasks,
    RunApp,
    ScaleJob,
    SeenAttempt,
    SetMachineDown,
    SetMachineUp,
    SubmitJob,
    UncordonMachine,
    UndoApp,
    UndrainMachines,
)
from borgish.cell.events import Entry
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import After, JobSpec
from borgish.vocabulary import Ending, Eviction, Phase, Runtime, Until
from tests.profiles import examples
from tests.unit.scheduler.kept import compared_with_new

NAMES = ["a", "b", "c"]
jobs = st.sampled_from([f"u/{name}" for name in NAMES])
machines = st.sampled_from(["m1", "m2", "m3"])
indexes = st.none() | st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


def spec(
    name: str, tasks: int, cpu_millis: int, ports: int, after: tuple[After, ...], parent: str
) -> JobSpec:
    needs = Resources(cpu_millis, 64 * 1024**2)
    return JobSpec(
        *(name, "u", tasks, ("true",)),
        resources=needs,
        ports=("p", "q")[:ports],
        after=after,
        parent=parent,
    )


afters = st.builds(
    After, jobs, st.sampled_from([None, *Until]), within_seconds=st.sampled_from([0.0, 0.0, 4.0])
)


specs = st.builds(
    spec,
    st.sampled_from(NAMES),
    st.integers(1, 5),
    st.sampled_from([100, 900]),
    st.integers(0, 2),
    st.just(()) | st.lists(afters, min_size=1, max_size=2, unique_by=lambda each: each.job).map(tuple),
    st.sampled_from(["", "", "u/a", "u/b"]),
)


apps = st.sampled_from(["u/x", "u/y"])
documents = st.builds(
    Document, specs, st.sampled_from([("name", "run"), ("name", "run", "tasks"), ("name", "ports", "tasks")])
)
applies = st.builds(
    ApplyApp,
    st.sampled_from(["x", "y"]).map(lambda name: AppSpec(name, "u")),
    st.lists(documents, max_size=3, unique_by=lambda document: document.key).map(tuple),
    st.booleans(),
    st.booleans(),
)


def machine(name: str, port: int) -> Machine:
    return Machine(
        name=name,
        host="127.0.0.1",
        port=port,
        tls=False,
        capacity=Resources(2000, 1024**3, 0),
        attributes={},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20005,
        boot_id="b",
        joined_at=0.0,
        port_next=20000,
    )


commands: st.SearchStrategy[Command] = st.one_of(
    specs.map(SubmitJob),
    applies,
    st.builds(UndoApp, apps, st.integers(0, 3), st.booleans()),
    st.builds(RunApp, apps, st.sampled_from(["", "a"])),
    st.builds(KillApp, apps),
    st.builds(RemoveApp, apps),
    st.builds(ScaleJob, jobs, st.integers(-1, 6)),
    st.builds(KillTasks, jobs, indexes),
    st.builds(RestartTasks, jobs, indexes),
    st.builds(EvictTasks, jobs, st.just((0,)), st.sampled_from(Eviction)),
    st.builds(ForgetJob, jobs),
    st.builds(
        JoinMachine, st.builds(machine, machines, st.integers(7000, 7003)), st.just("i"), st.booleans()
    ),
    st.builds(CordonMachine, machines),
    st.builds(UncordonMachine, machines),
    st.builds(DrainMachines, st.tuples(machines), deadline_seconds=st.sampled_from([0.0, 5.0])),
    st.just(DrainMachines(where="present(machine)", force=True, max_affected=100)),
    st.builds(UndrainMachines, st.tuples(machines)),
    st.builds(
        MaintainMachines,
        st.tuples(machines),
        begins=st.sampled_from([0.0, 105.0, 110.0]),
        ends=st.sampled_from([107.0, 120.0, 1e6]),
        lead_seconds=st.sampled_from([0.0, 3.0]),
    ),
    st.builds(CancelMaintenance, st.tuples(machines)),
    st.builds(RemoveMachine, machines),
    st.builds(SetMachineDown, machines, st.just("silent"), st.sampled_from([0.0, 100.0])),
    st.builds(SetMachineUp, machines),
)
reports = st.tuples(
    st.integers(0, 30), st.sampled_from([None, *Ending]), st.integers(0, 3), st.sampled_from([0, 20001])
)
moves = st.lists(commands | reports, max_size=30)


def report(core: Core, pick: int, ended: Ending | None, restarts: int, port: int) -> Observe | None:
    """Return a report about one of the running tasks, or about an attempt that is over."""
    placed = sorted((m, task) for m, tasks in core.cell.placed.items() for task in tasks)
    if not placed:
        return None
    name, (job, index) = placed[pick % len(placed)]
    attempt = core.cell.jobs[job].tasks[index].attempt - (pick % 7 == 0)
    phase, early_ends = (Phase.CRASH_LOOPING, 9) if restarts == 3 else (Phase.UP, restarts)
    seen = SeenAttempt(
        f"{job}/{index}",
        attempt,
        phase,
        restarts=restarts,
        ended=ended,
        exit_code=1,
        port_in_use=port,
        early_ends=early_ends,
        gave_up=restarts == 2,
    )
    return Observe(name, "b", "i", (seen,), whole=pick % 3 == 0)


@settings(max_examples=examples(150))
@given(moves)
def test_a_cell_stays_sound_and_replays(moves: list[Command | tuple[int, Ending | None, int, int]]) -> None:
    now = Now(100.0, 100.0)
    core = Core(Cell(Snapshot("p")), ReconcileSettings(), now)
    entries: list[Entry] = list(core.begin(1, "me", now).entries)
    with compared_with_new() as found:
        live(core, moves, now, entries)
    assert found.differences == []
    again = Cell(Snapshot("p"))
    for entry in entries:
        apply_entry(again, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
    assert msgspec.to_builtins(again.snapshot()) == msgspec.to_builtins(core.cell.snapshot())
    assert violations(again) == []


def live(
    core: Core, moves: list[Command | tuple[int, Ending | None, int, int]], now: Now, entries: list[Entry]
) -> None:
    for move in moves:
        now = now.later(1.5)
        command = report(core, *move) if isinstance(move, tuple) else move
        asks = [CommandRequest(1, command, "ann", f"r{now.mono}", "d")] if command else []
        before = copy.deepcopy(msgspec.to_builtins(core.cell.snapshot()))
        step = core.step([PollsAnswered(dict.fromkeys(core.cell.machines, now.mono)), *asks], now)
        assert violations(core.cell) == []
        if not step.entries:
            assert msgspec.to_builtins(core.cell.snapshot()) == before
        entries.extend(step.entries)
