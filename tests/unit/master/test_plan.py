"""Plans of jobs that are not there, and submissions that are to go just as planned."""

import pickle
from typing import Any

import msgspec
import pytest

from borgish.cell.commands import (
    CordonMachine,
    JoinMachine,
    KillTasks,
    SeenAttempt,
    SetQuota,
    SubmitJob,
    TaintMachine,
)
from borgish.cell.model import Machine
from borgish.cell.observed import leaving_attempts
from borgish.errors import Conflict, Invalid, Refused
from borgish.master.core import Core
from borgish.master.planning import PREFIX, DryRun
from borgish.master.reading import plan_view
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.scheduler.feasibility import AVOIDED
from borgish.spec.job import Constraint, JobSpec, Override, Spread
from borgish.vocabulary import Band, JobKind, Phase, State
from borgish.wire.api_plans import PlannedPlace, PlanView
from tests.unit.master.test_core import Driver
from tests.unit.master.test_core import machine as plain_machine

GIB = 1024**3


def spec(key: str, tasks: int = 1, cpu: int = 1000, **facts: Any) -> JobSpec:
    user, name = key.split("/")
    return JobSpec(name, user, tasks, ("true",), resources=Resources(cpu, GIB), **facts)


class Planner(Driver):
    """A core of four cpus a machine that plans, and does as planned."""

    def plan(self, wanted: JobSpec) -> DryRun:
        return self.core.dry_run(wanted, "ann", self.now)

    def view(self, wanted: JobSpec) -> PlanView:
        return plan_view(self.core.cell, self.plan(wanted))

    def submit(self, wanted: JobSpec, token: str = "", request_id: str = "") -> Any:
        return self.ask(SubmitJob(wanted, token), request_id)

    def where(self, key: str) -> dict[int, str]:
        """Return the machine of each task that has one, or for which one is kept."""
        tasks = self.core.cell.jobs[key].tasks
        there = {task.index: task.machine for task in tasks if task.state is State.RUNNING}
        return there | {task.index: task.promised for task in tasks if task.promised}

    def hold(self, key: str) -> None:
        """Let a job's tasks be seen up, so that they are there until they have ended."""
        job = self.core.cell.jobs[key]
        for task in job.tasks:
            needs = job.spec.needs(task.index)
            self.report(task.machine, SeenAttempt(f"{key}/{task.index}", task.attempt, Phase.UP, needs))


@pytest.fixture
def planner() -> Planner:
    return Planner(2)


def places(view: PlanView) -> dict[int, str]:
    return {place.index: place.machine for place in view.places}


def test_a_plan_comes_true(planner: Planner) -> None:
    wanted = spec("ann/web", 3, ports=("http",))
    view = planner.view(wanted)
    assert view.text == "ann/web: of 3 tasks 3 would be placed at once"
    assert "ann/web" not in planner.core.cell.jobs
    accepted = planner.submit(wanted, view.token)
    assert (accepted.subject, accepted.text) == ("ann/web", "ann/web submitted: 3 tasks")
    assert planner.where("ann/web") == places(view)
    assert [entry.cause for entry in planner.entries[-2:]] == ["SubmitJob", "place"]


def test_a_plan_on_machines_that_changed_leaves_no_trace_in_what_was_learned(planner: Planner) -> None:
    there = Resources(4000, 8 * GIB, 100 * GIB, {}, {"gpu": 2000})
    rendering = spec("ann/render", 1)
    needs = Resources(1000, GIB, 0, {}, {"gpu": 500})
    planner.ask(JoinMachine(msgspec.structs.replace(plain_machine("g1"), capacity=there), "i", known=False))
    planner.submit(msgspec.structs.replace(rendering, resources=needs))
    settle_caches(planner)
    planner.ask(TaintMachine("m1", "disk"))  # not read by the scheduler yet
    before = pickle.dumps(planner.core)
    planner.plan(msgspec.structs.replace(rendering, name="other", resources=needs))
    assert pickle.dumps(planner.core) == before


def settle_caches(planner: Planner) -> None:
    """Let what is kept of who is down, and of who is leaving, be as it is when it was asked for."""
    planner.core.observed.availability = None
    for name, seen in planner.core.observed.machines.items():
        leaving_attempts(planner.core.cell, name, seen)


def test_a_plan_leaves_no_trace(planner: Planner) -> None:
    planner.submit(spec("ann/first", 3, labels={"app": "db"}, spread=(Spread("rack"),)))
    settle_caches(planner)
    before = pickle.dumps(planner.core)
    needs = Resources(100, GIB, 0, {"fpga": 1}, {"gpu": 500})
    for wanted in (
        spec("ann/web", 9, ports=("a", "b"), fixed_ports={"b": 20001}, spread=(Spread("zone", 1),)),
        msgspec.structs.replace(spec("ann/odd"), resources=needs),
        spec("bob/large", 40, priority=300, constraints=(Constraint("rack", "!=", ("r1",)),)),
    ):
        planner.plan(wanted)
    assert pickle.dumps(planner.core) == before


def test_the_same_cell_gives_the_same_token(planner: Planner) -> None:
    wanted = spec("ann/web", 3)
    assert planner.plan(wanted).token == planner.plan(wanted).token


def test_what_does_not_fit_is_in_the_plan_with_why(planner: Planner) -> None:
    view = planner.view(spec("ann/web", 9))
    assert view.text == "ann/web: of 9 tasks 8 would be placed at once, and 1 would wait"
    (refusal,) = view.refusals
    assert (refusal.indexes, refusal.waits_for) == ("8", "room on m1 and m2")
    planner.submit(spec("ann/web", 9), view.token)
    assert len(planner.where("ann/web")) == 8


def test_who_has_to_leave_is_in_the_plan(planner: Planner) -> None:
    planner.submit(spec("bob/low", 2, 4000))
    planner.hold("bob/low")
    wanted = spec("ann/web", 2, 3000, priority=200)
    view = planner.view(wanted)
    assert view.text == "ann/web: of 2 tasks 2 would be placed when 2 others have left for them"
    machines = planner.where("bob/low")
    assert {place.victims: place.machine for place in view.places} == {
        (f"bob/low/{index}",): machine for index, machine in machines.items()
    }
    planner.submit(wanted, view.token)
    assert planner.where("ann/web") == places(view)
    assert [entry.cause for entry in planner.entries[-3:]] == ["SubmitJob", "preempt", "promise"]


def test_a_plan_whose_limit_of_preemption_is_reached_says_so() -> None:
    planner = Planner(12)
    planner.submit(spec("bob/low", 12, 4000))
    view = planner.view(spec("ann/web", 12, 3000, priority=200))
    assert len(view.places) == 10
    assert view.notes == ("more may be preempted for it later: at once no more than 5% of what runs",)


def test_places_kept_for_others_are_not_planned_with(planner: Planner) -> None:
    planner.submit(spec("bob/low", 2, 4000))
    planner.hold("bob/low")
    planner.submit(spec("ann/web", 2, 3000, priority=200))
    view = planner.view(spec("cid/small", 3, 1000, priority=200))
    assert view.places == ()
    assert {task.promised for task in planner.core.cell.jobs["ann/web"].tasks} == {"m1", "m2"}


def test_what_others_wait_for_is_no_part_of_a_plan(planner: Planner) -> None:
    planner.submit(spec("bob/large", 1, 9000, priority=300))
    assert len(planner.view(spec("ann/web", 3)).places) == 3


ROOM = msgspec.structs.replace(
    spec("ann/room", 2, kind=JobKind.ALLOC_SET), resources=Resources(2000, 4 * GIB)
)


def test_places_in_allocs_are_planned(planner: Planner) -> None:
    planner.submit(ROOM)
    rooms = planner.where("ann/room")
    wanted = spec("ann/guest", 5, inside="ann/room")
    view = planner.view(wanted)
    assert sorted(place.alloc for place in view.places) == [0, 0, 1, 1]
    assert all(place.machine == rooms[place.alloc] for place in view.places)
    (refusal,) = view.refusals
    assert refusal.text == "0 of 2 allocs fit: 2 have too little cpu free (needs 1, most free 0)"
    assert refusal.waits_for == "room on ann/room/0 and ann/room/1"
    planner.submit(wanted, view.token)
    assert planner.where("ann/guest") == places(view)


@pytest.mark.parametrize(
    ("facts", "hint"),
    [
        (
            {"cpu": 3000},
            "can never fit: no alloc has 3 of cpu (the largest has 2); fits 2 allocs with cpu <= 2",
        ),
        (
            {"constraints": (Constraint("rakc", "==", ("r1",)),)},
            ("can never fit: no alloc matches rakc == r1; fits 2 allocs without the constraint rakc == r1"),
        ),
        (
            {"tasks": 3, "cpu": 100, "spread": (Spread(max=1),)},
            (
                "can never fit: by spread over machine, at most 1, there is room for 2 of its 3 tasks; "
                "fits with at most 2 per machine instead of 1, or with 1 fewer task"
            ),
        ),
    ],
)
def test_what_does_not_fit_into_allocs_says_so_of_allocs(
    planner: Planner, facts: dict[str, Any], hint: str
) -> None:
    planner.submit(ROOM)
    planner.submit(spec("bob/low", 2, 2000))
    (refusal,) = planner.view(spec("ann/guest", inside="ann/room", priority=100, **facts)).refusals
    assert refusal.hint == hint


def test_what_leaves_with_an_alloc_is_in_the_plan_and_in_its_token(planner: Planner) -> None:
    planner.submit(msgspec.structs.replace(ROOM, tasks=1, resources=Resources(4000, 4 * GIB)))
    planner.submit(spec("ann/guest", 1, 500, inside="ann/room"))
    planner.submit(spec("bob/low", 1, 4000, priority=200))
    wanted = spec("cid/high", 1, 3000, priority=200)
    view = planner.view(wanted)
    assert view.places[0].victims == ("ann/room/0", "ann/guest/0")
    planner.submit(spec("ann/second", 1, 500, inside="ann/room"))
    assert "the cell changed" in refused(planner, wanted, view.token)
    assert planner.view(wanted).places[0].victims == ("ann/room/0", "ann/guest/0", "ann/second/0")


def test_allocs_without_a_place_have_none_for_others(planner: Planner) -> None:
    planner.submit(spec("ann/room", 2, 9000, kind=JobKind.ALLOC_SET))
    (refusal,) = planner.view(spec("ann/guest", inside="ann/room")).refusals
    assert refusal.text == "no alloc of ann/room has a place yet"


def test_a_plan_with_doubts(planner: Planner) -> None:
    wanted = spec(
        "ann/web", constraints=(Constraint("rakc", "!=", ("r1",)), Constraint("rakc", "==", ("r2",)))
    )
    view = planner.view(wanted)
    assert view.notes == ("no machine has the attribute 'rakc'; there are none at all",)
    assert view.refusals[0].impossible
    assert planner.submit(wanted, view.token).notes == view.notes


def test_what_is_other_than_in_the_job_that_ended(planner: Planner) -> None:
    planner.submit(spec("ann/web", 3))
    planner.ask(KillTasks("ann/web"))
    view = planner.view(spec("ann/web", 2, env={"A": "secret"}))
    assert view.changes == ("tasks: 3 -> 2", "env.A: added")
    planner.submit(spec("ann/web", 2, env={"A": "secret"}), view.token)


def test_a_job_that_lives_as_it_is_needs_nothing(planner: Planner) -> None:
    planner.submit(spec("ann/web", 3))
    view = planner.view(spec("ann/web", 3))
    assert (view.token, view.places) == ("", ())
    assert view.text == "ann/web is there already, exactly like this"


def test_of_a_job_that_lives_as_it_is_it_says_which_tasks_wait_and_why(planner: Planner) -> None:
    wanted = spec("ann/web", 11)
    new = planner.view(wanted)
    planner.submit(wanted)
    view = planner.view(wanted)
    assert view.text == "ann/web is there already, exactly like this; 3 of its 11 tasks wait"
    assert (view.token, view.places) == ("", ())
    (refusal,), (before,) = view.refusals, new.refusals
    assert (refusal.indexes, refusal.text, refusal.hint) == ("8-10", before.text, before.hint)
    planner.ask(KillTasks("ann/web", (0, 10)))
    assert planner.view(wanted).text.endswith("; 1 of its 11 tasks waits")


def test_what_avoided_machines_and_is_tried_again_is_not_planned_as_a_new_job(planner: Planner) -> None:
    wanted = spec("ann/web", 9)
    planner.submit(wanted)
    planner.core.cell.failing["ann/web"] = {8}
    view = planner.view(wanted)
    assert view.places == ()
    assert view.text == (
        "ann/web is there already, exactly like this; what failed is tried again now; 1 of its 9 tasks waits"
    )
    refused = planner.core.refusals["ann/web"][0]
    avoided = msgspec.structs.replace(refused, reasons={AVOIDED: 2})
    planner.core.refusals = {"ann/web": (avoided,)}
    assert planner.view(wanted).refusals == ()


def test_a_plan_of_killed_tasks_places_them_and_no_others(planner: Planner) -> None:
    wanted = spec("ann/web", 3, 2000)
    planner.submit(wanted)
    planner.ask(KillTasks("ann/web", (0, 2)))
    view = planner.view(wanted)
    assert view.text == "ann/web: of 2 tasks that were killed 2 would be placed at once"
    assert (view.tasks, [place.index for place in view.places]) == (2, [0, 2])
    accepted = planner.submit(wanted, view.token, "r1")
    assert accepted.text.endswith("; 2 tasks that were killed are pending again")
    assert planner.where("ann/web").items() >= places(view).items()
    planner.ask(KillTasks("ann/web", (0,)))
    assert planner.submit(wanted, view.token, "r1").replayed
    assert planner.where("ann/web").keys() == {1, 2}


def test_of_a_job_that_lives_otherwise_it_says_what_becomes_of_which_tasks(planner: Planner) -> None:
    planner.submit(spec("ann/web", 3))
    wanted = msgspec.structs.replace(spec("ann/web", 4), run=("other",))
    view = planner.view(wanted)
    assert view.text == (
        "ann/web would be updated to version 2: 4 tasks instead of 3, 3 tasks to restart, a few at a time"
    )
    assert view.updates == {"restart where they are": "0-2"}
    assert any(line.startswith("run:") for line in view.changes)
    assert "updated to version 2" in planner.submit(wanted, view.token).text


def test_a_plan_beyond_a_quota_is_refused_as_its_submission_is(planner: Planner) -> None:
    planner.ask(SetQuota("ann", Band.BATCH, Resources(2000, 8 * GIB)))
    wanted = spec("ann/sum", 3, priority=100)
    with pytest.raises(Refused) as planned:
        planner.plan(wanted)
    with pytest.raises(Refused) as submitted:
        planner.submit(wanted)
    assert planned.value.message == submitted.value.message
    assert len(planner.plan(spec("ann/sum", 2, priority=100)).plan.placements) == 1


def test_a_quota_that_came_after_the_plan_refuses_it(planner: Planner) -> None:
    wanted = spec("ann/sum", 3, priority=100)
    token = planner.plan(wanted).token
    planner.ask(SetQuota("ann", Band.BATCH, Resources(2000, 8 * GIB)))
    with pytest.raises(Refused, match="quota"):
        planner.submit(wanted, token)


# Tokens that do not hold


def refused(planner: Planner, wanted: JobSpec, token: str) -> str:
    """Return why a submission as planned is refused; nothing may follow from it."""
    entries = len(planner.entries)
    with pytest.raises(Conflict) as caught:
        planner.submit(wanted, token)
    assert len(planner.entries) == entries
    assert caught.value.hint == "make a new plan: `borgctl plan FILE`"
    return caught.value.message


def test_a_plan_that_would_come_out_otherwise_is_refused(planner: Planner) -> None:
    wanted = spec("ann/web", 3)
    token, position = planner.plan(wanted).token, planner.core.cell.position
    planner.ask(CordonMachine("m1"))
    assert refused(planner, wanted, token).startswith(
        f"the cell changed since this plan was made, at position {position}: the tasks of ann/web would go "
    )


def test_a_change_that_does_not_matter_does_not_matter(planner: Planner) -> None:
    wanted = spec("ann/web", 3, 4000)
    token = planner.plan(wanted).token
    planner.ask(JoinMachine(msgspec.structs.replace(tiny("m9")), "i9", known=False))
    planner.submit(wanted, token)
    assert planner.where("ann/web").keys() == {0, 1}


def tiny(name: str) -> Machine:
    return msgspec.structs.replace(plain_machine(name), capacity=Resources(100, GIB))


def test_numbers_of_ports_are_no_part_of_a_plan(planner: Planner) -> None:
    wanted = spec("ann/web", 2, 100, ports=("http",), spread=(Spread(max=1),))
    token = planner.plan(wanted).token
    planner.submit(spec("ann/other", 2, 100, ports=("http",), spread=(Spread(max=1),)))
    planner.ask(KillTasks("ann/other"))
    planner.submit(wanted, token)
    assert planner.core.cell.jobs["ann/web"].tasks[0].ports == (20001,)


def test_a_plan_is_carried_out_once(planner: Planner) -> None:
    wanted = spec("ann/web", 3)
    token = planner.plan(wanted).token
    planner.submit(wanted, token, "r1")
    assert planner.submit(wanted, token, "r1").replayed
    assert refused(planner, wanted, token) == (
        "this plan cannot be carried out any more: ann/web is there already, exactly like this"
    )


def test_a_plan_of_another_file_is_refused(planner: Planner) -> None:
    token = planner.plan(spec("ann/web", 3)).token
    assert refused(planner, spec("ann/web", 4), token) == (
        "the job file of ann/web is not the one that this plan was made for"
    )
    assert refused(planner, spec("bob/web", 3), token) == (
        "this plan is of ann/web, and the job file is of bob/web"
    )


def test_the_order_of_what_has_none_does_not_make_another_file(planner: Planner) -> None:
    token = planner.plan(spec("ann/web", env={"A": "1", "B": "2"})).token
    planner.submit(spec("ann/web", env={"B": "2", "A": "1"}), token)


def test_a_plan_of_another_timeline_or_cell_is_refused(planner: Planner) -> None:
    wanted = spec("ann/web", 3)
    token = planner.plan(wanted).token
    planner.core.cell.timeline = 2
    assert refused(planner, wanted, token) == (
        "this plan is of timeline 1; since the cell was rolled back it is on timeline 2"
    )
    planner.core.cell.name = "other"
    assert refused(planner, wanted, token) == "this plan is of the cell test, and this is other"


@pytest.mark.parametrize(
    "token", ["x", PREFIX, f"{PREFIX}AAAA", f"{PREFIX}=?", "plan-" + "A" * 900, f"{PREFIX}ä", "bgt_secret"]
)
def test_what_is_no_token_is_called_so(planner: Planner, token: str) -> None:
    with pytest.raises(Invalid, match="not the token of a plan"):
        planner.submit(spec("ann/web"), token)


def test_a_plan_of_a_job_that_came_to_live_otherwise_is_refused(planner: Planner) -> None:
    wanted = spec("ann/web", 3)
    token = planner.plan(wanted).token
    planner.submit(spec("ann/web", 1))
    with pytest.raises(Conflict, match="the cell changed since this plan was made"):
        planner.submit(wanted, token)


def test_a_plan_is_made_on_what_came_in_the_same_step(planner: Planner) -> None:
    wanted, other = spec("ann/web", 2, 3000), spec("bob/web", 2, 3000)
    tokens = [planner.plan(each).token for each in (wanted, other)]
    asks = [
        CommandRequest(n, SubmitJob(*each), "ann")
        for n, each in enumerate(zip((wanted, other), tokens, strict=True))
    ]
    (_, first), (_, second) = planner.step(*asks).replies
    assert not isinstance(first, Exception)
    assert isinstance(second, Conflict)
    assert planner.where("ann/web").keys() == {0, 1}


def test_a_master_that_has_not_yet_looked_plans_as_well(planner: Planner) -> None:
    planner.submit(spec("bob/db", 2, 3000))
    wanted = spec("ann/web", 3, 1000)
    token = planner.plan(wanted).token
    planner.core = Core(planner.core.cell, ReconcileSettings(), planner.now)
    assert planner.plan(wanted).token == token


def test_the_places_of_a_plan_are_by_index(planner: Planner) -> None:
    view = planner.view(spec("ann/web", 8))
    assert [place.index for place in view.places] == list(range(8))
    assert isinstance(view.places[0], PlannedPlace)


def test_tasks_with_needs_of_their_own_can_be_planned(planner: Planner) -> None:
    own = Override(env={"ROLE": "first"}, resources=Resources(2000, GIB))
    wanted = spec("ann/web", 2, overrides={0: own})
    view = planner.view(wanted)
    assert planner.submit(wanted, view.token).text == "ann/web submitted: 2 tasks"
    assert planner.where("ann/web") == places(view)
