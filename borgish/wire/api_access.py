"""What the API answers about users, groups, tokens, invitations and the audit log; see ``api``."""

from typing import Annotated

import msgspec

from borgish.vocabulary import NAME_PATTERN
from borgish.wire.api import AsOf, Page, documented

TOKEN_SECONDS_MAX = 10 * 365 * 86400.0

Name = Annotated[str, msgspec.Meta(pattern=f"^{NAME_PATTERN}$", max_length=63)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
RoleName = Annotated[str, msgspec.Meta(pattern="^(reader|user|operator|admin)$", max_length=8)]
Grant = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9][a-zA-Z0-9:/._-]*$", max_length=256)]
_BASE64 = "^([A-Za-z0-9+/]{4})+([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=1000)]
Grants = Annotated[tuple[Grant, ...], msgspec.Meta(max_length=100)]


class UserView(msgspec.Struct, frozen=True):
    """Who may have jobs. ``grants``: what is granted beyond the bands batch and free."""

    name: str
    since: str
    grants: tuple[str, ...]
    groups: tuple[str, ...]
    tokens: int


class UserList(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[UserView, ...]
    page: Page
    as_of: AsOf | None = None


class GroupView(msgspec.Struct, frozen=True):
    """Users who have jobs together."""

    name: str
    since: str
    members: tuple[str, ...]
    grants: tuple[str, ...]


class GroupList(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[GroupView, ...]
    page: Page
    as_of: AsOf | None = None


class MembersRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Users to put into a group, and to take out of it."""

    add: Names = ()
    remove: Names = ()


class GrantsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to grant, and to take back: the name of a band, or of a privilege like ``container-root``."""

    add: Grants = ()
    remove: Grants = ()


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token of which the cell is told the SHA-256 alone, in hex: whoever makes it draws 256 random bits.

    ``for_seconds`` null: as long as is usual for the role; 0: without an end. ``bands``: it may submit to no
    others; empty: to all that its user may.
    """

    sha256: Sha256
    user: Name
    role: RoleName
    bands: Names = ()
    for_seconds: Annotated[float, msgspec.Meta(ge=0, le=TOKEN_SECONDS_MAX)] | None = None
    note: Annotated[str, msgspec.Meta(max_length=200)] = ""


class TokenView(msgspec.Struct, frozen=True):
    """A token, by its id; it is shown to nobody. Times are "" where there is none."""

    id: str
    user: str
    role: str
    bands: tuple[str, ...]
    created_at: str
    created_by: str
    expires_at: str
    used_at: str  # to the hour
    note: str


class TokenList(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[TokenView, ...]
    page: Page
    as_of: AsOf | None = None


class InvitationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lets machines join: one of this name, or so many of any. ``sha256`` is that of a secret of 256 bits."""

    sha256: Sha256
    machine: Annotated[str, documented(pattern=f"^({NAME_PATTERN})?$", maxLength=63)] = ""
    uses: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    for_seconds: Annotated[float, msgspec.Meta(gt=0, le=24 * 3600)] = 1800.0


class InvitationView(msgspec.Struct, frozen=True):
    """An invitation. ``machine`` is "" where it is for any name that is not in the cell."""

    id: str
    machine: str
    uses: int
    created_at: str
    created_by: str
    expires_at: str


class InvitationList(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[InvitationView, ...]
    page: Page
    as_of: AsOf | None = None


class SecretRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a secret is worth, in base64."""

    value: Annotated[
        bytes, msgspec.Meta(min_length=1, max_length=32 * 1024, extra_json_schema={"pattern": _BASE64})
    ]

    def __repr__(self) -> str:
        return "SecretRequest(***)"


class SecretView(msgspec.Struct, frozen=True):
    """A secret; what it is worth is shown to nobody. ``revoked_machines`` were given it and are out of the
    cell: it should be set anew."""

    user: str
    name: str
    size_bytes: int
    set_at: str
    set_by: str
    jobs: tuple[str, ...]  # that are not dead and use it
    revoked_machines: tuple[str, ...]


class SecretList(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[SecretView, ...]
    page: Page
    as_of: AsOf | None = None


class AuditView(msgspec.Struct, frozen=True):
    """One entry of the audit log. ``position``: of the journal entry that it led to, 0 for none."""

    number: int
    at: str
    user: str
    role: str
    token: str
    source: str
    action: str
    object: str
    outcome: str
    count: int
    position: int
    digest: str


class AuditList(msgspec.Struct, frozen=True):
    """In order; ``page.next`` is the ``before`` of the page with older ones."""

    items: tuple[AuditView, ...]
    page: Page = Page()


class AuditVerdict(msgspec.Struct, frozen=True):
    """Whether the chain of the audit log holds; ``trouble`` says what is wrong. ``last`` is its latest entry,
    for the next ``AuditVerifyRequest``; "" where there is none."""

    entries: int
    holds: bool
    trouble: str
    first_at: str
    last_at: str
    last: str = ""


class AuditVerifyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Has the audit log verified. ``known`` is an entry that must be in it, as number:digest, from an earlier
    verdict: without one a truncated log is not noticed."""

    known: Annotated[str, msgspec.Meta(pattern="^([1-9][0-9]{0,17}:[0-9a-f]{64})?$")] = ""
