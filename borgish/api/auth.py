"""Who may do what: tokens stand for principals, and every route declares its policy.

A token is kept only as its SHA-256. Nothing is allowed that a policy does not name; a test walks the routes
and fails for one without. Borg calls such privileges capabilities (section 2.5); this is role-based access
control (RBAC), with roles that are fixed: no ACL beside them, and no service account for tasks.
"""

import hashlib
import hmac
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from borgish.api.services import Principal
from borgish.errors import Forbidden, Unauthenticated, UnsafeConfiguration

POLICY = "policy"  # the key in a route's ``opt``


class Role(StrEnum):
    """What a token may be. No role implies another."""

    ADMIN = "admin"
    USER = "user"
    READER = "reader"
    JOIN = "join"


class Policy(StrEnum):
    """Who may use a route."""

    READ = "read"  # whoever may see the cell
    SUBMIT = "submit"  # who may have jobs; the handler compares the user in the job file
    OWN = "own"  # who owns the job in the path
    ADMIN = "admin"
    JOIN = "join"  # machines that ask to be in the cell


ALLOWED: dict[Policy, frozenset[Role]] = {
    Policy.READ: frozenset({Role.ADMIN, Role.USER, Role.READER}),
    Policy.SUBMIT: frozenset({Role.ADMIN, Role.USER}),
    Policy.OWN: frozenset({Role.ADMIN, Role.USER}),
    Policy.ADMIN: frozenset({Role.ADMIN}),
    Policy.JOIN: frozenset({Role.ADMIN, Role.JOIN}),
}


class Tokens:
    """The tokens of a cell: SHA-256 (hex) -> principal."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = dict(principals)

    def change(self, new: "Tokens") -> list[str]:
        """Become what another reading of the file holds; return what differs, a line for each token."""
        old, self._principals = self._principals, new._principals
        return [
            f"tokens: {key[:8]}...: {_shown(old.get(key))} -> {_shown(self._principals.get(key))}"
            for key in sorted(old.keys() | self._principals.keys())
            if old.get(key) != self._principals.get(key)
        ]

    @classmethod
    def read(cls, path: Path) -> "Tokens":
        """Read ``tokens.toml``: a table per token, named by its SHA-256, with ``name`` and ``role``.

        Raises UnsafeConfiguration for a file that cannot be read or understood.
        """
        try:
            tables = tomllib.loads(path.read_text("utf-8"))
            return cls({key.lower(): _principal(key, table) for key, table in tables.items()})
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise UnsafeConfiguration(
                f"the tokens in {path} cannot be read: {error}",
                'Write a table for each: [<sha256 of the token>], name = "ann", role = "user"',
            ) from error

    def principal(self, token: str) -> Principal | None:
        """Return who a token stands for. Takes as long whichever token it is."""
        digest = token_digest(token)
        found = None
        for known, principal in self._principals.items():
            if hmac.compare_digest(known, digest):
                found = principal
        return found


def _shown(principal: Principal | None) -> str:
    return f"{principal.role} {principal.name}" if principal else "(none)"


def token_digest(token: str) -> str:
    """Return what is kept of a token: its SHA-256, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def _principal(key: str, table: object) -> Principal:
    if len(key) != 64 or not set(key.lower()) <= set("0123456789abcdef"):
        raise ValueError(f"'{key[:8]}...' is not a SHA-256 digest in hex")
    principal = msgspec.convert(table, Principal)
    if principal.role not in set(Role):
        raise ValueError(f"unknown role '{principal.role}'; known roles are {', '.join(Role)}")
    return principal


def bearer(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the token of a request. Raises Unauthenticated when there is none."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) == 1:
        scheme, _, token = given[0].decode("latin-1").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise Unauthenticated("a token is required", "Send it as 'Authorization: Bearer TOKEN'")


def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Let a request through to its handler when the route's policy says so. Raises Forbidden."""
    policy = handler.opt.get(POLICY)
    if policy is None:  # the framework's own answers to OPTIONS
        raise Forbidden("this is not allowed", "GET /v1/openapi.json lists what there is")
    check(policy, connection.user, connection.path_params.get("user", ""))


def check(policy: Policy, principal: Principal, owner: str) -> None:
    """Raise Forbidden unless the principal may; ``owner`` is the user of the job it is about."""
    if principal.role not in ALLOWED[policy]:
        needed = " or ".join(sorted(ALLOWED[policy]))
        raise Forbidden(f"a token of role {principal.role} may not do this", f"It needs the role {needed}")
    if policy is Policy.OWN:
        check_owner(principal, owner)


def check_owner(principal: Principal, owner: str) -> None:
    """Raise Forbidden when a user acts on another user's job."""
    if principal.role == Role.USER and principal.name != owner:
        raise Forbidden(
            f"{principal.name} may not act on the jobs of {owner}", "Ask that user, or use an admin's token"
        )
