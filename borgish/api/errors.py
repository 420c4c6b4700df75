"""Turns every error into problem details (RFC 9457): what is wrong, why, and the way out.

Nothing else leaves: no traceback, no path, no SQL. What nobody foresaw is logged here, under a number
that the caller gets.
"""

import logging
import math
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from borgish.api.parameters import public_name
from borgish.errors import BorgishError, Invalid, Mistake, TooManyRequests, Unauthenticated
from borgish.ids import new_instance
from borgish.vocabulary import JSON_BYTES_MAX
from borgish.wire.api import Problem

PROBLEM = "application/problem+json"
PATH_SHOWN = 200  # characters of it in an error
TOO_LARGE = "too_large"  # the key in a route's ``opt``: what to say of a body over its limit, and the way out
_log = logging.getLogger(__name__)

_FRAMEWORK_WORDS = {
    404: ("there is nothing at {path}", "GET /v1/openapi.json lists what there is"),
    405: ("{path} does not take {method}", "GET /v1/openapi.json lists what it takes"),
    413: (
        "the body is larger than {limit} bytes",
        "Split the job file, or move large data out of it",
    ),
}


def problem_of(error: BorgishError) -> Problem:
    """Return the problem details of an error that borgish raised on purpose."""
    mistakes = error.mistakes if isinstance(error, Invalid) else ()
    return Problem(
        title=error.title or HTTPStatus(error.status).phrase,
        status=error.status,
        detail=error.message,
        hint=error.hint,
        mistakes=mistakes,
    )


def headers_of(error: BorgishError) -> list[tuple[bytes, bytes]]:
    """Return the headers that an error has beside those of its body."""
    if isinstance(error, TooManyRequests):
        return [(b"retry-after", b"%d" % math.ceil(error.retry_after_seconds))]
    return [(b"www-authenticate", b"Bearer")] if isinstance(error, Unauthenticated) else []


def on_borgish_error(_request: Request[Any, Any, Any], error: BorgishError) -> Response[bytes]:
    """Answer an error that was raised on purpose."""
    headers = {name.decode(): value.decode() for name, value in headers_of(error)}
    return _response(problem_of(error), headers)


def on_framework_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what the framework refuses: unknown paths and methods, parameters that do not fit."""
    status = error.status_code
    path, method = request.scope["path"][:PATH_SHOWN], request.scope["method"]
    words, hint = _FRAMEWORK_WORDS.get(status, (_literal(error.detail or HTTPStatus(status).phrase), ""))
    mistakes = _mistakes(request, error.extra)
    if mistakes and not hint:
        hint = "GET /v1/openapi.json lists what it takes"
    handler = request.scope.get("route_handler")
    limit = getattr(handler, "request_max_body_size", None)
    limit = limit if isinstance(limit, int) else JSON_BYTES_MAX
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and handler:
        words, hint = handler.opt.get(TOO_LARGE, (words, hint))
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_first(mistakes) or words.format(path=path, method=method, limit=limit),
        hint=hint,
        mistakes=mistakes,
    )
    return _response(problem, dict(error.headers or {}))


def on_unforeseen_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer what nobody foresaw: without a word of what it was, but with a number found in the log."""
    number = new_instance()
    _log.error("error %s in %s %r", number, request.scope["method"], request.scope["path"], exc_info=error)
    problem = Problem(
        title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
        status=500,
        detail="internal error while handling this request",
        hint=f"The borgmaster's log has details under {number}",
    )
    return _response(problem)


def encode(problem: Problem) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return body and headers of a problem, for code that speaks bare ASGI."""
    body = msgspec.json.encode(problem)
    return body, [(b"content-type", PROBLEM.encode()), (b"content-length", str(len(body)).encode())]


def _response(problem: Problem, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(
        msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM, headers=headers
    )


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _mistakes(request: Request[Any, Any, Any], extra: object) -> tuple[Mistake, ...]:
    """Return what the framework found wrong with parameters."""
    if not isinstance(extra, list):
        return ()
    handler = request.scope.get("route_handler")
    fields = handler.parsed_fn_signature.parameters if handler else {}
    found = [(str(item.get("key", "")), item) for item in extra if isinstance(item, dict)]
    return tuple(
        Mistake(message=str(item.get("message", "is invalid")), path=public_name(key, fields.get(key)))
        for key, item in found
    )


def _first(mistakes: tuple[Mistake, ...]) -> str:
    """Return a sentence that names the first parameter that does not fit; "" without any."""
    if not mistakes:
        return ""
    return f"{mistakes[0].path}: {mistakes[0].message}" if mistakes[0].path else mistakes[0].message
