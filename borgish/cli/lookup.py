"""Names as people type them, shortened where that is unique, made into full names.

``match_*`` are pure and choose among known names; ``find_*`` ask the master which there are. A job may
be named without its user and a machine by its beginning. Jobs are never completed from a beginning:
``job kill web`` must not end ``web-store`` when ``web`` is gone.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from borgish.errors import Invalid, NotFound
from borgish.vocabulary import task_name
from borgish.wire.api import (
    BudgetList,
    BudgetView,
    EventList,
    EventView,
    JobList,
    JobView,
    MachineList,
    MachineView,
    Page,
    QuotaList,
    QuotaView,
    TaskView,
)
from borgish.wire.api import TaskList as TaskPage
from borgish.wire.api_apps import AppList, AppView
from borgish.wire.api_crons import CronList, CronView

if TYPE_CHECKING:
    from borgish.client import Client


_SHOWN_MAX = 8
_SEVERAL = re.compile(r"[0-9]+[-,][0-9]+([-,][0-9]+)*")  # indexes like 0-2,5
PAGE_MAX = 1000  # items of one page of a list, at the most


def match_job(text: str, jobs: Sequence[str]) -> str:
    """Return the job key that ``text`` means: ``user/job``, or ``job`` where only one user has it."""
    if text in jobs:
        return text
    return _only([job for job in jobs if job.partition("/")[2] == text], "job", text, jobs)


def match_app(text: str, apps: Sequence[str]) -> str:
    """Return the key of the application that ``text`` means, named like a job."""
    if text in apps:
        return text
    return _only([app for app in apps if app.partition("/")[2] == text], "application", text, apps)


def match_task(text: str, jobs: Sequence[str]) -> tuple[str, int]:
    """Return the job key and the index that ``web/0`` or ``user/web/0`` means."""
    head, index = split_task(text)
    return match_job(head, jobs), index


def split_task(text: str) -> tuple[str, int]:
    """Return the job, perhaps shortened, and the index in what should be a task's name."""
    head, _, index = text.rpartition("/")
    if not head or not _is_index(index):
        hint = "Tasks are named like web/0 or ann/web/0"
        if head and _SEVERAL.fullmatch(index):
            kill, restart = f"borgctl job kill {head}", f"borgctl job restart {head} {index}"
            hint = f"One at a time; `{kill}` ends all of the job, and `{restart}` restarts these tasks"
        raise Invalid(f"'{text}' is not the name of a task", hint)
    return head, int(index)


def match_subject(text: str, jobs: Sequence[str]) -> str:
    """Return the job key or the task name that ``text`` means."""
    head, _, index = text.rpartition("/")
    if not head or not _is_index(index):
        return match_job(text, jobs)
    meant = [text] if text in jobs else []
    meant += [task_name(job, int(index)) for job in jobs if head in (job, job.partition("/")[2])]
    return _only(meant, "job or task", text, [*jobs, *(task_name(job, int(index)) for job in jobs)])


def match_machine(text: str, machines: Sequence[str]) -> str:
    """Return the machine that ``text`` names or is the beginning of."""
    if text in machines:
        return text
    return _only([m for m in machines if text and m.startswith(text)], "machine", text, machines)


def find_job(client: "Client", text: str) -> str:
    """Return the job key that ``text`` means in this cell. Raises NotFound, and Invalid where several fit."""
    try:
        return match_job(text, job_keys(client))
    except NotFound as error:
        raise NotFound(error.message, _of_another_kind(client, text) or error.hint) from None


def _of_another_kind(client: "Client", text: str) -> str:
    """Say that an application or a cron has a name; "" where none has."""
    for kind, keys in (
        ("app", [view.name for view in every_app(client)]),
        ("cron", [cron.name for cron in every_cron(client)]),
    ):
        for key in keys:
            if text in (key, key.partition("/")[2]):
                what = "an application" if kind == "app" else "a cron"
                return f"{key} is {what}: `borgctl {kind} show {key}`"
    return ""


def find_cron(client: "Client", text: str) -> str:
    """Return the key of the cron that ``text`` means in this cell, as ``find_job`` does."""
    crons = [cron.name for cron in every_cron(client)]
    if text in crons:
        return text
    return _only([cron for cron in crons if cron.partition("/")[2] == text], "cron", text, crons)


def find_task(client: "Client", text: str) -> tuple[str, int]:
    """Return the job key and index of the task that ``text`` means in this cell."""
    head, index = split_task(text)
    return match_job(head, job_keys(client)), index


def why_path(client: "Client", text: str) -> str:
    """Return where the API explains the task or the job that ``text`` means in this cell, or else the
    application."""
    from borgish.client import quoted

    try:
        return quoted("why", *match_subject(text, job_keys(client)).split("/"))
    except NotFound as error:
        with suppress(NotFound):
            app = match_app(text, [view.name for view in every_app(client)])
            return quoted("apps", *app.split("/"), "why")
        raise NotFound(error.message, _of_another_kind(client, text) or error.hint) from None


def find_machine(client: "Client", text: str) -> str:
    """Return the machine that ``text`` means in this cell."""

    return match_machine(text, [machine.name for machine in every_machine(client)])


def job_keys(client: "Client") -> list[str]:
    """Return the keys of all jobs."""

    return [job.name for job in every_job(client)]


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0") and len(text) < 6


def _only(meant: Sequence[str], kind: str, text: str, known: Sequence[str]) -> str:
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise Invalid(f"'{text}' matches more than one {kind}", f"Name one of {_listed(sorted(meant))}")
    near = nearest(text, known)
    if near:
        hint = f"Did you mean {_listed(near)}?"
    elif known:
        hint = f"There are: {_listed(sorted(known))}"
    else:
        hint = f"There is no {kind} at all"
    raise NotFound(f"there is no {kind} '{text}'", hint)


def nearest(text: str, known: Sequence[str]) -> list[str]:
    """Return the known names most like ``text``, best first, by their whole or their last part."""
    from difflib import get_close_matches

    by_short: dict[str, list[str]] = {}
    for name in known:
        by_short.setdefault(name.partition("/")[2] or name, []).append(name)
    close = get_close_matches(text, known, 3)
    close += [name for short in get_close_matches(text, list(by_short), 3) for name in by_short[short]]
    begins = [name for short, names in by_short.items() if text and short.startswith(text) for name in names]
    return list(dict.fromkeys([*begins, *close]))[:_SHOWN_MAX]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


T = TypeVar("T", covariant=True)
Params = dict[str, str | int | bool | None]


class Paged(Protocol[T]):
    """One page of a list."""

    @property
    def items(self) -> tuple[T, ...]: ...
    @property
    def page(self) -> Page: ...


def every_job(client: "Client") -> list[JobView]:
    """Return all jobs of the cell."""
    return list(every(client, "/v1/jobs", {}, JobList))


def every_app(client: "Client") -> list[AppView]:
    """Return all applications of the cell."""
    return list(every(client, "/v1/apps", {}, AppList))


def every_machine(client: "Client") -> list[MachineView]:
    """Return all machines of the cell."""
    return list(every(client, "/v1/machines", {}, MachineList))


def every_quota(client: "Client", user: str = "") -> list[QuotaView]:
    """Return all quotas, or those of one user."""
    return list(every(client, "/v1/quotas", {"user": user}, QuotaList))


def every_budget(client: "Client") -> list[BudgetView]:
    """Return all budgets across jobs."""
    return list(every(client, "/v1/budgets", {}, BudgetList))


def every_cron(client: "Client", *, times: bool = False) -> list[CronView]:
    """Return all crons; with their next five ``times``, where these are asked for."""
    return list(every(client, "/v1/crons", {"times": True} if times else {}, CronList))


def every_task(client: "Client", *, job: str = "", machine: str = "", state: str = "") -> list[TaskView]:
    """Return all tasks, or those of a job, on a machine, in a state."""
    return list(every(client, "/v1/tasks", {"job": job, "machine": machine, "state": state}, TaskPage))


def latest_events(
    client: "Client", *, job: str = "", task: str = "", after: int = 0, limit: int
) -> list[EventView]:
    """Return the latest events, at most ``limit``, the latest last: all, or those of a job or of a task."""
    params: Params = {"job": job, "task": task, "after": after, "limit": limit}
    return list(client.get("/v1/events", params, EventList).items)


def every(client: "Client", path: str, params: Params, page_type: type[Paged[T]]) -> Iterator[T]:
    """Yield all items of a list, page by page."""
    for page in pages(client, path, params, page_type):
        yield from page


def pages(client: "Client", path: str, params: Params, page_type: type[Paged[T]]) -> Iterator[tuple[T, ...]]:
    """Yield a list page by page."""
    after = ""
    while True:
        page = client.get(path, params | {"after": after}, page_type)
        yield page.items
        after = page.page.next
        if not after:
            return


def read_ahead(client: "Client", path: str, params: Params, page_type: type[Paged[T]]) -> Iterator[T]:
    """Yield all items of a list as ``every`` does; the next page is fetched while this one is used. Nobody
    else may use the client meanwhile."""
    import queue
    import threading

    fetched: queue.Queue[tuple[T, ...] | BaseException | None] = queue.Queue(1)

    def fetch() -> None:
        try:
            for page in pages(client, path, params, page_type):
                fetched.put(page)
            fetched.put(None)
        except BaseException as error:  # raised to who waits for the page
            fetched.put(error)

    # A daemon, for who reads may leave: nobody waits for a page then.
    threading.Thread(target=fetch, name="pages", daemon=True).start()
    while (page := fetched.get()) is not None:
        if isinstance(page, BaseException):
            raise page
        yield from page
