"""The JSON Schema of a job file, for editors and checkers, from the very tables that the reader uses.

It says less than the reader knows: what goes together across fields is in ``checks``.
"""

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.spec.fields import JOB
from borgish.spec.kinds import Schema
from borgish.spec.values import Priority
from borgish.vocabulary import JobKind


def job_schema(bands: Bands = DEFAULT_BANDS) -> Schema:
    """Return the JSON Schema (draft 2020-12) of a job file, for a cell with these bands."""
    schema = JOB.schema()
    schema["properties"]["priority"] |= Priority().schema(bands)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "borgish job",
        "description": "A named set of tasks that run the same thing.",
        **schema,
        "anyOf": [
            {"required": ["run"]},
            {"required": ["image"]},
            {"required": ["kind"], "properties": {"kind": {"const": JobKind.ALLOC_SET}}},
        ],
    }
