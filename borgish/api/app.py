"""Puts the API together: the routes, the door before them, and how errors leave."""

from collections.abc import Callable, Iterable

from litestar import Litestar
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from borgish.api.archive import ARCHIVE
from borgish.api.asked import Asked
from borgish.api.auth import Tokens, guard
from borgish.api.checkpoints import CHECKPOINTS
from borgish.api.diff import DIFF
from borgish.api.door import LOOPBACK_HOSTS, UNLIMITED, Door
from borgish.api.errors import on_borgish_error, on_framework_error, on_unforeseen_error
from borgish.api.events import EVENTS
from borgish.api.history import HISTORY
from borgish.api.jobs import JOBS
from borgish.api.limits import Limits
from borgish.api.machines import MACHINES
from borgish.api.openapi import show_openapi
from borgish.api.parser import Parser
from borgish.api.queries import check_query
from borgish.api.quotas import QUOTAS
from borgish.api.rollback import ROLLBACK
from borgish.api.services import Services
from borgish.api.status import STATUS
from borgish.api.tasks import TASKS
from borgish.api.watch import WATCH
from borgish.errors import BorgishError
from borgish.vocabulary import JSON_BYTES_MAX

ROUTES = (
    *(
        *STATUS,
        *JOBS,
        *TASKS,
        *MACHINES,
        *QUOTAS,
        *EVENTS,
        *HISTORY,
        *DIFF,
        *WATCH,
        *CHECKPOINTS,
        *ROLLBACK,
        *ARCHIVE,
    ),
    show_openapi,
)


def create_app(
    services: Services,
    tokens: Tokens,
    hosts: Iterable[str] | None = LOOPBACK_HOSTS,
    permit: Callable[[], None] = lambda: None,
    limits: Limits = UNLIMITED,
) -> Door:
    """Return the API as an ASGI app. ``hosts`` are the names it goes by (see ``door.hosts_of``), ``permit``
    raises when nothing may be answered any more."""
    return Door(create_routes(services), tokens, hosts, permit, limits)


def create_routes(services: Services) -> Litestar:
    """Return what is behind the door."""
    return Litestar(
        ROUTES,
        request_class=Asked,
        guards=[guard, check_query],
        request_max_body_size=JSON_BYTES_MAX,
        openapi_config=None,
        state=State({"services": services, "parser": Parser()}),
        exception_handlers={
            BorgishError: on_borgish_error,
            HTTPException: on_framework_error,
            Exception: on_unforeseen_error,
        },
        logging_config=None,
    )
