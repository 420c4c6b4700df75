"""Whatever happened to a cell, and to whatever moment it is taken back: what must hold of that."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    DrainMachines,
    EvictTasks,
    ForgetJob,
    JoinMachine,
    KillTasks,
    MaintainMachines,
    RemoveMachine,
    RestartTasks,
    ScaleJob,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndrainMachines,
    UntaintMachine,
)
from borgish.cell.events import Entry, RolledBack, TasksPlaced
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Snapshot
from borgish.cell.touched import Touched
from borgish.cell.updates.rollback import RollbackTarget, compare, desired, plan
from borgish.cell.updates.rollout import not_ready
from borgish.errors import Refused
from borgish.master.step import Step
from borgish.spec.changes import same_program
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec, Override, Restart
from borgish.vocabulary import Ending, Eviction, RestartPolicy, RolloutKind, State, TaintEffect
from tests.profiles import examples
from tests.unit.cell.lived import CRASHES, NAME, Lived, machine, spec, wanted_of

NAMES = ["a", "b", "c"]
jobs = st.sampled_from([f"ann/{name}" for name in NAMES])
machines = st.sampled_from(["m1", "m2", "m3"])
indexes = st.none() | st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


def job(name: str, tasks: int, run: str, ports: int, batch: bool, changes: dict[str, Any]) -> JobSpec:
    restart = Restart(RestartPolicy.ON_FAILURE if batch else RestartPolicy.ALWAYS)
    return spec(name, tasks, run=(run,), ports=("p", "q")[:ports], restart=restart, **changes)


specs = st.builds(
    job,
    st.sampled_from(NAMES),
    st.integers(1, 5),
    st.sampled_from(["good", "bad"]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(
        [
            {},
            {"priority": 200},
            {"overrides": {1: Override(env={"A": "b"})}},
            {"constraints": (Constraint("arch", "==", ("arm64",)),)},
        ]
    ),
)
commands: st.SearchStrategy[Command] = st.one_of(
    specs.map(SubmitJob),
    st.builds(ScaleJob, jobs, st.integers(1, 6)),
    st.builds(KillTasks, jobs, indexes),
    st.builds(RestartTasks, jobs, indexes),
    st.builds(EvictTasks, jobs, st.just((0,)), st.sampled_from(Eviction)),
    st.builds(ForgetJob, jobs),
    st.just(JoinMachine(machine("m3", attributes={"arch": "arm64"}), "m3", known=True)),
    st.builds(CordonMachine, machines),
    st.builds(UncordonMachine, machines),
    st.builds(RemoveMachine, machines),
)
ends = st.tuples(jobs, st.integers(0, 5), st.sampled_from([Ending.FINISH, Ending.FAIL]))
nobody: frozenset[str] = frozenset()
some = st.just(nobody) | st.just(nobody) | jobs.map(lambda key: frozenset({key}))
back = st.tuples(st.integers(1, 30), st.booleans(), some)
moves = st.lists(commands | commands | ends | ends | st.just("wait"), min_size=5, max_size=20)
versions = st.builds(
    job,
    st.just("a"),
    st.integers(1, 5),
    st.sampled_from(["one", "two", CRASHES[0]]),
    st.integers(0, 2),
    st.sampled_from([False, False, True]),
    st.sampled_from([{}, {}, {"constraints": (Constraint("arch", "==", ("arm64",)),)}]),
)
to_version = st.tuples(
    st.integers(0, 4), st.sampled_from([False] * 4 + [True]), st.sampled_from([nobody, frozenset({"ann/a"})])
)
changes: st.SearchStrategy[Command] = st.one_of(
    st.builds(ScaleJob, st.just("ann/a"), st.integers(1, 7)),
    st.builds(KillTasks, st.just("ann/a"), indexes),
    st.builds(RestartTasks, st.just("ann/a"), indexes),
    st.builds(EvictTasks, st.just("ann/a"), st.just((0,)), st.sampled_from(Eviction)),
)
asked_meanwhile = st.lists(
    to_version | to_version | changes | versions.map(SubmitJob) | st.sampled_from(["wait", "settle"]),
    min_size=3,
    max_size=12,
)


class Ran(Lived):
    """One that remembers what each attempt was started with, and compares."""

    def __init__(self) -> None:
        self.started: dict[tuple[str, int, int], JobSpec] = {}
        super().__init__()

    def step(self, *commands: Command, actor: str = "ann", then: Cell | None = None) -> Step:
        step = super().step(*commands, actor=actor, then=then)
        for job in self.cell.jobs.values():
            for task in job.tasks:
                if task.state is State.RUNNING:
                    # Placing comes last in a step, so this is what it was placed with.
                    ran = self.started.setdefault((job.key, task.index, task.attempt), job.spec)
                    assert same_program(job.spec_of(task), ran, task.index), f"{job.key}/{task.index}"
        return step

    def runs_what_it_should(self) -> bool:
        """Return whether every task that runs was started as its job now says, or is to be stopped."""
        return all(
            same_program(job.spec, self.started[job.key, task.index, task.attempt], task.index)
            or (job.rollout is not None and job.rollout.attempts.get(task.index) == task.attempt)
            for job in self.cell.jobs.values()
            for task in job.tasks
            if task.state is State.RUNNING
        )


def live(lived: Lived, moves: list[Any]) -> None:
    """Let things happen, those among them that may be, to a cell that is not quite empty."""
    if not lived.cell.jobs:
        lived.do(SubmitJob(job("a", 3, "good", 1, False, {})))
        lived.do(SubmitJob(job("b", 3, "good", 0, True, {})))
    for move in moves:
        match move:
            case "wait":
                lived.step()
            case (key, index, ending):
                found = lived.cell.jobs.get(key)
                if found and index < len(found.tasks) and found.tasks[index].state is State.RUNNING:
                    lived.ended(key, index, ending)
            case command:
                with contextlib.suppress(Refused):
                    lived.do(command)


def rolled_back(lived: Lived, pick: int, hurried: bool, only: frozenset[str]) -> int:
    """Roll back to one of the positions there were; return it, 0 when that was refused."""
    position = max(1, lived.position - pick)
    try:
        lived.roll_back(position, hurried=hurried, only=only)
    except Refused:
        return 0
    return position


def running(cell: Cell) -> dict[tuple[str, int], tuple[int, str]]:
    return {
        (job.key, task.index): (task.attempt, task.machine)
        for job in cell.jobs.values()
        for task in job.tasks
        if task.state is State.RUNNING
    }


def untouched(now: Cell, then: Cell, only: frozenset[str]) -> set[tuple[str, int]]:
    """Return the running tasks that a rollback must leave alone."""
    found = set()
    for key, index in running(now):
        there, before = now.jobs[key], desired(then.jobs.get(key))
        if only and key not in only:
            found.add((key, index))
        elif before is not None and index < len(before.tasks):
            task, place = there.tasks[index], now.machines[there.tasks[index].machine].attributes
            if (
                before.tasks[index].state is not State.DEAD
                and same_program(there.spec, before.spec, index)
                and (
                    there.spec.constraints == before.spec.constraints
                    or all(matches(constraint, place) for constraint in before.spec.constraints)
                )
            ):
                found.add((key, task.index))
    return found


def expect_replay(lived: Lived) -> None:
    """The journal as it is stored gives this very cell, and no attempt's id was given twice."""
    again = Cell(Snapshot(NAME))
    placed = []
    for entry in lived.entries:
        apply_entry(again, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
        placed += [entry.position for event in entry.events if isinstance(event, TasksPlaced)]
    assert msgspec.msgpack.encode(again.snapshot()) == msgspec.msgpack.encode(lived.cell.snapshot())
    assert violations(again) == []
    assert placed == sorted(placed)


@settings(max_examples=examples(150))
@given(moves, back, moves, back)
def test_cells_with_rollbacks_stay_sound_and_replay(
    first: list[Any],
    back: tuple[int, bool, frozenset[str]],
    second: list[Any],
    again: tuple[int, bool, frozenset[str]],
) -> None:
    lived = Lived()
    live(lived, first)
    rolled_back(lived, *back)
    live(lived, second)  # also while tasks lag behind
    rolled_back(lived, *again)
    expect_replay(lived)
    lived.settle()
    expect_replay(lived)
    timelines = [event.timeline for e in lived.entries for event in e.events if isinstance(event, RolledBack)]
    assert timelines == list(range(2, 2 + len(timelines)))


def expect_nothing_forgotten(cell: Cell) -> None:
    """Whatever was asked while tasks lag behind: each of those is there, and it is known what it runs."""
    for key in cell.rolling:
        job = cell.jobs[key]
        assert job.rollout is not None
        assert job.rollout.attempts or job.rollout.kind is not RolloutKind.ROLLBACK
        assert all(index < len(job.tasks) for index in job.rollout.attempts)
        running = [task for task in job.tasks if task.state is State.RUNNING]
        assert all(task.version == job.version or task.version in job.earlier for task in running)


def ask_meanwhile(lived: Lived, positions: list[int], move: Any) -> None:
    """Do one thing to a job that may be in the midst of a rollback."""
    match move:
        case "wait":
            lived.step()
        case "settle":
            lived.settle()
        case (which, hurried, only):
            with contextlib.suppress(Refused):
                lived.roll_back(positions[which % len(positions)], hurried=hurried, only=only)
        case command:
            with contextlib.suppress(Refused):
                lived.do(command)
    expect_nothing_forgotten(lived.cell)


@settings(max_examples=examples(150))
@given(st.lists(versions, min_size=2, max_size=4), asked_meanwhile, st.booleans())
def test_nobody_is_locked_out_and_nothing_runs_what_it_should_not(
    deployed: list[JobSpec], moves: list[Any], killed: bool
) -> None:
    lived = Ran()
    positions = []
    for version in deployed:
        if "ann/a" in lived.cell.jobs:
            lived.do(KillTasks("ann/a"))
        lived.do(SubmitJob(version))
        positions.append(lived.position)
    lived.settle()
    for move in [(0, False, nobody), *moves]:
        ask_meanwhile(lived, positions, move)
    assert lived.runs_what_it_should()
    lived.settle()
    expect_replay(lived)
    for key in sorted(lived.cell.rolling):  # paused, as by a version that crashes
        assert not_ready(lived.cell, lived.core.observed, lived.cell.jobs[key], lived.now) is not None
        if killed:
            lived.do(KillTasks(key))
        else:
            lived.roll_back(lived.position - 1, hurried=True, only=frozenset({key}))
    lived.step()
    assert lived.cell.rolling == set()
    assert lived.runs_what_it_should()
    expect_replay(lived)


@settings(max_examples=examples(150))
@given(moves, back)
def test_what_should_run_goes_on_untouched(moves: list[Any], back: tuple[int, bool, frozenset[str]]) -> None:
    lived = Lived()
    live(lived, moves)
    lived.settle()  # what was updated or restarted is done with
    before, cell = running(lived.cell), lived.then(lived.position)
    position = rolled_back(lived, *back)
    lived.settle()
    stays = untouched(cell, lived.then(position), back[2]) if position else set(before)
    after = running(lived.cell)
    assert {key: after.get(key) for key in stays} == {key: before[key] for key in stays}
    if position:
        assert not {key for key in before.keys() - stays if after.get(key) == before[key]}


marks: st.SearchStrategy[Command] = st.one_of(
    st.builds(TaintMachine, machines, st.just("spot"), effect=st.sampled_from(TaintEffect)),
    st.builds(UntaintMachine, machines, st.just("spot")),
    st.builds(DrainMachines, machines.map(lambda name: (name,))),
    st.builds(UndrainMachines, machines.map(lambda name: (name,))),
    # Some are over before it is decided, others not.
    st.builds(
        MaintainMachines,
        machines.map(lambda name: (name,)),
        begins=st.just(1005.0),
        ends=st.sampled_from([1010.0, 9999.0]),
    ),
)
marked_moves = st.lists(commands | ends | marks | marks | st.just("wait"), min_size=5, max_size=20)


class Compared(Lived):
    """One whose cell is compared with an earlier one, so many records before each step."""

    def __init__(self) -> None:
        self.target: RollbackTarget | None = None
        self.slices: Iterator[None] = iter(())
        self.records_a_step = 0
        self.touched: Touched | None = None  # where steps are no longer noted
        super().__init__()

    def compare(self, position: int, records_a_step: int) -> RollbackTarget:
        self.target, self.records_a_step = RollbackTarget(self.then(position)), records_a_step
        self.slices = compare(self.cell, self.target)
        next(self.slices)
        return self.target

    def step(self, *commands: Command, actor: str = "ann", then: Cell | None = None) -> Step:
        list(itertools.islice(self.slices, self.records_a_step))
        step = super().step(*commands, actor=actor, then=then)
        if self.touched is not None:
            self.touched.add(step.touched)
        elif self.target is not None:
            self.target.note(step.touched)
        return step


@settings(max_examples=examples(150))
@given(marked_moves, st.integers(1, 30), st.integers(0, 3), marked_moves, marked_moves)
def test_compared_in_slices_the_plan_is_the_same(
    first: list[Any], pick: int, records_a_step: int, meanwhile: list[Any], in_the_turn: list[Any]
) -> None:
    lived = Compared()
    live(lived, first)
    target = lived.compare(max(1, lived.position - pick), records_a_step)
    live(lived, meanwhile)
    list(lived.slices)
    lived.touched = Touched()
    live(lived, in_the_turn)
    lived.cell.touched = lived.touched  # as in the midst of the turn that did all this
    compared, whole = (
        plan(lived.cell, to, nobody, lived.now.wall, hurried=False, reason="why")
        for to in (target, RollbackTarget(target.cell))
    )
    assert compared == whole


@settings(max_examples=examples(150))
@given(moves, moves, back)
def test_undone_it_is_as_if_it_had_not_been(
    moves: list[Any], more: list[Any], back: tuple[int, bool, frozenset[str]]
) -> None:
    lived = Lived()
    live(lived, moves + more)
    undo, before = lived.position, wanted_of(lived.cell)
    position = rolled_back(lived, *back)
    lived.settle()
    if position and not back[2]:
        cordons = cordons_of(lived.then(undo)) | cordons_of(lived.then(position))
        assert cordons_of(lived.cell) == {name: cordons[name] for name in lived.cell.machines}
        assert specs_of(lived.cell) == specs_of(lived.then(position))
    with contextlib.suppress(Refused):  # where it took nothing back
        lived.roll_back(undo)
    lived.settle()
    assert wanted_of(lived.cell) == before


def cordons_of(cell: Cell) -> dict[str, bool]:
    return {machine.name: machine.cordoned for machine in cell.machines.values()}


def specs_of(cell: Cell) -> dict[str, JobSpec]:
    return {key: job.spec for key, job in cell.jobs.items()}


@settings(max_examples=examples(100))
@given(moves, back, moves)
def test_generations_only_grow(
    first: list[Any], back: tuple[int, bool, frozenset[str]], second: list[Any]
) -> None:
    """Over rollbacks, and when a job or a machine comes again: nobody sees one twice."""
    lived = Lived()
    live(lived, first)
    rolled_back(lived, *back)
    live(lived, second)
    cell, latest = Cell(Snapshot(NAME)), dict[tuple[str, str], int]()
    for entry in lived.entries:
        apply_entry(cell, entry)
        for kind, things in (("job", cell.jobs), ("machine", cell.machines)):
            for name, thing in things.items():
                before = latest.get((kind, name), 0)
                assert thing.generation in {before, entry.position}
                latest[kind, name] = thing.generation
