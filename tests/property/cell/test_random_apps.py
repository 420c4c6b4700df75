"""Whatever people did to the jobs of an application: applied again nothing changes, what its files name is as
they say, and what they do not name is left to whom it belongs."""

from contextlib import suppress

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.apps.owners import merged
from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    KillTasks,
    ScaleJob,
    SubmitJob,
    UndoUpdate,
)
from borgish.cell.model import Job
from borgish.errors import Conflict, NotFound, Refused
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ownership
from tests.profiles import examples
from tests.unit.cell.test_decide import Desk, spec

APP = AppSpec("shop", "ann")
FIELDS = ("tasks", "run", "priority", "labels.a", "labels.b", "env.A")


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    labels = draw(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])))
    env = draw(st.dictionaries(st.just("A"), st.sampled_from(["1", "2"])))
    run = ("sleep", draw(st.sampled_from(["1", "2"])))
    priority = draw(st.sampled_from([0, 5]))
    return spec("web", draw(st.integers(1, 4)), run=run, priority=priority, labels=labels, env=env)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """What a file does not name is as it is by default, as the reader fills it in."""
    found, named = draw(specs()), set(draw(st.lists(st.sampled_from(FIELDS), unique=True)))
    default = spec("web", 1)
    plain = {
        field: getattr(found if field in named else default, field) for field in ("tasks", "run", "priority")
    }
    by_key = {
        field: {key: value for key, value in getattr(found, field).items() if f"{field}.{key}" in named}
        for field in ("labels", "env")
    }
    there = {f"{field}.{key}" for field, values in by_key.items() for key in values} | (named & plain.keys())
    return Document(msgspec.structs.replace(found, **plain, **by_key), tuple(sorted(there)))


commands = st.one_of(
    specs().map(SubmitJob),
    st.builds(ScaleJob, st.just("ann/web"), st.integers(1, 4)),
    st.builds(KillTasks, st.just("ann/web"), st.none() | st.just((0,))),
    st.just(UndoUpdate("ann/web")),
    documents().map(lambda document: ApplyApp(APP, (document,), take_over=True)),
)


def value(job: JobSpec, field: str) -> object:
    name, _, key = field.partition(".")
    return getattr(job, name).get(key) if key else getattr(job, name)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(commands, st.sampled_from(["ann", "bob"])), max_size=8), documents(), st.booleans())
def test_what_an_apply_leaves(moves: list[tuple[Command, str]], document: Document, take_over: bool) -> None:
    desk = Desk()
    for command, actor in moves:
        with suppress(Refused):
            desk.do(command, actor)
    before = desk.cell.jobs.get("ann/web")
    theirs = dict(before.owners) if before is not None else {}
    values = {field: value(wanted(before), field) for field in theirs} if before is not None else {}
    command = ApplyApp(APP, (document,), take_over=take_over)
    try:
        desk.do(command)
    except (Conflict, NotFound):
        assert not take_over, "there was nobody to ask"
        assert before is not None
        assert merged(document, before, APP.key, "ann").conflicts
        return
    job = desk.cell.jobs["ann/web"]
    assert job.app == APP.key
    for field in document.named:
        assert value(wanted(job), field) == value(document.spec, field)
        assert job.owners[field].by == APP.key
    for field, owner in theirs.items():
        if field not in document.named and owner.how is not Ownership.APPLY:
            assert value(wanted(job), field) == values[field]
            assert job.owners[field] == owner
    assert desk.do(command)[1] == 0


def wanted(job: Job) -> JobSpec:
    """Return a job's specification with the number of tasks that it is to have."""
    return msgspec.structs.replace(job.spec, tasks=job.tasks_wanted)
