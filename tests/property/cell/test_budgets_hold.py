"""Whatever happens at once, nobody is taken down on purpose beyond a budget: updates, restarts, taints that
evict, drains, lost machines, programs that fail, and preemption among jobs below production."""

import copy
from collections.abc import Iterator

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    DrainMachines,
    FreezeCell,
    JoinMachine,
    KillTasks,
    Observe,
    RestartTasks,
    ResumeUpdate,
    SeenAttempt,
    SetBudget,
    SetMachineDown,
    SetMachineUp,
    SubmitJob,
    TaintMachine,
    UndoUpdate,
    UndrainMachines,
    UnfreezeCell,
    UntaintMachine,
)
from borgish.cell.events import Entry, RolloutWentOn, TasksEvicted, TasksHandedOver
from borgish.cell.invariants import violations
from borgish.cell.limits.availability import find_down, live_tasks
from borgish.cell.limits.budgets import Budget
from borgish.cell.model import Cell, Job, Snapshot
from borgish.cell.updates.handover import incoming_of
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import Constraint, Disruption, JobSpec, Update
from borgish.spec.shares import Share
from borgish.vocabulary import VOLUNTARY, Eviction, Phase, TaintEffect, split_task_name
from tests.profiles import examples
from tests.property.cell.test_random_lives import machine

MACHINES = ("m1", "m2", "m3", "m4")
names = st.sampled_from(["a", "b", "c"])
HANDING_OVER = ("b", "c")
machines = st.sampled_from(MACHINES)


def spec(name: str, tasks: int, priority: int, most: int, app: str, run: str = "one") -> JobSpec:
    return JobSpec(
        name,
        "u",
        tasks,
        (run,),
        priority=priority,
        resources=Resources(600, 64 * 1024**2),
        labels={"app": app},
        disruption=Disruption(Share(most)),
        update=Update(
            Share(2) if run == "two" else None,
            settle_seconds=1.0,
            deadline_seconds=10.0,
            handover=name in HANDING_OVER,
        ),
    )


class Fate(msgspec.Struct):
    """What the programs of a job do from now on."""

    job: str
    phase: Phase


commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        spec,
        names,
        st.integers(2, 7),
        st.sampled_from([0, 100, 150]),
        st.integers(1, 3),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["one", "two"]),
    ).map(SubmitJob),
    st.builds(lambda name: RestartTasks(f"u/{name}"), names),
    st.builds(lambda name: UndoUpdate(f"u/{name}"), names),
    st.builds(lambda name: ResumeUpdate(f"u/{name}"), names),
    st.builds(lambda name: KillTasks(f"u/{name}"), names),
    st.builds(
        lambda name, key: TaintMachine(name, key, effect=TaintEffect.EVICT),
        machines,
        st.sampled_from(["t1", "t2"]),
    ),
    st.builds(UntaintMachine, machines, st.sampled_from(["t1", "t2"])),
    st.builds(lambda name: DrainMachines((name,)), machines),
    st.builds(lambda name: UndrainMachines((name,)), machines),
    st.builds(SetMachineDown, machines, st.just("silent")),
    st.builds(SetMachineUp, machines),
    st.builds(
        lambda app, most: SetBudget(Budget(app, (Constraint("app", "==", (app,)),), Share(most))),
        st.sampled_from(["x", "y"]),
        st.integers(1, 2),
    ),
    st.builds(FreezeCell),
    st.builds(UnfreezeCell),
)
fates = st.builds(
    Fate, names.map(lambda name: f"u/{name}"), st.sampled_from([Phase.UP, Phase.UP, Phase.BACKING_OFF])
)


class Told:
    """The cell as its journal tells it, entry by entry, judged at each eviction on purpose."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.cell = Cell(copy.deepcopy(core.cell.snapshot()))
        self.disruptions = 0

    def follow(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self._judge_handed_over(entry)
            leaving = set(self._leaving(entry))
            if leaving:
                assert self.cell.freeze is None
                self.disruptions += 1
                changed = {event.job for event in entry.events if isinstance(event, RolloutWentOn)}
                for key in {key for key, _ in leaving}:
                    job = self.cell.jobs[key]
                    own = job.spec.update.at_a_time if key in changed else None
                    self._judge([job], own or job.spec.disruption.max_unavailable, leaving)
                for budget in self.cell.budgets.values():
                    about = [job for job in self.cell.jobs.values() if budget.chooses(job.spec)]
                    if any(job.key == key for job in about for key, _ in leaving):
                        self._judge(about, budget.max_unavailable, leaving)
            apply_entry(self.cell, copy.deepcopy(entry))

    def _judge_handed_over(self, entry: Entry) -> None:
        """Whoever takes over was up."""
        for event in (each for each in entry.events if isinstance(each, TasksHandedOver)):
            for index in event.indexes:
                handover = self.cell.handovers[event.job][index]
                seen = incoming_of(self.core.observed, self.cell.jobs[event.job], index, handover)
                assert seen is not None
                assert seen.phase is Phase.UP

    def _leaving(self, entry: Entry) -> Iterator[tuple[str, int]]:
        """Yield the tasks that are well and taken down on purpose by an entry."""
        for event in entry.events:
            if isinstance(event, TasksEvicted) and event.cause in VOLUNTARY - {Eviction.RESTART}:
                down = find_down(self.cell, self.core.observed, self.cell.jobs[event.job])
                yield from ((event.job, index) for index in event.indexes if index not in down)
            elif isinstance(event, RolloutWentOn):
                down = find_down(self.cell, self.core.observed, self.cell.jobs[event.job])
                yield from ((event.job, index) for index in event.pending if index not in down)

    def _judge(self, jobs: list[Job], share: Share, leaving: set[tuple[str, int]]) -> None:
        down = {(job.key, i) for job in jobs for i in find_down(self.cell, self.core.observed, job)}
        keys = {job.key for job in jobs}
        gone = down | {(key, index) for key, index in leaving if key in keys}
        assert len(gone) <= share.of(sum(live_tasks(job) for job in jobs)), (gone, share)


def reports(core: Core, fates: dict[str, Phase]) -> Iterator[Observe]:
    """Yield what all machines that answer report."""
    for name, found in core.cell.machines.items():
        if not found.up:
            continue
        seen = []
        there = [
            (f"{job}/{index}", core.cell.jobs[job].tasks[index].attempt)
            for job, index in core.cell.placed[name]
        ]
        arriving = core.cell.arriving.get(name, ())
        there += [(f"{job}/{index}", core.cell.handovers[job][index].attempt) for job, index in arriving]
        for task, attempt in sorted(there):
            seen.append(SeenAttempt(task, attempt, fates.get(split_task_name(task)[0], Phase.UP)))
        yield Observe(name, "b", "i", tuple(seen), whole=True)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(commands | fates, st.sampled_from([True, True, False])), min_size=5, max_size=40))
def test_nobody_is_taken_down_beyond_a_budget(moves: list[tuple[Command | Fate, bool]]) -> None:
    now = Now(100.0, 100.0)
    core = Core(Cell(Snapshot("p")), ReconcileSettings(), now)
    told, programs = Told(core), dict[str, Phase]()
    told.follow(core.begin(1, "me", now).entries)
    for number, name in enumerate(MACHINES):
        join = JoinMachine(machine(name, 7000 + number), "i", known=True)
        told.follow(core.step([CommandRequest(1, join, "ann", f"j{number}", "d")], now).entries)
    for name in ("a", "b"):  # they fill it
        asked = CommandRequest(1, SubmitJob(spec(name, 6, 0, 2, "x")), "ann", name, "d")
        told.follow(core.step([asked], now).entries)
    for move, reported in moves:
        now = now.later(1.5)
        inputs = [CommandRequest(1, each, "link", "", "") for each in reports(core, programs)] * reported
        if isinstance(move, Fate):
            programs[move.job] = move.phase
        else:
            inputs.append(CommandRequest(2, move, "ann", f"r{now.mono}", "d"))
        told.follow(core.step([PollsAnswered(dict.fromkeys(MACHINES, now.mono)), *inputs], now).entries)
        assert violations(core.cell) == []
        assert told.cell.position == core.cell.position
