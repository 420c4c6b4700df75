"""``ETag`` and ``If-Match``: the generation of what was shown, and that which a change is meant for.

Whoever sends back the tag of what they looked at changes that or nothing (RFC 9110, section 13.1.1). Without
``If-Match`` a change is made to whatever is there.
"""

import re
from typing import Any

from litestar.connection import ASGIConnection
from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.handlers import BaseRouteHandler

from borgish.errors import Invalid

ETAG = "borgish.etag"
"""The key in a route's ``opt``: its answers have the tag. In the state of a request: the generation."""
IF_MATCH = "if_match"
"""The key in a route's ``opt``: it changes one thing that has a generation."""
TAG_PATTERN = '"(0|[1-9][0-9]{0,18})"'

_TAG = re.compile(TAG_PATTERN, re.ASCII)


def read_if_match(headers: Headers) -> int | None:
    """Return the generation in ``If-Match``; None when none was sent. Raises Invalid."""
    if "if-match" not in headers:
        return None
    given = ",".join(headers.getall("if-match")).strip()
    if not (found := _TAG.fullmatch(given)):
        raise Invalid(
            "invalid If-Match", 'Send one ETag as it was given, like "812"; "0" where nothing is to be there'
        )
    return int(found[1])


def check_if_match(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise Invalid for a condition on a route that has none, which would be one that does not hold."""
    if "if-match" in connection.headers and not handler.opt.get(IF_MATCH):
        raise Invalid("If-Match is not supported here: this has no generation", "Leave it out")


async def send_etag(message: Any, scope: Any) -> None:
    """Put the tag that was noted into an answer."""
    generation = scope.get("state", {}).get(ETAG)
    if message["type"] == "http.response.start" and generation is not None and message["status"] == 200:
        MutableScopeHeaders.from_message(message)["etag"] = f'"{generation}"'
