"""Whole lists out of the pages in which the master hands them out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from borgish.wire.api import (
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

if TYPE_CHECKING:
    from borgish.client import Client

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
    return list(_all(client, "/v1/jobs", {}, JobList))


def every_machine(client: "Client") -> list[MachineView]:
    """Return all machines of the cell."""
    return list(_all(client, "/v1/machines", {}, MachineList))


def every_quota(client: "Client", user: str = "") -> list[QuotaView]:
    """Return all quotas, or those of one user."""
    return list(_all(client, "/v1/quotas", {"user": user}, QuotaList))


def every_task(client: "Client", *, job: str = "", machine: str = "", state: str = "") -> list[TaskView]:
    """Return all tasks, or those of a job, on a machine, in a state."""
    return list(_all(client, "/v1/tasks", {"job": job, "machine": machine, "state": state}, TaskPage))


def latest_events(client: "Client", *, job: str = "", after: int = 0, limit: int) -> list[EventView]:
    """Return the latest events, at most ``limit``, the latest last."""
    params: Params = {"job": job, "after": after, "limit": limit}
    return list(client.get("/v1/events", params, EventList).items)


def _all(client: "Client", path: str, params: Params, page_type: type[Paged[T]]) -> Iterator[T]:
    after = ""
    while True:
        page = client.get(path, params | {"after": after}, page_type)
        yield from page.items
        after = page.page.next
        if not after:
            return
