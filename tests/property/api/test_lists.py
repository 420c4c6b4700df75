"""Lists against a naive model: all views are made, and filtered and sorted by what is in them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.api import lists
from borgish.api.lists import Order, Scan
from borgish.api.parameters import JOB_SORTS, MACHINE_SORTS, TASK_SORTS
from borgish.api.records import (
    JobQuery,
    JobRecords,
    MachineQuery,
    MachineRecords,
    TaskQuery,
    TaskRecords,
)
from borgish.api.services import Reading
from borgish.api.views.jobs import job_view
from borgish.api.views.machines import machine_view
from borgish.api.views.tally import Tally
from borgish.api.views.tasks import task_view_of
from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Job, Snapshot, Task
from borgish.cell.observed import Observed, SeenMachine
from borgish.cli.merging import RANKS
from borgish.spec.job import Health, JobSpec
from borgish.spec.selectors import read_label
from borgish.vocabulary import Ending, MachineState, Outcome, Phase, State, split_task_name, task_name
from borgish.wire.api import JobView, MachineView, TaskView
from tests.profiles import examples
from tests.unit.api.cells import NOW, job, machine, small_cell, small_observed


def name_of_task(place: tuple[str, int]) -> str:
    return task_name(*place)


T = TypeVar("T")
V = TypeVar("V", JobView, TaskView, MachineView)
MACHINES = ("m1", "m2", "m3", "rack-4")
LABELS: dict[str, Callable[[dict[str, str]], bool]] = {
    "": lambda _: True,
    "app": lambda labels: "app" in labels,
    "!app": lambda labels: "app" not in labels,
    "app=web": lambda labels: labels.get("app") == "web",
    "app==web": lambda labels: labels.get("app") == "web",
    "app != web": lambda labels: labels.get("app") != "web",
    "app=web, tier": lambda labels: labels.get("app") == "web" and "tier" in labels,
    "app in (web, db),tier=1": lambda labels: (
        labels.get("app") in ("web", "db") and labels.get("tier") == "1"
    ),
    "tier > 0": lambda labels: labels.get("tier") == "1",  # the only number there is
}
TEXTS = ("", "WEB", "Web/", "/1", "b/1", "exit code", "m2", "nowhere", "rack")
AGES = st.sampled_from([0.0, 10.0, 3599.0, 3601.0, 86399.0, 86401.0, 1e6])
REASONS = st.sampled_from(["", "exit code 1", "Exit Code 2", "the machine m2 is down"])
labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "db", "1"]), max_size=2)


@st.composite
def tasks(draw: st.DrawFn, index: int, attempt: int, *, over: bool) -> Task:
    since, reason = NOW.wall - draw(AGES), draw(REASONS)
    match State.DEAD if over else draw(st.sampled_from(State)):
        case State.RUNNING:
            restarts = draw(st.integers(0, 3))
            on = draw(st.sampled_from(MACHINES))
            return Task(index, State.RUNNING, attempt, on, since=since, restarts=restarts)
        case State.DEAD:
            ending = draw(st.sampled_from(Ending))
            return Task(index, State.DEAD, attempt, "m1", since=since, reason=reason, ending=ending)
        case _:
            return Task(index, since=since, reason=reason)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    """A cell with what was seen of it, or, as of the past, without."""
    observed = Observed(known=draw(st.booleans()))
    jobs, attempts = dict[str, Job](), 0
    for name in draw(st.lists(st.sampled_from(["web", "db", "web-2", "a", "z"]), unique=True, min_size=2)):
        user = draw(st.sampled_from(["ann", "bob"]))
        count = draw(st.sampled_from([1, 2, 3, 12]))
        spec = JobSpec(
            name,
            user,
            count,
            ("x",),
            priority=draw(st.sampled_from([0, 100, 200])),
            labels=draw(labels),
            health=draw(st.sampled_from([None, Health(tcp=True, port="p")])),
        )
        over = draw(st.booleans())
        made = [draw(tasks(index, attempts + index + 1, over=over)) for index in range(count)]
        attempts += count
        jobs[spec.key] = job(spec, made, len(jobs) + 1)
        jobs[spec.key].submitted_at = NOW.wall - draw(AGES)
    machines = {}
    for name in MACHINES:
        made_machine = machine(
            name, up=draw(st.booleans()), cordoned=draw(st.booleans()), reason=draw(REASONS)
        )
        made_machine.attributes = draw(labels)
        machines[name] = made_machine
        if observed.known:
            observed.machines[name] = SeenMachine(heard=NOW.mono, misses=draw(st.integers(0, 3)))
    cell = Cell(Snapshot("test", 20, jobs=jobs, machines=machines))
    for each in jobs.values():
        pending = {task.index for task in each.tasks if task.state is State.PENDING}
        if draw(st.booleans()) and pending:
            cell.deferred[each.key] = pending
    for each in jobs.values():
        for task in each.tasks if observed.known else ():
            if task.state is State.RUNNING and draw(st.booleans()):
                name, phase = task_name(each.key, task.index), draw(st.sampled_from(Phase))
                restarts, reason = draw(st.integers(0, 3)), draw(REASONS)
                seen = observed.machines[task.machine]
                seen.put(SeenAttempt(name, task.attempt, phase, restarts=restarts, reason=reason))
                if draw(st.booleans()):
                    used = draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))
                    seen.usage[name, task.attempt] = used
    return Reading(cell, observed, NOW, {}, lambda: pytest.fail("nobody needs the status"), Tally())


def read_all(
    scan: Callable[[str], Scan[Any]],
    reading: Reading,
    name: Callable[[Any], str],
    limit: int,
    after: str = "",
) -> list[str]:
    """Return the names of all pages, each of which is full but the last."""
    found = list[str]()
    while True:
        looking = scan(after)
        while not looking.look(reading):
            pass
        places, page = looking.page(reading)
        found += map(name, places)
        assert len(places) == limit or not page.next
        after = page.next
        assert len(found) < 1000
        if not after:
            return found


def in_order(
    views: Sequence[V], ranks: Callable[[V], dict[str, Any]], sort: str, place: Callable[[V], Any]
) -> list[str]:
    key = sort.lstrip("-") or "name"
    ordered = sorted(views, key=lambda view: (ranks(view)[key], place(view)), reverse=sort.startswith("-"))
    return [view.name for view in ordered]


def sorts(keys: Sequence[str]) -> Iterator[str]:
    yield from ("", *keys, *(f"-{key}" for key in keys))


def one_or(nothing: T, some: Iterable[T]) -> st.SearchStrategy[T]:
    """Mostly nothing: of several filters together little is left."""
    return st.one_of(*[st.just(nothing)] * 2, st.sampled_from([*some]))


@pytest.fixture(autouse=True, scope="module")
def slices_of_one_record() -> Iterator[None]:
    """So that each scan is broken off at each place, and lets records go all the time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lists, "SLICE_SECONDS", -1.0)
        patched.setattr(lists, "LOOKED_AT", 1)
        patched.setattr(lists, "_KEPT", 2)
        yield


def is_in(text: str, *texts: str) -> bool:
    return any(text.lower() in each.lower() for each in texts)


def ranks_of(noun: str, view: V) -> dict[str, Any]:
    """Return by what a view is sorted, as who puts it in order without the master reads it there."""
    return {key: rank(view) for key, rank in RANKS[noun].items()}


def job_ranks(view: JobView, uid: int) -> dict[str, Any]:
    ranks = ranks_of("job", view)
    return ranks | {"trouble": (ranks["trouble"][0], -uid)}  # a cell numbers its jobs by when they came


@given(readings(), st.data())
@settings(max_examples=examples(400))
def test_jobs(reading: Reading, data: st.DataObject) -> None:
    cell, observed = reading.cell, reading.observed
    user, state = data.draw(one_or("", ["ann", "bob"])), data.draw(one_or(None, State))
    label, text = data.draw(one_or("", LABELS)), data.draw(one_or("", TEXTS))
    on, recent = data.draw(one_or("", MACHINES)), data.draw(st.booleans())
    limit = data.draw(st.integers(1, 5))
    query = JobQuery(user, state, read_label(label), text.lower(), on, NOW.wall if recent else None)
    older: set[str] = set()

    def scan(sort: str, after: str) -> Scan[str]:
        order = Order(sort, after, JOB_SORTS, str, str)
        return Scan(lambda it: JobRecords(it, query, order.key, older), order, limit, whole=recent)

    def is_shown(view: JobView) -> bool:
        its_tasks = [task_view_of(cell, observed, cell.jobs[view.name], i) for i in range(view.tasks)]
        return (
            user in ("", view.user)
            and state in (None, view.state)
            and LABELS[label](cell.jobs[view.name].spec.labels)
            and is_in(text, view.name, view.reason)
            and (not on or any(task.machine == on and task.state is State.RUNNING for task in its_tasks))
        )

    def is_recent(view: JobView) -> bool:
        ended = max(task.since for task in cell.jobs[view.name].tasks)
        hours = 24 if view.outcome is Outcome.FAILED else 1
        return view.state is not State.DEAD or NOW.wall - ended <= 3600 * hours

    matching = [view for key in cell.jobs if is_shown(view := job_view(cell, observed, cell.jobs[key], ()))]
    shown = [view for view in matching if not recent or is_recent(view)]
    for sort in sorts(JOB_SORTS):
        expected = in_order(
            shown,
            lambda view: job_ranks(view, cell.jobs[view.name].uid),
            sort,
            lambda view: view.name,
        )
        assert read_all(partial(scan, sort), reading, str, limit) == expected
    assert older == {view.name for view in matching} - {view.name for view in shown}


@given(readings(), st.data())
@settings(max_examples=examples(400))
def test_tasks(reading: Reading, data: st.DataObject) -> None:
    cell, observed = reading.cell, reading.observed
    of_job = data.draw(one_or("", cell.jobs))
    user, state = data.draw(one_or("", ["ann", "bob"])), data.draw(one_or(None, State))
    label, text = data.draw(one_or("", LABELS)), data.draw(one_or("", TEXTS))
    on = data.draw(one_or("", MACHINES))
    limit = data.draw(st.integers(1, 5))
    query = TaskQuery(of_job, on, user, state, read_label(label), text.lower())

    def scan(sort: str, after: str) -> Scan[tuple[str, int]]:
        order = Order(sort, after, TASK_SORTS, name_of_task, split_task_name)
        return Scan(lambda it: TaskRecords(it, query, order.key), order, limit)

    def is_shown(view: TaskView) -> bool:
        return (
            of_job in ("", view.job)
            and user in ("", view.user)
            and state in (None, view.state)
            and LABELS[label](cell.jobs[view.job].spec.labels)
            and is_in(text, view.name, view.reason)
            and (not on or (view.machine == on and view.state is State.RUNNING))
        )

    views = [
        task_view_of(cell, observed, job, task.index) for job in cell.jobs.values() for task in job.tasks
    ]
    for sort in sorts(TASK_SORTS):
        expected = in_order(
            [view for view in views if is_shown(view)],
            partial(ranks_of, "task"),
            sort,
            lambda view: (view.job, view.index),
        )
        assert read_all(partial(scan, sort), reading, name_of_task, limit) == expected


@given(readings(), st.data())
@settings(max_examples=examples(400))
def test_machines(reading: Reading, data: st.DataObject) -> None:
    cell, observed = reading.cell, reading.observed
    state = data.draw(one_or(None, MachineState))
    label, text = data.draw(one_or("", LABELS)), data.draw(one_or("", TEXTS))
    limit = data.draw(st.integers(1, 5))
    query = MachineQuery(state, read_label(label), text.lower())

    def scan(sort: str, after: str) -> Scan[str]:
        order = Order(sort, after, MACHINE_SORTS, str, str)
        return Scan(lambda it: MachineRecords(it, query, order.key), order, limit)

    def is_shown(view: MachineView) -> bool:
        return (
            (state is None or view.state == state)
            and LABELS[label](view.attributes)
            and is_in(text, view.name, view.reason, *view.conditions)
        )

    views = [machine_view(cell, observed, Tally(), each, NOW) for each in cell.machines.values()]
    for sort in sorts(MACHINE_SORTS):
        expected = in_order(
            [view for view in views if is_shown(view)],
            partial(ranks_of, "machine"),
            sort,
            lambda view: view.name,
        )
        assert read_all(partial(scan, sort), reading, str, limit) == expected


@pytest.mark.parametrize("sort", ["name", "-name", "since", "-since", "trouble", "-cpu"])
def test_what_stays_as_it_is_is_on_one_page_whoever_moves(sort: str) -> None:
    cell = small_cell()
    reading = Reading(cell, small_observed(), NOW, {}, lambda: pytest.fail("no status"), Tally())

    def scan(after: str) -> Scan[tuple[str, int]]:
        order = Order(sort, after, TASK_SORTS, name_of_task, split_task_name)
        return Scan(lambda it: TaskRecords(it, TaskQuery(), order.key), order, 2)

    whole = read_all(scan, reading, name_of_task, 2)
    looking = scan("")
    while not looking.look(reading):
        pass
    first, page = looking.page(reading)
    for key, index in first:
        cell.jobs[key].tasks[index].since += 1e6 if index % 2 else -1e6
    rest = read_all(scan, reading, name_of_task, 2, page.next)
    assert [name for name in rest if name not in map(name_of_task, first)] == whole[2:]
    assert len(whole) == 7


def test_what_is_gone_when_the_page_is_made_is_not_on_it() -> None:
    cell = small_cell()
    reading = Reading(cell, small_observed(), NOW, {}, lambda: pytest.fail("no status"), Tally())
    order = Order("tasks", "", JOB_SORTS, str, str)
    query = JobQuery(state=State.RUNNING)
    scan = Scan(lambda it: JobRecords(it, query, order.key, set()), order, 10)
    while not scan.look(reading):
        pass
    cell.jobs["ann/web"].running = 0
    assert scan.page(reading)[0] == ["bob/db"]


def changed(data: st.DataObject, cell: Cell) -> Cell:
    """Return a cell as it might be a turn later: a job came, went or was scaled, or a task is in another
    state."""
    jobs = dict(cell.jobs)
    key = data.draw(st.sampled_from([*sorted(jobs), "ann/new", "bob/m"]))
    made = jobs.pop(key, None)
    what = data.draw(st.sampled_from(["goes", "scaled", "moves"]))
    if made is None or what == "scaled":
        user, _, name = key.partition("/")
        spec = JobSpec(name, user, data.draw(st.integers(1, 6)), ("x",))
        kept = made.tasks[: spec.tasks] if made else []
        fresh = [Task(index, State.RUNNING, 100 + index, "m1") for index in range(len(kept), spec.tasks)]
        jobs[key] = job(spec, [*kept, *fresh], 100)
    elif what == "moves":
        each = data.draw(st.sampled_from(made.tasks))
        its_tasks = list(made.tasks)
        its_tasks[each.index] = data.draw(tasks(each.index, each.attempt, over=False))
        jobs[key] = job(made.spec, its_tasks, made.uid)
    return Cell(Snapshot("test", cell.position + 1, jobs=jobs, machines=cell.machines))


def running_in(cell: Cell) -> set[str]:
    return {
        task_name(each.key, task.index)
        for each in cell.jobs.values()
        for task in each.tasks
        if task.state is State.RUNNING
    }


@given(readings(), st.data())
@settings(max_examples=examples(400))
def test_by_name_what_is_there_all_the_while_is_on_one_page_and_nothing_on_two(
    reading: Reading, data: st.DataObject
) -> None:
    """Also where the cell changes while a page is looked for, which is broken off at each record here."""
    cell, limit = reading.cell, data.draw(st.integers(1, 4))
    sort, state = data.draw(st.sampled_from(["", "-name"])), data.draw(one_or(None, [State.RUNNING]))
    running, jobs = running_in(cell), set(cell.jobs)

    def now() -> Reading:
        nonlocal cell
        if data.draw(st.integers(0, 2)) == 0:
            cell = changed(data, cell)
            running.intersection_update(running_in(cell))
            jobs.intersection_update(cell.jobs)
        return msgspec.structs.replace(reading, cell=cell, tally=Tally())

    def task_page(after: str) -> Scan[tuple[str, int]]:
        order = Order(sort, after, TASK_SORTS, name_of_task, split_task_name)
        return Scan(lambda it: TaskRecords(it, TaskQuery(state=state), order.key), order, limit)

    def job_page(after: str) -> Scan[str]:
        order = Order(sort, after, JOB_SORTS, str, str)
        return Scan(lambda it: JobRecords(it, JobQuery(), order.key, set()), order, limit)

    def all_pages(begin: Callable[[str], Scan[Any]], name: Callable[[Any], str]) -> list[str]:
        found, after = list[str](), ""
        while True:
            scan = begin(after)
            while not scan.look(now()):
                pass
            places, page = scan.page(now())
            found += map(name, places)
            after = page.next
            if not after:
                return found

    shown = all_pages(task_page, name_of_task)
    assert len(set(shown)) == len(shown)
    assert running <= set(shown)
    shown = all_pages(job_page, str)
    assert len(set(shown)) == len(shown)
    assert jobs <= set(shown)
