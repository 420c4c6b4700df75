"""What the API says of itself in OpenAPI is a valid document, and true of what it answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from borgish.api.app import create_routes
from borgish.api.openapi import document
from borgish.bands import DEFAULT_BANDS, Bands
from borgish.errors import Invalid
from borgish.spec.fields import job_schema
from tests.integration.api.fakes import FakeMaster, RunningApi

TOKEN = {"Authorization": "Bearer bgt_admin"}
STREAMS = ("/v1/watch", "/v1/tasks/{user}/{name}/{index}/logs")
JOB_FILES = ("/v1/jobs", "/v1/plan")  # to make some from their schema takes minutes; tests/property/spec does
SAYS_LESS = (
    *("/v1/machines", "/v1/checkpoints/import"),
    *("/v1/history", "/v1/archive", "/v1/diff"),  # whose parameters have to go together
)
"""Routes whose requests have to fit in more ways than a schema can say."""
EXAMPLES = 6
CHECKS = [
    *(not_a_server_error, status_code_conformance, content_type_conformance),
    response_schema_conformance,
]


def described(bands: Bands = DEFAULT_BANDS) -> dict[str, Any]:
    """Return the document as callers get it."""
    whole = document(create_routes(FakeMaster().services), bands)
    read: dict[str, Any] = json.loads(json.dumps(whole))
    return read


SCHEMA = schemathesis.openapi.from_dict(described())
SCHEMA.config.generation.update(modes=[GenerationMode.POSITIVE])  # wrong ones are in tests/property/api
OPERATIONS = [
    result.ok()
    for result in SCHEMA.get_all_operations()
    if isinstance(result, Ok) and result.ok().path not in (*STREAMS, *JOB_FILES)
]


@pytest.fixture(scope="module")
def served() -> Iterator[RunningApi]:
    running = RunningApi()
    yield running
    running.stop()


def test_it_is_valid_openapi() -> None:
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
            assert expected < operation["responses"].keys(), (method, path)


def whole(body: Any) -> Any:
    """Return a body with its whole numbers written so: to JSON Schema 3.0 is one of them."""
    if isinstance(body, dict):
        return {key: whole(value) for key, value in body.items()}
    if isinstance(body, list):
        return [whole(value) for value in body]
    return int(body) if isinstance(body, float) and body.is_integer() else body


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: str(operation.label))
def test_answers_are_as_described(operation: Any, served: RunningApi) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    def ask(case: Any) -> None:
        served.do(served.master.reset)
        case.body = whole(case.body)
        response = case.call(base_url=served.serving.url, headers=TOKEN, timeout=60)
        case.validate_response(response, checks=CHECKS)
        if operation.path not in SAYS_LESS:
            assert response.status_code != Invalid.status, response.text

    ask()
