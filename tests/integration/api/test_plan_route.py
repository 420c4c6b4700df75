"""Plans over the API: made of a job file, and submitted with their token."""

import json

import msgspec
import pytest

from borgish.cell.commands import SubmitJob
from borgish.client import Client
from borgish.errors import Conflict, Forbidden, Invalid
from borgish.wire.api import Accepted
from borgish.wire.api_plans import PlanView
from tests.integration.api.fakes import RunningApi
from tests.integration.api.test_routes import JOB, submit


def plan(client: Client, text: bytes = JOB, user: str = "") -> PlanView:
    return client.post("/v1/plan", text, PlanView, "", {"user": user}, "application/yaml")


def test_a_plan_is_made_of_a_job_file_and_changes_nothing(api: RunningApi) -> None:
    view = plan(api.client("bgt_ann"))
    assert (view.job, view.token, view.places[0].victims) == ("ann/hello", "plan-x", ("bob/db/0",))
    ((spec, actor),) = api.master.planned
    assert (spec.key, actor) == ("ann/hello", "ann")
    assert api.master.asked == []


def test_a_plan_is_refused_as_a_submission_is(api: RunningApi) -> None:
    ann = api.client("bgt_ann")
    with pytest.raises(Forbidden, match="bob"):
        plan(ann, user="bob")
    with pytest.raises(Invalid) as caught:
        plan(ann, b"tasks: -1\n")
    assert caught.value.mistakes[0].line == 1
    with pytest.raises(Conflict, match="is there"):
        plan(ann, b"name: web\nrun: [x]\n")
    with pytest.raises(Forbidden):
        plan(api.client("bgt_reader"))
    assert api.master.planned == []


def test_a_token_goes_on_with_its_submission_and_into_its_digest(api: RunningApi, admin: Client) -> None:
    params = {"user": "ann", "plan": "plan-x"}
    first = admin.post("/v1/jobs", JOB, Accepted, "same-id", params, "application/yaml")
    assert isinstance(command := api.master.asked[0].command, SubmitJob)
    assert (command.spec.key, command.plan) == ("ann/hello", "plan-x")
    assert admin.post("/v1/jobs", JOB, Accepted, "same-id", params, "application/yaml") == (
        msgspec.structs.replace(first, replayed=True)
    )
    with pytest.raises(Conflict):
        submit(admin, request_id="same-id", user="ann")


def test_a_plan_is_described(admin: Client) -> None:
    described = json.loads(admin.raw("GET", "/v1/openapi.json"))
    posted = described["paths"]["/v1/plan"]["post"]
    assert posted["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/PlanView")
    submitted = described["paths"]["/v1/jobs"]["post"]
    assert "plan" in [parameter["name"] for parameter in submitted["parameters"]]
