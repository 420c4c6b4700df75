"""Reads with ``at``, through the real client: every view of the past, and what has none."""

import contextlib
import http.client
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec
import pytest

from borgish.api.app import ROUTES
from borgish.api.moments import AT, Moment
from borgish.api.request import RESTORING_OF_TOKEN_MAX
from borgish.cell.events import Entry, JobSubmitted, MachineUp, TasksPlaced
from borgish.client import Client
from borgish.errors import Gone, Invalid
from borgish.spec.job import JobSpec
from borgish.wire.api import (
    AsOf,
    BudgetList,
    EventList,
    JobDetail,
    JobList,
    MachineList,
    MachineView,
    QuotaList,
    QuotaView,
    StatusView,
    SummaryView,
    TaskList,
    TaskView,
    WhyView,
)
from borgish.wire.api_figures import RackList
from tests.integration.api.fakes import PAST, PATIENCE_SECONDS, RunningApi, until
from tests.unit.api.cells import NOW

SPEC = JobSpec("web", "ann", 3, ("true",))
NO_MOMENT = "a time like 2026-01-31T12:00:00Z, an age like 5m"


@pytest.fixture
def past(api: RunningApi, admin: Client) -> Client:
    api.master.journal = [
        Entry(1, NOW.wall - 300, 1, 1, "ann", "SubmitJob", (JobSubmitted(SPEC),)),
        Entry(2, NOW.wall - 200, 1, 1, "scheduler", "place", (TasksPlaced("ann/web", (0, 1), ("m1", "m2")),)),
        Entry(3, NOW.wall - 100, 1, 1, "machines", "SetMachineUp", (MachineUp("m1"),), subject="m1"),
    ]
    return admin.as_of(PAST.position)


def test_each_answer_says_of_when_it_is(past: Client) -> None:
    assert past.get("/v1/status", None, StatusView).as_of == PAST
    assert past.get("/v1/summary", None, SummaryView).as_of == PAST
    assert past.get("/v1/racks", None, RackList).as_of == PAST
    assert past.get("/v1/jobs", None, JobList).as_of == PAST
    assert past.get("/v1/jobs/ann/web", None, JobDetail).as_of == PAST
    assert past.get("/v1/tasks", None, TaskList).as_of == PAST
    assert past.get("/v1/tasks/ann/web/0", None, TaskView).as_of == PAST
    assert past.get("/v1/machines", None, MachineList).as_of == PAST
    assert past.get("/v1/machines/m1", None, MachineView).as_of == PAST
    assert past.get("/v1/quotas", None, QuotaList).as_of == PAST
    assert past.get("/v1/quotas/ann/production", None, QuotaView).as_of == PAST
    assert past.get("/v1/budgets", None, BudgetList).as_of == PAST
    assert past.get("/v1/why/ann/web", None, WhyView).as_of == PAST
    assert past.get("/v1/why/ann/web/0", None, WhyView).as_of == PAST
    assert past.get("/v1/events", None, EventList).as_of == PAST
    assert past.get("/v1/moment", None, AsOf) == PAST


def test_what_is_now_says_nothing_of_a_moment(admin: Client) -> None:
    assert b"as_of" not in admin.raw("GET", "/v1/tasks/ann/web/0")
    assert b"as_of" not in admin.raw("GET", "/v1/machines/m1")
    assert admin.get("/v1/status", {"at": "now"}, StatusView).as_of is None


def test_what_was_merely_seen_is_not_told(past: Client) -> None:
    status = past.get("/v1/status", None, StatusView)
    assert (status.running, status.up) == (3, None)
    job = past.get("/v1/jobs/ann/web", None, JobDetail)
    assert (job.job.running, job.job.up, job.refusals) == (2, None, ())
    task = past.get("/v1/tasks/ann/web/1", None, TaskView)
    assert (task.state, task.machine, task.attempt) == ("running", "m1", 12)
    assert (task.phase, task.pid, task.usage, task.reason, task.restarts) == (None, None, None, "", 0)
    machine = past.get("/v1/machines/m1", None, MachineView)
    assert (machine.usage, machine.heard_seconds_ago, machine.conditions) == (None, None, ())
    assert machine.committed.cpu_millis == 500


def test_why_says_what_it_does_not_know(past: Client) -> None:
    running = past.get("/v1/why/ann/web/0", None, WhyView).text
    assert "has its place on m1; its phase at that moment was not journalled" in running
    pending = past.get("/v1/why/ann/web/2", None, WhyView).text
    assert "waits for a machine" in pending
    assert "Why the scheduler refused it at that moment was not journalled." in pending
    job = past.get("/v1/why/ann/web", None, WhyView).text
    assert job.startswith("ann/web has 4 tasks: 2 running, 1 pending, 1 killed.")
    assert "was not journalled" in job


def test_events_end_with_the_moment(past: Client) -> None:
    assert [event.position for event in past.get("/v1/events", None, EventList).items] == [1, 2]
    assert [event.position for event in past.get("/v1/events", {"after": 1}, EventList).items] == [2]
    assert [event.position for event in past.get("/v1/events", {"limit": 1}, EventList).items] == [2]
    assert past.get("/v1/events", {"task": "ann/none/7"}, EventList).items == ()
    assert [event.position for event in past.get("/v1/why/ann/web", None, WhyView).events] == [1, 2]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2", Moment("2", position=2)),
        ("before-noon", Moment("before-noon", checkpoint="before-noon")),
        ("5m", Moment("5m", at=NOW.wall - 300)),
        ("-5m", Moment("-5m", at=NOW.wall - 300)),
        ("5m ago", Moment("5m ago", at=NOW.wall - 300)),
        ("2026-01-01T00:00:00+01:00", Moment("2026-01-01T00:00:00+01:00", at=NOW.wall - 3600)),
        ("2026-01-01", Moment("2026-01-01", at=NOW.wall)),
    ],
)
def test_moments_are_times_ages_positions_and_names(
    api: RunningApi, admin: Client, text: str, moment: Moment
) -> None:
    admin.get("/v1/why/ann/web", {"at": text}, WhyView)
    assert api.master.sought == [moment]  # sought once, for all that one answer is made of


@pytest.mark.parametrize(
    "text", ["", "5 moons", "yesterday noon", "2001-13-01", "-5", "1..2h", "\0", "a" * 5000]
)
def test_what_is_no_moment_is_refused(admin: Client, text: str) -> None:
    with pytest.raises(Invalid, match="invalid moment") as caught:
        admin.raw("GET", f"/v1/jobs?at={text.replace(' ', '%20')}".replace("\0", "%00"))
    assert NO_MOMENT in caught.value.hint


def test_what_cannot_be_told_is_refused_with_what_can(admin: Client) -> None:
    with pytest.raises(Gone, match="no longer kept") as caught:
        admin.get("/v1/jobs", {"at": 1}, JobList)
    assert caught.value.hint == "The earliest is 2"


@pytest.mark.parametrize("path", ["/v1/tasks/ann/web/0/logs", "/v1/watch", "/v1/usage", "/v1/history"])
def test_what_is_of_now_only_says_so(admin: Client, path: str) -> None:
    with pytest.raises(Invalid, match="this has no past") as caught:
        admin.get(path, {"at": "5m"}, JobList)
    assert caught.value.hint == "Leave it out"


def test_the_description_says_which_can_be_asked_of_the_past(admin: Client) -> None:
    paths = msgspec.json.decode(admin.raw("GET", "/v1/openapi.json"))["paths"]
    taken = {
        path: [one["name"] for one in paths[path]["get"]["parameters"]] for path in ("/v1/jobs", "/v1/watch")
    }
    assert "at" in taken["/v1/jobs"]
    assert "at" not in taken["/v1/watch"]


def test_only_reads_can_be_asked_of_the_past() -> None:
    marked = [route for route in ROUTES if AT in route.opt]
    assert len(marked) == 25
    assert all(set(route.http_methods) == {"GET"} for route in marked)


def test_one_token_has_a_few_moments_restored_at_once(api: RunningApi) -> None:
    api.do(api.master.restored.clear)
    with ThreadPoolExecutor(2 * RESTORING_OF_TOKEN_MAX) as pool:
        waiting = [
            pool.submit(status_of, api, f"/v1/jobs?at={PAST.position}") for _ in range(RESTORING_OF_TOKEN_MAX)
        ]
        until(lambda: len(api.master.sought) == RESTORING_OF_TOKEN_MAX)
        for path in ("/v1/jobs?at=2", "/v1/window?around=2", "/v1/diff?from=2"):
            assert status_of(api, path) == 429
        assert status_of(api, "/v1/jobs") == 200  # what is of now is answered
        other = pool.submit(status_of, api, f"/v1/jobs?at={PAST.position}", "bgt_ann")
        until(lambda: len(api.master.sought) == RESTORING_OF_TOKEN_MAX + 1)
        api.do(api.master.restored.set)
        assert [each.result() for each in (*waiting, other)] == [200] * (RESTORING_OF_TOKEN_MAX + 1)
    assert status_of(api, f"/v1/jobs?at={PAST.position}") == 200


def status_of(api: RunningApi, target: str, token: str = "bgt_admin") -> int:
    """Return what a request is answered with, once."""
    at = urlsplit(api.serving.url)
    with contextlib.closing(
        http.client.HTTPConnection(at.hostname or "", at.port, timeout=PATIENCE_SECONDS)
    ) as asked:
        asked.request("GET", target, headers={"Authorization": f"Bearer {token}"})
        return asked.getresponse().status
