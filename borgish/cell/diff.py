"""What differs between two cells, or one cell at two moments: records in words, tasks alike together.

Pure. What a change means is left to who reads it; only what is journalled can be compared, so where a
machine was last heard of, or what a task used, is none of it.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.cell.crons.model import Cron
from borgish.cell.limits.admission import show_moment
from borgish.cell.machines.drains import drain_words
from borgish.cell.model import App, AppVersion, Cell, Job, Task
from borgish.resources import show_amounts, show_bytes
from borgish.spec.app import Document
from borgish.spec.cron import CronSpec
from borgish.spec.diff import differences
from borgish.text import instant, show_indexes
from borgish.vocabulary import OUTCOMES, Band, Ending, State

R = TypeVar("R")

ALIKE_MAX = 100
"""Tasks of a job that differ in more ways than this are reported together wherever they moved."""
_ONE, _ANOTHER = "one", "another"


class Kind(StrEnum):
    """How a record differs: only the second has it, only the first has it, or both have it otherwise."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True):
    """One record that differs, or tasks of one job that differ alike: then ``indexes`` are theirs."""

    kind: Kind
    name: str  # part of the rules, machine, user/band, user/job
    lines: tuple[str, ...]  # what differs: "state: running -> dead"; of a new or former one, what it is
    indexes: tuple[int, ...] = ()

    @property
    def subject(self) -> str:
        """What it is about, with the tasks: ``ann/web/0-4``."""
        return f"{self.name}/{show_indexes(self.indexes)}" if self.indexes else self.name


def difference(old: Cell, new: Cell) -> dict[str, tuple[Change, ...]]:
    """Return what differs, by section, in the order of ``SECTIONS``; all of them are there."""
    return {name: tuple(compare(old, new)) for name, compare in SECTIONS}


def _rules(old: Cell, new: Cell) -> Iterator[Change]:
    """What the cell's configuration says, of what decisions depend on: ``[bands]`` and ``[quota]``; and
    whether it is frozen."""
    before, after = (str(cell.freeze or "not frozen") for cell in (old, new))
    if before != after:
        yield Change(Kind.CHANGED, "freeze", (f"{before} -> {after}",))
    for name, aspects in _RULES.items():
        if lines := tuple(_compared(aspects, old.rules, new.rules)):
            yield Change(Kind.CHANGED, name, lines)


def _machines(old: Cell, new: Cell) -> Iterator[Change]:
    return _records(
        old.machines,
        new.machines,
        lambda machine: (
            "up" if machine.up else f"down: {machine.reason}",
            f"has {show_amounts(machine.capacity)}",
        ),
        lambda a, b: tuple(_compared(_MACHINE, a, b)),
    )


def _quotas(old: Cell, new: Cell) -> Iterator[Change]:
    return _records(
        old.quotas,
        new.quotas,
        lambda quota: (show_amounts(quota.limits),),
        lambda a, b: tuple(_compared(_QUOTA, a, b)),
    )


def _budgets(old: Cell, new: Cell) -> Iterator[Change]:
    return _records(
        old.budgets,
        new.budgets,
        lambda budget: (f"at most {budget.max_unavailable} of {budget.selector}",),
        lambda a, b: tuple(_compared(_BUDGET, a, b)),
    )


def _apps(old: Cell, new: Cell) -> Iterator[Change]:
    return _records(
        old.apps,
        new.apps,
        lambda app: (f"version {app.version}, {_job_count(len(app.present.documents))}",),
        _app_lines,
    )


def _crons(old: Cell, new: Cell) -> Iterator[Change]:
    return _records(
        old.crons, new.crons, lambda cron: (cron.words,), lambda a, b: _cron_lines(a, b, new.rules.bands)
    )


def _jobs(old: Cell, new: Cell) -> Iterator[Change]:
    return _records(old.jobs, new.jobs, _of_job, lambda a, b: _job_lines(a, b, new.rules.bands))


def _tasks(old: Cell, new: Cell) -> Iterator[Change]:
    """Of the jobs that both have; those of others came or went with their job."""
    for key in sorted(old.jobs.keys() & new.jobs.keys()):
        before, after = old.jobs[key].tasks, new.jobs[key].tasks
        if before != after:
            yield from _of_tasks(key, before, after)


SECTIONS: tuple[tuple[str, Callable[[Cell, Cell], Iterator[Change]]], ...] = (
    ("rules", _rules),
    ("machines", _machines),
    ("quotas", _quotas),
    ("budgets", _budgets),
    ("apps", _apps),
    ("crons", _crons),
    ("jobs", _jobs),
    ("tasks", _tasks),
)
"""In the order in which they are shown: by what is decided, what there is to run on, what may run, what
should, what does."""


def _records(
    old: Mapping[str, R],
    new: Mapping[str, R],
    about: Callable[[R], tuple[str, ...]],
    compare: Callable[[R, R], tuple[str, ...]],
) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield Change(Kind.ADDED, name, about(new[name]))
        elif name not in new:
            yield Change(Kind.REMOVED, name, about(old[name]))
        elif old[name] != new[name] and (lines := compare(old[name], new[name])):
            yield Change(Kind.CHANGED, name, lines)


class _Aspect(msgspec.Struct, frozen=True):
    """One thing to compare of a record: how it is called, what it is, and how it reads."""

    label: str
    value: Callable[[Any], Any]
    show: Callable[[Any], str] = str


def _compared(aspects: tuple[_Aspect, ...], old: Any, new: Any) -> Iterator[str]:
    for aspect in aspects:
        before, after = aspect.value(old), aspect.value(new)
        if before != after:
            shown = aspect.show(before), aspect.show(after)
            if shown[0] == shown[1]:  # amounts are rounded for people
                shown = str(before), str(after)
            yield f"{aspect.label}: {shown[0] or 'nothing'} -> {shown[1] or 'nothing'}"


# Rules, machines and quotas


def _listed(values: tuple[Any, ...]) -> str:
    return ", ".join(str(value) for value in values)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items()))


def _floor(band: Band) -> "_Aspect":
    return _Aspect(band, lambda rules: rules.bands.floor(band))


def _moment_or_never(at: float) -> str:
    return instant(at) if at else "never"


_RULES = {
    "bands": (
        *(_floor(band) for band in Band),
        _Aspect("highest", lambda rules: rules.bands.highest),
        _Aspect("names", lambda rules: rules.bands.names, _pairs),
    ),
    "quota": (
        _Aspect("required", lambda rules: "yes" if rules.quota_required else "no"),
        _Aspect("footprint", lambda rules: rules.footprint_bytes_max, show_bytes),
    ),
    "disruption": (_Aspect("affected_share_max", lambda rules: rules.affected_share_max),),
}
_MACHINE = (
    _Aspect("state", lambda machine: "up" if machine.up else "down"),
    _Aspect("cordoned", lambda machine: "yes" if machine.cordoned else "no"),
    _Aspect("quarantined", lambda machine: "yes" if machine.quarantined_until else "no"),
    _Aspect("reason", lambda machine: machine.reason),
    _Aspect("taints", lambda machine: _listed(machine.taints)),
    _Aspect("drains", lambda machine: "; ".join(map(drain_words, machine.drains))),
    _Aspect("capacity", lambda machine: machine.capacity, show_amounts),
    _Aspect("attributes", lambda machine: machine.attributes, _pairs),
    _Aspect("runtimes", lambda machine: machine.runtimes, _listed),
    _Aspect("address", lambda machine: f"{machine.host}:{machine.port}{' with TLS' * machine.tls}"),
    _Aspect("ports", lambda machine: f"{machine.ports_low}-{machine.ports_high}"),
    _Aspect("boot", lambda machine: machine.boot_id),
)
_QUOTA = (
    _Aspect("limits", lambda quota: quota.limits, show_amounts),
    _Aspect("until", lambda quota: quota.until, lambda until: show_moment(until) if until else "without end"),
)

_BUDGET = (
    _Aspect("where", lambda budget: budget.selector),
    _Aspect("max_unavailable", lambda budget: budget.max_unavailable),
)


def _job_count(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def _app_lines(old: App, new: App) -> tuple[str, ...]:
    again = ("applied as a new one",) if old.uid != new.uid else ()
    version = (f"version: {old.version} -> {new.version}",) if old.version != new.version else ()
    return (*again, *version, *document_differences(old.present, new.present))


def document_differences(old: AppVersion, new: AppVersion) -> Iterator[str]:
    """Yield one line for each thing in which two versions of an application differ."""
    for name in ("labels", "annotations"):
        before, after = getattr(old.spec, name), getattr(new.spec, name)
        if before != after:
            yield f"{name}: {_pairs(before) or 'none'} -> {_pairs(after) or 'none'}"
    was = {document.key: document for document in old.documents}
    now = {document.key: document for document in new.documents}
    for key in sorted(was.keys() | now.keys()):
        if key not in was:
            yield f"{key}: added"
        elif key not in now:
            yield f"{key}: no longer in the files"
        elif was[key] != now[key]:
            yield from (f"{key}: {line}" for line in _in_the_files(was[key], now[key]))
    crons, crons_now = ({cron.key: cron for cron in version.crons} for version in (old, new))
    for key in sorted(crons.keys() | crons_now.keys()):
        if key not in crons or key not in crons_now:
            yield f"{key}: {'cron added' if key in crons_now else 'cron no longer in the files'}"
        elif crons[key] != crons_now[key]:
            yield from (f"{key}: {line}" for line in cron_differences(crons[key], crons_now[key]))


def _in_the_files(old: Document, new: Document) -> Iterator[str]:
    """Yield how a job differs. A number of tasks that its document does not name is not the document's."""
    before, after = old.spec, new.spec
    if "tasks" not in new.named:
        if "tasks" in old.named:
            yield f"tasks: {before.tasks} -> not in the files"
        before = msgspec.structs.replace(before, tasks=after.tasks)
    elif "tasks" not in old.named:
        yield f"tasks: not in the files -> {after.tasks}"
        before = msgspec.structs.replace(before, tasks=after.tasks)
    yield from differences(before, after)


_CRON_SPEC = (
    _Aspect("schedule", lambda spec: spec.schedule),
    _Aspect("runs", lambda spec: f"the stages of {spec.app_key}" if spec.app else "a job"),
    _Aspect("time_zone", lambda spec: spec.time_zone),
    _Aspect("overlap", lambda spec: spec.overlap),
    _Aspect("missed", lambda spec: spec.missed),
    _Aspect("keep", lambda spec: spec.keep),
)
_CRON = (
    _Aspect("state", lambda cron: cron.state),
    _Aspect("last", lambda cron: cron.last, _moment_or_never),
    _Aspect("next", lambda cron: cron.next, _moment_or_never),
    _Aspect("note", lambda cron: cron.note),
    _Aspect("application", lambda cron: cron.app or "none"),
)


def _cron_lines(old: Cron, new: Cron, bands: Bands) -> tuple[str, ...]:
    return (*_compared(_CRON, old, new), *cron_differences(old.spec, new.spec, bands))


def cron_differences(old: CronSpec, new: CronSpec, bands: Bands = DEFAULT_BANDS) -> tuple[str, ...]:
    """Return one line for each thing in which two specifications of a cron differ."""
    jobs = differences(old.job, new.job, bands) if old.job != new.job else ()
    return (*_compared(_CRON_SPEC, old, new), *jobs)


# Jobs


def _of_job(job: Job) -> tuple[str, ...]:
    counts = ((job.pending, "pending"), (job.running, "running"), (job.dead, "dead"))
    shown = ", ".join(f"{count} {word}" for count, word in counts if count)
    return (f"{len(job.tasks)} task{'s' * (len(job.tasks) != 1)}{f': {shown}' if shown else ''}",)


def _job_lines(old: Job, new: Job, bands: Bands) -> tuple[str, ...]:
    again = (f"submitted again by {new.submitted_by}",) if old.uid != new.uid else ()
    state = (f"state: {old.state} -> {new.state}",) if old.state is not new.state else ()
    app = (f"application: {old.app or 'none'} -> {new.app or 'none'}",) if old.app != new.app else ()
    spec = differences(old.spec, new.spec, bands) if old.spec != new.spec else ()
    waits = ("waits for other jobs", "waits for no other job")
    now = waits[new.waits is None]
    order = (f"start: {now}",) if (old.waits is None) is not (new.waits is None) else ()
    return (*again, *state, *app, *order, *spec)


# Tasks


class _Stay(NamedTuple):
    """What is compared of a task, but for its machine."""

    state: State
    ending: Ending | None
    restarts: int
    exit_code: int | None
    signal: int | None
    version: int


class _Alike(NamedTuple):
    """How tasks differ that are reported together."""

    old: _Stay
    new: _Stay
    machine: str  # where it ran; "" for nowhere
    machine_now: str
    is_anew: bool  # another attempt


_STAY = (
    _Aspect("state", lambda stay: f"{stay.state} ({OUTCOMES[stay.ending]})" if stay.ending else stay.state),
    _Aspect("restarts", lambda stay: stay.restarts),
    _Aspect("last exit code", lambda stay: stay.exit_code, lambda code: "" if code is None else str(code)),
    _Aspect("last signal", lambda stay: stay.signal, lambda signal: "" if signal is None else str(signal)),
    _Aspect("version", lambda stay: stay.version),
)


def _of_tasks(job: str, old: list[Task], new: list[Task]) -> Iterator[Change]:
    pairs = [(before, after) for before, after in zip(old, new, strict=False) if before != after]
    groups = _grouped(pairs, _alike, ALIKE_MAX)
    if len(groups) > ALIKE_MAX:
        groups = _grouped(pairs, _roughly_alike, len(pairs))
    for alike, indexes in groups.items():
        if lines := _task_lines(alike):
            yield Change(Kind.CHANGED, job, lines, tuple(indexes))
    yield from _came(Kind.ADDED, job, new[len(old) :])
    yield from _came(Kind.REMOVED, job, old[len(new) :])


def _grouped(
    pairs: list[tuple[Task, Task]], how: Callable[[Task, Task], _Alike], groups_max: int
) -> dict[_Alike, list[int]]:
    """Return indexes by how tasks differ; gives up when there are more groups than wanted."""
    groups: dict[_Alike, list[int]] = {}
    for before, after in pairs:
        groups.setdefault(how(before, after), []).append(after.index)
        if len(groups) > groups_max:
            break
    return groups


def _alike(old: Task, new: Task) -> _Alike:
    return _Alike(_stay(old), _stay(new), _where(old), _where(new), old.attempt != new.attempt)


def _roughly_alike(old: Task, new: Task) -> _Alike:
    """As ``_alike``, but without the names of the machines between which tasks moved."""
    before, after = _where(old), _where(new)
    if before != after:
        before, after = before and _ONE, after and _ANOTHER
    else:
        before = after = ""
    return _Alike(_stay(old), _stay(new), before, after, old.attempt != new.attempt)


def _stay(task: Task) -> _Stay:
    return _Stay(task.state, task.ending, task.restarts, task.exit_code, task.signal, task.version)


def _where(task: Task) -> str:
    return task.machine if task.state is State.RUNNING else ""


def _task_lines(alike: _Alike) -> tuple[str, ...]:
    lines = list(_compared(_STAY, alike.old, alike.new))
    before, after = alike.machine, alike.machine_now
    if before != after:
        lines.append(f"machine: {before or 'none'} -> {after or 'none'}")
    elif alike.is_anew and alike.new.state is State.RUNNING is alike.old.state:
        lines.append("attempt: another one, on the same machine")
    return tuple(lines)


def _came(kind: Kind, job: str, tasks: list[Task]) -> Iterator[Change]:
    """Yield tasks that only one of the two has, together by their state."""
    for state in State:
        if indexes := tuple(task.index for task in tasks if task.state is state):
            yield Change(kind, job, (state,), indexes)
