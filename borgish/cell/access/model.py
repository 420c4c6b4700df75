"""Who may do what in a cell: users and groups with their grants, tokens, invitations of machines; and the
secrets of their jobs. Pure.

All of it is journalled and kept in checkpoints: tokens as SHA-256 digests, secrets sealed. It is no part of
what a rollback restores and of what is shown of the past: a token that was revoked stays so, whatever else
comes back. Borg calls the right to do something a capability (section 2.5); this is role-based access control
(RBAC) with fixed roles, and *grants* for what a user may have beyond the defaults.
"""

from enum import StrEnum

import msgspec

from borgish.join_token import digest_of
from borgish.vocabulary import Band

DEFAULT_BANDS = frozenset({Band.BATCH, Band.FREE})
"""What everybody may submit to."""
GRANTABLE_BANDS = DEFAULT_BANDS | {Band.PRODUCTION}
"""Monitoring preempts everybody and is never preempted: it is for admins alone."""
BAND_GRANT = "band:"
"""What the name of a grant begins with that is about a band."""
ID_CHARACTERS = 12


class Role(StrEnum):
    """What a token may be. No role implies another."""

    ADMIN = "admin"
    OPERATOR = "operator"  # looks after machines; sees neither environments nor secrets
    USER = "user"  # has jobs
    READER = "reader"
    JOIN = "join"  # a machine that asks to be in the cell


ROLES_OF_PEOPLE = (Role.READER, Role.USER, Role.OPERATOR, Role.ADMIN)


class User(msgspec.Struct, frozen=True):
    """Somebody who may have jobs. ``grants`` are names like ``band:production`` or ``container-root``."""

    name: str
    at: float = 0.0  # since when, in seconds since 1970
    grants: tuple[str, ...] = ()


class Group(msgspec.Struct, frozen=True):
    """Users who have jobs together: those that belong to it, and by its grants."""

    name: str
    members: tuple[str, ...] = ()
    at: float = 0.0
    grants: tuple[str, ...] = ()


class Token(msgspec.Struct, frozen=True):
    """What the cell knows of a token. Times are seconds since 1970."""

    sha256: str  # of the token, in hex
    user: str
    role: Role
    bands: tuple[Band, ...] = ()  # it may submit to no others; empty: all that its user may
    at: float = 0.0
    by: str = ""
    expires_at: float = 0.0  # 0: never
    note: str = ""

    @property
    def id(self) -> str:
        """By what people name it: the first characters of the digest."""
        return self.sha256[:ID_CHARACTERS]

    def is_over(self, at: float) -> bool:
        """Return whether it stands for nobody any more."""
        return bool(self.expires_at) and at >= self.expires_at


class Invitation(msgspec.Struct, frozen=True):
    """Lets machines into the cell, ``uses`` more of them. Times are seconds since 1970.

    One that is used up is kept until its time is over: a machine whose answer was lost asks once more.
    """

    sha256: str  # of its secret, in hex
    machine: str = ""  # the only name it is for; "" for any that is not in the cell
    uses: int = 1
    at: float = 0.0
    by: str = ""
    expires_at: float = 0.0

    @property
    def id(self) -> str:
        """By what people name it."""
        return self.sha256[:ID_CHARACTERS]

    def is_over(self, at: float) -> bool:
        """Return whether its time is over."""
        return at >= self.expires_at


class Secret(msgspec.Struct, frozen=True):
    """A value that the jobs of a user or a group may have, sealed (``borgish.sealing``). Its version is the
    position of the journal at which it was set. ``machines``: those that were given this version;
    ``revoked_machines``: those of them that were revoked afterwards, whatever became of them since."""

    owner: str
    name: str
    sealed: bytes
    size_bytes: int
    version: int = 0
    at: float = 0.0  # seconds since 1970
    by: str = ""
    machines: tuple[str, ...] = ()
    revoked_machines: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return ``owner/name``."""
        return secret_key(self.owner, self.name)


def secret_key(owner: str, name: str) -> str:
    """Return the key of a secret, by whose it is and its name."""
    return f"{owner}/{name}"


class Access(msgspec.Struct):
    """All of it. The digests of tokens and invitations are the keys."""

    users: dict[str, User] = {}
    groups: dict[str, Group] = {}
    tokens: dict[str, Token] = {}
    invitations: dict[str, Invitation] = {}
    used: dict[str, float] = {}  # when a token was last used, by digest; noted now and then
    secrets: dict[str, Secret] = {}  # by key
    version: int = 0  # grows with each change by which a token may stand for somebody else

    def groups_of(self, user: str) -> frozenset[str]:
        """Return the groups that a user is in."""
        # A copy: a standby reads this while another thread follows the leader.
        return frozenset(name for name, group in list(self.groups.items()) if user in group.members)

    def grants_of(self, owner: str) -> tuple[str, ...]:
        """Return what a user or a group was granted."""
        found = self.users.get(owner) or self.groups.get(owner)
        return found.grants if found else ()


class Principal(msgspec.Struct, frozen=True):
    """Who asks. ``bands``: its token may submit to no others; empty: to all that its user may."""

    name: str
    role: str
    groups: frozenset[str] = frozenset()
    bands: tuple[Band, ...] = ()
    token: str = ""  # the digest of the token, or of the invitation
    machine: str = ""  # with the role JOIN: the only name it may join under

    def owns(self, owner: str) -> bool:
        """Return whether it may act on what belongs to this user or group, by who it is and not by role."""
        return owner == self.name or owner in self.groups


class Asker(msgspec.Struct, frozen=True):
    """A principal, and the address that it asks from."""

    principal: Principal
    source: str = ""


HOST = "host"
BY_HOST = Asker(Principal(HOST, HOST))
"""Whoever may write to the state folder of a master, by the files that it takes over from there (S25)."""


def principal_of(access: Access, secret: str, at: float) -> Principal | None:
    """Return who a token or an invitation stands for at a time in seconds since 1970; None for nobody.

    Looked up by digest: how long that takes tells of a digest at most, which leads to no token.
    """
    digest = digest_of(secret)
    token = access.tokens.get(digest)
    if token is not None:
        if token.is_over(at):
            return None
        return Principal(token.user, token.role, access.groups_of(token.user), token.bands, digest)
    invitation = access.invitations.get(digest)
    if invitation is not None and not invitation.is_over(at):
        return Principal("invitation", Role.JOIN, token=digest, machine=invitation.machine)
    return None


def bands_of(access: Access, principal: Principal, owner: str) -> frozenset[Band]:
    """Return in which bands a principal may have tasks that belong to a user or a group."""
    if principal.role == Role.ADMIN:
        allowed = frozenset(Band)
    else:
        granted = grants_of(access, principal, owner)
        allowed = DEFAULT_BANDS | {band for band in GRANTABLE_BANDS if f"{BAND_GRANT}{band}" in granted}
    return allowed & frozenset(principal.bands) if principal.bands else allowed


def grants_of(access: Access, principal: Principal, owner: str) -> frozenset[str]:
    """Return what a principal was granted, by itself, or by the group that the tasks belong to."""
    of_group = access.grants_of(owner) if owner in principal.groups else ()
    return frozenset((*access.grants_of(principal.name), *of_group))
