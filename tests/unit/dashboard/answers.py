"""What a master would answer to each place of the dashboard, and places that show it."""

from typing import Any

import msgspec

from borgish.dashboard.asks import Answer, asks
from borgish.dashboard.bodies import Known, Output
from borgish.dashboard.place import GROWING, Place, Target, View, Walk
from borgish.dashboard.trails import Trails
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, Outcome, Phase, RolloutKind, State, TaintEffect
from borgish.wire.api import (
    AsOf,
    EventList,
    JobDetail,
    JobList,
    MachineList,
    ProgramView,
    QuotaList,
    QuotaView,
    RefusalView,
    RolloutView,
    SummaryView,
    TaintView,
    TaskList,
    TaskView,
    UsageView,
    WhyView,
)
from borgish.wire.api_figures import RackList, RackView, UsagePoint, UsageSeries
from borgish.wire.api_past import ChangeView, DiffView, HistoryView, PastStep, PastWindow
from tests.unit.dashboard import summaries
from tests.unit.dashboard.summaries import GIB, HOSTILE, NOW, STARTED

PAST = AsOf(4000, "2026-01-02T02:00:00.000Z")
_TASK = TaskView(
    name="ann/web/0",
    job="ann/web",
    user="ann",
    index=0,
    state=State.RUNNING,
    phase=Phase.HEALTHY,
    machine="m1",
    attempt=4001,
    pid=77,
    ports={"http": 20001},
    started_at=STARTED,
    restarts=0,
    reason="",
    exit_code=None,
    signal=None,
    since=STARTED,
    priority=200,
    resources=Resources(500, GIB),
    usage=UsageView(250, GIB // 4),
)


def task(**changes: Any) -> TaskView:
    return msgspec.structs.replace(_TASK, **changes)


def tasks() -> TaskList:
    return TaskList(
        (
            task(name="ann/web/3", index=3, phase=Phase.UNHEALTHY, reason="its probe failed: HTTP 500"),
            task(
                name="bob/train/7",
                state=State.PENDING,
                phase=None,
                machine=None,
                usage=None,
                reason="no room",
            ),
            task(
                name="carl/import/2",
                state=State.DEAD,
                phase=None,
                outcome=Outcome.FAILED,
                exit_code=1,
                usage=None,
                reason="exit code 1",
            ),
            task(restarts=3),
        )
    )


def series() -> UsageSeries:
    points = (UsagePoint(f"2026-01-02T03:{i:02d}:00.000Z", 100 * i, i * GIB // 60, 3) for i in range(60))
    return UsageSeries(tuple(points), 60.0)


def racks(count: int = 3, machines: int = 40) -> RackList:
    states = ("up", "up", "up", "down", "silent", "draining", "cordoned", "quarantined")
    return RackList(
        tuple(
            RackView(
                f"r{rack}" * bool(rack),
                tuple(f"m{rack}-{i}" for i in range(machines)),
                tuple(states[(rack + i) % len(states)] for i in range(machines)),
                tuple((7 * i + rack) % 101 for i in range(machines)),
            )
            for rack in range(count)
        )
    )


def window() -> PastWindow:
    first = msgspec.structs.replace(summaries.busy(), as_of=PAST)
    texts = ("placed on m1", "restarted in place (restart 2): exit code 1")
    steps = tuple(
        PastStep(
            HistoryView(
                *(4001 + i, f"2026-01-02T02:00:{i:02d}.000Z", 1, 3, "scheduler", "place", "ann/web"),
                f"ann/web/{i} {texts[i % 2]}",
                (summaries.event(4001 + i), summaries.event(4001 + i, text=f"ann/web/{i} {texts[i % 2]}")),
            ),
            *(5, 20 + i, 5, 3),
            (summaries.job(name="ann/web", tasks=9, up=None, running=i),),
            ("bob/train",) if i == 4 else (),
            (summaries.machine(name="m3", state="down" if i % 3 else "up", usage=None),),
        )
        for i in range(30)
    )
    return PastWindow(first, steps, 4030, 12, 4217, PAST)


def job_detail() -> JobDetail:
    view = summaries.job(tasks=9, up=8, running=9, version=3)
    refusal = RefusalView("ann/web", 1, "8", "0 of 4 machines fit: 4 lack gpu", {}, "Add a machine", NOW)
    rollout = RolloutView(
        RolloutKind.UPDATE,
        "ann",
        STARTED,
        3,
        6,
        1,
        "task 3 to be healthy",
        None,
        ("borgctl job update pause",),
    )
    spec = JobSpec("web", "ann", 9, ("python3", "-m", "http.server"))
    return JobDetail(view, spec, (refusal,), rollout=rollout)


def diff() -> DiffView:
    changes = {
        "machines": (ChangeView("changed", "m3", ("state: up -> down",)),),
        "jobs": (ChangeView("added", "ann/web", ("9 tasks",)), ChangeView("removed", "bob/x", ("1 task",))),
        "tasks": (ChangeView("changed", "ann/web", ("state: pending -> running",), "0-8", 9),),
    }
    return DiffView(PAST, AsOf(4217, NOW), changes)


def why() -> WhyView:
    text = "ann/web/3 runs on m1 and is not healthy: its probe failed twice in a row. " * 4
    return WhyView("ann/web/3", State.RUNNING, text, job_detail().refusals, events=(summaries.event(9),))


def machine() -> Any:
    taints = (TaintView("disk", TaintEffect.REFUSE, STARTED, "slow"),)
    return summaries.machine(attributes={"rack": "r1", "zone": "a"}, conditions=("disk full",), taints=taints)


def quotas() -> QuotaList:
    has, used = Resources(8000, 16 * GIB), Resources(8000, 4 * GIB)
    return QuotaList(
        (
            QuotaView(
                "ann", Band.PRODUCTION, has, used, Resources(0, 12 * GIB), "2026-12-31T00:00:00Z", set=True
            ),
            QuotaView("bob", Band.FREE, None, used, None, None, set=False),
        )
    )


VIEWS: dict[View, tuple[Any, ...]] = {
    View.OVERVIEW: (),
    View.JOBS: (JobList(summaries.busy().jobs),),
    View.TASKS: (tasks(),),
    View.MACHINES: (MachineList(summaries.busy().machines), racks()),
    View.PENDING: (),
    View.EVENTS: (EventList(summaries.busy().events),),
    View.USERS: (quotas(),),
    View.USAGE: (series(), tasks()),
    View.JOB: (job_detail(), tasks(), EventList(summaries.busy().events)),
    View.TASK: (task(programs=(ProgramView("proxy", Phase.UP, 9, 0, ""),), reason="said so"), series()),
    View.MACHINE: (machine(), tasks()),
    View.LOG: (),
    View.WHY: (why(),),
    View.DIFF: (diff(),),
    View.TIME: (window(),),
    View.HELP: (),
    View.ACTIONS: (),
    View.OUTPUT: (),
}
SUBJECTS = {
    View.JOB: "ann/web",
    View.TASK: "ann/web/3",
    View.MACHINE: "m1",
    View.LOG: "ann/web/3",
    View.WHY: "ann/web/3",
    View.DIFF: "4000..4217",
    View.ACTIONS: "ann/web",
    View.OUTPUT: "0",
}
LOG = tuple(f"12:00:{i:02d} GET /{i} 200" for i in range(60))


def place(view: View, **changes: Any) -> Place:
    which = "job" if view is View.ACTIONS else ""
    made = Place(view, SUBJECTS.get(view, ""), which, follows=view in GROWING)
    return msgspec.structs.replace(made, **changes)


def trails() -> Trails:
    """What a machine that gets busy used, and one that was idle."""
    busy = tuple(UsageView(100 * i, i * GIB // 4) for i in range(50))
    return Trails({"m1": busy, "m4": (UsageView(0, 0),) * 9}, 0.0)


def known(at: Place, summary: SummaryView | None = None, **changes: Any) -> Known:
    answer = Answer(asks(at), VIEWS[at.view])
    outputs = (Output("borgctl job restart ann/web", ["ann/web: 9 tasks are restarted", "done"], 0),)
    made = Known(summary or summaries.busy(), answer, log=LOG, outputs=outputs, trails=trails(), role="admin")
    return msgspec.structs.replace(made, **changes)


def walk(at: Place) -> Walk:
    return Walk((Place(View.OVERVIEW), at) if at.view is not View.OVERVIEW else (at,))


def evil(value: Any, number: int = 0) -> Any:
    """Return an answer in which every text that somebody else wrote is an attack; moments and what is of our
    own vocabulary stay."""
    if isinstance(value, msgspec.Struct):
        made: dict[str, Any] = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            is_ours = name in (
                "at",
                "since",
                "started_at",
                "submitted_at",
                "joined_at",
                "until",
                "now",
                "kind",
            )
            made[name] = old if is_ours else evil(old, number + len(made))
        return type(value)(**made)
    if isinstance(value, tuple):
        return tuple(evil(each, number + i) for i, each in enumerate(value))
    if isinstance(value, dict):
        return {evil(key, number): evil(each, number + 1) for key, each in value.items()}
    return HOSTILE[number % len(HOSTILE)] if type(value) is str else value


TARGETS = tuple(Target(view, SUBJECTS.get(view, "")) for view in View)
