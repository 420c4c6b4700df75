"""The queue that a scheduler keeps: it knows what waits, and nobody waits whom a machine would take.

Of the real core, whose machines report nothing: what is killed there has left.
"""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.command import Command
from borgish.cell.commands import CordonMachine, KillTasks, RestartTasks, ScaleJob, SubmitJob, UncordonMachine
from borgish.cell.model import Cell, Snapshot
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import JobSpec, Override
from tests.profiles import examples
from tests.property.scheduler.test_random_rules import PLACES, SPECS
from tests.unit.scheduler.cells import GIB, machine, spec
from tests.unit.scheduler.kept import compared_with_new

USERS = ["ann", "bob", "cid"]
MACHINES = [f"m{number}" for number in range(4)]
JOBS = [f"{user}/{name}" for user in USERS for name in "ab"]
STEPS_MAX = 200


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    wanted = spec(draw(st.sampled_from(JOBS)), **draw(SPECS))
    own = draw(st.sampled_from([{}, {}, {0: Override(resources=Resources(2000, GIB))}]))
    # Of a gang that is to be near something, not least itself, the first place decides about the others: it
    # may fit, and nothing is said of that.
    gang = not wanted.near and draw(st.sampled_from([False, False, True]))
    return msgspec.structs.replace(wanted, gang=gang, overrides=own)


indexes = st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True).map(tuple)
commands: st.SearchStrategy[Command] = st.one_of(
    specs().map(SubmitJob),
    specs().map(SubmitJob),
    st.builds(KillTasks, st.sampled_from(JOBS), indexes),
    st.builds(RestartTasks, st.sampled_from(JOBS), indexes),
    st.builds(ScaleJob, st.sampled_from(JOBS), st.integers(1, 8)),
    st.builds(CordonMachine, st.sampled_from(MACHINES)),
    st.builds(UncordonMachine, st.sampled_from(MACHINES)),
)


@settings(max_examples=examples(60))
@given(
    st.lists(PLACES, min_size=len(MACHINES), max_size=len(MACHINES)),
    st.lists(st.lists(commands, min_size=1, max_size=3), min_size=2, max_size=10),
    st.sampled_from([1, 3, 20_000]),
)
def test_nobody_waits_whom_a_machine_would_take(
    places: list[dict[str, str]], moves: list[list[Command]], tasks_max: int
) -> None:
    there = {
        name: machine(name, cpu=3000, attributes=attributes)
        for name, attributes in zip(MACHINES, places, strict=True)
    }
    now = Now(100.0, 100.0)
    core = Core(Cell(Snapshot("p", machines=there)), ReconcileSettings(), now)
    core.begin(1, "me", now)
    with compared_with_new() as found:
        for together in moves:
            asked = [CommandRequest(number, each, "ann") for number, each in enumerate(together)]
            rest(core, asked, now, tasks_max)
            assert found.differences == []
            assert placed_anew(core, now) == []
            assert refused(core) == waiting(core)


def rest(core: Core, asked: list[CommandRequest], now: Now, tasks_max: int) -> None:
    """Step until nothing is left to do."""
    for _ in range(STEPS_MAX):
        step = core.step(asked, now, tasks_max=tasks_max)
        assert not step.failures
        if not (step.more or step.entries):
            return
        asked = []
    raise AssertionError(f"goes on after {STEPS_MAX} steps")


def placed_anew(core: Core, now: Now) -> list[str]:
    """Return the jobs of which a scheduler that knows nothing yet would place something."""
    plan = Scheduler(1).schedule(core.cell, core.observed, now)
    return [placement.job for placement in plan.placements]


def refused(core: Core) -> dict[str, set[int]]:
    """Return the tasks of which is said why they wait, by job."""
    return {job: {index for each in those for index in each.indexes} for job, those in core.refusals.items()}


def waiting(core: Core) -> dict[str, set[int]]:
    """Return the tasks that wait, without those for which a place is kept, by job."""
    left = {
        key: {index for index in indexes if not core.cell.jobs[key].tasks[index].promised}
        for key, indexes in core.cell.waiting.items()
    }
    return {key: indexes for key, indexes in left.items() if indexes}
