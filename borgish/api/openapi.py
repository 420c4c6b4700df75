"""``/v1/openapi.json``: the API described for programs. There is no page for people and no anonymous copy.

Made from the routes themselves: their parameters, what they return, and what they declare to take in
``opt[CONSUMES]``, since handlers read their bodies strictly by themselves.

Litestar's own generator is off (``openapi_config=None``). It fails on these routes with a TypeError, since it
has to understand each parameter's annotation as a schema of its own, and with it a start costs 0.37 to 0.44 s
of imports and 24 MiB; this module costs 0.03 s. What the framework imports of it in any case is in neither
figure, and of faker, polyfactory and httpx, which it is installed with, nothing is.
"""

import inspect
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.routes import HTTPRoute
from litestar.typing import FieldDefinition

import borgish
from borgish.api.auth import POLICY, Policy
from borgish.api.errors import PROBLEM
from borgish.api.moments import AT, AT_CHARACTERS_MAX, AT_LEAST, AT_PATTERN, LEADER_ONLY
from borgish.api.parameters import takes_at_least
from borgish.api.preconditions import ETAG, IF_MATCH, TAG_PATTERN
from borgish.api.request import ApiRequest
from borgish.bands import DEFAULT_BANDS, Bands
from borgish.spec.cron import cron_schema
from borgish.spec.file.fields import job_schema
from borgish.wire.api import Problem

PRODUCES = "produces"  # the key for the content of an answer that is not a struct as JSON
CONSUMES = "consumes"  # the key in a route's ``opt``: a struct, or words for a body that is not JSON
_BYTES = ("checkpoint file", "piece of input")
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_JOB, _CRON = "Job", "Cron"
_FILES = {"job file": _JOB, "cron file": _CRON}
_NOT_SHOWN = {"request"}
_AT_PARAMETER = {
    "name": AT,
    "in": "query",
    "required": False,
    "schema": {"type": "string", "maxLength": AT_CHARACTERS_MAX, "pattern": f"^({AT_PATTERN})$"},
    "description": "as it was: a time in ISO 8601, an age like 5m, a position, a checkpoint's name",
}
_AT_LEAST_PARAMETER = {
    "name": AT_LEAST,
    "in": "query",
    "required": False,
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "description": "a standby may answer, as soon as its copy of the cell has this position of the journal",
}
_ETAG_HEADER = {"schema": {"type": "string", "pattern": f"^{TAG_PATTERN}$"}}
_IF_MATCH_PARAMETER = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    **_ETAG_HEADER,
    "description": 'only if it has this ETag still: "812"; "0" where nothing is to be there',
}
_BOUNDS = {"ge": "minimum", "le": "maximum", "min_length": "minLength", "max_length": "maxLength"}


@get(
    "/v1/openapi.json",
    opt={
        POLICY: Policy.READ,
        PRODUCES: {"application/json": {}},
        LEADER_ONLY: "it describes the API of who leads, and is of no position",
    },
)
async def show_openapi(request: ApiRequest) -> Response[bytes]:
    """Describe this API as OpenAPI 3.1."""
    described = document(request.app, request.services.bands())
    return Response(msgspec.json.encode(described), media_type="application/json")


def document(app: Litestar, bands: Bands = DEFAULT_BANDS) -> dict[str, Any]:
    """Return the OpenAPI document of an app, for a cell with these bands."""
    handlers = list(_handlers(app))
    shapes: set[Any] = {_returns(handler) for _, _, handler in handlers}
    shapes |= {handler.opt.get(CONSUMES) for _, _, handler in handlers}
    structs = sorted((s for s in shapes if _is_struct(s)), key=lambda s: str(s.__name__))
    fields = {field.annotation for _, _, handler in handlers for field in _fields(handler)}
    described = [*structs, Problem, *sorted(fields, key=str)]
    schemas, parts = msgspec.json.schema_components(described, ref_template="#/components/schemas/{name}")
    known = dict(zip(described, schemas, strict=True))
    files = {_JOB: job_schema(bands), _CRON: cron_schema(bands)}
    for schema in files.values():
        del schema["$schema"]
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler in handlers:
        paths.setdefault(path, {})[method.lower()] = _operation(handler, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "borgish", "version": borgish.__version__},
        "paths": paths,
        "components": {
            "schemas": parts | files,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in sorted(route.route_handler_map.items()):
                if POLICY in handler.opt:
                    yield route.path_format, str(method), handler


def _operation(handler: HTTPRouteHandler, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    function = handler.fn
    operation: dict[str, Any] = {
        "operationId": function.__name__,
        "summary": inspect.getdoc(function) or "",
        "description": f"Policy: {handler.opt[POLICY]}",
        "parameters": [_parameter(field, known) for field in _fields(handler)]
        + [_AT_PARAMETER] * handler.opt.get(AT, False)
        + [_AT_LEAST_PARAMETER] * takes_at_least(handler)
        + [_IF_MATCH_PARAMETER] * handler.opt.get(IF_MATCH, False),
        "responses": _responses(handler, known),
    }
    if handler.opt[POLICY] == Policy.OPEN:
        operation["security"] = []
    if CONSUMES in handler.opt:
        operation["requestBody"] = _body(handler.opt[CONSUMES], known)
    return operation


def _fields(handler: HTTPRouteHandler) -> list[FieldDefinition]:
    parameters = handler.parsed_fn_signature.parameters
    return [field for name, field in parameters.items() if name not in _NOT_SHOWN]


def _responses(handler: HTTPRouteHandler, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    problem = {"content": {PROBLEM: {"schema": known[Problem]}}}
    statuses = {307, 400, 401, 403, 404, 410, 429, 500, 503}
    if "POST" in handler.http_methods:
        statuses |= {409, 413, 422, 507}
    if handler.opt.get(IF_MATCH):
        statuses.add(412)
    responses: dict[str, Any] = {
        str(status): {"description": HTTPStatus(status).phrase, **problem} for status in sorted(statuses)
    }
    for again in ("429", "503"):
        responses[again]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    responses["307"]["headers"] = {"Location": {"schema": {"type": "string"}}}
    returned = known.get(_returns(handler))
    content = {"application/json": {"schema": returned}} if returned else handler.opt[PRODUCES]
    done: dict[str, Any] = {"description": "Done", "content": content}
    if handler.opt.get(ETAG):
        done["headers"] = {"ETag": _ETAG_HEADER}
    return {str(handler.status_code): done} | responses


def _parameter(field: FieldDefinition, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    declared = field.kwarg_definition
    assert isinstance(declared, ParameterKwarg), f"{field.name} is declared in api/parameters.py"
    in_query = declared.param_type == "query"
    schema = _not_null(known[field.annotation]) | (declared.schema_extra or {})
    schema |= {word: bound for key, word in _BOUNDS.items() if (bound := getattr(declared, key)) is not None}
    return {
        "name": declared.name or field.name,
        "in": "query" if in_query else "path",
        "required": not in_query or field.is_required,
        "schema": schema,
        **({"description": declared.description} if declared.description else {}),
    }


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter: one that is absent is not sent as null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def _returns(handler: HTTPRouteHandler) -> Any:
    return handler.parsed_fn_signature.return_type.annotation


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _body(takes: Any, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if takes in _FILES:
        text = {"schema": {"$ref": f"#/components/schemas/{_FILES[takes]}"}}
        content = {"application/yaml": text, "application/json": text}
        return {"description": takes, "required": True, "content": content}
    if takes in _BYTES:
        content = {"application/octet-stream": {"schema": _BINARY}}
        return {"description": takes, "required": True, "content": content}
    required = any(field.required for field in msgspec.structs.fields(takes))
    return {"required": required, "content": {"application/json": {"schema": known[takes]}}}
