"""Queries are read strictly: a name that a route does not know would be a filter that does not filter.

What each route knows is what its handler declares (``api/parameters.py``).
"""

from collections import Counter
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import ParameterKwarg
from litestar.typing import FieldDefinition

from borgish.api.moments import AT
from borgish.errors import Invalid

_FIELDS_MAX = 20


def check_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise Invalid for a query with names that the route does not know, or with one twice."""
    raw = connection.scope["query_string"]
    if not raw:
        return
    given = Counter(_names(raw))
    known = sorted(_query_names(handler))
    for name, times in given.items():
        if name == AT and name not in known:
            raise Invalid("this cannot be asked of the past", "Leave out 'at'")
        if name not in known:
            near = get_close_matches(name, known, 1)
            way_out = f"Its parameters are {', '.join(known)}" if known else "It takes no parameters"
            raise Invalid(
                f"{name[:63]!r} is no parameter of this", f"Did you mean {near[0]}?" if near else way_out
            )
        if times > 1:
            raise Invalid(f"{name} is given more than once", "Keep one of them")


def public_name(field_name: str, field: FieldDefinition | None) -> str:
    """Return the name of a handler's parameter as callers write it."""
    declared = field.kwarg_definition if field else None
    return (declared.name if isinstance(declared, ParameterKwarg) else None) or field_name


def _names(raw: bytes) -> list[str]:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except UnicodeDecodeError:
        raise Invalid("the query is not UTF-8", "Encode it as UTF-8, and each byte as %XX") from None
    except ValueError:
        raise Invalid(f"the query has more than {_FIELDS_MAX} parameters", "Send fewer") from None
    return [name for name, _ in pairs]


def _query_names(handler: BaseRouteHandler) -> set[str]:
    parameters = handler.parsed_fn_signature.parameters
    declared = {
        public_name(name, field)
        for name, field in parameters.items()
        if isinstance(field.kwarg_definition, ParameterKwarg) and field.kwarg_definition.param_type == "query"
    }
    return declared | {AT} if handler.opt.get(AT) else declared
