"""A small cell in known states, for the tests of views and API.

ann/web has a probe and four tasks: 0 healthy on m1, 1 unhealthy on m1, 2 pending and refused, 3 killed.
ann/sum runs to completion: 0 finished, 1 failed. bob/db has one task, up on m2. m3 is down.
"""

from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Job, Machine, Snapshot, Task
from borgish.cell.observed import Observed, SeenMachine
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import Health, JobSpec, Override, Restart
from borgish.text import show_indexes
from borgish.vocabulary import FAILURES, Ending, Phase, RestartPolicy, Runtime, State, task_name
from borgish.wire.api import RefusalView

NOW = Now(wall=1_767_225_600.0, mono=500.0)  # 2026-01-01T00:00:00Z
SMALL = Resources(cpu_millis=100, ram_bytes=128 * 1024**2)
LARGE = Resources(cpu_millis=400, ram_bytes=512 * 1024**2)


def machine(name: str, *, up: bool = True, cordoned: bool = False, reason: str = "") -> Machine:
    return Machine(
        name=name,
        host="127.0.0.1",
        port=7401,
        tls=False,
        capacity=Resources(4000, 8 * 1024**3, 100 * 1024**3, {"gpu": 2}),
        attributes={"arch": "amd64"},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20999,
        boot_id="boot-1",
        joined_at=NOW.wall - 3600,
        up=up,
        cordoned=cordoned,
        reason=reason,
    )


def running(index: int, on: str, attempt: int, ports: tuple[int, ...] = ()) -> Task:
    return Task(
        index, State.RUNNING, attempt=attempt, machine=on, ports=ports, since=NOW.wall - 60, restarts=0
    )


def dead(index: int, ending: Ending, reason: str, exit_code: int | None = None) -> Task:
    return Task(
        index,
        State.DEAD,
        attempt=5,
        machine="m2",
        since=NOW.wall - 30,
        reason=reason,
        ending=ending,
        exit_code=exit_code,
    )


def job(spec: JobSpec, tasks: list[Task], uid: int) -> Job:
    """Return a job with its counts as ``apply`` keeps them."""
    states = [task.state for task in tasks]
    return Job(
        key=spec.key,
        uid=uid,
        spec=spec,
        submitted_at=NOW.wall - 600,
        submitted_by=spec.user,
        tasks=tasks,
        pending=states.count(State.PENDING),
        running=states.count(State.RUNNING),
        dead=states.count(State.DEAD),
        finished=sum(1 for task in tasks if task.ending is Ending.FINISH),
        failed=sum(1 for task in tasks if task.ending in FAILURES),
    )


def small_cell() -> Cell:
    web = JobSpec(
        "web",
        "ann",
        4,
        ("serve",),
        priority=200,
        resources=SMALL,
        ports=("http",),
        env={"PASSWORD": "hunter2"},
        health=Health(http="/", port="http"),
        allow_exec=True,
        overrides={1: Override(resources=LARGE, env={"KEY": "hunter3"})},
    )
    total = JobSpec("sum", "ann", 2, ("sum",), restart=Restart(RestartPolicy.ON_FAILURE))
    db = JobSpec("db", "bob", 1, ("db",), resources=SMALL)
    jobs = [
        job(
            web,
            [
                running(0, "m1", 11, (20000,)),
                running(1, "m1", 12, (20001,)),
                Task(2, since=NOW.wall - 60),
                dead(3, Ending.KILL, "killed by ann"),
            ],
            uid=3,
        ),
        job(total, [dead(0, Ending.FINISH, "", 0), dead(1, Ending.FAIL, "no attempts left", 1)], uid=4),
        job(db, [running(0, "m2", 14)], uid=5),
    ]
    machines = [machine("m1"), machine("m2", cordoned=True), machine("m3", up=False, reason="silent")]
    return Cell(Snapshot("test", 20, jobs={j.key: j for j in jobs}, machines={m.name: m for m in machines}))


def small_observed() -> Observed:
    observed = Observed()
    observed.machines["m1"] = SeenMachine(heard=NOW.mono - 1.5)
    observed.machines["m2"] = SeenMachine(heard=NOW.mono - 0.5, orphans={("old/job/0", 2): 1.0})
    see(observed, "m1", "ann/web", 0, SeenAttempt("ann/web/0", 11, Phase.HEALTHY, pid=100, started_at=1e9))
    unhealthy = SeenAttempt(
        "ann/web/1", 12, Phase.UNHEALTHY, pid=101, restarts=2, exit_code=7, reason="probe: 3 misses"
    )
    see(observed, "m1", "ann/web", 1, unhealthy)
    see(observed, "m2", "bob/db", 0, SeenAttempt("bob/db/0", 14, Phase.UP, pid=102, started_at=2e9))
    return observed


def see(observed: Observed, on: str, key: str, index: int, seen: SeenAttempt) -> None:
    name = (task_name(key, index), seen.attempt)
    observed.machines[on].put(seen)
    observed.machines[on].usage[name] = (10 * (index + 1), 1000)


def small_refusals() -> dict[str, tuple[RefusalView, ...]]:
    refusal = RefusalView(
        job="ann/web",
        tasks=1,
        indexes=show_indexes([2]),
        text="0 of 3 machines fit: 2 have too little ram free, 1 is down",
        reasons={"ram": 2, "down": 1},
        hint="with 64MiB it would fit on m1",
    )
    return {"ann/web": (refusal,)}
