"""What a place of the dashboard asks the master for: what it shows, filtered, sorted and cut there. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from borgish.client import quoted
from borgish.dashboard.place import Place, View, Walk
from borgish.errors import BorgishError
from borgish.wire.api import (
    EventList,
    JobDetail,
    JobList,
    MachineList,
    MachineView,
    QuotaList,
    SummaryView,
    TaskList,
    TaskView,
    WhyView,
)
from borgish.wire.api_figures import RackList, UsageSeries
from borgish.wire.api_past import DiffView, PastWindow

ROWS_MAX = 200
"""Rows that are fetched of a list; the rest is further pages."""
EVENTS_MAX = 500
BUSIEST_MAX = 50
USAGE_SECONDS = 30.0
"""Between two samples, mostly, and they cost a master of many machines a second of cpu."""
MAP_SECONDS = 3.0
AT, DIFF, WINDOW = "at", "/v1/diff", "/v1/window"


Params = Mapping[str, str | int]


class Ask(msgspec.Struct, frozen=True):
    """One request: a path, its parameters, how the answer is read, and how often it is worth asking again."""

    path: str
    params: tuple[tuple[str, str | int], ...]
    answer: Any
    every_seconds: float = 1.0

    @property
    def is_of_past(self) -> bool:
        """Whether it asks for moments of the past, which a standby can answer as well as who leads."""
        return self.path in (DIFF, WINDOW) or any(name == AT for name, _ in self.params)


class Answer(msgspec.Struct, frozen=True):
    """What was answered to what is asked, in the same order; and why it was not, or not again."""

    asks: tuple[Ask, ...]
    views: tuple[object, ...] = ()
    error: BorgishError | None = None


def asks(place: Place) -> tuple[Ask, ...]:
    """Return what a place asks for; nothing where the live summary has it all."""
    return _ASKS[place.view](place) if place.view in _ASKS else ()


def _summary(place: Place) -> tuple[Ask, ...]:
    return () if place.moment is None else (_ask("/v1/summary", SummaryView, _at(place)),)


def _jobs(place: Place) -> tuple[Ask, ...]:
    return (_ask("/v1/jobs", JobList, {**_rows(place), "user": place.subject}),)


def _tasks(place: Place) -> tuple[Ask, ...]:
    return (_ask("/v1/tasks", TaskList, _rows(place)),)


def _machines(place: Place) -> tuple[Ask, ...]:
    found = _ask("/v1/machines", MachineList, _rows(place))
    return (found, _ask("/v1/racks", RackList, _at(place), MAP_SECONDS))


def _events(place: Place) -> tuple[Ask, ...]:
    of = "task" if place.subject.count("/") == 2 else "job"
    params: Params = {"limit": EVENTS_MAX, of: place.subject, **_at(place)}
    return (_ask("/v1/events", EventList, params),)


def _users(place: Place) -> tuple[Ask, ...]:
    return (_ask("/v1/quotas", QuotaList, _at(place)),)


def _usage(place: Place) -> tuple[Ask, ...]:
    busiest: Params = {**_rows(place), "limit": BUSIEST_MAX, "state": "running"}
    return (_ask("/v1/usage", UsageSeries, {}, USAGE_SECONDS), _ask("/v1/tasks", TaskList, busiest))


def _job(place: Place) -> tuple[Ask, ...]:
    job = _ask(quoted("jobs", *place.subject.split("/")), JobDetail, _at(place))
    tasks = _ask("/v1/tasks", TaskList, {**_rows(place), "job": place.subject})
    return (job, tasks, *_events(place))


def _task(place: Place) -> tuple[Ask, ...]:
    task = _ask(quoted("tasks", *place.subject.split("/")), TaskView, _at(place))
    usage = _ask("/v1/usage", UsageSeries, {"task": place.subject}, USAGE_SECONDS)
    return (task, usage) if place.moment is None else (task,)


def _machine(place: Place) -> tuple[Ask, ...]:
    machine = _ask(quoted("machines", place.subject), MachineView, _at(place))
    return (machine, _ask("/v1/tasks", TaskList, {**_rows(place), "machine": place.subject}))


def _why(place: Place) -> tuple[Ask, ...]:
    return (_ask(quoted("why", *place.subject.split("/")), WhyView, _at(place)),)


def _diff(place: Place) -> tuple[Ask, ...]:
    first, _, last = place.subject.partition("..")
    return (_ask(DIFF, DiffView, {"from": first, "to": last}),)


def _window(place: Place) -> tuple[Ask, ...]:
    return (_ask(WINDOW, PastWindow, {"around": place.page}),)


_ASKS: dict[View, Callable[[Place], tuple[Ask, ...]]] = {
    View.OVERVIEW: _summary,
    View.PENDING: _summary,
    View.JOBS: _jobs,
    View.TASKS: _tasks,
    View.MACHINES: _machines,
    View.EVENTS: _events,
    View.USERS: _users,
    View.USAGE: _usage,
    View.JOB: _job,
    View.TASK: _task,
    View.MACHINE: _machine,
    View.WHY: _why,
    View.DIFF: _diff,
    View.TIME: _window,
}


def is_fixed(place: Place) -> bool:
    """Whether what a place asks for is always answered alike: it is of the past."""
    return place.moment is not None or place.view in (View.DIFF, View.TIME)


def log_place(walk: Walk) -> Place | None:
    """Return the uppermost place that shows what a task writes, also where something lies on it: who comes
    back finds the lines that were looked at."""
    views = (View.LOG, View.TASK)
    return next((each for each in reversed(walk.places) if each.view in views and each.moment is None), None)


def _at(place: Place) -> Params:
    return {} if place.moment is None else {AT: place.moment}


def _rows(place: Place) -> Params:
    """Return the parameters of a list: which rows, in which order."""
    which: Params = {"limit": ROWS_MAX, "after": place.page, "sort": place.sort_key, "text": place.filter}
    return {**which, **_at(place)}


def _ask(path: str, answer: Any, params: Params, every_seconds: float = 1.0) -> Ask:
    return Ask(
        path, tuple((name, value) for name, value in params.items() if value != ""), answer, every_seconds
    )
