"""Puts the API together: the routes, authentication before them, and how errors leave."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.types import ExceptionHandlersMap

from borgish.api.auth import Tokens, guard
from borgish.api.errors import on_borgish_error, on_framework_error, on_unforeseen_error
from borgish.api.job_parser import JobParser
from borgish.api.middleware import LOOPBACK_HOSTS, UNLIMITED, AuthMiddleware, OnRefused, nobody_counts
from borgish.api.openapi import show_openapi
from borgish.api.parameters import check_query
from borgish.api.preconditions import check_if_match, send_etag
from borgish.api.rate_limits import Limits
from borgish.api.request import ApiRequest
from borgish.api.routes.access import ACCESS
from borgish.api.routes.apps import APPS
from borgish.api.routes.audit import AUDIT
from borgish.api.routes.authority import AUTHORITY
from borgish.api.routes.budgets import BUDGETS
from borgish.api.routes.checkpoints import CHECKPOINTS
from borgish.api.routes.crons import CRONS
from borgish.api.routes.drains import DRAINS
from borgish.api.routes.exec import COMMANDS
from borgish.api.routes.history import HISTORY
from borgish.api.routes.jobs import JOBS
from borgish.api.routes.machines import MACHINES
from borgish.api.routes.quotas import QUOTAS
from borgish.api.routes.secrets import SECRETS
from borgish.api.routes.status import STATUS
from borgish.api.routes.tasks import TASKS
from borgish.api.routes.watch import WATCH
from borgish.api.services import Services
from borgish.errors import BorgishError
from borgish.vocabulary import JSON_BYTES_MAX

OF_THE_CELL = (*AUTHORITY, *MACHINES, *DRAINS, *QUOTAS, *BUDGETS, *ACCESS, *SECRETS, *AUDIT)
ROUTES = (
    *STATUS,
    *JOBS,
    *APPS,
    *CRONS,
    *TASKS,
    *COMMANDS,
    *OF_THE_CELL,
    *HISTORY,
    *WATCH,
    *CHECKPOINTS,
    show_openapi,
)


def create_app(
    services: Services,
    tokens: Tokens,
    hosts: Iterable[str] | None = LOOPBACK_HOSTS,
    permit: Callable[[], None] = lambda: None,
    limits: Limits = UNLIMITED,
    refused: OnRefused = nobody_counts,
) -> AuthMiddleware:
    """Return the API as an ASGI app. ``hosts`` are the names it goes by (see ``middleware.hosts_of``),
    ``permit`` raises when nothing may be answered any more, ``refused`` is told of each
    request for which the token did not do."""
    return AuthMiddleware(create_routes(services), tokens, hosts, permit, limits, refused)


async def _check(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Let a request through to its handler. One coroutine: what is not one the framework calls in threads."""
    guard(connection, handler)
    check_query(connection, handler)
    check_if_match(connection, handler)


def create_routes(services: Services, handlers: "ExceptionHandlersMap | None" = None) -> Litestar:
    """Return the routes, without authentication before them. ``handlers`` answer errors, by type, that this
    borgmaster answers in another way."""
    return Litestar(
        ROUTES,
        request_class=ApiRequest,
        guards=[_check],
        before_send=[send_etag],
        request_max_body_size=JSON_BYTES_MAX,
        openapi_config=None,
        state=State({"services": services, "parser": JobParser(), "restoring": Counter()}),
        exception_handlers={
            BorgishError: on_borgish_error,
            HTTPException: on_framework_error,
            Exception: on_unforeseen_error,
            **(handlers or {}),
        },
        logging_config=None,
    )
