"""The one place that draws names nobody can guess."""

import secrets
import uuid

TOKEN_PREFIX = "bgt_"  # noqa: S105 - a mark by which secret scanners find our tokens, not a secret


def new_request_id() -> str:
    """Return an id for one mutation, the same over all its retries."""
    return uuid.uuid4().hex


def new_token() -> str:
    """Return a bearer token of 256 bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def new_instance() -> str:
    """Return a name for one run of a daemon, to tell it from the run before."""
    return secrets.token_hex(8)
