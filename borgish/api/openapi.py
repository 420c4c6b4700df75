"""``/v1/openapi.json``: the API described for programs. There is no page for people and no anonymous copy.

Made from the routes themselves: their parameters, what they return, and what they declare to take in
``opt[TAKES]``, since handlers read their bodies strictly by themselves.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.routes import HTTPRoute
from litestar.typing import FieldDefinition

import borgish
from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.errors import PROBLEM
from borgish.api.moments import AT, AT_CHARACTERS_MAX
from borgish.wire.api import Problem

TAKES = "takes"  # the key in a route's ``opt``: a struct, or words for a body that is not JSON
_BYTES = "application/octet-stream"
_FILES = {"job file": "application/yaml", "checkpoint file": _BYTES, "piece of input": _BYTES}
_NOT_SHOWN = {"request"}
_AT_PARAMETER = {
    "name": AT,
    "in": "query",
    "required": False,
    "schema": {"type": "string", "maxLength": AT_CHARACTERS_MAX},
    "description": "as it was: a time in ISO 8601, an age like 5m, a position, a checkpoint's name",
}
_BOUNDS = {"ge": "minimum", "le": "maximum", "max_length": "maxLength"}


@get("/v1/openapi.json", opt={POLICY: Policy.READ})
async def show_openapi(request: Asked) -> Response[bytes]:
    """Describe this API as OpenAPI 3.1."""
    return Response(msgspec.json.encode(document(request.app)), media_type="application/json")


def document(app: Litestar) -> dict[str, Any]:
    """Return the OpenAPI document of an app."""
    handlers = list(_handlers(app))
    shapes: set[Any] = {_returns(handler) for _, _, handler in handlers}
    shapes |= {handler.opt.get(TAKES) for _, _, handler in handlers}
    structs = sorted((s for s in shapes if _is_struct(s)), key=lambda s: str(s.__name__))
    schemas, parts = msgspec.json.schema_components(
        [*structs, Problem], ref_template="#/components/schemas/{name}"
    )
    known = dict(zip([*structs, Problem], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler in handlers:
        paths.setdefault(path, {})[method.lower()] = _operation(handler, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "borgish", "version": borgish.__version__},
        "paths": paths,
        "components": {
            "schemas": parts,
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
    problem = {"description": "What is wrong", "content": {PROBLEM: {"schema": known[Problem]}}}
    returned = known.get(_returns(handler))
    content = {"content": {"application/json": {"schema": returned}}} if returned else {}
    operation: dict[str, Any] = {
        "operationId": function.__name__,
        "summary": inspect.getdoc(function) or "",
        "description": f"Policy: {handler.opt[POLICY]}",
        "parameters": [
            _parameter(field)
            for name, field in handler.parsed_fn_signature.parameters.items()
            if name not in _NOT_SHOWN
        ]
        + [_AT_PARAMETER] * handler.opt.get(AT, False),
        "responses": {str(handler.status_code): {"description": "Done", **content}, "default": problem},
    }
    if TAKES in handler.opt:
        operation["requestBody"] = _body(handler.opt[TAKES], known)
    return operation


def _parameter(field: FieldDefinition) -> dict[str, Any]:
    declared = field.kwarg_definition
    assert isinstance(declared, ParameterKwarg), f"{field.name} is declared in api/parameters.py"
    in_query = declared.param_type == "query"
    schema = msgspec.json.schema(field.annotation)
    schema |= {word: bound for key, word in _BOUNDS.items() if (bound := getattr(declared, key)) is not None}
    return {
        "name": declared.name or field.name,
        "in": "query" if in_query else "path",
        "required": not in_query,
        "schema": schema,
        **({"description": declared.description} if declared.description else {}),
    }


def _returns(handler: HTTPRouteHandler) -> Any:
    return handler.parsed_fn_signature.return_type.annotation


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _body(takes: Any, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if isinstance(takes, str):
        return {"description": takes, "required": True, "content": {_FILES[takes]: {"schema": {}}}}
    return {"content": {"application/json": {"schema": known[takes]}}}
