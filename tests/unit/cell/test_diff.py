"""What differs between two cells, in words."""

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.diff import ALIKE_MAX, Change, Kind, difference, document_differences
from borgish.cell.limits.budgets import Budget, Freeze
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import AppVersion, Cell, Rules, Taint
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import Constraint, JobSpec
from borgish.spec.shares import Share
from borgish.store.codec import decode_snapshot, encode_snapshot
from borgish.vocabulary import Band, Ending, State, TaintEffect
from tests.unit.api.cells import job as job_of
from tests.unit.api.cells import machine, running, small_cell
from tests.unit.cell.crons import cron
from tests.unit.cell.test_decide import spec

SECTIONS = ["rules", "machines", "quotas", "budgets", "apps", "crons", "jobs", "tasks"]


def copied(cell: Cell) -> Cell:
    return Cell(decode_snapshot(encode_snapshot(cell.snapshot()), cell.name))


@pytest.fixture
def old() -> Cell:
    return small_cell()


@pytest.fixture
def new(old: Cell) -> Cell:
    return copied(old)


def found(old: Cell, new: Cell, section: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the changes of one section, and see that there are none in another."""
    changes = difference(old, new)
    assert list(changes) == SECTIONS
    assert [name for name in SECTIONS if changes[name] and name != section] == []
    return [(change.kind, change.subject, change.lines) for change in changes[section]]


def test_nothing_differs_from_itself(old: Cell, new: Cell) -> None:
    assert difference(old, new) == dict.fromkeys(SECTIONS, ())


def test_rules(old: Cell, new: Cell) -> None:
    new.rules = Rules(Bands(production=250, highest=500, names={"prod": Band.PRODUCTION}), True)
    assert found(old, new, "rules") == [
        (
            "changed",
            "bands",
            ("production: 200 -> 250", "highest: 399 -> 500", "names: nothing -> prod=production"),
        ),
        ("changed", "quota", ("required: no -> yes",)),
    ]


def test_machines_come_go_and_change(old: Cell, new: Cell) -> None:
    del new.machines["m3"]
    new.machines["m4"] = machine("m4")
    m1, m2 = new.machines["m1"], new.machines["m2"]
    m1.up, m1.reason, m1.port, m1.tls = False, "silent for 10s", 7500, True
    m2.cordoned, m2.capacity = False, Resources(8000, 8 * 1024**3, 100 * 1024**3, {"gpu": 2})
    m2.taints = (Taint("disk", "slow", TaintEffect.REFUSE, 1.0),)
    m2.attributes = {"arch": "amd64", "rack": "r2"}
    assert found(old, new, "machines") == [
        (
            "changed",
            "m1",
            (
                "state: up -> down",
                "reason: nothing -> silent for 10s",
                "address: 127.0.0.1:7401 -> 127.0.0.1:7500 with TLS",
            ),
        ),
        (
            "changed",
            "m2",
            (
                "cordoned: yes -> no",
                f"taints: nothing -> disk=slow:{TaintEffect.REFUSE}",
                "capacity: 4 cpu, 8GiB ram, 100GiB disk, 2 gpu -> 8 cpu, 8GiB ram, 100GiB disk, 2 gpu",
                "attributes: arch=amd64 -> arch=amd64, rack=r2",
            ),
        ),
        ("removed", "m3", ("down: silent", "has 4 cpu, 8GiB ram, 100GiB disk, 2 gpu")),
        ("added", "m4", ("up", "has 4 cpu, 8GiB ram, 100GiB disk, 2 gpu")),
    ]


def test_an_amount_that_is_rounded_alike_is_told_exactly(old: Cell, new: Cell) -> None:
    capacity = new.machines["m1"].capacity
    new.machines["m1"].capacity = msgspec.structs.replace(capacity, ram_bytes=capacity.ram_bytes + 1)
    ((_, _, (line,)),) = found(old, new, "machines")
    assert str(capacity.ram_bytes + 1) in line


def test_what_a_machine_merely_moves_on_is_no_difference(old: Cell, new: Cell) -> None:
    new.machines["m1"].port_next += 1
    assert found(old, new, "machines") == []


def test_quotas(old: Cell, new: Cell) -> None:
    for cell, cpu in ((old, 1000), (new, 2000)):
        cell.quotas["ann/batch"] = Quota("ann", Band.BATCH, Resources(cpu_millis=cpu))
    new.quotas["bob/free"] = Quota("bob", Band.FREE, Resources(ram_bytes=1024**3))
    old.quotas["eve/free"] = Quota("eve", Band.FREE, Resources())
    assert found(old, new, "quotas") == [
        ("changed", "ann/batch", ("limits: 1 cpu -> 2 cpu",)),
        ("added", "bob/free", ("1GiB ram",)),
        ("removed", "eve/free", ("nothing",)),
    ]


def test_budgets(old: Cell, new: Cell) -> None:
    web, db = ((Constraint("app", "==", (app,)),) for app in ("web", "db"))
    old.budgets = {"a": Budget("a", web, Share()), "gone": Budget("gone", web, Share(1, 10))}
    new.budgets = {"a": Budget("a", db, Share(2)), "new": Budget("new", (*web, *db), Share(3))}
    assert found(old, new, "budgets") == [
        ("changed", "a", ("where: app == web -> app == db", "max_unavailable: 1 -> 2")),
        ("removed", "gone", ("at most 10% of app == web",)),
        ("added", "new", ("at most 3 of app == web, app == db",)),
    ]


def test_a_freeze_is_of_the_rules(old: Cell, new: Cell) -> None:
    new.freeze = Freeze("ann", 0.0, "holidays")
    frozen = "not frozen -> frozen by ann since 1970-01-01T00:00:00.000Z: holidays"
    assert found(old, new, "rules") == [("changed", "freeze", (frozen,))]


def test_jobs_come_and_go_with_their_tasks(old: Cell, new: Cell) -> None:
    del new.jobs["ann/web"]
    new.jobs["bob/one"] = job_of(JobSpec("one", "bob", 1, ("true",)), [running(0, "m1", 30)], uid=30)
    assert found(old, new, "jobs") == [
        ("removed", "ann/web", ("4 tasks: 1 pending, 2 running, 1 dead",)),
        ("added", "bob/one", ("1 task: 1 running",)),
    ]


def test_jobs_change_in_their_spec_without_its_secrets(old: Cell, new: Cell) -> None:
    web = new.jobs["ann/web"]
    web.spec = msgspec.structs.replace(web.spec, priority=210, env={"PASSWORD": "hunter4"})
    web.generation += 1
    ((_, name, lines),) = found(old, new, "jobs")
    assert (name, lines) == (
        "ann/web",
        ("priority: 200 (production) -> 210 (production)", "env.PASSWORD: changed"),
    )


def test_a_job_submitted_again(old: Cell, new: Cell) -> None:
    web = new.jobs["ann/web"]
    web.uid, web.submitted_by, web.running, web.pending = 40, "root", 0, 0
    ((_, _, lines),) = found(old, new, "jobs")
    assert lines == ("submitted again by root", "state: running -> dead")


def test_tasks_that_differ_alike_are_told_together(old: Cell, new: Cell) -> None:
    tasks = new.jobs["ann/web"].tasks
    for index in (0, 1):
        tasks[index].state, tasks[index].ending, tasks[index].signal = State.DEAD, Ending.FAIL, 9
    tasks[2].state, tasks[2].machine, tasks[2].attempt = State.RUNNING, "m2", 40
    assert found(old, new, "tasks") == [
        (
            "changed",
            "ann/web/0-1",
            ("state: running -> dead (failed)", "last signal: nothing -> 9", "machine: m1 -> none"),
        ),
        ("changed", "ann/web/2", ("state: pending -> running", "machine: none -> m2")),
    ]


def test_tasks_that_moved_were_restarted_or_began_anew(old: Cell, new: Cell) -> None:
    tasks = new.jobs["ann/web"].tasks
    tasks[0].attempt = 41
    tasks[1].machine, tasks[1].attempt, tasks[1].restarts, tasks[1].exit_code = "m2", 42, 3, 7
    tasks[3].since += 5.0
    assert found(old, new, "tasks") == [
        ("changed", "ann/web/0", ("attempt: another one, on the same machine",)),
        ("changed", "ann/web/1", ("restarts: 0 -> 3", "last exit code: nothing -> 7", "machine: m1 -> m2")),
    ]


def test_tasks_that_only_one_has(old: Cell, new: Cell) -> None:
    web = new.jobs["ann/web"]
    web.tasks += [running(4, "m1", 50), running(5, "m1", 50)]
    web.tasks.append(msgspec.structs.replace(web.tasks[2], index=6))
    assert found(old, new, "tasks") == [
        ("added", "ann/web/6", ("pending",)),
        ("added", "ann/web/4-5", ("running",)),
    ]
    assert [kind for kind, _, _ in found(new, old, "tasks")] == ["removed", "removed"]


def test_very_many_moves_are_told_without_machines(old: Cell) -> None:
    count = 2 * (ALIKE_MAX + 1)
    spec = JobSpec("wide", "ann", count, ("true",))
    old.jobs["ann/wide"] = job_of(spec, [running(i, f"m{i}", 50) for i in range(count)], uid=50)
    new = copied(old)
    for task in new.jobs["ann/wide"].tasks[: count // 2]:
        task.machine, task.attempt = f"n{task.index}", 60
    for task in new.jobs["ann/wide"].tasks[count // 2 :]:
        task.attempt = 61
    assert found(old, new, "tasks") == [
        ("changed", f"ann/wide/0-{count // 2 - 1}", ("machine: one -> another",)),
        (
            "changed",
            f"ann/wide/{count // 2}-{count - 1}",
            ("attempt: another one, on the same machine",),
        ),
    ]


def test_a_subject_has_its_tasks() -> None:
    assert Change(Kind.CHANGED, "ann/web", (), (0, 1, 7)).subject == "ann/web/0-1,7"
    assert Change(Kind.ADDED, "m1", ()).subject == "m1"


def test_an_application_differs_in_its_documents_and_crons() -> None:
    before = AppVersion(AppSpec("shop", "ann"), (Document(spec("web")), Document(spec("db"))), 1.0, "ann")
    crons = (cron("nightly"),), (cron("nightly", "0 4 * * *", keep=2), cron("weekly"))
    before = msgspec.structs.replace(before, crons=crons[0])
    changed = (Document(spec("web", run=("sleep", "2"))), Document(spec("x")))
    after = AppVersion(AppSpec("shop", "ann", {"a": "b"}), changed, 2.0, "bob", crons[1])
    assert list(document_differences(before, after)) == [
        "labels: none -> a=b",
        "ann/db: no longer in the files",
        'ann/web: run: ["sleep", "1"] -> ["sleep", "2"]',
        "ann/x: added",
        "ann/nightly: schedule: 0 2 * * * -> 0 4 * * *",
        "ann/nightly: keep: 5 -> 2",
        "ann/weekly: cron added",
    ]
    assert "ann/weekly: cron no longer in the files" in document_differences(after, before)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (("tasks",), (), ["ann/web: tasks: 3 -> not in the files"]),
        ((), ("tasks",), ["ann/web: tasks: not in the files -> 1"]),
        ((), (), []),
        (("tasks",), ("tasks",), ["ann/web: tasks: 3 -> 1"]),
    ],
)
def test_tasks_that_the_files_do_not_name_are_not_theirs(
    before: tuple[str, ...], after: tuple[str, ...], lines: list[str]
) -> None:
    old, new = (
        AppVersion(AppSpec("shop", "ann"), (Document(spec("web", tasks=tasks), named),), 1.0, "ann")
        for tasks, named in ((3, before), (1, after))
    )
    assert list(document_differences(old, new)) == lines
