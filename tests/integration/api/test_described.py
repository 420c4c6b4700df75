"""What the API says of itself in OpenAPI is a valid document, and true of what it answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from borgish.api.app import create_routes
from borgish.api.openapi import document
from borgish.bands import DEFAULT_BANDS, Bands
from borgish.errors import Invalid
from borgish.spec.file.fields import job_schema
from tests.integration.api.fakes import FakeMaster, RunningApi
from tests.profiles import examples

TOKEN = {"Authorization": "Bearer bgt_admin"}
JOB_FILES = ("POST /v1/jobs", "POST /v1/plan", "POST /v1/crons")
PLAIN = ("name", "user", "kind", "tasks", "run", "image", "labels", "schedule")
"""Fields of a job file that go together whatever is in them."""
FOUND = {
    "GET /v1/watch": {},
    "GET /v1/tasks/{user}/{name}/{index}/logs": {"user": "ann", "name": "web", "index": 0},
}
"""Routes of which an answer is wanted that is no refusal, and what is there that they are asked about."""
SAYS_LESS = (
    *("/v1/apply", "/v1/apply/plan"),  # whose files are a language of their own
    *("/v1/machines", "/v1/checkpoints/import"),
    *("/v1/drains", "/v1/drains/delete", "/v1/windows", "/v1/windows/delete"),
    *("/v1/history", "/v1/archive", "/v1/diff"),  # whose parameters have to go together
    # A terminal needs a session, and that is a parameter.
    *(f"/v1/tasks/{{user}}/{{name}}/{{index}}/{it}" for it in ("exec", "exec/stream", "copy")),
)
"""Routes whose requests have to fit in more ways than a schema can say."""
SORTED = ("GET /v1/jobs", "GET /v1/tasks", "GET /v1/machines")


def described(bands: Bands = DEFAULT_BANDS) -> dict[str, Any]:
    """Return the document as callers get it."""
    whole = document(create_routes(FakeMaster().services), bands)
    read: dict[str, Any] = json.loads(json.dumps(whole))
    return read


LABELS = [f"{method.upper()} {path}" for path, methods in described()["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """What can be asked, by method and path. To import what reads it takes seconds: not while collecting."""
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_dict(described())
    schema.config.generation.update(modes=[GenerationMode.POSITIVE])  # wrong ones are in tests/property/api
    results = list(schema.get_all_operations())
    return {result.ok().label: result.ok() for result in results if isinstance(result, Ok)}


@pytest.fixture(scope="module")
def served() -> Iterator[RunningApi]:
    running = RunningApi()
    yield running
    running.stop()


def test_it_is_valid_openapi() -> None:
    from openapi_spec_validator import validate

    validate(described())


def test_a_job_file_is_described_by_its_schema() -> None:
    whole = described()
    for path in ("/v1/jobs", "/v1/plan"):
        content = whole["paths"][path]["post"]["requestBody"]["content"]
        assert content.keys() == {"application/yaml", "application/json"}
        assert {tuple(kind["schema"].items()) for kind in content.values()} == {
            (("$ref", "#/components/schemas/Job"),)
        }
    job = json.loads(json.dumps(job_schema()))
    assert whole["components"]["schemas"]["Job"] == {k: v for k, v in job.items() if k != "$schema"}


def test_every_refusal_is_described() -> None:
    for path, methods in described()["paths"].items():
        for method, operation in methods.items():
            expected = {"307", "400", "401", "403", "404", "410", "429", "500", "503"}
            expected |= {"409", "413", "422"} if method == "post" else set()
            conditions = [each for each in operation["parameters"] if each["name"] == "If-Match"]
            assert ("412" in operation["responses"]) == bool(conditions), (method, path)
            assert expected < operation["responses"].keys(), (method, path)


def whole(body: Any) -> Any:
    """Return a body with its whole numbers written so: to JSON Schema 3.0 is one of them."""
    if isinstance(body, dict):
        return {key: whole(value) for key, value in body.items()}
    if isinstance(body, list):
        return [whole(value) for value in body]
    return int(body) if isinstance(body, float) and body.is_integer() else body


def fit(label: str, case: Any, *, plainly: bool) -> None:
    """Have a request say what its schema leaves open, so that it may be a good one."""
    case.body = whole(case.body)
    if label in JOB_FILES:
        if "schedule" in case.body:
            case.body["schedule"] = "*/5 * * * *"
        if plainly:
            case.body = {name: value for name, value in case.body.items() if name in PLAIN}
    if case.query.get("at_least"):
        case.query["at_least"] = 0  # others there may not be yet
    if "at_least" in case.query:
        case.query.pop("at", None)
    if label in SORTED:
        case.query.pop("after", None)  # which a list gives, in the same order
    case.path_parameters.update(FOUND.get(label, {}))


@pytest.mark.parametrize("label", LABELS)
def test_answers_are_as_described(label: str, operations: dict[str, Any], served: RunningApi) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    operation, answered = operations[label], list[int]()
    judges = [
        *(not_a_server_error, checks.status_code_conformance, checks.content_type_conformance),
        checks.response_schema_conformance,
    ]

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples(20),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    def ask(case: Any) -> None:
        served.do(served.master.reset)
        served.do(served.master.end_streams)
        fit(label, case, plainly=len(answered) % 2 == 0)
        response = case.call(base_url=served.serving.url, headers=TOKEN, timeout=60)
        case.validate_response(response, checks=judges)
        answered.append(response.status_code)
        if operation.path not in SAYS_LESS and label not in JOB_FILES:
            assert response.status_code != Invalid.status, response.text

    ask()
    assert {200, 201} & set(answered) or label not in (*FOUND, *JOB_FILES), answered
