"""What the audit log is told beside the commands, which the master notes with what they come to."""

import contextlib
from typing import Any

import msgspec
import pytest

from borgish.client import Client
from borgish.errors import BorgishError, StoreFull
from borgish.wire.api import JobDetail
from borgish.wire.api_certificates import RotationView
from tests.integration.api.fakes import FakeMaster, RunningApi


def noted(api: RunningApi) -> list[tuple[str, str, str, str]]:
    return [(it.user, it.role, it.action, it.object) for it in api.master.noted]


@pytest.mark.parametrize(
    ("method", "path", "body", "note"),
    [
        ("GET", "/v1/tasks/ann/web/0/logs", None, ("logs", "ann/web/0")),
        ("POST", "/v1/tasks/ann/web/0/exec", {"run": ["ls"]}, ("exec", "ann/web/0")),
        ("POST", "/v1/tasks/ann/web/0/forward?session=s", {"port": "http"}, ("port-forward", "ann/web/0")),
        ("POST", "/v1/tasks/ann/web/0/exec/stream", {"run": ["ls"]}, ("exec", "ann/web/0")),
        ("POST", "/v1/tasks/ann/web/0/copy", {"path": "logs"}, ("cp", "ann/web/0")),
        ("POST", "/v1/checkpoints", {"name": "noon"}, ("create checkpoint", "noon")),
        ("GET", "/v1/checkpoints/20/body", None, ("export checkpoint", "20")),
        ("POST", "/v1/checkpoints/1/delete", None, ("delete checkpoint", "1")),
        ("GET", "/v1/archive", None, ("export archive", "")),
        ("GET", "/v1/jobs/ann/web", None, ("environment", "ann/web")),
        ("POST", "/v1/authority/rotate", None, ("rotate authority", "")),
    ],
)
def test_what_an_admin_does_and_looks_into_is_noted(
    api: RunningApi, method: str, path: str, body: Any, note: tuple[str, str]
) -> None:
    give_environment(api)
    client = api.client("bgt_admin")
    with contextlib.suppress(BorgishError):  # whatever comes of it
        client.raw(method, path, None, msgspec.json.encode(body) if body else b"")
    assert noted(api) == [("root", "admin", *note)]


def test_a_rotation_that_waits_for_machines_is_not_noted(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = RotationView("begun", "0" * 64, ("m1",))
    monkeypatch.setattr(api.master.services, "rotation_held_up", lambda: waiting)
    assert api.client("bgt_admin").post("/v1/authority/rotate", None, RotationView) == waiting
    assert noted(api) == []


def give_environment(api: RunningApi) -> None:
    job = api.master.cell.jobs["ann/web"]
    job.spec = msgspec.structs.replace(job.spec, env={"LEVEL": "quiet"})


def test_whoever_looks_into_what_is_its_own_is_not_noted_but_its_commands_are(api: RunningApi) -> None:
    give_environment(api)
    for token in ("bgt_ann", "bgt_member"):
        client = api.client(token)
        assert client.get("/v1/jobs/ann/web", None, JobDetail).spec.env == {"LEVEL": "quiet"}
        client.raw("GET", "/v1/tasks/ann/web/0/logs")
    assert noted(api) == []
    api.client("bgt_ann").raw("POST", "/v1/tasks/ann/web/0/exec", None, b'{"run": ["ls"]}')
    assert noted(api) == [("ann", "user", "exec", "ann/web/0")]


def test_what_cannot_be_noted_is_not_done_and_values_are_not_shown(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_self: FakeMaster, _note: object) -> None:
        raise StoreFull("the store is full", "make room")

    monkeypatch.setattr(FakeMaster, "note", full)
    give_environment(api)
    client: Client = api.client("bgt_admin")
    assert client.get("/v1/jobs/ann/web", None, JobDetail).spec.env == {"LEVEL": "***"}
    with pytest.raises(BorgishError, match="the store is full"):
        client.raw("POST", "/v1/tasks/ann/web/0/exec", None, b'{"run": ["ls"]}')
