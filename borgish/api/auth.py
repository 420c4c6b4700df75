"""Who may do what: tokens stand for principals, and every route declares its policy.

Nothing is allowed that a policy does not name; a test walks the routes and fails for one without. What a role
may do is here; what depends on the cell, as bands and grants, is in ``cell.authorization``.
"""

import hmac
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from borgish.cell.access.model import Principal, Role, principal_of
from borgish.cell.model import Cell
from borgish.clock import Clock
from borgish.credentials import MEMBER, poll_token
from borgish.errors import Forbidden, Unauthenticated, Unreachable

POLICY = "policy"  # the key in a route's ``opt``


class Policy(StrEnum):
    """Who may use a route."""

    READ = "read"  # whoever may see the cell
    SUBMIT = "submit"  # who may have jobs; the core compares the user in the job file
    OWN = "own"  # who owns the job in the path
    OPERATE = "operate"  # who looks after machines
    SELF = "self"  # whoever has a token, about its own; admins about any
    ADMIN = "admin"
    JOIN = "join"  # machines that ask to be in the cell
    OPEN = "open"  # everybody, without a token: it is answered before the door


ALLOWED: dict[Policy, frozenset[Role]] = {
    Policy.READ: frozenset({Role.ADMIN, Role.OPERATOR, Role.USER, Role.READER}),
    Policy.SUBMIT: frozenset({Role.ADMIN, Role.USER}),
    Policy.OWN: frozenset({Role.ADMIN, Role.USER}),
    Policy.SELF: frozenset({Role.ADMIN, Role.OPERATOR, Role.USER, Role.READER}),
    Policy.OPERATE: frozenset({Role.ADMIN, Role.OPERATOR}),
    Policy.ADMIN: frozenset({Role.ADMIN}),
    Policy.JOIN: frozenset({Role.JOIN}),
    Policy.OPEN: frozenset(Role),
}


class Tokens(Protocol):
    """Knows whom a token stands for."""

    def principal(self, token: str) -> Principal | None:
        """Return who a token stands for; None for nobody."""
        ...


class CellTokens:
    """The tokens of a cell, as it is at the moment, and those by which its machines prove who they are.

    ``cell`` returns None while it is not known; ``secret`` is what the tokens of machines derive from.
    """

    def __init__(self, cell: Callable[[], Cell | None], secret: str, clock: Clock) -> None:
        self._cell, self._secret, self._clock = cell, secret, clock
        self._used: dict[str, float] = {}

    def principal(self, token: str) -> Principal | None:
        """Return who a token stands for; None for nobody. Raises Unreachable while nobody can tell."""
        cell, at = self._cell(), self._clock.now().wall
        if cell is None:
            raise Unreachable("this borgmaster does not know the cell yet", "ask again in a moment")
        if token.startswith(MEMBER):
            return self._member(cell, token)
        found = principal_of(cell.access, token, at)
        if found is not None:
            self._used[found.token] = at
        return found

    def take_used(self) -> dict[str, float]:
        """Return when tokens were used since the last call, by digest, in seconds since 1970."""
        used, self._used = self._used, {}
        return used

    def _member(self, cell: Cell, token: str) -> Principal | None:
        """Return the machine that a token is of. Only of one in the cell: who was removed is invited anew.
        One that was revoked is told so, when it wants to join."""
        name, _, proof = token.removeprefix(MEMBER).partition(".")
        there = cell.machines.get(name)
        if there is None:
            return None
        right = poll_token(self._secret, name, there.admission)
        return Principal(name, Role.JOIN, machine=name) if hmac.compare_digest(right, proof) else None


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
    """Raise Forbidden unless the principal may; ``owner`` is the user or group whose job it is about."""
    if principal.role not in ALLOWED[policy]:
        needed = " or ".join(sorted(ALLOWED[policy]))
        raise Forbidden(f"a token of role {principal.role} may not do this", f"It needs the role {needed}")
    if policy is Policy.OWN:
        check_owner(principal, owner)


def check_owner(principal: Principal, owner: str) -> None:
    """Raise Forbidden when somebody acts on what is neither theirs nor of a group that they are in."""
    if not may_see_inside(principal, owner):
        raise Forbidden(
            f"{principal.name} may not act on the jobs of {owner}",
            "Ask that user, or use an admin's token; into a group an admin puts its members",
        )


def may_see_inside(principal: Principal, owner: str) -> bool:
    """Return whether a principal may see environments and outputs of what belongs to a user or a group."""
    if principal.role == Role.ADMIN:
        return True
    return principal.role == Role.USER and principal.owns(owner)
