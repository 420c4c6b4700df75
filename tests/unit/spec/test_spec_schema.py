"""The JSON Schema of a job file says what the reader does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from borgish.bands import Bands
from borgish.errors import Invalid
from borgish.spec.cron import file_schema
from borgish.spec.file import fields
from borgish.spec.file.fields import document_schema, job_schema
from borgish.spec.file.read import read_job
from borgish.vocabulary import Band

JOBS = Path(__file__).parents[3] / "configs" / "jobs"
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
KNOWN = {
    "$schema",
    "title",
    "description",
    "type",
    "enum",
    "const",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "items",
    "maxItems",
    "uniqueItems",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "maxProperties",
    "anyOf",
    "not",
    "if",
    "then",
    "else",
}


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Validate a value, by the keywords of draft 2020-12 that our schema uses."""
    assert schema.keys() <= KNOWN
    return all(
        (
            "type" not in schema or _is(schema["type"], value),
            "enum" not in schema or value in schema["enum"],
            "const" not in schema or _is_same(schema["const"], value),
            "anyOf" not in schema or any(fits(one, value) for one in schema["anyOf"]),
            "if" not in schema or fits(schema["then" if fits(schema["if"], value) else "else"], value),
            "not" not in schema or not fits(schema["not"], value),
            not isinstance(value, str) or _text_fits(schema, value),
            not isinstance(value, int | float)
            or schema.get("minimum", value) <= value <= schema.get("maximum", value),
            not isinstance(value, list) or _list_fits(schema, value),
            not isinstance(value, dict) or _object_fits(schema, value),
        )
    )


def _is_same(const: Any, value: Any) -> bool:
    return bool(const == value) and isinstance(const, bool) == isinstance(value, bool)


def _is(types: str | list[str], value: Any) -> bool:
    allowed = [types] if isinstance(types, str) else types
    if isinstance(value, bool):
        return "boolean" in allowed
    return any(isinstance(value, TYPES[name]) for name in allowed)


def _text_fits(schema: dict[str, Any], value: str) -> bool:
    return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)) and bool(
        re.search(schema.get("pattern", ""), value)
    )


def _list_fits(schema: dict[str, Any], value: list[Any]) -> bool:
    unique = not schema.get("uniqueItems") or len(set(value)) == len(value)
    return (
        unique
        and len(value) <= schema.get("maxItems", len(value))
        and all(fits(schema.get("items", {}), item) for item in value)
    )


def _object_fits(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    rest = schema.get("additionalProperties", {})
    properties = schema.get("properties", {})
    return (
        set(schema.get("required", ())) <= value.keys()
        and len(value) <= schema.get("maxProperties", len(value))
        and all(fits(schema.get("propertyNames", {}), str(name)) for name in value)
        and all(
            fits(properties[name], child) if name in properties else rest is not False and fits(rest, child)
            for name, child in value.items()
        )
    )


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: str(path.name))
def test_example_files_fit(path: Path) -> None:
    assert fits(file_schema(), yaml.safe_load(path.read_text()))


def test_every_field_is_in_it() -> None:
    properties = job_schema()["properties"]
    assert set(properties) == {field.name for field in fields.JOB_FIELDS}
    assert set(properties["restart"]["properties"]) == {field.name for field in fields.RESTART_FIELDS}
    assert set(properties["stop"]["properties"]) == {field.name for field in fields.STOP_FIELDS}
    assert set(properties["health"]["properties"]) == {field.name for field in fields.HEALTH_FIELDS}
    override = properties["overrides"]["additionalProperties"]["properties"]
    assert set(override) == {field.name for field in fields.OVERRIDE_FIELDS}
    assert set(properties["resources"]["properties"]) == {"cpu", "ram", "disk", "devices"}
    assert all(part["description"] for part in properties.values())


def test_bands_are_those_of_the_cell() -> None:
    schema = job_schema(Bands(highest=450, names={"prod": Band.PRODUCTION}))
    words, numbers = schema["properties"]["priority"]["anyOf"]
    assert words["enum"] == ["monitoring", "production", "batch", "free", "prod"]
    assert numbers["maximum"] == 450


@pytest.mark.parametrize(
    ("change", "ok"),
    [
        ({}, True),
        ({"tasks": 10_000}, True),
        ({"tasks": 0}, False),
        ({"tasks": "3"}, False),
        ({"replicas": 3}, False),
        ({"name": "A"}, False),
        ({"run": "x"}, False),
        ({"priority": "batch"}, True),
        ({"priority": 399}, True),
        ({"priority": 400}, False),
        ({"priority": "high"}, False),
        ({"resources": {"cpu": "500m", "ram": 8388608, "gpu": 1}}, True),
        ({"resources": {"cpu": "500x"}}, False),
        ({"resources": {"gpu": "1"}}, False),
        ({"resources": {"devices": {"gpu": 2}}}, True),
        ({"resources": {"devices": {"gpu": "500m"}}}, True),
        ({"resources": {"devices": {"gpu": "1.5x"}}}, False),
        ({"fixed_ports": {"metrics": 9100}}, True),
        ({"fixed_ports": {"metrics": 0}}, False),
        ({"gang": True}, True),
        ({"gang": "yes"}, False),
        ({"kind": "jobs"}, False),
        ({"in": "room"}, True),
        ({"in": "ann/room"}, True),
        ({"in": "a/b/c"}, False),
        ({"prefer": [{"when": "disk == ssd", "weight": 10}]}, True),
        ({"prefer": [{"when": "disk == ssd", "weight": -1}]}, False),
        ({"prefer": [{"weight": 10}]}, False),
        ({"spread": [{"over": "rack", "max": 2}, {"over": "zone"}]}, True),
        ({"spread": [{"over": "rack", "max": 0}]}, False),
        ({"near": [{"labels": "app == db", "over": "rack", "weight": 5}]}, True),
        ({"apart": [{"labels": ["app == db", "tier in (a, b)"]}]}, True),
        ({"apart": [{"over": "rack"}]}, False),
        ({"tolerations": [{"taint": "maintenance", "for": "1h"}]}, True),
        ({"tolerations": [{"taint": "maintenance", "for": 60}]}, False),
        ({"recheck": "evict"}, True),
        ({"recheck": "always"}, False),
        ({"group": {"proxy": {"run": ["true"]}}}, True),
        ({"group": {"proxy": {"ram": 5}}}, False),
        ({"preempt_within": "5s"}, True),
        ({"ports": ["a", "b"]}, True),
        ({"ports": ["80"]}, False),
        ({"ports": ["a", "a"]}, False),
        ({"env": {"A": "b"}}, True),
        ({"env": {"BORGISH_A": "b"}}, False),
        ({"restart": {"policy": "on_failure", "within": "10m"}}, True),
        ({"restart": {"policy": "sometimes"}}, False),
        ({"stop": {"signal": "SIGINT", "grace": "1s"}}, True),
        ({"stop": {"grace": "1"}}, False),
        ({"ports": ["a"], "health": {"tcp": True}}, True),
        ({"ports": ["a"], "health": {"tcp": "a"}}, True),
        ({"ports": ["a"], "health": {"tcp": False}}, False),
        ({"overrides": {"0": {"env": {"A": "b"}}}}, True),
        ({"overrides": {"01": {}}}, False),
        ({"overrides": {"0": {"name": "x"}}}, False),
        ({"workdir": "/a"}, True),
        ({"workdir": "a"}, False),
        ({"max_runtime": "1h"}, True),
        ({"max_runtime": 3600}, False),
    ],
)
def test_schema_and_reader_agree(change: dict[str, Any], *, ok: bool) -> None:
    job = {"name": "a", "run": ["x"], **change}
    assert fits(job_schema(), job) is ok
    try:
        read_job(json.dumps(job), "u")
    except Invalid:
        assert not ok
    else:
        assert ok


@pytest.mark.parametrize(
    ("document", "ok"),
    [
        ({"name": "a", "run": ["x"]}, True),
        ({"name": "a", "run": ["{{var.x}}"], "vars": {"x": 3, "y": {"type": "text", "help": "z"}}}, True),
        ({"name": "a", "run": ["x"], "tasks": "{{var.n}}", "restart": {"attempts": "{{ var.n }}"}}, True),
        ({"name": "a", "run": ["x"], "tasks": "{{task.index}}"}, False),
        ({"name": "a", "run": ["x"], "vars": {"x": {"kind": "text"}}}, False),
        ({"name": "a", "run": ["x"], "vars": {"x": [1]}}, False),
        ({"name": "a"}, False),
        ({"kind": "app", "name": "a", "labels": {"x": "{{var.n}}"}, "vars": {"n": 1}}, True),
        ({"kind": "app", "name": "a", "run": ["x"]}, False),
        ({"kind": "app"}, False),
    ],
)
def test_schema_of_documents(document: dict[str, Any], *, ok: bool) -> None:
    assert fits(document_schema(), document) is ok


def test_it_is_plain_data() -> None:
    assert json.loads(json.dumps(document_schema())) == document_schema()
    assert json.loads(json.dumps(job_schema())) == job_schema()
